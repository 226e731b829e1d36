/*
 * connections/pool.h
 *	  Connections to the server, and statements on them.
 *
 * A thread takes a connection for one statement, or for one transaction, and gives it back.  No
 * more connections are made than the option says; a thread that finds none waits until one is given
 * back, so a statement must not be run by a thread that holds a connection already.  A statement is
 * prepared on a connection when it first runs there.  Results and parameters are binary.
 *
 * A lost connection is made anew at its next use.  query_run() repeats the statement until the
 * server has been away for "timeo" seconds; statements that change something must not be run by it
 * unless they may be repeated.
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
	bool		busy;
	bool		reserved;		/* for threads that are bound to it */
	unsigned int term;			/* not for threads that were bound in an earlier one; atomic */
	bool		was_reserved;	/* at some time; atomic */
	bool		interruptible;	/* the statement ends when the request is interrupted */
	uint8_t    *prepared;		/* by statement */
};

enum
{
	MAX_PARAMETERS = 24
};

/* Parameters of a statement.  Bytes and text are not copied. */
struct parameters
{
	int			count;
	const char *values[MAX_PARAMETERS];
	int			lengths[MAX_PARAMETERS];
	uint64_t	numbers[MAX_PARAMETERS];	/* in network order */
};

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

/* Connect once now; an error of libpq in *error (allocated), with what to do about it. */
bool pool_connect(struct pool *pool, char **error);

/*
 * Keep a connection, which is up, for threads that are bound to it: pool_take() gives them no other
 * one, and no other threads get it.  EAGAIN if too few would be left.  A connection that was lost
 * is not made anew for bound threads: they get ESTALE.
 */
int pool_reserve(struct pool *pool, struct connection **connection);
void pool_unreserve(struct connection *connection);

/* The thread of a program whose request the calling thread serves; 0: unknown, or none. */
pid_t pool_requester(void);

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

/*
 * A statement of SQL by number; before threads run.  The text is copied.  Another number of
 * columns, or more rows, are an error: answers of a hostile server take no memory without end, and
 * are not taken for others.  (One row libpq keeps as a whole: up to 2 GB on each connection.)
 */
int pool_add_statement(struct pool *pool, const char *sql, int columns, int rows);

/*
 * A statement that is not prepared, on a connection that no other thread has: its rows, at most as
 * many as are said (0: one), or an error; NULL: the connection is of no use any more.  query NULL:
 * no parameters, text.  query_text(): also several commands, of which the last one answers.
 */
struct query
{
	int			count;
	const char *const *values;
	const int  *lengths;
	const int  *formats;
	bool		is_binary;		/* the answer */
	int			rows;
};
PGresult   *query_once(PGconn *pg, const char *sql, const struct query *query);
PGresult   *query_text(PGconn *pg, const char *sql, int rows);

/* The request of the calling thread; NULL for none. */
struct fuse_req;
void pool_set_request(struct fuse_req *request);
bool pool_is_interrupted(void);

/* A connection that is up; 0, EINTR, or EIO when the server is away for longer than timeo.  It is
 * the one of the given slot if that is free; -1: any. */
int pool_take(struct pool *pool, int slot, struct connection **connection);
/* A connection that is up and free at this moment. */
bool pool_take_now(struct pool *pool, struct connection **connection);
void pool_give(struct connection *connection);

/* Make a connection that the caller holds anew if it is lost; as pool_take() in its errors. */
int pool_reconnect(struct connection *connection);

/* Say that the connection is broken: it is made anew when it is taken next. */
void pool_lose(struct connection *connection);

/*
 * One statement on a connection that the caller holds: 0 and the result, which the caller clears;
 * ERROR_LOST; or an errno.  SQLSTATE, if any, goes to sqlstate (6 bytes) unless that is NULL.
 */
int query_on(struct connection *connection, int statement, const struct parameters *parameters,
			 PGresult **result, char *sqlstate);

/* A command without parameters or result, such as BEGIN. */
int query_command(struct connection *connection, const char *sql);

/* The same on the connection to which the calling thread is bound: 0 or an errno. */
int pool_command(const char *sql);

/* Sleep for as long as the number of attempts suggests; an errno if the request was interrupted or
 * "timeo" has passed since *started (0: begins now). */
int query_wait_again(struct pool *pool, struct timespec *started, int attempt);

/* Take a connection, run a statement that may be repeated, give the connection back. */
int query_run(struct pool *pool, int slot, int statement, const struct parameters *parameters,
			  PGresult **result);

void parameter_int8(struct parameters *parameters, int64_t value);
void parameter_int4(struct parameters *parameters, int32_t value);
void parameter_bool(struct parameters *parameters, bool value);
void parameter_bytes(struct parameters *parameters, const void *data, size_t length);
void parameter_text(struct parameters *parameters, const char *text);
void parameter_null(struct parameters *parameters);

/* The binary form of a bigint[], for parameter_bytes(): ARRAY_INT8_BYTES(count) bytes. */
#define ARRAY_INT8_BYTES(count) (20 + 12 * (size_t) (count))
void array_of_int8(char *array, const int64_t *values, int count);

/*
 * Fields of a result, in binary.  They are read by these functions only: a row, a column or a
 * length that is not there, and NULL, is 0 or the empty string.
 */
bool field_is_null(const PGresult *result, int row, int column);
const char *field_bytes(const PGresult *result, int row, int column, size_t *length);
const char *field_text(const PGresult *result, int row, int column);
bool field_has_length(const PGresult *result, int row, int column, size_t expected);
int64_t field_int8(const PGresult *result, int row, int column);
int32_t field_int4(const PGresult *result, int row, int column);
bool field_bool(const PGresult *result, int row, int column);

/* Seconds of a timestamptz since 1970. */
struct timespec field_time(const PGresult *result, int row, int column);

/* A timestamptz as parameter. */
void parameter_time(struct parameters *parameters, struct timespec time);

#endif							/* POOL_H */
