/*
 * bench/load/sqlite.c
 *	  Contender "sqlite": a BLOB column of a table in the file "sqlite.db".
 *
 * Journal in WAL mode, synchronous = FULL: each commit syncs the WAL.  Pages of 16 kB.  Each client
 * has a connection of its own.  Parts are read and overwritten by incremental I/O.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "load.h"

/* Pages of WAL after which a commit copies them to the database. */
#define CHECKPOINT_PAGES (256 * 1024 / 16)

typedef struct Sqlite
{
	sqlite3    *database;
	sqlite3_stmt *store;
	sqlite3_stmt *replace;
	sqlite3_stmt *read;
	sqlite3_stmt *size;
	sqlite3_stmt *splice;
	char	   *buffer;			/* for parts that are read */
} Sqlite;

static void __attribute__((format(printf, 2, 3)))
command(Sqlite *sqlite, const char *format, ...)
{
	char		text[1024];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (sqlite3_exec(sqlite->database, text, NULL, NULL, NULL) != SQLITE_OK)
		fail("sqlite: %s: %s", text, sqlite3_errmsg(sqlite->database));
}

static sqlite3_stmt *__attribute__((format(printf, 2, 3)))
prepare(Sqlite *sqlite, const char *format, ...)
{
	sqlite3_stmt *statement;
	char		text[1024];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (sqlite3_prepare_v3(sqlite->database, text, -1, SQLITE_PREPARE_PERSISTENT, &statement,
						   NULL) != SQLITE_OK)
		fail("sqlite: %s", sqlite3_errmsg(sqlite->database));
	return statement;
}

static void
sqlite_open(Session *session)
{
	Sqlite	   *sqlite = calloc(1, sizeof(Sqlite));
	char		path[4096];

	snprintf(path, sizeof(path), "%s/sqlite.db", options.directory);
	if (sqlite3_open(path, &sqlite->database) != SQLITE_OK)
		fail("sqlite: %s: %s", path, sqlite3_errmsg(sqlite->database));
	sqlite3_busy_timeout(sqlite->database, 600000);
	command(sqlite, "PRAGMA page_size = 16384");
	command(sqlite, "PRAGMA journal_mode = WAL");
	command(sqlite, "PRAGMA synchronous = FULL");
	command(sqlite, "PRAGMA wal_autocheckpoint = %d", CHECKPOINT_PAGES);
	command(sqlite, "PRAGMA cache_size = %ld", -options.buffer_mb * 1024 / options.clients);
	command(sqlite, "CREATE TABLE IF NOT EXISTS %s (id INTEGER PRIMARY KEY, v BLOB)",
			options.prefix);
	sqlite->store = prepare(sqlite, "INSERT INTO %s VALUES (?1, ?2)", options.prefix);
	sqlite->replace = prepare(sqlite, "UPDATE %s SET v = ?2 WHERE id = ?1", options.prefix);
	sqlite->read = prepare(sqlite, "SELECT v FROM %s WHERE id = ?1", options.prefix);
	sqlite->size = prepare(sqlite, "SELECT length(v) FROM %s WHERE id = ?1", options.prefix);
	/* A concatenation is text, in which all bytes are kept. */
	sqlite->splice = prepare(sqlite, "UPDATE %s SET v = CAST(substr(v, 1, ?3) || ?2 || "
							 "substr(v, ?4) AS BLOB) WHERE id = ?1", options.prefix);
	sqlite->buffer = malloc(largest_bytes());
	session->state = sqlite;
}

static void
sqlite_close(Session *session)
{
	Sqlite	   *sqlite = session->state;

	sqlite3_finalize(sqlite->store);
	sqlite3_finalize(sqlite->replace);
	sqlite3_finalize(sqlite->read);
	sqlite3_finalize(sqlite->size);
	sqlite3_finalize(sqlite->splice);
	sqlite3_close(sqlite->database);
}

static void
sqlite_begin(Session *session)
{
	command(session->state, "BEGIN IMMEDIATE");
}

static void
sqlite_commit(Session *session)
{
	command(session->state, "COMMIT");
}

static void
change(Sqlite *sqlite, sqlite3_stmt *statement, long id, const char *value, long size_bytes)
{
	if (sqlite3_bind_int64(statement, 1, id) != SQLITE_OK ||
		sqlite3_bind_blob64(statement, 2, value, size_bytes, SQLITE_STATIC) != SQLITE_OK ||
		sqlite3_step(statement) != SQLITE_DONE || sqlite3_changes(sqlite->database) != 1)
		fail("sqlite: value %ld: %s", id, sqlite3_errmsg(sqlite->database));
	sqlite3_reset(statement);
}

static void
sqlite_store(Session *session, long id, const char *value, long size_bytes)
{
	Sqlite	   *sqlite = session->state;

	change(sqlite, sqlite->store, id, value, size_bytes);
}

static void
sqlite_replace(Session *session, long id, const char *value, long size_bytes)
{
	Sqlite	   *sqlite = session->state;

	change(sqlite, sqlite->replace, id, value, size_bytes);
}

/* Returns the size; the content is in memory then. */
static long
sqlite_read(Session *session, long id)
{
	Sqlite	   *sqlite = session->state;
	long		size_bytes = -1;

	if (sqlite3_bind_int64(sqlite->read, 1, id) == SQLITE_OK &&
		sqlite3_step(sqlite->read) == SQLITE_ROW && sqlite3_column_blob(sqlite->read, 0) != NULL)
		size_bytes = sqlite3_column_bytes(sqlite->read, 0);
	sqlite3_reset(sqlite->read);
	return size_bytes;
}

static long
sqlite_size(Session *session, long id)
{
	Sqlite	   *sqlite = session->state;
	long		size_bytes;

	if (sqlite3_bind_int64(sqlite->size, 1, id) != SQLITE_OK ||
		sqlite3_step(sqlite->size) != SQLITE_ROW)
		fail("sqlite: value %ld: %s", id, sqlite3_errmsg(sqlite->database));
	size_bytes = sqlite3_column_int64(sqlite->size, 0);
	sqlite3_reset(sqlite->size);
	return size_bytes;
}

static sqlite3_blob *
open_blob(Sqlite *sqlite, long id, bool writes)
{
	sqlite3_blob *blob;

	if (sqlite3_blob_open(sqlite->database, "main", options.prefix, "v", id, writes,
						  &blob) != SQLITE_OK)
		fail("sqlite: value %ld: %s", id, sqlite3_errmsg(sqlite->database));
	return blob;
}

/* Ends the transaction, too. */
static void
close_blob(Sqlite *sqlite, sqlite3_blob *blob)
{
	if (sqlite3_blob_close(blob) != SQLITE_OK)
		fail("sqlite: %s", sqlite3_errmsg(sqlite->database));
}

static long
sqlite_read_part(Session *session, long id, long offset, long size_bytes)
{
	Sqlite	   *sqlite = session->state;
	sqlite3_blob *blob = open_blob(sqlite, id, false);
	long		left = sqlite3_blob_bytes(blob) - offset;
	long		wanted = size_bytes < left ? size_bytes : left;

	if (sqlite3_blob_read(blob, sqlite->buffer, (int) wanted, (int) offset) != SQLITE_OK)
		fail("sqlite: value %ld: %s", id, sqlite3_errmsg(sqlite->database));
	close_blob(sqlite, blob);
	return wanted;
}

/* One transaction: length() of ten values, or their beginnings by incremental I/O. */
static long
sqlite_metadata(Session *session, const long *ids)
{
	Sqlite	   *sqlite = session->state;
	long		sum = 0;

	command(sqlite, "BEGIN");
	for (int i = 0; i < METADATA_VALUES; i++)
	{
		if (options.asked == ASKED_PREFIX &&
			sqlite_read_part(session, ids[i], 0, PREFIX_BYTES) != PREFIX_BYTES)
			fail("sqlite: value %ld is too short", ids[i]);
		sum += sqlite_size(session, ids[i]);
	}
	command(sqlite, "COMMIT");
	return sum;
}

static void
sqlite_write_part(Session *session, long id, long offset, const char *piece, long size_bytes)
{
	Sqlite	   *sqlite = session->state;
	sqlite3_blob *blob = open_blob(sqlite, id, true);

	if (sqlite3_blob_write(blob, piece, (int) size_bytes, (int) offset) != SQLITE_OK)
		fail("sqlite: value %ld: %s", id, sqlite3_errmsg(sqlite->database));
	close_blob(sqlite, blob);
}

static void
sqlite_splice(Session *session, long id, long offset, long removed_bytes, const char *piece,
			  long size_bytes)
{
	Sqlite	   *sqlite = session->state;

	if (sqlite3_bind_int64(sqlite->splice, 3, offset) != SQLITE_OK ||
		sqlite3_bind_int64(sqlite->splice, 4, offset + removed_bytes + 1) != SQLITE_OK)
		fail("sqlite: %s", sqlite3_errmsg(sqlite->database));
	change(sqlite, sqlite->splice, id, piece, size_bytes);
}

/* One INSERT. */
static void
sqlite_fill(Session *session, const char *payload, long value_count)
{
	Sqlite	   *sqlite = session->state;
	sqlite3_stmt *statement = prepare(sqlite, "INSERT INTO %s WITH RECURSIVE n(i) AS "
									  "(SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %ld) "
									  "SELECT i, substr(?1, 1 + i * 4099 %% %d, %ld) FROM n",
									  options.prefix, value_count - 1, SHIFT_BYTES,
									  options.size_bytes);

	if (sqlite3_bind_blob64(statement, 1, payload, options.size_bytes + SHIFT_BYTES,
							SQLITE_STATIC) != SQLITE_OK ||
		sqlite3_step(statement) != SQLITE_DONE ||
		sqlite3_changes(sqlite->database) != value_count)
		fail("sqlite: values are missing: %s", sqlite3_errmsg(sqlite->database));
	sqlite3_finalize(statement);
}

static long
sqlite_scan(Session *session)
{
	Sqlite	   *sqlite = session->state;
	sqlite3_stmt *statement = prepare(sqlite, "SELECT id, v FROM %s", options.prefix);
	long		count = 0;
	int			result;

	while ((result = sqlite3_step(statement)) == SQLITE_ROW)
		count += sqlite3_column_blob(statement, 1) != NULL &&
			sqlite3_column_bytes(statement, 1) == options.size_bytes;
	if (result != SQLITE_DONE)
		fail("sqlite: %s", sqlite3_errmsg(sqlite->database));
	sqlite3_finalize(statement);
	return count;
}

/* The file gets short, so that the next round extends it. */
static void
sqlite_empty(Session *session)
{
	command(session->state, "DELETE FROM %s", options.prefix);
	command(session->state, "VACUUM");
	command(session->state, "PRAGMA wal_checkpoint(TRUNCATE)");
}

/* The WAL keeps its size, as the servers' does, and is written from its beginning. */
static void
sqlite_settle(Session *session)
{
	command(session->state, "PRAGMA wal_checkpoint(RESTART)");
}

const Driver sqlite_driver = {
	.open = sqlite_open,
	.close = sqlite_close,
	.begin = sqlite_begin,
	.commit = sqlite_commit,
	.store = sqlite_store,
	.replace = sqlite_replace,
	.read = sqlite_read,
	.fill = sqlite_fill,
	.scan = sqlite_scan,
	.size = sqlite_size,
	.metadata = sqlite_metadata,
	.read_part = sqlite_read_part,
	.write_part = sqlite_write_part,
	.splice = sqlite_splice,
	.empty = sqlite_empty,
	.settle = sqlite_settle,
};
