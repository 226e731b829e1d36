/*
 * gc/sweep.c
 *	  Frees old extents that are not marked: step 11 of README.md.
 */
#include "postgres.h"

#include "access/transam.h"
#include "gc/constants.h"
#include "gc/gc_internal.h"
#include "io/stat.h"
#include "storage/procarray.h"
#include "store/map.h"

/* Extents that are freed with one call; a call is complete in itself. */
#define BATCH_EXTENTS 1024

/* Pages of the store, a few thousand blocks of the map, between looks whether a process waits. */
#define PIECE_PAGES (1024 * 1024)

typedef struct Sweep
{
	BlobGcRound *round;
	bool		is_damaged;		/* an extent cannot be freed, as the log says */
	TransactionId horizon;
	XLogRecPtr	end_of_wal;		/* of the records of FREE */
	int			count;
	BlobFreedExtent batch[BATCH_EXTENTS];
} Sweep;

static void
free_batch(Sweep *sweep)
{
	XLogRecPtr	end;
	uint64		pages;

	if (sweep->count == 0)
		return;
	Assert(!sweep->round->options.dry_run);
	for (int i = 0; i < sweep->count; i++)
		Assert(sweep->batch[i].generation <= sweep->round->cutoff &&
			   !blob_gc_is_marked(&sweep->round->marks, sweep->batch[i].first_page));
	end = blob_store_free(&sweep->round->store, sweep->batch, sweep->count, sweep->horizon, &pages);
	sweep->end_of_wal = Max(sweep->end_of_wal, end);
	blob_stat_count(gc_freed_bytes, pages * BLOB_PAGE_SIZE);
	sweep->count = 0;
}

/* Each value begins with exactly one extent of the first tier. */
static bool
begins_value(const BlobMapEntry *entry)
{
	return blob_map_entry_state(entry) == BLOB_MAP_TIER &&
		entry->measure >> BLOB_MAP_HIGH_WATER_BITS == 0;
}

/*
 * Whether the extent's length may be true.  Of one that is not, or of another one that reaches into
 * it, nothing is freed: a length that is too large would free pages of others.
 */
static bool
is_sound(Sweep *sweep, BlobPageNo first_page, uint64 pages)
{
	if (blob_store_may_free(&sweep->round->store, first_page, pages, false))
		return true;
	if (!sweep->is_damaged)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("blobext: the extent at page " UINT64_FORMAT " cannot be freed",
						first_page),
				 errdetail("Its " UINT64_FORMAT " pages reach into free space, into another extent "
						   "or out of the store: an entry of the extent map is damaged.", pages),
				 errhint("Run blobext_check() to see which values are affected.")));
	sweep->is_damaged = true;
	return false;
}

/* Called for each extent of the range: count it, and free it if it is old and not marked. */
static void
sweep_extent(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	Sweep	   *sweep = context;
	BlobGcRound *round = sweep->round;
	BlobGcResult *result = round->result;
	BlobGeneration generation = blob_map_entry_generation(entry);
	uint64		pages = blob_map_entry_pages(entry);
	uint64		bytes = pages * BLOB_PAGE_SIZE;

	if (generation > round->cutoff || blob_gc_is_marked(&round->marks, first_page))
	{
		result->live_blobs += begins_value(entry);
		result->live_bytes += bytes;
		if (generation <= round->cutoff && blob_gc_is_kept(&round->marks, first_page))
		{
			result->kept.blobs += begins_value(entry);
			result->kept.bytes += bytes;
		}
		return;
	}
	/* One that is not sound is neither: its length is not known. */
	if (!round->options.dry_run && !is_sound(sweep, first_page, pages))
		return;
	result->freed_blobs += begins_value(entry);
	result->freed_bytes += bytes;
	if (round->options.dry_run)
		return;
	blob_stat_count(gc_freed_blobs, begins_value(entry));
	sweep->batch[sweep->count].first_page = first_page;
	sweep->batch[sweep->count].pages = pages;
	sweep->batch[sweep->count].generation = generation;
	if (++sweep->count == BATCH_EXTENTS)
		free_batch(sweep);
}

/*
 * Only tuples that were deleted by transactions before this one have been pruned, and only their
 * values are freed.  A snapshot that held pruning back (by a standby's feedback, for instance) is
 * older, unless a row that it may see was passed over.
 */
static TransactionId
conflict_horizon(BlobGcRound *round)
{
	TransactionId horizon = GetOldestNonRemovableTransactionId(round->store.map);

	if (TransactionIdFollows(horizon, round->snapshot->xmin))
		horizon = round->snapshot->xmin;
	TransactionIdRetreat(horizon);
	if (TransactionIdIsValid(round->newest_passed) &&
		TransactionIdFollows(round->newest_passed, horizon))
		horizon = round->newest_passed;
	Assert(TransactionIdPrecedes(horizon, round->snapshot->xmin));
	return horizon;
}

bool
blob_gc_sweep(BlobGcRound *round)
{
	Sweep	   *sweep = palloc0(sizeof(Sweep));
	BlobPageNo	page = round->marks.first_page;
	bool		is_done = false;

	sweep->round = round;
	/* If the last sweep was interrupted, standbys have not been told. */
	if (!round->options.dry_run)
		blob_gc_constants_log();
	sweep->horizon = conflict_horizon(round);
	/* A backend that frees what a failed store left holds the lock for a moment. */
	(void) blob_store_lock_freeing(&round->store, ExclusiveLock, true);
	do
	{
		BlobPageNo	end_page = Min(page + PIECE_PAGES, round->marks.end_page);

		blob_map_visit_range(round->store.map, page, end_page, round->strategy, sweep_extent,
							 sweep);
		free_batch(sweep);
		/* The flush also keeps the next start from finding the same extents again. */
		blob_store_release(&round->store, sweep->end_of_wal);
		page = end_page;
		is_done = page >= round->marks.end_page;
	} while (!is_done && blob_gc_may_go_on(round));

	blob_store_unlock_freeing(&round->store, ExclusiveLock);
	if (sweep->end_of_wal != InvalidXLogRecPtr)
		blob_gc_constants_log();
	pfree(sweep);
	return is_done;
}
