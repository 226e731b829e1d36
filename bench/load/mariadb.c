/*
 * bench/load/mariadb.c
 *	  Contender "innodb": a LONGBLOB column of a table of MariaDB, with prepared statements.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mysql.h>

#include "load.h"

#define MAX_PACKET_BYTES (1024UL * 1024 * 1024)

typedef enum Statement
{
	STORE, REPLACE, APPEND, READ, SIZE, METADATA, READ_PART, SPLICE, FILL, STATEMENTS
} Statement;

typedef struct Mariadb
{
	MYSQL	   *connection;
	MYSQL_STMT *statements[STATEMENTS];
	char	   *buffer;			/* for a value that is read */
} Mariadb;

static void __attribute__((format(printf, 2, 3)))
command(Mariadb *mariadb, const char *format, ...)
{
	char		text[1024];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (mysql_query(mariadb->connection, text) != 0)
		fail("innodb: %s", mysql_error(mariadb->connection));
}

static void __attribute__((format(printf, 3, 4)))
prepare(Mariadb *mariadb, Statement which, const char *format, ...)
{
	MYSQL_STMT *statement = mysql_stmt_init(mariadb->connection);
	char		text[1024];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (statement == NULL || mysql_stmt_prepare(statement, text, strlen(text)) != 0)
		fail("innodb: %s", mysql_error(mariadb->connection));
	mariadb->statements[which] = statement;
}

/* The server's thread that serves this connection. */
static pid_t
find_thread(Mariadb *mariadb)
{
	MYSQL_RES  *result;
	MYSQL_ROW	row;
	pid_t		thread;

	command(mariadb, "SELECT TID FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()");
	result = mysql_store_result(mariadb->connection);
	row = result != NULL ? mysql_fetch_row(result) : NULL;
	if (row == NULL || row[0] == NULL)
		fail("innodb: the server does not tell its thread");
	thread = atoi(row[0]);
	mysql_free_result(result);
	return thread;
}

static void
mariadb_open(Session *session)
{
	Mariadb    *mariadb = calloc(1, sizeof(Mariadb));
	unsigned long packet_bytes = MAX_PACKET_BYTES;
	const char *prefix = options.prefix;

	mariadb->connection = mysql_init(NULL);
	mysql_optionsv(mariadb->connection, MYSQL_OPT_MAX_ALLOWED_PACKET, &packet_bytes);
	/* An UPDATE counts the rows that it finds, also if one gets the content that it has. */
	if (mysql_real_connect(mariadb->connection, NULL, "root", NULL, "bench", 0, options.socket,
						   CLIENT_FOUND_ROWS) == NULL)
		fail("innodb: %s", mysql_error(mariadb->connection));
	if (session->client_no == 0)
		command(mariadb, "CREATE TABLE IF NOT EXISTS %s (id BIGINT PRIMARY KEY, "
				"v LONGBLOB NOT NULL) ENGINE = InnoDB", prefix);
	prepare(mariadb, STORE, "INSERT INTO %s VALUES (?, ?)", prefix);
	prepare(mariadb, REPLACE, "UPDATE %s SET v = ? WHERE id = ?", prefix);
	prepare(mariadb, APPEND, "UPDATE %s SET v = CONCAT(v, ?) WHERE id = ?", prefix);
	prepare(mariadb, READ, "SELECT v FROM %s WHERE id = ?", prefix);
	prepare(mariadb, SIZE, "SELECT LENGTH(v) FROM %s WHERE id = ?", prefix);
	prepare(mariadb, METADATA, "SELECT OCTET_LENGTH(v)%s%s FROM %s "
			"WHERE id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			options.asked >= ASKED_PREFIX ? ", LEFT(v, 32)" : "",
			options.asked >= ASKED_DIGEST ? ", SHA2(v, 256)" : "", prefix);
	prepare(mariadb, READ_PART, "SELECT SUBSTRING(v, ?, ?) FROM %s WHERE id = ?", prefix);
	prepare(mariadb, SPLICE, "UPDATE %s SET v = CONCAT(SUBSTRING(v, 1, ?), ?, SUBSTRING(v, ?)) "
			"WHERE id = ?", prefix);
	mariadb->buffer = malloc(largest_bytes() + 1);
	memset(mariadb->buffer, 1, largest_bytes() + 1);
	session->backend = find_thread(mariadb);
	session->state = mariadb;
}

static void
mariadb_close(Session *session)
{
	Mariadb    *mariadb = session->state;

	mysql_close(mariadb->connection);
}

static void
mariadb_begin(Session *session)
{
	command(session->state, "BEGIN");
}

static void
mariadb_commit(Session *session)
{
	command(session->state, "COMMIT");
}

static void
bind_number(MYSQL_BIND *bind, long *number)
{
	bind->buffer_type = MYSQL_TYPE_LONGLONG;
	bind->buffer = number;
}

static void
bind_value(MYSQL_BIND *bind, const char *value, unsigned long *size_bytes)
{
	bind->buffer_type = MYSQL_TYPE_LONG_BLOB;
	bind->buffer = (char *) value;
	bind->buffer_length = *size_bytes;
	bind->length = size_bytes;
}

static void
execute(MYSQL_STMT *statement, MYSQL_BIND *binds)
{
	if (mysql_stmt_bind_param(statement, binds) || mysql_stmt_execute(statement) != 0)
		fail("innodb: %s", mysql_stmt_error(statement));
}

/* Execute a statement that changes one value. */
static void
change(MYSQL_STMT *statement, MYSQL_BIND *binds, long id)
{
	execute(statement, binds);
	if (mysql_stmt_affected_rows(statement) != 1)
		fail("innodb: value %ld is missing", id);
}

static void
mariadb_store(Session *session, long id, const char *value, long size_bytes)
{
	Mariadb    *mariadb = session->state;
	unsigned long length = size_bytes;
	MYSQL_BIND	binds[2] = {0};

	bind_number(&binds[0], &id);
	bind_value(&binds[1], value, &length);
	change(mariadb->statements[STORE], binds, id);
}

static void
update(Session *session, Statement which, long id, const char *value, long size_bytes)
{
	Mariadb    *mariadb = session->state;
	unsigned long length = size_bytes;
	MYSQL_BIND	binds[2] = {0};

	bind_value(&binds[0], value, &length);
	bind_number(&binds[1], &id);
	change(mariadb->statements[which], binds, id);
}

static void
mariadb_replace(Session *session, long id, const char *value, long size_bytes)
{
	update(session, REPLACE, id, value, size_bytes);
}

static void
mariadb_append(Session *session, long id, long offset, const char *piece)
{
	(void) offset;				/* an append is at the end */
	update(session, APPEND, id, piece, options.piece_bytes);
}

/* One INSERT, from the storage engine that has sequences as tables. */
static void
mariadb_fill(Session *session, const char *payload, long value_count)
{
	Mariadb    *mariadb = session->state;
	unsigned long length = options.size_bytes + SHIFT_BYTES;
	MYSQL_BIND	bind = {0};

	prepare(mariadb, FILL, "INSERT INTO %s SELECT seq, SUBSTRING(?, 1 + seq * 4099 %% %d, %ld) "
			"FROM seq_0_to_%ld", options.prefix, SHIFT_BYTES, options.size_bytes, value_count - 1);
	bind_value(&bind, payload, &length);
	execute(mariadb->statements[FILL], &bind);
	if (mysql_stmt_affected_rows(mariadb->statements[FILL]) != (my_ulonglong) value_count)
		fail("innodb: values are missing");
}

/* The values are sent to the client, which discards them one by one. */
static long
mariadb_scan(Session *session)
{
	Mariadb    *mariadb = session->state;
	MYSQL_RES  *result;
	MYSQL_ROW	row;
	long		count = 0;

	command(mariadb, "SELECT id, v FROM %s", options.prefix);
	result = mysql_use_result(mariadb->connection);
	if (result == NULL)
		fail("innodb: %s", mysql_error(mariadb->connection));
	while ((row = mysql_fetch_row(result)) != NULL)
		count += (long) mysql_fetch_lengths(result)[1] == options.size_bytes;
	if (mysql_errno(mariadb->connection) != 0)
		fail("innodb: %s", mysql_error(mariadb->connection));
	mysql_free_result(result);
	return count;
}

/* Execute a statement that returns a value or a part of it, to the buffer; returns the size. */
static long
fetch(Mariadb *mariadb, MYSQL_STMT *statement, MYSQL_BIND *parameters, long id)
{
	unsigned long length = 0;
	MYSQL_BIND	result = {0};

	execute(statement, parameters);
	result.buffer_type = MYSQL_TYPE_LONG_BLOB;
	result.buffer = mariadb->buffer;
	result.buffer_length = largest_bytes() + 1;
	result.length = &length;
	if (mysql_stmt_bind_result(statement, &result) || mysql_stmt_fetch(statement) != 0)
		fail("innodb: value %ld: %s", id, mysql_stmt_error(statement));
	mysql_stmt_free_result(statement);
	return (long) length;
}

static long
mariadb_read(Session *session, long id)
{
	Mariadb    *mariadb = session->state;
	MYSQL_BIND	parameter = {0};

	bind_number(&parameter, &id);
	return fetch(mariadb, mariadb->statements[READ], &parameter, id);
}

/* The number comes as text. */
static long
mariadb_size(Session *session, long id)
{
	Mariadb    *mariadb = session->state;
	MYSQL_BIND	parameter = {0};
	long		digits;

	bind_number(&parameter, &id);
	digits = fetch(mariadb, mariadb->statements[SIZE], &parameter, id);
	mariadb->buffer[digits] = '\0';
	return atol(mariadb->buffer);
}

/* One statement; numbers come as text. */
static long
mariadb_metadata(Session *session, const long *ids)
{
	Mariadb    *mariadb = session->state;
	MYSQL_STMT *statement = mariadb->statements[METADATA];
	MYSQL_BIND	parameters[METADATA_VALUES] = {0};
	char		columns[3][128];
	MYSQL_BIND	results[3] = {0};
	long		sum = 0;

	for (int i = 0; i < METADATA_VALUES; i++)
		bind_number(&parameters[i], (long *) &ids[i]);
	execute(statement, parameters);
	for (int i = 0; i <= (int) options.asked; i++)
	{
		results[i].buffer_type = MYSQL_TYPE_STRING;
		results[i].buffer = columns[i];
		results[i].buffer_length = sizeof(columns[i]);
	}
	if (mysql_stmt_bind_result(statement, results))
		fail("innodb: %s", mysql_stmt_error(statement));
	while (mysql_stmt_fetch(statement) == 0)
		sum += atol(columns[0]);
	mysql_stmt_free_result(statement);
	return sum;
}

static long
mariadb_read_part(Session *session, long id, long offset, long size_bytes)
{
	Mariadb    *mariadb = session->state;
	long		position = offset + 1;
	MYSQL_BIND	parameters[3] = {0};

	bind_number(&parameters[0], &position);
	bind_number(&parameters[1], &size_bytes);
	bind_number(&parameters[2], &id);
	return fetch(mariadb, mariadb->statements[READ_PART], parameters, id);
}

static void
mariadb_splice(Session *session, long id, long offset, long removed_bytes, const char *piece,
			   long size_bytes)
{
	Mariadb    *mariadb = session->state;
	unsigned long length = size_bytes;
	long		position = offset + removed_bytes + 1;
	MYSQL_BIND	binds[4] = {0};

	bind_number(&binds[0], &offset);
	bind_value(&binds[1], piece, &length);
	bind_number(&binds[2], &position);
	bind_number(&binds[3], &id);
	change(mariadb->statements[SPLICE], binds, id);
}

static void
mariadb_write_part(Session *session, long id, long offset, const char *piece, long size_bytes)
{
	mariadb_splice(session, id, offset, size_bytes, piece, size_bytes);
}

static void
mariadb_empty(Session *session)
{
	command(session->state, "TRUNCATE TABLE %s", options.prefix);
}

/* Writes the table's pages. */
static void
mariadb_settle(Session *session)
{
	command(session->state, "FLUSH TABLES %s FOR EXPORT", options.prefix);
	command(session->state, "UNLOCK TABLES");
}

const Driver innodb_driver = {
	.open = mariadb_open,
	.close = mariadb_close,
	.begin = mariadb_begin,
	.commit = mariadb_commit,
	.store = mariadb_store,
	.replace = mariadb_replace,
	.append = mariadb_append,
	.read = mariadb_read,
	.fill = mariadb_fill,
	.scan = mariadb_scan,
	.size = mariadb_size,
	.metadata = mariadb_metadata,
	.read_part = mariadb_read_part,
	.write_part = mariadb_write_part,
	.splice = mariadb_splice,
	.empty = mariadb_empty,
	.settle = mariadb_settle,
};
