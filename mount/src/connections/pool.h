/*
 * connections/pool.h
 *	  Connections to the server.
 *
 * A thread takes a connection for one statement, or for one transaction, and gives it back.  No
 * more connections are made than the option says; a thread that finds none waits until one is given
 * back, so a statement must not be run by a thread that holds a connection already.  A lost
 * connection is made anew at its next use.
 *
 * A server that stands still closes no connection.  connections/watch.c asks whether it is there
 * while a connection is taken for long, and cuts the connection if it is not.
 *
 * Waits end when the kernel interrupts the request that the thread serves (pool_set_request).
 */
#ifndef POOL_H
#define POOL_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "common/options.h"

struct pool;

struct connection
{
	PGconn	   *pg;				/* NULL: to be made */
	struct pool *pool;
	int			slot;			/* 0 and up; one holder at a time */
	int			backend;		/* pid of the server's process; atomic */
	int			socket;			/* of pg; -1: none.  Under the pool's lock, see pool_cut() */
	bool		busy;
	bool		is_spare;		/* busy beyond a statement: pool_take_spare() */
	struct timespec busy_since;
	bool		reserved;		/* for threads that are bound to it */
	unsigned int term;			/* not for threads that were bound in an earlier one; atomic */
	bool		was_reserved;	/* at some time; atomic */
	bool		interruptible;	/* the statement ends when the request is interrupted */
	uint8_t    *prepared;		/* by statement */
};

/* No connection is made yet. */
struct pool *pool_create(const struct options *options);
void pool_destroy(struct pool *pool);

/* A command that each new connection runs first, before any statement; NULL in *error is success.
 * The connection is not yet in use by others. */
typedef bool (*pool_greeting) (struct connection *connection, void *context);
void pool_set_greeting(struct pool *pool, pool_greeting greeting, void *context);

/* Settings that each connection gets, the given one now. */
void pool_set_settings(struct pool *pool, struct connection *connection, const char *sql);

/*
 * All connections, made now, and later ones as long as the server can do it, read in a transaction
 * with this exported snapshot.  False: an error of the server in *error (allocated).  A connection
 * that cannot be made so any more is ESTALE.
 */
bool pool_set_snapshot(struct pool *pool, const char *snapshot, char **error);
bool pool_has_snapshot(const struct pool *pool);

/* Connect once now; an error of libpq in *error (allocated), with what to do about it. */
bool pool_connect(struct pool *pool, char **error);

/*
 * Keep a connection, which is up, for threads that are bound to it: pool_take() gives them no other
 * one, and no other threads get it.  EAGAIN if too few would be left.  A connection that was lost
 * is not made anew for bound threads: they get ESTALE.
 */
int pool_reserve(struct pool *pool, struct connection **connection);
void pool_unreserve(struct connection *connection);

/* Bind the calling thread, until pool_set_request(); NULL: it gets no connection, but ESTALE. */
void pool_bind(struct connection *connection);

/* The same, and all threads that are bound already, and wait for the connection, get ESTALE. */
void pool_bind_alone(struct connection *connection);

void pool_unbind(void);

/* The connection to which the calling thread is bound; NULL: to none. */
struct connection *pool_bound(void);

/* How many connections there are at most. */
int pool_size(const struct pool *pool);

/* A connection of its own for other uses, which the caller closes; NULL with a message. */
PGconn	   *pool_connect_apart(struct pool *pool, char **error);

/*
 * Whether one of the connections has this backend, and what it changes is known to the kernel: it
 * has been reserved for no transaction, whose changes appear elsewhere when it is committed.
 */
bool pool_has_backend(struct pool *pool, int pid);

struct statement
{
	char	   *sql;
	int			columns;		/* that its answer has */
	int			rows;			/* that its answer has at most */
};

/*
 * A statement of SQL by number; before threads run.  The text is copied.  Another number of
 * columns, or more rows, are an error: answers of a hostile server take no memory without end, and
 * are not taken for others.  (One row libpq keeps as a whole: up to 2 GB on each connection.)
 */
int pool_add_statement(struct pool *pool, const char *sql, int columns, int rows);
const struct statement *pool_statement(const struct pool *pool, int number);

/* The request that the calling thread serves from now on, bound to no connection; NULL: none. */
struct fuse_req;
void pool_set_request(struct fuse_req *request);

/* A connection that is up; 0, EINTR, or EIO when the server is away for longer than timeo.  It is
 * the one of the given slot if that is free; -1: any. */
int pool_take(struct pool *pool, int slot, struct connection **connection);
/* A connection that is up and free at this moment. */
bool pool_take_now(struct pool *pool, struct connection **connection);
/* The same, for longer than a statement: only if two remain that are neither reserved nor such. */
bool pool_take_spare(struct pool *pool, struct connection **connection);
void pool_give(struct connection *connection);

/* Make a connection that the caller holds anew if it is lost; as pool_take() in its errors. */
int pool_reconnect(struct connection *connection);

/* Say that the connection is broken: it is made anew when it is taken next. */
void pool_lose(struct connection *connection);

/* For how many seconds the connection that was taken first has been taken; 0: none is. */
double pool_longest_use(struct pool *pool);

/*
 * The server has answered nothing for "timeo": threads that have had a connection for so long find
 * it lost, and none is made until pool_note_answer(): that is EIO at once.
 */
void pool_cut(struct pool *pool);
void pool_note_answer(struct pool *pool);

/* Sleep for as long as the number of attempts suggests; an errno if the request was interrupted or
 * "timeo" has passed since *started (0: begins now), or pool_cut() says that it has. */
int pool_wait_again(struct pool *pool, struct timespec *started, int attempt);

#endif							/* POOL_H */
