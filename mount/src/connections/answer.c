/*
 * connections/answer.c
 *	  What the server answers, received with limits.
 */
#include "connections/answer.h"

#include <errno.h>
#include <poll.h>

#include "connections/request.h"

enum
{
	/* Of an answer of many rows: more than any that is asked for has. */
	ANSWER_BYTES = 64 << 20,
	/* Results of one command string. */
	MAX_RESULTS = 16
};

/* One more row behind those of an answer, whose memory libpq counts. */
static bool
add_row(PGresult *answer, const PGresult *part)
{
	int			row = PQntuples(answer);

	if (PQnfields(part) != PQnfields(answer) || PQresultMemorySize(answer) > ANSWER_BYTES)
		return false;
	for (int column = 0; column < PQnfields(part); column++)
		if (!PQsetvalue(answer, row, column, PQgetvalue(part, 0, column),
						PQgetisnull(part, 0, column) ? -1 : PQgetlength(part, 0, column)))
			return false;
	return true;
}

/* Wait for the next result; false if the request was interrupted meanwhile. */
static bool
wait_for_result(PGconn *pg, bool interruptible)
{
	struct pollfd poll_fd = {PQsocket(pg), POLLIN, 0};
	PGnotify   *notification;
	int			waited = 0;

	while (PQisBusy(pg))
	{
		int			ready = poll(&poll_fd, 1, interruptible ? WAIT_MILLISECONDS : -1);

		if (ready < 0 && errno != EINTR)
			return false;
		if (ready > 0 && !PQconsumeInput(pg))
			break;				/* PQgetResult() has the error */
		if (ready == 0 && (waited += WAIT_MILLISECONDS) >= PATIENCE_MILLISECONDS &&
			request_is_interrupted())
			return false;
		/* No thread listens here, and libpq would keep them. */
		while ((notification = PQnotifies(pg)) != NULL)
			PQfreemem(notification);
	}
	return true;
}

/* The rows come one by one: libpq would keep all of them, however many a server sends. */
PGresult *
answer_receive(PGconn *pg, int rows, bool interruptible)
{
	PGresult   *answer = NULL;
	PGresult   *part;
	int			results = 0;
	bool		good = PQsetSingleRowMode(pg) && wait_for_result(pg, interruptible);

	while (good && (part = PQgetResult(pg)) != NULL)
	{
		ExecStatusType status = PQresultStatus(part);
		bool		has_rows = PQresultStatus(answer) == PGRES_SINGLE_TUPLE;

		if (status == PGRES_SINGLE_TUPLE && has_rows)
			good = PQntuples(answer) < rows && add_row(answer, part);
		else if (status == PGRES_SINGLE_TUPLE)
			good = rows > 0;
		else
			good = (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK ||
					status == PGRES_FATAL_ERROR || status == PGRES_EMPTY_QUERY) &&
				++results <= MAX_RESULTS;
		/* Behind its rows an answer has an empty result. */
		if (has_rows && (status == PGRES_SINGLE_TUPLE || status == PGRES_TUPLES_OK))
			PQclear(part);
		else
		{
			PQclear(answer);
			answer = part;
		}
		good = good && wait_for_result(pg, interruptible);
	}
	if (good)
		return answer;
	PQclear(answer);
	return NULL;
}

PGresult *
query_once(PGconn *pg, const char *sql, const struct query *query)
{
	static const struct query none;

	if (query == NULL)
		query = &none;
	if (!PQsendQueryParams(pg, sql, query->count, NULL, query->values, query->lengths,
						   query->formats, query->is_binary))
		return NULL;
	return answer_receive(pg, query->rows > 0 ? query->rows : 1, false);
}

PGresult *
query_text(PGconn *pg, const char *sql, int rows)
{
	return PQsendQuery(pg, sql) ? answer_receive(pg, rows, false) : NULL;
}

bool
query_commands(PGconn *pg, const char *sql)
{
	PGresult   *result = query_text(pg, sql, MAX_RESULTS);
	ExecStatusType status = PQresultStatus(result);
	bool		good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ||
		status == PGRES_SINGLE_TUPLE;

	PQclear(result);
	return good;
}
