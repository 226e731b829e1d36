/*
 * client/rows.h
 *	  Rows with large values on their way to the client.
 */
#ifndef BLOB_ROWS_H
#define BLOB_ROWS_H

#include "postgres.h"

/*
 * Have rows of queries sent to the client piece by piece where they hold large values, unless
 * blobext.stream_results is off; once, from _PG_init.
 */
extern void blob_rows_install_hook(void);

/*
 * One of our functions has made this result.  If it comes to the client as it is, and is large, it
 * is sent from where it lies, without a copy.  (Others of the server's functions are none of our
 * business.)
 */
extern void blob_rows_note_result(const bytea *result);

#endif							/* BLOB_ROWS_H */
