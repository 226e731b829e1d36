/*
 * connections/take.c
 *	  Connections to the server: taken, given back, kept for threads that are bound to them.  They
 *	  are made in connect.c.
 *
 * A lock guards the flags "busy".  The other fields of a connection belong to its holder.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/pool_internal.h"
#include "connections/request.h"

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

bool
pool_has_backend(struct pool *pool, int pid)
{
	for (int i = 0; i < pool->size; i++)
		if (__atomic_load_n(&pool->connections[i].backend, __ATOMIC_RELAXED) == pid)
			return !__atomic_load_n(&pool->connections[i].was_reserved, __ATOMIC_RELAXED);
	return false;
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

/* Under the lock: whether two remain for requests if one more is kept. */
static bool
may_keep(const struct pool *pool)
{
	int			kept = 0;

	for (int i = 0; i < pool->size; i++)
		kept += pool->connections[i].reserved || pool->connections[i].is_spare;
	return kept + 2 < pool->size;
}

bool
pool_take_spare(struct pool *pool, struct connection **connection)
{
	bool		is_taken = pool_take_now(pool, connection);
	bool		may_stay;

	if (!is_taken)
		return false;
	pthread_mutex_lock(&pool->lock);
	may_stay = may_keep(pool);
	(*connection)->is_spare = may_stay;
	pthread_mutex_unlock(&pool->lock);
	if (!may_stay)
		pool_give(*connection);
	if (!may_stay)
		*connection = NULL;
	return may_stay;
}

void
pool_give(struct connection *connection)
{
	struct pool *pool = connection->pool;

	pthread_mutex_lock(&pool->lock);
	connection->busy = connection->is_spare = false;
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

	if (error != 0)
		return error;
	pthread_mutex_lock(&pool->lock);
	if (!may_keep(pool))
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
