/*
 * writing/upload.h
 *	  Uploads: content that goes to the server in pieces, within one transaction.
 */
#ifndef UPLOAD_H
#define UPLOAD_H

#include "connections/pool.h"
#include "connections/values.h"
#include "writing/writer.h"

enum
{
	UPLOAD_PIECE_BYTES = 1024 * 1024
};

/* A statement of one field, a number.  0, an errno, or ERROR_LOST, with the SQLSTATE. */
int upload_query(struct connection *connection, int statement, const struct parameters *parameters,
				 int64_t *number, char *sqlstate);

/* Begin an upload, of an expected size (0: unknown); errors as above. */
int upload_begin(struct connection *connection, const struct calls *calls, int64_t expected_bytes,
				 int64_t *upload, char *sqlstate);

/* The next bytes of an upload; errors as above. */
int upload_write(struct connection *connection, const struct calls *calls, int64_t upload,
				 const char *piece, size_t length, char *sqlstate);

#endif							/* UPLOAD_H */
