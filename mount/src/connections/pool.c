/*
 * connections/pool.c
 *	  Connections to the server: made, taken, given back, kept for threads that are bound to them.
 *
 * A lock guards the flags "busy".  The other fields of a connection belong to its holder.
 */
#include "connections/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/answer.h"
#include "connections/request.h"

enum
{
	MAX_STATEMENTS = 128,
	/* libpq's shortest, and what a connection that is made may take */
	MIN_CONNECT_SECONDS = 2,
	MAX_CONNECT_SECONDS = 10
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
	time_t		message_at;		/* when a lost server was last written of */
	bool		is_away;		/* the server, as pool_cut() says; atomic */
};

/* To which connection the thread is bound, and for which of its terms. */
static __thread bool thread_is_bound;
static __thread struct connection *thread_connection;
static __thread unsigned int thread_term;

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
		pool->connections[i].socket = -1;
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

const struct statement *
pool_statement(const struct pool *pool, int number)
{
	return &pool->statements[number];
}

bool
pool_has_snapshot(const struct pool *pool)
{
	return pool->snapshot != NULL;
}

int
pool_size(const struct pool *pool)
{
	return pool->size;
}

/* ---- making connections ---- */

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

/* ---- a server that stands still ---- */

void
pool_note_answer(struct pool *pool)
{
	__atomic_store_n(&pool->is_away, false, __ATOMIC_RELAXED);
}

double
pool_longest_use(struct pool *pool)
{
	double		longest = 0;

	pthread_mutex_lock(&pool->lock);
	for (int i = 0; i < pool->size; i++)
	{
		const struct connection *connection = &pool->connections[i];
		double		seconds = connection->busy ? seconds_since(&connection->busy_since) : 0;

		if (seconds > longest)
			longest = seconds;
	}
	pthread_mutex_unlock(&pool->lock);
	return longest;
}

/* A thread that waits in libpq finds the end of the connection. */
void
pool_cut(struct pool *pool)
{
	__atomic_store_n(&pool->is_away, true, __ATOMIC_RELAXED);
	pthread_mutex_lock(&pool->lock);
	for (int i = 0; i < pool->size; i++)
	{
		struct connection *connection = &pool->connections[i];

		if (connection->busy && connection->socket >= 0 &&
			seconds_since(&connection->busy_since) >= pool->timeo)
			shutdown(connection->socket, SHUT_RDWR);
	}
	pthread_mutex_unlock(&pool->lock);
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

/* ---- threads that are bound ---- */

void
pool_set_request(struct fuse_req *request)
{
	request_set(request);
	pool_unbind();
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

/* Whether the transaction has ended, or is ending, for which the thread was bound. */
static bool
is_term_over(void)
{
	return thread_is_bound &&
		__atomic_load_n(&thread_connection->term, __ATOMIC_RELAXED) != thread_term;
}

/* ---- taking and giving ---- */

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

/* Under the pool's lock. */
static void
begin_use(struct connection *connection)
{
	connection->busy = true;
	clock_gettime(CLOCK_MONOTONIC, &connection->busy_since);
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
		struct timespec until = deadline(WAIT_MILLISECONDS);

		pthread_cond_timedwait(&pool->given, &pool->lock, &until);
		waited += WAIT_MILLISECONDS;	/* at most */
		error = waited >= PATIENCE_MILLISECONDS && request_is_interrupted() ? EINTR : 0;
	}
	if (is_term_over())
		error = ESTALE;
	else if (*connection != NULL)
	{
		begin_use(*connection);
		error = 0;
	}
	pthread_mutex_unlock(&pool->lock);
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

bool
pool_take_now(struct pool *pool, struct connection **connection)
{
	pthread_mutex_lock(&pool->lock);
	*connection = find_free(pool, -1);
	if (*connection != NULL && (*connection)->pg != NULL &&
		PQstatus((*connection)->pg) == CONNECTION_OK)
		begin_use(*connection);
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
