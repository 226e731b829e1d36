/*
 * client/rows.h
 *	  Rows with large values on their way to the client.
 */
#ifndef BLOB_ROWS_H
#define BLOB_ROWS_H

/*
 * Have rows of queries sent to the client piece by piece where they hold large values, unless
 * blobext.stream_results is off; once, from _PG_init.
 */
extern void blob_rows_install_hook(void);

#endif							/* BLOB_ROWS_H */
