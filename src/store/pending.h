/*
 * store/pending.h
 *	  Pages that were freed, and must not be used again before the WAL has come to some position.
 *
 * Runs wait in a few batches, each with the end of the last record that freed one of its runs.
 * When the redo pointer of a completed checkpoint has reached that position, or the flush of the
 * WAL where that is enough (README, "Freed space"), the batch is done.  A batch is closed to new
 * runs once a checkpoint has begun that covers it, so that new runs do not hold back old ones
 * without end.
 *
 * The caller holds the store's lock exclusively around every function (shared for those that only
 * look).  None of them does I/O.
 */
#ifndef BLOB_PENDING_H
#define BLOB_PENDING_H

#include "access/xlogdefs.h"
#include "store/free_runs.h"

/*
 * One batch that waits for a running checkpoint, one that is open, and two in reserve, as covered
 * batches stay until a process looks (blob_store_mature).
 */
#define BLOB_PENDING_BATCHES 4

typedef struct BlobPendingBatch
{
	XLogRecPtr	lsn;			/* end of the last record; ignored without runs */
	BlobFreeRuns runs;
} BlobPendingBatch;

typedef struct BlobPending
{
	BlobPendingBatch batches[BLOB_PENDING_BATCHES];
} BlobPending;

extern void blob_pending_init(BlobPending *pending);
extern void blob_pending_clear(dsa_area *area, BlobPending *pending);

/*
 * Add a run whose record ends at lsn.  started_redo is the redo pointer of the last checkpoint that
 * has begun.  Takes one node from the chain (blob_free_runs_reserve); cannot fail.
 */
extern void blob_pending_give(dsa_area *area, BlobPending *pending, dsa_pointer *nodes,
							  XLogRecPtr lsn, XLogRecPtr started_redo, BlobPageNo first_page,
							  uint64 pages);

/*
 * Move up to max_runs runs of batches whose records end at this position or before it to a set of
 * free runs; returns the number moved.
 */
extern int	blob_pending_move(dsa_area *area, BlobPending *pending, XLogRecPtr position,
							  BlobFreeRuns *to, int max_runs);

/*
 * Number of pages that wait, in all; and in a range, where *run_count (if not NULL) grows by the
 * number of runs that begin there.
 */
extern uint64 blob_pending_pages(const BlobPending *pending);
extern uint64 blob_pending_count(dsa_area *area, const BlobPending *pending,
								 BlobPageNo first_page, BlobPageNo end_page, uint64 *run_count);

/* Those that wait, of a range, although the WAL has come to this position. */
extern uint64 blob_pending_count_after(dsa_area *area, const BlobPending *pending,
									   XLogRecPtr position, BlobPageNo first_page,
									   BlobPageNo end_page);

/*
 * Take all pages of a range; returns their number.  May take BLOB_PENDING_BATCHES nodes from the
 * chain.
 */
extern uint64 blob_pending_cut(dsa_area *area, BlobPending *pending, dsa_pointer *nodes,
							   BlobPageNo first_page, BlobPageNo end_page);

/* Positions of the oldest and of the newest batch; InvalidXLogRecPtr if nothing waits. */
extern XLogRecPtr blob_pending_oldest(const BlobPending *pending);
extern XLogRecPtr blob_pending_newest(const BlobPending *pending);

#endif							/* BLOB_PENDING_H */
