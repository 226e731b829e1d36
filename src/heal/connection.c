/*
 * heal/connection.c
 *	  A connection to another server, see heal/connection.h.
 *
 * The process waits for its latch and for the socket, and serves interrupts.  libpq itself never
 * waits, except for the look-up of a host name.
 *
 * Nothing that the other server sends is believed: rows come one at a time, more than one is an
 * error, and each field is looked at before it is used.  libpq keeps a message whole, however long
 * the server says it is; that is all that an answer can make this process keep.
 */
#include "postgres.h"

#include "core/compat.h"
#include "heal/connection.h"
#include "libpq-fe.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#define STATEMENT "blobext"

/* Limits of a row, which is more than any request asks for, and of a message. */
#define MAX_ROW_BYTES (4 * 1024 * 1024)
#define MAX_TEXT_BYTES 1000

/*
 * Limits of a worker, which no user cancels: to connect, unless the connection string has
 * connect_timeout; and of silence after that, as a multiple of it.
 */
#define CONNECT_TIMEOUT_S "30"
#define PATIENCE 4

struct BlobConnection
{
	PGconn	   *conn;
	long		patience_ms;	/* -1: without end */
	bool		has_descriptor; /* AcquireExternalFD() */
	PGresult   *result;			/* of the last request: its row, error, or end without a row */
	int			parameter_count;
	int			outstanding;	/* requests without an answer yet */
	MemoryContextCallback callback;
};

/* ---- errors ---- */

/* Text that the other server may have made: of this database's encoding, and not too long. */
static char *
clean_text(const char *text)
{
	int			length = strnlen(text, MAX_TEXT_BYTES + 1);

	if (length > MAX_TEXT_BYTES)
		length = pg_mbcliplen(text, length, MAX_TEXT_BYTES);
	if (!pg_verifymbstr(text, length, true))
		return pstrdup("(The message has a wrong encoding.)");
	return pnstrdup(text, length);
}

/* libpq's message about a connection; it has host, port and user, but no password. */
pg_noreturn static void
report_broken(BlobConnection *connection, const char *what)
{
	char	   *detail = clean_text(pchomp(PQerrorMessage(connection->conn)));

	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE), errmsg("%s", what),
			 detail[0] == '\0' ? 0 : errdetail_internal("%s", detail)));
}

/* ERROR for an answer that no server of this extension gives; it ends the run. */
pg_noreturn static void
report_nonsense(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("the other server sent an invalid answer"),
			 errdetail_internal("%s", what)));
}

/* A PQnoticeReceiver: libpq would write them to the server's log. */
static void
ignore_notice(void *context, const PGresult *result)
{
}

/* ---- waiting ---- */

/* False when the time is over; -1: never. */
static bool
wait_for_socket_until(BlobConnection *connection, int event, long timeout_ms)
{
	int			timeout_event = timeout_ms >= 0 ? WL_TIMEOUT : 0;
	int			events = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | event |
										   timeout_event, PQsocket(connection->conn), timeout_ms,
										   PG_WAIT_EXTENSION);

	if (events & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return (events & WL_TIMEOUT) == 0;
}

static void
wait_for_socket(BlobConnection *connection, int event)
{
	if (!wait_for_socket_until(connection, event, connection->patience_ms))
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("the other server does not answer")));
}

/* Hand queued requests to the kernel, taking in answers meanwhile. */
static void
flush(BlobConnection *connection)
{
	int			left;

	while ((left = PQflush(connection->conn)) > 0)
	{
		wait_for_socket(connection, WL_SOCKET_READABLE | WL_SOCKET_WRITEABLE);
		if (!PQconsumeInput(connection->conn))
			break;
	}
	if (left != 0)
		report_broken(connection, "lost the connection to the other server");
}

/* libpq keeps notifications until they are asked for. */
static void
forget_notifications(BlobConnection *connection)
{
	PGnotify   *notification;

	while ((notification = PQnotifies(connection->conn)) != NULL)
		PQfreemem(notification);
}

/*
 * The next result of libpq; NULL at the end of a command.  Serves interrupts also when the server
 * sends without a pause.
 */
static PGresult *
next_result(BlobConnection *connection)
{
	PGresult   *result;

	CHECK_FOR_INTERRUPTS();
	while (PQisBusy(connection->conn))
	{
		forget_notifications(connection);
		wait_for_socket(connection, WL_SOCKET_READABLE);
		CHECK_FOR_INTERRUPTS();
		if (!PQconsumeInput(connection->conn))
			report_broken(connection, "lost the connection to the other server");
	}
	result = PQgetResult(connection->conn);
	if (PQstatus(connection->conn) == CONNECTION_BAD)
	{
		PQclear(result);
		report_broken(connection, "lost the connection to the other server");
	}
	return result;
}

static void
keep_result(BlobConnection *connection, PGresult *result)
{
	PQclear(connection->result);
	connection->result = result;
}

static bool
has_row(const PGresult *result)
{
	return result != NULL && PQresultStatus(result) == PGRES_SINGLE_TUPLE;
}

static void
check_row_size(const PGresult *result)
{
	uint64		bytes = 0;

	for (int i = 0; i < PQnfields(result); i++)
		bytes += PQgetlength(result, 0, i);
	if (bytes > MAX_ROW_BYTES)
		report_nonsense(psprintf("A row has " UINT64_FORMAT " bytes.", bytes));
}

/*
 * A result that belongs to the current answer: its row, its end, or an error, which counts more
 * than what came before.
 */
static void
take_result(BlobConnection *connection, PGresult *result)
{
	switch (PQresultStatus(result))
	{
		case PGRES_SINGLE_TUPLE:
			if (connection->result != NULL)
			{
				PQclear(result);
				report_nonsense("It has more than one row.");
			}
			keep_result(connection, result);
			check_row_size(result);
			return;
		case PGRES_TUPLES_OK:
		case PGRES_COMMAND_OK:
			if (connection->result == NULL)
			{
				keep_result(connection, result);
				return;
			}
			PQclear(result);
			if (!has_row(connection->result))
				report_nonsense("It has more than one end.");
			return;
		case PGRES_FATAL_ERROR:
			keep_result(connection, result);
			return;
		default:
			/* COPY, for instance, from which libpq does not come back by itself. */
			PQclear(result);
			report_nonsense("It is no row.");
	}
}

/* ---- connecting ---- */

/* As dblink and postgres_fdw: the server must not lend its own identity to its users. */
static void
require_password(const PQconninfoOption *options)
{
	if (superuser())
		return;
	for (const PQconninfoOption *option = options; option->keyword != NULL; option++)
	{
		if (strcmp(option->keyword, "password") == 0 && option->val != NULL &&
			option->val[0] != '\0')
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
			 errmsg("password is required"),
			 errdetail("Non-superusers must provide a password in the connection string.")));
}

/* The parser's own message may contain parts of the string, and so of a password. */
static void
check_conninfo(const char *conninfo)
{
	char	   *message = NULL;
	PQconninfoOption *options = PQconninfoParse(conninfo, &message);

	if (message != NULL)
		PQfreemem(message);
	if (options == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR), errmsg("invalid connection string")));
	PG_TRY();
	{
		require_password(options);
	}
	PG_FINALLY();
	{
		PQconninfoFree(options);
	}
	PG_END_TRY();
}

/* connect_timeout of the connection string, which PQconnectPoll() leaves to us; 0: none. */
static int
connect_timeout_s(BlobConnection *connection)
{
	PQconninfoOption *options = PQconninfo(connection->conn);
	int			timeout_s = 0;

	for (PQconninfoOption *option = options; option != NULL && option->keyword != NULL; option++)
	{
		if (strcmp(option->keyword, "connect_timeout") == 0 && option->val != NULL)
			timeout_s = atoi(option->val);
	}
	PQconninfoFree(options);
	return Max(timeout_s, 0);
}

/* Wait for the server until this time (0: without end); ERROR when it is over. */
static void
wait_to_connect(BlobConnection *connection, int event, TimestampTz end)
{
	long		left_ms = end == 0 ? -1 :
		TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end);

	if (left_ms != 0 && wait_for_socket_until(connection, event, left_ms))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("could not connect to the other server"),
			 errdetail("The time of connect_timeout is over.")));
}

/* Wait until the connection is made; ERROR if it fails, or needs no password where one must be. */
static void
poll_until_connected(BlobConnection *connection)
{
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	int			timeout_s = connect_timeout_s(connection);
	TimestampTz end = timeout_s == 0 ? 0 :
		TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_s * INT64CONST(1000));

	while (status != PGRES_POLLING_OK)
	{
		if (status == PGRES_POLLING_FAILED)
			report_broken(connection, "could not connect to the other server");
		wait_to_connect(connection, status == PGRES_POLLING_READING ? WL_SOCKET_READABLE :
						WL_SOCKET_WRITEABLE, end);
		status = PQconnectPoll(connection->conn);
	}
	if (!superuser() && !PQconnectionUsedPassword(connection->conn))
		ereport(ERROR,
				(errcode(ERRCODE_S_R_E_PROHIBITED_SQL_STATEMENT_ATTEMPTED),
				 errmsg("password is required"),
				 errdetail("Non-superusers cannot connect if the server does not request a "
						   "password."),
				 errhint("The other server's authentication method must be changed.")));
}

/* A MemoryContextCallback. */
static void
end_connection(void *argument)
{
	blob_connection_close(argument);
}

/*
 * Of parameters that are given twice, the last one counts: the string counts more than what stands
 * before it.  Only the first dbname is taken for a connection string.
 */
static PGconn *
start(const char *conninfo, const char *database)
{
	const char *const keywords[] = {
		"connect_timeout", "dbname", "client_encoding", "fallback_application_name",
		database == NULL ? NULL : "dbname", NULL
	};
	const char *const values[] = {
		database == NULL ? NULL : CONNECT_TIMEOUT_S, conninfo, GetDatabaseEncodingName(),
		"blobext_fetch", database, NULL
	};

	return PQconnectStartParams(keywords, values, 1);
}

BlobConnection *
blob_connection_open(const char *conninfo, const char *database)
{
	BlobConnection *connection = palloc0(sizeof(BlobConnection));

	connection->patience_ms = -1;
	check_conninfo(conninfo);
	connection->callback.func = end_connection;
	connection->callback.arg = connection;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &connection->callback);
	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
				 errmsg("could not connect to the other server"),
				 errdetail("There are too many open files on the local server."),
				 errhint("Raise the server's max_files_per_process and/or \"ulimit -n\" limits.")));
	connection->has_descriptor = true;
	connection->conn = start(conninfo, database);
	if (connection->conn == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	if (PQstatus(connection->conn) == CONNECTION_BAD)
		report_broken(connection, "could not connect to the other server");
	(void) PQsetNoticeReceiver(connection->conn, ignore_notice, NULL);
	poll_until_connected(connection);
	if (PQsetnonblocking(connection->conn, 1) != 0)
		report_broken(connection, "could not connect to the other server");
	if (database != NULL && connect_timeout_s(connection) > 0)
		connection->patience_ms = connect_timeout_s(connection) * PATIENCE * 1000L;
	return connection;
}

void
blob_connection_close(BlobConnection *connection)
{
	PQclear(connection->result);
	connection->result = NULL;
	PQfinish(connection->conn);
	connection->conn = NULL;
	if (connection->has_descriptor)
		ReleaseExternalFD();
	connection->has_descriptor = false;
}

/* ---- queries ---- */

/* The server's own message of an answer that is an error. */
static char *
message_of(const PGresult *result)
{
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	return message == NULL ? pstrdup("unknown error") : clean_text(message);
}

/* The SQLSTATE of an error of the other server; codes that are none of an error are replaced. */
static int
state_of(const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (state == NULL || strlen(state) != 5 ||
		strspn(state, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 5 ||
		(state[0] == '0' && state[1] <= '2'))
		return ERRCODE_CONNECTION_EXCEPTION;
	return MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]);
}

/* ERROR with the message of the other server, unless the last answer has this status. */
static void
require_status(BlobConnection *connection, bool is_right)
{
	PGresult   *result = connection->result;

	if (is_right)
		return;
	if (result == NULL || PQresultStatus(result) != PGRES_FATAL_ERROR)
		report_nonsense("It is none to this request.");
	ereport(ERROR,
			(errcode(state_of(result)),
			 errmsg("the other server refused a request"),
			 errdetail_internal("%s", message_of(result)),
			 errhint("It needs blobext 0.3.0 or later in that database, and the role must be "
					 "allowed to execute blobext_source() and blobext_source_read().")));
}

/* Take in the results of a command up to its end. */
static void
finish_command(BlobConnection *connection)
{
	PGresult   *result;

	keep_result(connection, NULL);
	flush(connection);
	while ((result = next_result(connection)) != NULL)
		take_result(connection, result);
}

void
blob_connection_query(BlobConnection *connection, const char *sql, const char *parameter)
{
	if (!PQsendQueryParams(connection->conn, sql, parameter != NULL ? 1 : 0, NULL, &parameter,
						   NULL, NULL, 0) ||
		!PQsetSingleRowMode(connection->conn))
		report_broken(connection, "could not send a request to the other server");
	finish_command(connection);
	if (connection->result != NULL && PQresultStatus(connection->result) == PGRES_TUPLES_OK)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the other server has no extension blobext of version 0.3.0 or newer "
						"in that database")));
	require_status(connection, has_row(connection->result));
}

void
blob_connection_prepare(BlobConnection *connection, const char *sql, int count)
{
	connection->parameter_count = count;
	if (!PQsendPrepare(connection->conn, STATEMENT, sql, 0, NULL))
		report_broken(connection, "could not send a request to the other server");
	finish_command(connection);
	require_status(connection, connection->result != NULL &&
				   PQresultStatus(connection->result) == PGRES_COMMAND_OK);
	if (!PQenterPipelineMode(connection->conn))
		report_broken(connection, "could not send a request to the other server");
}

/* Each request has a sync of its own: it fails alone. */
void
blob_connection_send(BlobConnection *connection, const char *const *values)
{
	if (!PQsendQueryPrepared(connection->conn, STATEMENT, connection->parameter_count, values,
							 NULL, NULL, 1) ||
		!PQpipelineSync(connection->conn))
		report_broken(connection, "could not send a request to the other server");
	connection->outstanding++;
	flush(connection);
}

bool
blob_connection_receive(BlobConnection *connection, char **refusal)
{
	int			end_count = 0;

	Assert(connection->outstanding > 0);
	keep_result(connection, NULL);
	/* Of the oldest request, of which nothing has been looked at. */
	if (!PQsetSingleRowMode(connection->conn))
		report_nonsense("It came before the request.");
	for (;;)
	{
		PGresult   *result = next_result(connection);

		if (result == NULL)
		{
			/* Of the request; libpq would say that without end if its sync were gone. */
			if (++end_count > 2)
				report_nonsense("It does not end.");
			continue;
		}
		if (PQresultStatus(result) == PGRES_PIPELINE_SYNC)
		{
			PQclear(result);
			break;
		}
		take_result(connection, result);
	}
	connection->outstanding--;
	if (connection->result != NULL && PQresultStatus(connection->result) == PGRES_FATAL_ERROR)
	{
		*refusal = message_of(connection->result);
		return false;
	}
	return true;
}

void
blob_connection_drain(BlobConnection *connection)
{
	char	   *refusal;

	while (connection->outstanding > 0)
		(void) blob_connection_receive(connection, &refusal);
}

/* ---- answers ---- */

/* The number of a column of the last answer, which has one row and a value there. */
static int
find_column(const BlobConnection *connection, const char *name)
{
	const PGresult *result = connection->result;
	int			column;

	if (!has_row(result))
		report_nonsense("It has no row.");
	column = name == NULL ? (PQnfields(result) == 1 ? 0 : -1) : PQfnumber(result, name);
	if (column < 0 || column >= PQnfields(result))
		report_nonsense(name == NULL ? "It has not one column." :
						psprintf("It has no column \"%s\".", name));
	if (PQgetisnull(result, 0, column))
		report_nonsense("A value is null.");
	return column;
}

int
blob_connection_bytes(const BlobConnection *connection, uint32 max_bytes, const char **data)
{
	int			column = find_column(connection, NULL);
	int			bytes = PQgetlength(connection->result, 0, column);

	if (bytes < 0 || (uint32) bytes > max_bytes)
		report_nonsense("It has a wrong length.");
	*data = PQgetvalue(connection->result, 0, column);
	return bytes;
}

char *
blob_connection_text(const BlobConnection *connection, const char *name, int max_bytes)
{
	int			column = find_column(connection, name);
	int			bytes = PQgetlength(connection->result, 0, column);
	const char *text = PQgetvalue(connection->result, 0, column);

	if (bytes < 0 || bytes > max_bytes || strnlen(text, bytes) != (size_t) bytes)
		report_nonsense("A text has a wrong length.");
	if (!pg_verifymbstr(text, bytes, true))
		report_nonsense("A text has a wrong encoding.");
	return pnstrdup(text, bytes);
}
