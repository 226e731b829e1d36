/*
 * client/rows.h
 *	  Rows of query results with large values are sent piece by piece, see README.md of this folder.
 */
#ifndef BLOB_ROWS_H
#define BLOB_ROWS_H

#include "postgres.h"

#include "executor/execdesc.h"

/* One run of the executor; zeros where the server's own receiver gets all rows. */
typedef struct BlobRowsRun
{
	QueryDesc  *query_desc;		/* whose receiver has been exchanged */
	DestReceiver *dest;			/* the server's own */
	MemoryContext context;		/* of our receiver */
} BlobRowsRun;

/*
 * Whether blob_rows_begin() may have something to do: rows go to the client, and a column could
 * hold large values.
 */
extern bool blob_rows_may_begin(const QueryDesc *query_desc);

/*
 * Before the executor runs a query: a receiver of ours gets its rows, if they go to the client and
 * may hold large values.  end: after the run, also after an error.  forget: after a run without an
 * error; after one with an error, the query's memory goes as a whole.
 */
extern void blob_rows_begin(BlobRowsRun *run, QueryDesc *query_desc);
extern void blob_rows_end(BlobRowsRun *run);
extern void blob_rows_forget(BlobRowsRun *run);

#endif							/* BLOB_ROWS_H */
