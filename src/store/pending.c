/*
 * store/pending.c
 *	  Batches of freed runs that wait for a checkpoint, see store/pending.h.
 */
#include "postgres.h"

#include "store/pending.h"

static bool
is_empty(const BlobPendingBatch *batch)
{
	return batch->runs.page_count == 0;
}

void
blob_pending_init(BlobPending *pending)
{
	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
	{
		pending->batches[i].lsn = InvalidXLogRecPtr;
		blob_free_runs_init(&pending->batches[i].runs);
	}
}

void
blob_pending_clear(dsa_area *area, BlobPending *pending)
{
	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
		blob_free_runs_clear(area, &pending->batches[i].runs);
}

/*
 * The batch for new runs: the last one.  If a checkpoint that covers the last one has begun, an
 * empty batch is opened.  If none is empty, the runs of the last batch wait longer than necessary.
 */
static BlobPendingBatch *
open_batch(BlobPending *pending, XLogRecPtr started_redo)
{
	BlobPendingBatch *last = NULL;
	BlobPendingBatch *empty = NULL;

	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
	{
		BlobPendingBatch *batch = &pending->batches[i];

		if (is_empty(batch))
			empty = batch;
		else if (last == NULL || batch->lsn > last->lsn)
			last = batch;
	}
	if (last != NULL && (last->lsn > started_redo || empty == NULL))
		return last;
	empty->lsn = InvalidXLogRecPtr;
	return empty;
}

void
blob_pending_give(dsa_area *area, BlobPending *pending, dsa_pointer *nodes, XLogRecPtr lsn,
				  XLogRecPtr started_redo, BlobPageNo first_page, uint64 pages)
{
	BlobPendingBatch *batch = open_batch(pending, started_redo);

	Assert(lsn != InvalidXLogRecPtr);
	batch->lsn = Max(batch->lsn, lsn);
	blob_free_runs_give_reserved(area, &batch->runs, nodes, first_page, pages);
}

int
blob_pending_move(dsa_area *area, BlobPending *pending, XLogRecPtr position,
				  BlobFreeRuns *to, int max_runs)
{
	int			moved = 0;

	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
	{
		BlobPendingBatch *batch = &pending->batches[i];

		if (batch->lsn > position)
			continue;
		while (moved < max_runs && blob_free_runs_move_one(area, &batch->runs, to))
			moved++;
	}
	return moved;
}

uint64
blob_pending_pages(const BlobPending *pending)
{
	uint64		pages = 0;

	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
		pages += pending->batches[i].runs.page_count;
	return pages;
}

uint64
blob_pending_count(dsa_area *area, const BlobPending *pending, BlobPageNo first_page,
				   BlobPageNo end_page, uint64 *run_count)
{
	uint64		count = 0;

	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
		count += blob_free_runs_count(area, &pending->batches[i].runs, first_page, end_page,
									  run_count);
	return count;
}

uint64
blob_pending_count_after(dsa_area *area, const BlobPending *pending, XLogRecPtr position,
						 BlobPageNo first_page, BlobPageNo end_page)
{
	uint64		count = 0;

	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
	{
		if (!is_empty(&pending->batches[i]) && pending->batches[i].lsn > position)
			count += blob_free_runs_count(area, &pending->batches[i].runs, first_page, end_page,
										  NULL);
	}
	return count;
}

uint64
blob_pending_cut(dsa_area *area, BlobPending *pending, dsa_pointer *nodes, BlobPageNo first_page,
				 BlobPageNo end_page)
{
	uint64		cut = 0;

	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
		cut += blob_free_runs_cut(area, &pending->batches[i].runs, nodes, first_page, end_page);
	return cut;
}

XLogRecPtr
blob_pending_oldest(const BlobPending *pending)
{
	XLogRecPtr	oldest = InvalidXLogRecPtr;

	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
	{
		const BlobPendingBatch *batch = &pending->batches[i];

		if (!is_empty(batch) && (oldest == InvalidXLogRecPtr || batch->lsn < oldest))
			oldest = batch->lsn;
	}
	return oldest;
}

XLogRecPtr
blob_pending_newest(const BlobPending *pending)
{
	XLogRecPtr	newest = InvalidXLogRecPtr;

	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
	{
		const BlobPendingBatch *batch = &pending->batches[i];

		if (!is_empty(batch))
			newest = Max(newest, batch->lsn);
	}
	return newest;
}
