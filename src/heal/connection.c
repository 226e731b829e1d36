/*
 * heal/connection.c
 *	  A connection to another server, see heal/connection.h.
 *
 * The process waits for its latch and for the socket, and serves interrupts.  libpq itself never
 * waits, except for the look-up of a host name.
 */
#include "postgres.h"

#include "core/compat.h"
#include "heal/connection.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#define STATEMENT "blobext"

struct BlobConnection
{
	PGconn	   *conn;
	bool		has_descriptor; /* AcquireExternalFD() */
	PGresult   *result;			/* that the caller has */
	int			parameter_count;
	int			outstanding;	/* requests without an answer yet */
	MemoryContextCallback callback;
};

/* ---- errors ---- */

/* libpq's message about a connection; it has host, port and user, but no password. */
pg_noreturn static void
report_broken(BlobConnection *connection, const char *what)
{
	char	   *detail = pchomp(PQerrorMessage(connection->conn));

	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE), errmsg("%s", what),
			 detail[0] == '\0' ? 0 : errdetail_internal("%s", detail)));
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
	(void) wait_for_socket_until(connection, event, -1);
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

/* The next result of libpq; NULL at the end of a command. */
static PGresult *
next_result(BlobConnection *connection)
{
	PGresult   *result;

	while (PQisBusy(connection->conn))
	{
		wait_for_socket(connection, WL_SOCKET_READABLE);
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

BlobConnection *
blob_connection_open(const char *conninfo)
{
	const char *const keywords[] = {"dbname", "client_encoding", "fallback_application_name", NULL};
	const char *const values[] = {conninfo, GetDatabaseEncodingName(), "blobext_fetch", NULL};
	BlobConnection *connection = palloc0(sizeof(BlobConnection));

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
	connection->conn = PQconnectStartParams(keywords, values, 1);
	if (connection->conn == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	if (PQstatus(connection->conn) == CONNECTION_BAD)
		report_broken(connection, "could not connect to the other server");
	poll_until_connected(connection);
	if (PQsetnonblocking(connection->conn, 1) != 0)
		report_broken(connection, "could not connect to the other server");
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

/* ERROR with the message of the other server. */
pg_noreturn static void
report_refused(const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	ereport(ERROR,
			(errcode(state != NULL && strlen(state) == 5 ?
					 MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]) :
					 ERRCODE_CONNECTION_EXCEPTION),
			 errmsg("the other server refused a request"),
			 message == NULL ? 0 : errdetail_internal("%s", message),
			 errhint("It needs blobext 0.3.0 or later in that database, and the role must be "
					 "allowed to execute blobext_source() and blobext_source_read().")));
}

/* Take in the results of a command up to its end; the first one is kept. */
static PGresult *
finish_command(BlobConnection *connection)
{
	PGresult   *result;

	flush(connection);
	keep_result(connection, next_result(connection));
	while ((result = next_result(connection)) != NULL)
		PQclear(result);
	return connection->result;
}

PGresult *
blob_connection_query(BlobConnection *connection, const char *sql, const char *parameter)
{
	PGresult   *result;

	if (!PQsendQueryParams(connection->conn, sql, parameter != NULL ? 1 : 0, NULL, &parameter,
						   NULL, NULL, 0))
		report_broken(connection, "could not send a request to the other server");
	result = finish_command(connection);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		report_refused(result);
	if (PQntuples(result) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the other server has no extension blobext of version 0.3.0 or newer "
						"in that database")));
	return result;
}

void
blob_connection_prepare(BlobConnection *connection, const char *sql, int count)
{
	PGresult   *result;

	connection->parameter_count = count;
	if (!PQsendPrepare(connection->conn, STATEMENT, sql, 0, NULL))
		report_broken(connection, "could not send a request to the other server");
	result = finish_command(connection);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		report_refused(result);
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

PGresult *
blob_connection_receive(BlobConnection *connection)
{
	PGresult   *result;
	ExecStatusType status;

	Assert(connection->outstanding > 0);
	keep_result(connection, NULL);
	do
	{
		result = next_result(connection);
		status = result == NULL ? PGRES_COMMAND_OK : PQresultStatus(result);
		if (status == PGRES_PIPELINE_SYNC)
			PQclear(result);
		else if (result != NULL && connection->result == NULL)
			connection->result = result;
		else
			PQclear(result);
	} while (status != PGRES_PIPELINE_SYNC);
	connection->outstanding--;
	return connection->result;
}

void
blob_connection_drain(BlobConnection *connection)
{
	while (connection->outstanding > 0)
		(void) blob_connection_receive(connection);
}
