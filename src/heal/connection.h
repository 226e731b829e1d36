/*
 * heal/connection.h
 *	  A connection to another server by libpq.  All waits can be cancelled.
 *
 * A server that is not there, or goes away, is an ERROR of class 08, for the whole run; what it
 * answers to a request is the caller's to judge.  No message has the connection string.
 */
#ifndef BLOB_HEAL_CONNECTION_H
#define BLOB_HEAL_CONNECTION_H

#include "postgres.h"

#include "libpq-fe.h"

typedef struct BlobConnection BlobConnection;

/*
 * Connect.  A role without SUPERUSER must give a password, and the server must ask for it.
 * The result lives in the current memory context; the connection ends with it.
 */
extern BlobConnection *blob_connection_open(const char *conninfo);
extern void blob_connection_close(BlobConnection *connection);

/* Run a query, whose result has one row; ERROR if it fails.  Valid until the next call. */
extern PGresult *blob_connection_query(BlobConnection *connection, const char *sql,
									   const char *parameter);

/* Prepare the statement that requests execute; they come in a pipeline from then on. */
extern void blob_connection_prepare(BlobConnection *connection, const char *sql, int count);

/* Send a request, without waiting for its answer. */
extern void blob_connection_send(BlobConnection *connection, const char *const *values);

/*
 * The answer to the oldest request, which may be an error of the server; binary.  Valid until the
 * next call.
 */
extern PGresult *blob_connection_receive(BlobConnection *connection);

/* Take in, and forget, the answers to requests that an error left behind. */
extern void blob_connection_drain(BlobConnection *connection);

#endif							/* BLOB_HEAL_CONNECTION_H */
