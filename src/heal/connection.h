/*
 * heal/connection.h
 *	  A connection to another server by libpq.  All waits can be cancelled.
 *
 * A server that is not there, or goes away, is an ERROR of class 08, for the whole run.  So is an
 * answer that no server of this extension gives, however it is made: the other server may be a
 * hostile one.  No message has the connection string.
 */
#ifndef BLOB_HEAL_CONNECTION_H
#define BLOB_HEAL_CONNECTION_H

#include "postgres.h"

typedef struct BlobConnection BlobConnection;

/*
 * Connect.  database: in place of that of the string, or NULL; with it, for a worker, which no user
 * cancels, a server that does not answer is given up.  A role without SUPERUSER must give a
 * password, and the server must ask for it.  The result lives in the current memory context; the
 * connection ends with it.
 */
extern BlobConnection *blob_connection_open(const char *conninfo, const char *database);
extern void blob_connection_close(BlobConnection *connection);

/*
 * Run a query, whose answer has one row; ERROR if it fails.  The answer is that of the connection
 * until the next call.
 */
extern void blob_connection_query(BlobConnection *connection, const char *sql,
								  const char *parameter);

/* Prepare the statement that requests execute; they come in a pipeline from then on. */
extern void blob_connection_prepare(BlobConnection *connection, const char *sql, int count);

/* Send a request, without waiting for its answer. */
extern void blob_connection_send(BlobConnection *connection, const char *const *values);

/*
 * Take the answer to the oldest request; it is that of the connection until the next call.  False
 * if it is an error, with the server's message.
 */
extern bool blob_connection_receive(BlobConnection *connection, char **refusal);

/* Take in, and forget, the answers to requests that an error left behind. */
extern void blob_connection_drain(BlobConnection *connection);

/*
 * Values of the answer's row.  ERROR 08P01 unless there is one row, with such a column (of bytes:
 * with one column, whatever its name), and a value of at most max_bytes in it.  Bytes live until
 * the next call; they are not looked at.  Text is a copy, in this database's encoding.
 */
extern int	blob_connection_bytes(const BlobConnection *connection, uint32 max_bytes,
								  const char **data);
extern char *blob_connection_text(const BlobConnection *connection, const char *name,
								  int max_bytes);

#endif							/* BLOB_HEAL_CONNECTION_H */
