/*
 * client/rows.h
 *	  Rows with large values on their way to the client.
 */
#ifndef BLOB_ROWS_H
#define BLOB_ROWS_H

/*
 * Install the executor hook; called once, from _PG_init.  Rows of queries that hold large values
 * are then sent to the client piece by piece, unless blobext.stream_results is off.
 */
extern void blob_rows_install_hook(void);

#endif							/* BLOB_ROWS_H */
