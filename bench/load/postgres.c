/*
 * bench/load/postgres.c
 *	  Contenders in PostgreSQL, over libpq: "blobstate", "deferred", "bytea", "lo", "receive",
 *	  "hash", "log", "behind", "direct".
 *
 * blobstate, deferred (the same, with digests that are computed when they are asked for) and bytea
 * (STORAGE EXTERNAL) are columns of tables; lo is a table that refers to large objects.  receive
 * sends the value to a statement that discards it; that of hash computes its digest.  The statement
 * of log hashes the value and writes it to the WAL, which the commit flushes, but stores nothing.
 * behind does the same, with a row for each value, while behind.c writes.  direct keeps digests in
 * a table; its function (../direct.c) hashes the value and writes it to a file; with wal_level
 * above minimal the value goes to the WAL as well.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-fe.h>

#include "load.h"

static PGresult *
expect(PGconn *connection, PGresult *result, ExecStatusType status)
{
	if (PQresultStatus(result) != status)
		fail("%s", PQerrorMessage(connection));
	return result;
}

static void __attribute__((format(printf, 2, 3)))
command(PGconn *connection, const char *format, ...)
{
	char		text[4096];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	PQclear(expect(connection, PQexec(connection, text), PGRES_COMMAND_OK));
}

static void __attribute__((format(printf, 3, 4)))
prepare(PGconn *connection, const char *name, const char *format, ...)
{
	char		text[1024];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	PQclear(expect(connection, PQprepare(connection, name, text, 0, NULL), PGRES_COMMAND_OK));
}

/* Execute a prepared statement with an id, and a value and an offset if there are any. */
static PGresult *
execute(Session *session, const char *statement, long id, const char *value, long size_bytes,
		int count, long offset)
{
	int64_t		id_wire = (int64_t) htobe64((uint64_t) id);
	int64_t		offset_wire = (int64_t) htobe64((uint64_t) offset);
	const char *values[3] = {(const char *) &id_wire, value, (const char *) &offset_wire};
	int			lengths[3] = {sizeof(id_wire), (int) size_bytes, sizeof(offset_wire)};
	int			formats[3] = {1, 1, 1};

	return PQexecPrepared(session->state, statement, count, values, lengths, formats, 1);
}

/* ---- set-up ---- */

/* Statements of contenders that store nothing; NULL for others. */
static const char *
statement_of(const char *contender)
{
	if (strcmp(contender, "receive") == 0)
		return "SELECT octet_length($2::bytea) + $1::bigint";
	if (strcmp(contender, "hash") == 0)
		return "SELECT sha256($2::bytea), $1::bigint";
	if (strcmp(contender, "log") == 0)
		return "SELECT sha256($2::bytea), pg_logical_emit_message(true, 'log', $2::bytea), "
			"$1::bigint";
	return NULL;
}

static bool
is_behind(const char *contender)
{
	return strcmp(contender, "behind") == 0;
}

static bool
is_deferred(const char *contender)
{
	return strcmp(contender, "deferred") == 0;
}

static void
defer_digests(PGconn *connection)
{
	char		text[1024];

	snprintf(text, sizeof(text), "SELECT blobext_set_digest('%s_deferred', 'v', 'deferred')",
			 options.prefix);
	PQclear(expect(connection, PQexec(connection, text), PGRES_TUPLES_OK));
}

/* The tables are made by the first client. */
static void
create_table(PGconn *connection, const char *contender)
{
	const char *prefix = options.prefix;
	const char *type = strcmp(contender, "lo") == 0 ? "oid" :
		strcmp(contender, "direct") == 0 || is_behind(contender) ? "bytea" :
		is_deferred(contender) ? "blobstate" : contender;

	command(connection, "SET client_min_messages = warning");
	command(connection, "CREATE TABLE IF NOT EXISTS %s_%s (id bigint PRIMARY KEY, v %s)", prefix,
			contender, type);
	if (strcmp(contender, "bytea") == 0)
		command(connection, "ALTER TABLE %s_bytea ALTER v SET STORAGE EXTERNAL", prefix);
	if (is_deferred(contender))
		defer_digests(connection);
}

/* Functions inside the server are temporary, and return the seconds that they took. */
static void
create_function(PGconn *connection, const char *contender)
{
	bool		is_lo = strcmp(contender, "lo") == 0;

	if (options.operation == OP_STORE)
		command(connection, "CREATE PROCEDURE pg_temp.run(first_id bigint, value_count bigint, "
				"path text, INOUT seconds float8) LANGUAGE plpgsql AS $$ "
				"DECLARE payload bytea := pg_read_binary_file(path, 0, %ld); "
				"  started timestamptz := clock_timestamp(); "
				"BEGIN "
				"  FOR i IN 0 .. value_count - 1 LOOP "
				"    INSERT INTO %s_%s VALUES (first_id + i, %s); "
				"    COMMIT; "
				"  END LOOP; "
				"  seconds := extract(epoch FROM clock_timestamp() - started); "
				"END $$", options.size_bytes, options.prefix, contender,
				is_lo ? "lo_from_bytea(0, payload)" : "payload");
	else
		command(connection, "CREATE FUNCTION pg_temp.run(first_id bigint, value_count bigint, "
				"base bigint, stride bigint, modulus bigint) RETURNS float8 LANGUAGE plpgsql AS $$ "
				"DECLARE started timestamptz := clock_timestamp(); bits bigint; "
				"BEGIN "
				"  FOR i IN 0 .. value_count - 1 LOOP "
				"    SELECT bit_count(%s) INTO STRICT bits FROM %s_%s "
				"      WHERE id = base + (first_id + i) * stride %% modulus; "
				"  END LOOP; "
				"  RETURN extract(epoch FROM clock_timestamp() - started); "
				"END $$", is_lo ? "lo_get(v)" : "v::bytea", options.prefix, contender);
}

static void
prepare_large_objects(PGconn *connection, const char *prefix)
{
	prepare(connection, "store", "INSERT INTO %s_lo VALUES ($1, lo_from_bytea(0, $2))", prefix);
	/* Sizes do not change, so the old content is overwritten. */
	prepare(connection, "replace", "SELECT lo_put(v, 0, $2) FROM %s_lo WHERE id = $1", prefix);
	prepare(connection, "append", "SELECT lo_put(v, $3, $2) FROM %s_lo WHERE id = $1", prefix);
	prepare(connection, "read", "SELECT lo_get(v) FROM %s_lo WHERE id = $1", prefix);
}

/* Where the WAL has the content, the file need not be durable at the commit. */
static void
prepare_direct(PGconn *connection, const char *prefix)
{
	PGresult   *result = expect(connection, PQexec(connection, "SHOW wal_level"), PGRES_TUPLES_OK);
	bool		is_logged = strcmp(PQgetvalue(result, 0, 0), "minimal") != 0;
	const char *syncs = is_logged ? "false" : "true";
	const char *log = is_logged ? "pg_logical_emit_message(true, 'log', $2::bytea)" :
		"(SELECT) AS q";

	PQclear(result);
	prepare(connection, "store",
			"INSERT INTO %s_direct SELECT $1, write_direct($2, true, %s) FROM %s", prefix, syncs,
			log);
	prepare(connection, "replace",
			"UPDATE %s_direct SET v = write_direct($2, false, %s) FROM %s WHERE id = $1", prefix,
			syncs, log);
}

/* Rows with digests; the content is in the WAL, and written by start_behind()'s thread. */
static void
prepare_behind(PGconn *connection, const char *prefix)
{
	static const char *const log = "pg_logical_emit_message(true, 'log', $2::bytea)";

	prepare(connection, "store", "INSERT INTO %s_behind SELECT $1, sha256($2) FROM %s", prefix,
			log);
	prepare(connection, "replace", "UPDATE %s_behind SET v = sha256($2) FROM %s WHERE id = $1",
			prefix, log);
}

static void
prepare_column(PGconn *connection, const char *prefix, const char *contender)
{
	prepare(connection, "store", "INSERT INTO %s_%s VALUES ($1, $2)", prefix, contender);
	prepare(connection, "replace", "UPDATE %s_%s SET v = $2 WHERE id = $1", prefix, contender);
	prepare(connection, "append", "UPDATE %s_%s SET v = v || $2::bytea WHERE id = $1", prefix,
			contender);
	prepare(connection, "read", "SELECT v FROM %s_%s WHERE id = $1", prefix, contender);
}

/* Parts: $2 is the offset, $3 a length or the new bytes. */
static void
prepare_large_object_parts(PGconn *connection, const char *prefix)
{
	prepare(connection, "size",
			"SELECT lo_lseek64(lo_open(v, x'40000'::int), 0, 2) FROM %s_lo WHERE id = $1", prefix);
	prepare(connection, "read_part",
			"SELECT lo_get(v, $2, ($3::bigint)::int) FROM %s_lo WHERE id = $1", prefix);
	prepare(connection, "write_part", "SELECT lo_put(v, $2, $3) FROM %s_lo WHERE id = $1", prefix);
}

static void
prepare_bytea_parts(PGconn *connection, const char *prefix)
{
	const char *const position = "($2::bigint + 1)::int";

	prepare(connection, "size", "SELECT length(v)::bigint FROM %s_bytea WHERE id = $1", prefix);
	prepare(connection, "read_part",
			"SELECT substring(v FROM %s FOR ($3::bigint)::int) FROM %s_bytea WHERE id = $1",
			position, prefix);
	prepare(connection, "write_part",
			"UPDATE %s_bytea SET v = overlay(v PLACING $3::bytea FROM %s) WHERE id = $1", prefix,
			position);
	prepare(connection, "insert",
			"UPDATE %s_bytea SET v = overlay(v PLACING $3::bytea FROM %s FOR 0) WHERE id = $1",
			prefix, position);
	prepare(connection, "take_out",
			"UPDATE %s_bytea SET v = overlay(v PLACING '' FROM %s FOR ($3::bigint)::int) "
			"WHERE id = $1", prefix, position);
}

static void
prepare_blobstate_parts(PGconn *connection, const char *prefix, const char *contender)
{
	prepare(connection, "size", "SELECT length(v)::bigint FROM %s_%s WHERE id = $1", prefix,
			contender);
	prepare(connection, "read_part",
			"SELECT blob_read(v, $2, $3) FROM %s_%s WHERE id = $1", prefix, contender);
	prepare(connection, "write_part",
			"UPDATE %s_%s SET v = blob_write(v, $2, $3) WHERE id = $1", prefix, contender);
	prepare(connection, "insert",
			"UPDATE %s_%s SET v = blob_insert(v, $2, $3) WHERE id = $1", prefix, contender);
	prepare(connection, "take_out",
			"UPDATE %s_%s SET v = blob_delete(v, $2, $3) WHERE id = $1", prefix, contender);
}

static void
prepare_parts(PGconn *connection, const char *prefix, const char *contender)
{
	if (strcmp(contender, "lo") == 0)
		prepare_large_object_parts(connection, prefix);
	else if (strcmp(contender, "bytea") == 0)
		prepare_bytea_parts(connection, prefix);
	else
		prepare_blobstate_parts(connection, prefix, contender);
}

/* Expressions up to options.asked. */
static void
prepare_metadata(PGconn *connection, const char *prefix, const char *contender)
{
	static const char *const of_lo[] = {
		"lo_lseek64(lo_open(v, x'40000'::int), 0, 2)", "lo_get(v, 0, 32)", "sha256(lo_get(v))"
	};
	static const char *const of_bytea[] = {"octet_length(v)", "substr(v, 1, 32)", "sha256(v)"};
	static const char *const of_blobstate[] = {"octet_length(v)", "blob_prefix(v)", "sha256(v)"};
	const char *const *asked = strcmp(contender, "lo") == 0 ? of_lo :
		strcmp(contender, "bytea") == 0 ? of_bytea : of_blobstate;

	prepare(connection, "metadata", "SELECT (%s)::bigint%s%s%s%s FROM %s_%s WHERE id = ANY ($1)",
			asked[ASKED_SIZE], options.asked >= ASKED_PREFIX ? ", " : "",
			options.asked >= ASKED_PREFIX ? asked[ASKED_PREFIX] : "",
			options.asked >= ASKED_DIGEST ? ", " : "",
			options.asked >= ASKED_DIGEST ? asked[ASKED_DIGEST] : "", prefix, contender);
}

static bool
is_large_object(const Session *session)
{
	return strcmp(session->contender, "lo") == 0;
}

static void
postgres_open(Session *session)
{
	PGconn	   *connection = PQconnectdb("");

	if (PQstatus(connection) != CONNECTION_OK)
		fail("%s", PQerrorMessage(connection));
	session->state = connection;
	session->backend = PQbackendPID(connection);
	if (statement_of(session->contender) != NULL)
	{
		prepare(connection, "store", "%s", statement_of(session->contender));
		prepare(connection, "replace", "%s", statement_of(session->contender));
		return;
	}
	if (session->client_no == 0)
		create_table(connection, session->contender);
	if (is_large_object(session))
		prepare_large_objects(connection, options.prefix);
	else if (strcmp(session->contender, "direct") == 0)
		prepare_direct(connection, options.prefix);
	else if (is_behind(session->contender))
	{
		prepare_behind(connection, options.prefix);
		start_behind();
	}
	else
		prepare_column(connection, options.prefix, session->contender);
	if (options.operation == OP_METADATA)
		prepare_metadata(connection, options.prefix, session->contender);
	if (changes_parts())
		prepare_parts(connection, options.prefix, session->contender);
	if (options.is_server)
		create_function(connection, session->contender);
}

static void
postgres_close(Session *session)
{
	PQfinish(session->state);
}

/* ---- operations ---- */

static void
postgres_begin(Session *session)
{
	command(session->state, "BEGIN");
}

static void
postgres_commit(Session *session)
{
	command(session->state, "COMMIT");
}

/* A statement that changes one value: it reports, or returns, one row. */
static void
change(Session *session, PGresult *result, long id)
{
	bool		is_query = PQresultStatus(result) == PGRES_TUPLES_OK;

	if (!is_query)
		expect(session->state, result, PGRES_COMMAND_OK);
	if (is_query ? PQntuples(result) != 1 : strcmp(PQcmdTuples(result), "1") != 0)
		fail("%s: value %ld is missing", session->contender, id);
	PQclear(result);
}

static void
postgres_store(Session *session, long id, const char *value, long size_bytes)
{
	change(session, execute(session, "store", id, value, size_bytes, 2, 0), id);
	if (is_behind(session->contender))
		write_behind(size_bytes);
}

static void
postgres_replace(Session *session, long id, const char *value, long size_bytes)
{
	change(session, execute(session, "replace", id, value, size_bytes, 2, 0), id);
	if (is_behind(session->contender))
		write_behind(size_bytes);
}

static void
postgres_append(Session *session, long id, long offset, const char *piece)
{
	int			count = is_large_object(session) ? 3 : 2;

	change(session, execute(session, "append", id, piece, options.piece_bytes, count, offset), id);
}

static long
postgres_read(Session *session, long id)
{
	PGresult   *result = expect(session->state, execute(session, "read", id, NULL, 0, 1, 0),
								PGRES_TUPLES_OK);
	long		size_bytes = PQntuples(result) == 1 ? PQgetlength(result, 0, 0) : -1;

	PQclear(result);
	return size_bytes;
}

/* Execute a prepared statement on a part, with a third parameter: a length, or bytes. */
static PGresult *
execute_part(Session *session, const char *statement, long id, long offset, const char *third,
			 long third_bytes)
{
	int64_t		id_wire = (int64_t) htobe64((uint64_t) id);
	int64_t		offset_wire = (int64_t) htobe64((uint64_t) offset);
	const char *values[3] = {(const char *) &id_wire, (const char *) &offset_wire, third};
	int			lengths[3] = {sizeof(id_wire), sizeof(offset_wire), (int) third_bytes};
	int			formats[3] = {1, 1, 1};

	return PQexecPrepared(session->state, statement, 3, values, lengths, formats, 1);
}

static PGresult *
execute_length(Session *session, const char *statement, long id, long offset, long size_bytes)
{
	int64_t		size_wire = (int64_t) htobe64((uint64_t) size_bytes);

	return execute_part(session, statement, id, offset, (const char *) &size_wire,
						sizeof(size_wire));
}

/* The first column of a row. */
static long
number_of(PGresult *result, int row)
{
	int64_t		wire;

	memcpy(&wire, PQgetvalue(result, row, 0), sizeof(wire));
	return (long) be64toh((uint64_t) wire);
}

static long
postgres_size(Session *session, long id)
{
	PGresult   *result = expect(session->state, execute(session, "size", id, NULL, 0, 1, 0),
								PGRES_TUPLES_OK);
	long		size_bytes;

	if (PQntuples(result) != 1)
		fail("%s: value %ld is missing", session->contender, id);
	size_bytes = number_of(result, 0);
	PQclear(result);
	return size_bytes;
}

/* One statement. */
static long
postgres_metadata(Session *session, const long *ids)
{
	char		array[METADATA_VALUES * 24];
	const char *value = array;
	int			length = 0;
	PGresult   *result;
	long		sum = 0;

	for (int i = 0; i < METADATA_VALUES; i++)
		length += sprintf(array + length, "%c%ld", i == 0 ? '{' : ',', ids[i]);
	strcpy(array + length, "}");
	result = expect(session->state, PQexecPrepared(session->state, "metadata", 1, &value, NULL,
												   NULL, 1), PGRES_TUPLES_OK);
	for (int i = 0; i < PQntuples(result); i++)
		sum += number_of(result, i);
	PQclear(result);
	return sum;
}

static long
postgres_read_part(Session *session, long id, long offset, long size_bytes)
{
	PGresult   *result = expect(session->state,
								execute_length(session, "read_part", id, offset, size_bytes),
								PGRES_TUPLES_OK);
	long		got = PQntuples(result) == 1 ? PQgetlength(result, 0, 0) : -1;

	PQclear(result);
	return got;
}

static void
postgres_write_part(Session *session, long id, long offset, const char *piece, long size_bytes)
{
	change(session, execute_part(session, "write_part", id, offset, piece, size_bytes), id);
}

static void
postgres_splice(Session *session, long id, long offset, long removed_bytes, const char *piece,
				long size_bytes)
{
	change(session, removed_bytes > 0 ?
		   execute_length(session, "take_out", id, offset, removed_bytes) :
		   execute_part(session, "insert", id, offset, piece, size_bytes), id);
}

/* One INSERT; then hint bits are set, so that no scan writes. */
static void
postgres_fill(Session *session, const char *payload, long value_count)
{
	bool		is_lo = is_large_object(session);
	char		text[1024];
	const int	length = (int) (options.size_bytes + SHIFT_BYTES);
	const int	format = 1;

	snprintf(text, sizeof(text), "INSERT INTO %s_%s SELECT i, %s(%ssubstring($1::bytea, "
			 "1 + (i * 4099 %% %d)::int, %ld)) FROM generate_series(0, %ld::bigint) AS i",
			 options.prefix, session->contender, is_lo ? "lo_from_bytea" : "",
			 is_lo ? "0, " : "", SHIFT_BYTES, options.size_bytes, value_count - 1);
	PQclear(expect(session->state, PQexecParams(session->state, text, 1, NULL, &payload, &length,
												&format, 1), PGRES_COMMAND_OK));
	command(session->state, "VACUUM ANALYZE %s_%s", options.prefix, session->contender);
	if (is_lo)
		command(session->state, "VACUUM ANALYZE pg_largeobject");
}

/* Inside the server, up to the functions that make the binary format. */
static long
postgres_scan(Session *session)
{
	char		text[1024];
	PGresult   *result;
	long		count;

	snprintf(text, sizeof(text), is_large_object(session) ?
			 "COPY (SELECT id, lo_get(v) FROM %s_%s) TO '/dev/null' (FORMAT binary)" :
			 "COPY %s_%s TO '/dev/null' (FORMAT binary)", options.prefix, session->contender);
	result = expect(session->state, PQexec(session->state, text), PGRES_COMMAND_OK);
	count = atol(PQcmdTuples(result));
	PQclear(result);
	return count;
}

static double
postgres_run(Session *session, long first, long value_count, const Choice *choice)
{
	char		text[1024];
	PGresult   *result;
	double		seconds;

	if (options.operation == OP_STORE)
		snprintf(text, sizeof(text), "CALL pg_temp.run(%ld, %ld, '%s', 0)", first, value_count,
				 options.payload_path);
	else
		snprintf(text, sizeof(text), "SELECT pg_temp.run(%ld, %ld, %ld, %ld, %ld)", first,
				 value_count, choice->base, choice->stride, choice->modulus);
	result = expect(session->state, PQexec(session->state, text), PGRES_TUPLES_OK);
	seconds = atof(PQgetvalue(result, 0, 0));
	PQclear(result);
	return seconds;
}

/* The table gets a new file.  Large objects have no table of their own: theirs is rewritten. */
static void
postgres_empty(Session *session)
{
	if (statement_of(session->contender) != NULL)
		return;
	if (is_large_object(session))
	{
		PQclear(expect(session->state, PQexec(session->state,
											  "SELECT lo_unlink(oid) FROM pg_largeobject_metadata"),
					   PGRES_TUPLES_OK));
		command(session->state, "VACUUM FULL pg_largeobject");
	}
	command(session->state, "TRUNCATE %s_%s", options.prefix, session->contender);
}

static void
postgres_settle(Session *session)
{
	if (is_behind(session->contender))
		settle_behind();
	command(session->state, "CHECKPOINT");
}

const Driver postgres_driver = {
	.open = postgres_open,
	.close = postgres_close,
	.begin = postgres_begin,
	.commit = postgres_commit,
	.store = postgres_store,
	.replace = postgres_replace,
	.append = postgres_append,
	.read = postgres_read,
	.fill = postgres_fill,
	.scan = postgres_scan,
	.size = postgres_size,
	.metadata = postgres_metadata,
	.read_part = postgres_read_part,
	.write_part = postgres_write_part,
	.splice = postgres_splice,
	.empty = postgres_empty,
	.settle = postgres_settle,
	.run = postgres_run,
};
