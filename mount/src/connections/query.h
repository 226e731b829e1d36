/*
 * connections/query.h
 *	  Statements of the pool, run on its connections.
 *
 * A statement is prepared on a connection when it first runs there.  Results and parameters are
 * binary.  query_run() repeats the statement until the server has been away for "timeo" seconds;
 * statements that change something must not be run by it unless they may be repeated.
 */
#ifndef QUERY_H
#define QUERY_H

#include "connections/pool.h"
#include "connections/values.h"

/*
 * One statement on a connection that the caller holds: 0 and the result, which the caller clears;
 * ERROR_LOST; or an errno.  SQLSTATE, if any, goes to sqlstate (6 bytes) unless that is NULL.
 */
int query_on(struct connection *connection, int statement, const struct parameters *parameters,
			 PGresult **result, char *sqlstate);

/* A command without parameters or result, such as BEGIN. */
int query_command(struct connection *connection, const char *sql);

/* The same on the connection to which the calling thread is bound: 0 or an errno. */
int query_bound(const char *sql);

/* Take a connection, run a statement that may be repeated, give the connection back. */
int query_run(struct pool *pool, int slot, int statement, const struct parameters *parameters,
			  PGresult **result);

#endif							/* QUERY_H */
