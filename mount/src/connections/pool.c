/*
 * connections/pool.c
 *	  Connections to the server, and statements on them.
 *
 * A lock guards the flags "busy".  The other fields of a connection belong to its holder.
 */
#include "connections/pool.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "common/errors.h"

enum
{
	MAX_STATEMENTS = 128,
	/* How often a wait looks whether its request was interrupted. */
	WAIT_MILLISECONDS = 100,
	/* Waits that are shorter are not ended: signals come for many reasons. */
	PATIENCE_MILLISECONDS = 1000,
	/* Of an answer of many rows: more than any that is asked for has. */
	ANSWER_BYTES = 64 << 20,
	/* Results of one command string. */
	MAX_RESULTS = 16
};

struct statement
{
	char	   *sql;
	int			columns;		/* that its answer has */
	int			rows;			/* that its answer has at most */
};

struct pool
{
	char	   *conninfo;
	double		timeo;
	int			size;
	struct connection *connections;
	struct statement statements[MAX_STATEMENTS];
	int			statement_count;
	const char *settings;
	const char *snapshot;		/* NULL: each statement is a transaction */
	bool		snapshot_is_gone;	/* atomic */
	pool_greeting greeting;
	void	   *greeting_context;
	pthread_mutex_t lock;
	pthread_cond_t given;		/* a connection was given back */
	int			message_at;		/* seconds; when a lost server was last written of */
};

static __thread struct fuse_req *thread_request;
static __thread pid_t thread_requester;
static __thread bool thread_is_bound;
static __thread struct connection *thread_connection;
static __thread unsigned int thread_term;	/* of the connection */

struct pool *
pool_create(const struct options *options)
{
	struct pool *pool = allocate(sizeof(*pool));

	pool->conninfo = copy_string(options->conninfo);
	pool->timeo = options->timeo;
	pool->size = (int) options->connections;
	pool->connections = allocate(pool->size * sizeof(struct connection));
	for (int i = 0; i < pool->size; i++)
	{
		pool->connections[i].pool = pool;
		pool->connections[i].slot = i;
		pool->connections[i].prepared = allocate(MAX_STATEMENTS);
	}
	pthread_mutex_init(&pool->lock, NULL);
	init_condition(&pool->given);
	return pool;
}

void
pool_destroy(struct pool *pool)
{
	for (int i = 0; i < pool->size; i++)
	{
		PQfinish(pool->connections[i].pg);
		free(pool->connections[i].prepared);
	}
	for (int i = 0; i < pool->statement_count; i++)
		free(pool->statements[i].sql);
	free(pool->connections);
	free(pool->conninfo);
	free(pool);
}

void
pool_set_greeting(struct pool *pool, pool_greeting greeting, void *context)
{
	pool->greeting = greeting;
	pool->greeting_context = context;
}

int
pool_add_statement(struct pool *pool, const char *sql, int columns, int rows)
{
	if (pool->statement_count == MAX_STATEMENTS)
		fatal("too many statements");
	pool->statements[pool->statement_count] = (struct statement) {copy_string(sql), columns, rows};
	return pool->statement_count++;
}

/* ---- waits ---- */

void
pool_set_request(struct fuse_req *request)
{
	thread_request = request;
	thread_requester = request != NULL ? fuse_req_ctx(request)->pid : 0;
	pool_unbind();
}

pid_t
pool_requester(void)
{
	return thread_requester;
}

bool
pool_is_interrupted(void)
{
	return thread_request != NULL && fuse_req_interrupted(thread_request);
}

static double
seconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) (now.tv_sec - start->tv_sec) + (double) (now.tv_nsec - start->tv_nsec) / 1e9;
}

static void
sleep_milliseconds(int milliseconds)
{
	struct timespec time = {milliseconds / 1000, (long) (milliseconds % 1000) * 1000000};

	nanosleep(&time, NULL);
}

int
query_wait_again(struct pool *pool, struct timespec *started, int attempt)
{
	int			milliseconds = attempt < 5 ? 10 << attempt : 500;

	if (started->tv_sec == 0 && started->tv_nsec == 0)
		clock_gettime(CLOCK_MONOTONIC, started);
	while (milliseconds > 0)
	{
		int			step = milliseconds < WAIT_MILLISECONDS ? milliseconds : WAIT_MILLISECONDS;

		if (pool_is_interrupted() && seconds_since(started) * 1000 >= PATIENCE_MILLISECONDS)
			return EINTR;
		if (seconds_since(started) >= pool->timeo)
			return EIO;
		sleep_milliseconds(step);
		milliseconds -= step;
	}
	return 0;
}

/* ---- answers ---- */

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
			pool_is_interrupted())
			return false;
		/* No thread listens here, and libpq would keep them. */
		while ((notification = PQnotifies(pg)) != NULL)
			PQfreemem(notification);
	}
	return true;
}

/*
 * The answer to a statement: its rows in one result, or an error; of several commands that of the
 * last one.  The rows come one by one, and not more of them than are allowed, nor more bytes than
 * ANSWER_BYTES, but for one row, which libpq has as a whole in its memory.  NULL: interrupted, or
 * an answer that no server of PostgreSQL gives; the connection is of no use any more.
 */
static PGresult *
receive_answer(PGconn *pg, int rows, bool interruptible)
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
	return receive_answer(pg, query->rows > 0 ? query->rows : 1, false);
}

PGresult *
query_text(PGconn *pg, const char *sql, int rows)
{
	return PQsendQuery(pg, sql) ? receive_answer(pg, rows, false) : NULL;
}

/* Commands, also several, some of which may give a row or two, which are not needed. */
static bool
run_commands(PGconn *pg, const char *sql)
{
	PGresult   *result = query_text(pg, sql, MAX_RESULTS);
	ExecStatusType status = PQresultStatus(result);
	bool		good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ||
		status == PGRES_SINGLE_TUPLE;

	PQclear(result);
	return good;
}

/* ---- connections ---- */

/* Notices and warnings of the server are for debugging. */
static void
receive_notice(void *context, const char *text)
{
	debug("server: %s", text);
}

static PGconn *
connect_to_server(struct pool *pool)
{
	/* A later one wins: the connection string. */
	const char *keywords[] = {"fallback_application_name", "connect_timeout", "tcp_user_timeout",
	"dbname", NULL};
	const char *values[] = {"blobfs", "10", "30000", pool->conninfo, NULL};

	return PQconnectdbParams(keywords, values, 1);
}

/* Its end is that of the connection; after an error of a statement it goes on (judge()). */
static bool
begin_snapshot(struct connection *connection, const char *snapshot)
{
	char	   *literal = PQescapeLiteral(connection->pg, snapshot, strlen(snapshot));
	char	   *sql = format_string("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
									"SET TRANSACTION SNAPSHOT %s; SAVEPOINT begun",
									literal ? literal : "''");
	bool		good = run_commands(connection->pg, sql);

	PQfreemem(literal);
	free(sql);
	return good;
}

/*
 * Connect; false with a message of libpq in connection->pg.  Names are bytes, so the client's
 * encoding is the server's.  Settings that matter are set, whatever those of the role are.
 */
static bool
connect_now(struct connection *connection)
{
	struct pool *pool = connection->pool;
	const char *encoding;
	char	   *sql;
	bool		good;

	PQfinish(connection->pg);
	memset(connection->prepared, 0, MAX_STATEMENTS);
	connection->pg = connect_to_server(pool);
	if (PQstatus(connection->pg) != CONNECTION_OK)
		return false;
	__atomic_store_n(&connection->backend, PQbackendPID(connection->pg), __ATOMIC_RELAXED);
	PQsetNoticeProcessor(connection->pg, receive_notice, NULL);
	encoding = PQparameterStatus(connection->pg, "server_encoding");
	sql = format_string("SELECT pg_catalog.set_config(s.name, '0', false)"
						" FROM pg_catalog.pg_settings AS s WHERE s.name OPERATOR(pg_catalog.=)"
						" ANY (ARRAY['idle_session_timeout', 'transaction_timeout']);"
						"SET client_encoding = '%s'; SET bytea_output = hex;"
						"SET plan_cache_mode = auto; SET default_transaction_isolation = "
						"'read committed'; SET idle_in_transaction_session_timeout = 0;"
						"SET statement_timeout = 0; SET lock_timeout = '30s'",
						encoding ? encoding : "UTF8");
	good = run_commands(connection->pg, sql);
	free(sql);
	if (good && pool->settings)
		good = run_commands(connection->pg, pool->settings);
	if (good && pool->greeting)
		good = pool->greeting(connection, pool->greeting_context);
	if (good && pool->snapshot && !begin_snapshot(connection, pool->snapshot))
	{
		message("the snapshot is gone: %s", PQerrorMessage(connection->pg));
		__atomic_store_n(&pool->snapshot_is_gone, true, __ATOMIC_RELAXED);
		pool_lose(connection);
		return false;
	}
	return good;
}

bool
pool_set_snapshot(struct pool *pool, const char *snapshot, char **error)
{
	bool		good = true;

	for (int i = 0; i < pool->size && good; i++)
	{
		struct connection *connection = &pool->connections[i];

		good = (connection->pg != NULL || connect_now(connection)) &&
			begin_snapshot(connection, snapshot);
		if (!good)
			*error = copy_string(PQerrorMessage(connection->pg));
	}
	pool->snapshot = snapshot;
	return good;
}

void
pool_set_settings(struct pool *pool, struct connection *connection, const char *sql)
{
	if (!run_commands(connection->pg, sql))
		fatal("%s", PQerrorMessage(connection->pg));
	pool->settings = sql;
}

PGconn *
pool_connect_apart(struct pool *pool, char **error)
{
	PGconn	   *connection = connect_to_server(pool);

	if (PQstatus(connection) == CONNECTION_OK)
	{
		PQsetNoticeProcessor(connection, receive_notice, NULL);
		return connection;
	}
	*error = copy_string(PQerrorMessage(connection));
	PQfinish(connection);
	return NULL;
}

bool
pool_has_backend(struct pool *pool, int pid)
{
	for (int i = 0; i < pool->size; i++)
		if (__atomic_load_n(&pool->connections[i].backend, __ATOMIC_RELAXED) == pid)
			return !__atomic_load_n(&pool->connections[i].was_reserved, __ATOMIC_RELAXED);
	return false;
}

bool
pool_connect(struct pool *pool, char **error)
{
	struct connection *connection = &pool->connections[0];

	if (connect_now(connection))
		return true;
	*error = copy_string(PQerrorMessage(connection->pg));
	return false;
}

/*
 * The connection of a slot if it is up and free; else any that is; else one that is to be made.  So
 * no more connections are made than threads use at once.
 */
static struct connection *
find_free(struct pool *pool, int slot)
{
	struct connection *unconnected = NULL;

	if (thread_is_bound)
		return thread_connection->busy ? NULL : thread_connection;
	if (slot >= 0 && slot < pool->size && !pool->connections[slot].busy &&
		!pool->connections[slot].reserved && pool->connections[slot].pg != NULL)
		return &pool->connections[slot];
	for (int i = 0; i < pool->size; i++)
	{
		struct connection *connection = &pool->connections[i];

		if (connection->busy || connection->reserved)
			continue;
		if (connection->pg != NULL)
			return connection;
		if (unconnected == NULL)
			unconnected = connection;
	}
	return unconnected;
}

/* Whether the transaction has ended, or is ending, for which the thread was bound. */
static bool
is_term_over(void)
{
	return thread_is_bound &&
		__atomic_load_n(&thread_connection->term, __ATOMIC_RELAXED) != thread_term;
}

/* A connection that no other thread has; it may be down. */
static int
take_any(struct pool *pool, int slot, struct connection **connection)
{
	int			error = 0;
	int			waited = 0;

	pthread_mutex_lock(&pool->lock);
	while ((*connection = find_free(pool, slot)) == NULL && error == 0 && !is_term_over())
	{
		struct timespec until;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += WAIT_MILLISECONDS * 1000000L;
		if (until.tv_nsec >= 1000000000L)
		{
			until.tv_nsec -= 1000000000L;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&pool->given, &pool->lock, &until);
		waited += WAIT_MILLISECONDS;	/* at most */
		error = waited >= PATIENCE_MILLISECONDS && pool_is_interrupted() ? EINTR : 0;
	}
	if (is_term_over())
		error = ESTALE;
	else if (*connection != NULL)
	{
		(*connection)->busy = true;
		error = 0;
	}
	pthread_mutex_unlock(&pool->lock);
	return error;
}

bool
pool_take_now(struct pool *pool, struct connection **connection)
{
	pthread_mutex_lock(&pool->lock);
	*connection = find_free(pool, -1);
	if (*connection != NULL && (*connection)->pg != NULL &&
		PQstatus((*connection)->pg) == CONNECTION_OK)
		(*connection)->busy = true;
	else
		*connection = NULL;
	pthread_mutex_unlock(&pool->lock);
	return *connection != NULL;
}

void
pool_give(struct connection *connection)
{
	struct pool *pool = connection->pool;

	pthread_mutex_lock(&pool->lock);
	connection->busy = false;
	if (connection->reserved)
		pthread_cond_broadcast(&pool->given);	/* of its own threads, not of any */
	else
		pthread_cond_signal(&pool->given);
	pthread_mutex_unlock(&pool->lock);
}

void
pool_lose(struct connection *connection)
{
	PQfinish(connection->pg);
	connection->pg = NULL;
	__atomic_store_n(&connection->backend, 0, __ATOMIC_RELAXED);
}

/* Once a minute at most. */
static void
complain(struct pool *pool, PGconn *pg)
{
	struct timespec now;
	char	   *text;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (pool->message_at != 0 && now.tv_sec - pool->message_at < 60)
		return;
	pool->message_at = (int) now.tv_sec;
	text = copy_string(PQerrorMessage(pg));
	text[strcspn(text, "\n")] = '\0';
	message("no connection to the server: %s", text);
	free(text);
}

/* Two remain at least: one for other requests, one for a thread that reads ahead. */
int
pool_reserve(struct pool *pool, struct connection **connection)
{
	int			error = pool_take(pool, -1, connection);
	int			reserved = 0;

	if (error != 0)
		return error;
	pthread_mutex_lock(&pool->lock);
	for (int i = 0; i < pool->size; i++)
		reserved += pool->connections[i].reserved;
	if (reserved + 2 >= pool->size)
		error = EAGAIN;
	else
	{
		(*connection)->reserved = true;
		__atomic_store_n(&(*connection)->was_reserved, true, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&pool->lock);
	pool_give(*connection);
	return error;
}

void
pool_unreserve(struct connection *connection)
{
	struct pool *pool = connection->pool;

	pthread_mutex_lock(&pool->lock);
	connection->reserved = false;
	__atomic_add_fetch(&connection->term, 1, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&pool->given);
	pthread_mutex_unlock(&pool->lock);
}

void
pool_bind(struct connection *connection)
{
	thread_is_bound = true;
	thread_connection = connection;
	if (connection != NULL)
		thread_term = __atomic_load_n(&connection->term, __ATOMIC_RELAXED);
}

/* Under the pool's lock, so that a thread has taken the connection before, or does not get it. */
void
pool_bind_alone(struct connection *connection)
{
	struct pool *pool = connection->pool;

	pthread_mutex_lock(&pool->lock);
	__atomic_add_fetch(&connection->term, 1, __ATOMIC_RELAXED);
	pool_bind(connection);
	pthread_cond_broadcast(&pool->given);
	pthread_mutex_unlock(&pool->lock);
}

void
pool_unbind(void)
{
	thread_is_bound = false;
	thread_connection = NULL;
}

struct connection *
pool_bound(void)
{
	return thread_is_bound ? thread_connection : NULL;
}

int
pool_size(const struct pool *pool)
{
	return pool->size;
}

int
pool_reconnect(struct connection *connection)
{
	struct pool *pool = connection->pool;
	struct timespec started = {0};
	int			error = 0;

	for (int attempt = 0; error == 0; attempt++)
	{
		if (connection->pg == NULL &&
			__atomic_load_n(&pool->snapshot_is_gone, __ATOMIC_RELAXED))
			return ESTALE;
		if (connection->pg != NULL && PQstatus(connection->pg) == CONNECTION_OK)
			return 0;
		if (connect_now(connection))
			return 0;
		complain(pool, connection->pg);
		error = query_wait_again(pool, &started, attempt);
	}
	return error;
}

int
pool_take(struct pool *pool, int slot, struct connection **connection)
{
	int			error;

	if (thread_is_bound && thread_connection == NULL)
		return ESTALE;
	error = take_any(pool, slot, connection);
	if (error != 0)
		return error;
	if (!thread_is_bound)
		error = pool_reconnect(*connection);
	else if ((*connection)->pg == NULL || PQstatus((*connection)->pg) != CONNECTION_OK)
		error = ESTALE;
	if (error != 0)
		pool_give(*connection);
	return error;
}

/* ---- statements ---- */

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
	if (connection->pool->snapshot != NULL)
		PQclear(query_text(connection->pg, "ROLLBACK TO SAVEPOINT begun", 1));
	return error;
}

static int
prepare(struct connection *connection, int statement, char *sqlstate)
{
	PGresult   *result;
	char	   *sql;
	int			error;

	if (connection->prepared[statement])
		return 0;
	/* By SQL: libpq collects all rows of an answer to PQsendPrepare(). */
	sql = format_string("PREPARE s%d AS %s", statement,
						connection->pool->statements[statement].sql);
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
	const struct statement *asked = &connection->pool->statements[statement];
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
		receive_answer(connection->pg, asked->rows, connection->interruptible) : NULL;
	/* Closing it ends the statement at the server, too. */
	if (answer == NULL && PQstatus(connection->pg) == CONNECTION_OK)
	{
		bool		is_interrupted = connection->interruptible && pool_is_interrupted();

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
pool_command(const char *sql)
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
		error = query_wait_again(pool, &started, attempt);
		if (error != 0)
			return error;
	}
}

/* ---- values ---- */

/* Microseconds of the server's timestamps begin in 2000. */
static const int64_t epoch_seconds = 946684800;

static void
add_parameter(struct parameters *parameters, const void *value, size_t length)
{
	if (parameters->count == MAX_PARAMETERS)
		fatal("too many parameters");
	parameters->values[parameters->count] = value;
	parameters->lengths[parameters->count++] = (int) length;
}

void
parameter_int8(struct parameters *parameters, int64_t value)
{
	uint64_t   *number = &parameters->numbers[parameters->count];

	*number = htobe64((uint64_t) value);
	add_parameter(parameters, number, 8);
}

void
parameter_int4(struct parameters *parameters, int32_t value)
{
	uint32_t	network = htonl((uint32_t) value);
	uint64_t   *number = &parameters->numbers[parameters->count];

	memcpy(number, &network, 4);
	add_parameter(parameters, number, 4);
}

void
parameter_bool(struct parameters *parameters, bool value)
{
	uint64_t   *number = &parameters->numbers[parameters->count];

	*(char *) number = value ? 1 : 0;
	add_parameter(parameters, number, 1);
}

/* A pointer that is not NULL also for no bytes, which would be an SQL NULL. */
void
parameter_bytes(struct parameters *parameters, const void *data, size_t length)
{
	add_parameter(parameters, length > 0 ? data : "", length);
}

void
parameter_text(struct parameters *parameters, const char *text)
{
	add_parameter(parameters, text, strlen(text));
}

void
parameter_null(struct parameters *parameters)
{
	add_parameter(parameters, NULL, 0);
}

void
parameter_time(struct parameters *parameters, struct timespec time)
{
	parameter_int8(parameters, ((int64_t) time.tv_sec - epoch_seconds) * 1000000 +
				   time.tv_nsec / 1000);
}

static char *
put_int4(char *to, uint32_t value)
{
	value = htonl(value);
	memcpy(to, &value, 4);
	return to + 4;
}

/* Dimensions, no NULLs, type bigint, length and lower bound; length and value of each element. */
void
array_of_int8(char *array, const int64_t *values, int count)
{
	array = put_int4(array, 1);
	array = put_int4(array, 0);
	array = put_int4(array, 20);
	array = put_int4(array, (uint32_t) count);
	array = put_int4(array, 1);
	for (int i = 0; i < count; i++)
	{
		uint64_t	value = htobe64((uint64_t) values[i]);

		array = put_int4(array, 8);
		memcpy(array, &value, 8);
		array += 8;
	}
}

bool
field_is_null(const PGresult *result, int row, int column)
{
	return row >= PQntuples(result) || column >= PQnfields(result) ||
		PQgetisnull(result, row, column);
}

const char *
field_bytes(const PGresult *result, int row, int column, size_t *length)
{
	*length = 0;
	if (field_is_null(result, row, column))
		return "";
	*length = (size_t) PQgetlength(result, row, column);
	return PQgetvalue(result, row, column);
}

const char *
field_text(const PGresult *result, int row, int column)
{
	size_t		length;

	return field_bytes(result, row, column, &length);
}

bool
field_has_length(const PGresult *result, int row, int column, size_t expected)
{
	size_t		length;

	field_bytes(result, row, column, &length);
	return length == expected;
}

int64_t
field_int8(const PGresult *result, int row, int column)
{
	uint64_t	network = 0;

	if (field_has_length(result, row, column, sizeof(network)))
		memcpy(&network, PQgetvalue(result, row, column), sizeof(network));
	return (int64_t) be64toh(network);
}

int32_t
field_int4(const PGresult *result, int row, int column)
{
	uint32_t	network = 0;

	if (field_has_length(result, row, column, sizeof(network)))
		memcpy(&network, PQgetvalue(result, row, column), sizeof(network));
	return (int32_t) ntohl(network);
}

bool
field_bool(const PGresult *result, int row, int column)
{
	return field_has_length(result, row, column, 1) && *field_text(result, row, column) != 0;
}

/* Times before 1970 have nanoseconds above their seconds, as all others. */
struct timespec
field_time(const PGresult *result, int row, int column)
{
	int64_t		microseconds = field_int8(result, row, column);
	int64_t		seconds = microseconds / 1000000;
	int64_t		remainder = microseconds % 1000000;
	struct timespec time;

	if (remainder < 0)
	{
		remainder += 1000000;
		seconds--;
	}
	time.tv_sec = (time_t) (seconds + epoch_seconds);
	time.tv_nsec = (long) remainder * 1000;
	return time;
}
