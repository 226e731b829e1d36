/*
 * connections/query.c
 *	  Statements on connections: prepared, judged, repeated.
 */
#include "connections/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/errors.h"
#include "connections/answer.h"
#include "connections/request.h"

/* 0, ERROR_LOST or an errno for a result that is an error. */
static int
judge(struct connection *connection, const PGresult *result, char *sqlstate)
{
	const char *state;
	int			error;

	switch (PQresultStatus(result))
	{
		case PGRES_SINGLE_TUPLE:
		case PGRES_TUPLES_OK:
		case PGRES_COMMAND_OK:
			return 0;
		default:
			break;
	}
	state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
	if (state != NULL && sqlstate != NULL)
		snprintf(sqlstate, 6, "%s", state);
	/* Without an SQLSTATE the error is libpq's: the statement or its answer was not transmitted. */
	if (state == NULL || PQstatus(connection->pg) != CONNECTION_OK || error_is_lost(state))
	{
		debug("connection %d is lost: %s", connection->slot, PQerrorMessage(connection->pg));
		pool_lose(connection);
		return ERROR_LOST;
	}
	error = error_from_sqlstate(state);
	if (error == EIO)
		message("error of the server: %s", PQresultErrorMessage(result));
	else
		debug("error of the server: %s %s", state, PQresultErrorMessage(result));
	if (pool_has_snapshot(connection->pool))
		PQclear(query_text(connection->pg, "ROLLBACK TO SAVEPOINT begun", 1));
	return error;
}

/* Once on each connection.  By SQL: libpq collects all rows of an answer to PQsendPrepare(). */
static int
prepare(struct connection *connection, int statement, char *sqlstate)
{
	PGresult   *result;
	char	   *sql;
	int			error;

	if (connection->prepared[statement])
		return 0;
	sql = format_string("PREPARE s%d AS %s", statement,
						pool_statement(connection->pool, statement)->sql);
	result = query_text(connection->pg, sql, 1);
	free(sql);
	error = judge(connection, result, sqlstate);
	PQclear(result);
	if (error == 0)
		connection->prepared[statement] = 1;
	return error;
}

/* A server that is not ours, or functions of a file system that are not those of the extension. */
static int
refuse_answer(const struct statement *asked, const char *fault)
{
	message("the server has answered with %s: %s", fault, asked->sql);
	return EIO;
}

int
query_on(struct connection *connection, int statement, const struct parameters *parameters,
		 PGresult **result, char *sqlstate)
{
	static const int binary[MAX_PARAMETERS] = {
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
	};
	const struct statement *asked = pool_statement(connection->pool, statement);
	char		name[16];
	PGresult   *answer;
	int			error;

	*result = NULL;
	if (sqlstate != NULL)
		sqlstate[0] = '\0';
	error = prepare(connection, statement, sqlstate);
	if (error != 0)
		return error;
	snprintf(name, sizeof(name), "s%d", statement);
	answer = PQsendQueryPrepared(connection->pg, name, parameters->count, parameters->values,
								 parameters->lengths, binary, 1) ?
		answer_receive(connection->pg, asked->rows, connection->interruptible) : NULL;
	/* Closing it ends the statement at the server, too. */
	if (answer == NULL && PQstatus(connection->pg) == CONNECTION_OK)
	{
		bool		is_interrupted = connection->interruptible && request_is_interrupted();

		pool_lose(connection);
		return is_interrupted ? EINTR : refuse_answer(asked, "more than was asked for");
	}
	error = judge(connection, answer, sqlstate);
	if (error == 0 && PQnfields(answer) != asked->columns)
		error = refuse_answer(asked, "other columns than were asked for");
	if (error == 0)
		*result = answer;
	else
		PQclear(answer);
	return error;
}

int
query_command(struct connection *connection, const char *sql)
{
	PGresult   *result = query_text(connection->pg, sql, 1);
	int			error = judge(connection, result, NULL);

	PQclear(result);
	return error;
}

int
query_bound(const char *sql)
{
	struct connection *connection = pool_bound();
	struct connection *taken;
	int			error;

	if (connection == NULL)
		return ESTALE;
	error = pool_take(connection->pool, -1, &taken);
	if (error != 0)
		return error;
	error = query_command(taken, sql);
	pool_give(taken);
	return error == ERROR_LOST ? EIO : error;
}

int
query_run(struct pool *pool, int slot, int statement, const struct parameters *parameters,
		  PGresult **result)
{
	struct timespec started = {0};

	for (int attempt = 0;; attempt++)
	{
		struct connection *connection;
		char		sqlstate[6];
		int			error = pool_take(pool, slot, &connection);

		if (error != 0)
			return error;
		connection->interruptible = true;
		error = query_on(connection, statement, parameters, result, sqlstate);
		connection->interruptible = false;
		pool_give(connection);
		if (error != ERROR_LOST && !(error != 0 && error_is_retried(sqlstate)))
			return error;
		error = pool_wait_again(pool, &started, attempt);
		if (error != 0)
			return error;
	}
}
