/*
 * connections/connect.c
 *	  Connections to the server are made, and lost; see connections/pool.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/answer.h"
#include "connections/pool_internal.h"
#include "connections/request.h"

enum
{
	/* libpq's shortest, and what a connection that is made may take */
	MIN_CONNECT_SECONDS = 2,
	MAX_CONNECT_SECONDS = 10
};

int
pool_wait_again(struct pool *pool, struct timespec *started, int attempt)
{
	int			milliseconds = attempt < 5 ? 10 << attempt : 500;

	if (started->tv_sec == 0 && started->tv_nsec == 0)
		clock_gettime(CLOCK_MONOTONIC, started);
	if (__atomic_load_n(&pool->is_away, __ATOMIC_RELAXED))
		return EIO;
	while (milliseconds > 0)
	{
		int			step = milliseconds < WAIT_MILLISECONDS ? milliseconds : WAIT_MILLISECONDS;

		if (request_is_interrupted() && seconds_since(started) * 1000 >= PATIENCE_MILLISECONDS)
			return EINTR;
		if (seconds_since(started) >= pool->timeo)
			return EIO;
		sleep_milliseconds(step);
		milliseconds -= step;
	}
	return 0;
}

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
	char		seconds[16];
	const char *values[] = {"blobfs", seconds, "30000", pool->conninfo, NULL};
	double		most = pool->timeo < MAX_CONNECT_SECONDS ? pool->timeo : MAX_CONNECT_SECONDS;

	snprintf(seconds, sizeof(seconds), "%d",
			 most < MIN_CONNECT_SECONDS ? MIN_CONNECT_SECONDS : (int) most);
	return PQconnectdbParams(keywords, values, 1);
}

/* The socket is none of ours before it is closed: another file may get its number. */
static void
set_socket(struct connection *connection, int socket)
{
	struct pool *pool = connection->pool;

	pthread_mutex_lock(&pool->lock);
	connection->socket = socket;
	pthread_mutex_unlock(&pool->lock);
}

static void
close_connection(struct connection *connection)
{
	set_socket(connection, -1);
	PQfinish(connection->pg);
	connection->pg = NULL;
}

/* Its end is that of the connection; after an error of a statement it goes on (judge()). */
static bool
begin_snapshot(struct connection *connection, const char *snapshot)
{
	char	   *literal = PQescapeLiteral(connection->pg, snapshot, strlen(snapshot));
	char	   *sql = format_string("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
									"SET TRANSACTION SNAPSHOT %s; SAVEPOINT begun",
									literal ? literal : "''");
	bool		good = query_commands(connection->pg, sql);

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

	close_connection(connection);
	memset(connection->prepared, 0, MAX_STATEMENTS);
	connection->pg = connect_to_server(pool);
	if (PQstatus(connection->pg) != CONNECTION_OK)
		return false;
	set_socket(connection, PQsocket(connection->pg));
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
	good = query_commands(connection->pg, sql);
	free(sql);
	if (good && pool->settings)
		good = query_commands(connection->pg, pool->settings);
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
	if (!query_commands(connection->pg, sql))
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
pool_connect(struct pool *pool, char **error)
{
	struct connection *connection = &pool->connections[0];

	if (connect_now(connection))
		return true;
	*error = copy_string(PQerrorMessage(connection->pg));
	return false;
}

void
pool_lose(struct connection *connection)
{
	close_connection(connection);
	__atomic_store_n(&connection->backend, 0, __ATOMIC_RELAXED);
}

/* Once a minute at most. */
static void
complain(struct pool *pool, PGconn *pg)
{
	time_t		now = monotonic_seconds();
	char	   *text;

	if (pool->message_at != 0 && now - pool->message_at < 60)
		return;
	pool->message_at = now;
	text = copy_string(PQerrorMessage(pg));
	text[strcspn(text, "\n")] = '\0';
	message("no connection to the server: %s", text);
	free(text);
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
		if (__atomic_load_n(&pool->is_away, __ATOMIC_RELAXED))
			return EIO;
		if (connect_now(connection))
			return 0;
		complain(pool, connection->pg);
		/* It may be up, and not to be used: see the greeting. */
		pool_lose(connection);
		error = pool_wait_again(pool, &started, attempt);
	}
	return error;
}
