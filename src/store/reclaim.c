/*
 * store/reclaim.c
 *	  Giving space back: extents to the allocator, segments and stores to the disk.
 *
 * The argument why nothing is lost is in the README of this folder, under "Freed space".
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "common/controldata_utils.h"
#include "storage/lock.h"
#include "core/settings.h"
#include "io/dirty.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "store/store_internal.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "wal/insert.h"

/* Runs that are moved while the lock is held once, and dropped from the deferred writes. */
#define MOVE_RUNS 1000

/* Nodes that taking a segment from all sets, and giving it back, can use. */
#define SEGMENT_NODES (2 * (1 + BLOB_PENDING_BATCHES) + 2)

/* The checkpoint, or restartpoint, from which recovery would start after a crash now. */
static CheckPoint
read_checkpoint(void)
{
	ControlFileData *control_file;
	CheckPoint	checkpoint;
	bool		crc_ok;

	LWLockAcquire(ControlFileLock, LW_SHARED);
	control_file = get_controlfile(DataDir, &crc_ok);
	LWLockRelease(ControlFileLock);
	if (!crc_ok)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("calculated CRC checksum does not match value stored in file")));
	checkpoint = control_file->checkPointCopy;
	pfree(control_file);
	return checkpoint;
}

/* Not GetRedoRecPtr(), which moves when a checkpoint begins. */
XLogRecPtr
blob_store_completed_redo(void)
{
	return read_checkpoint().redo;
}

/*
 * Promotion begins a timeline.  So a checkpoint on the timeline on which this server writes was
 * made by this server after its promotion, and its redo pointer is past the end of recovery.
 */
bool
blob_store_replays_predecessor(void)
{
	static bool has_checkpoint = false;

	if (!has_checkpoint)
		has_checkpoint = read_checkpoint().ThisTimeLineID == GetWALInsertionTimeLine();
	return !has_checkpoint;
}

/*
 * The setting holds for the life of the server, so it holds for all that is ever written to these
 * pages before the next start, which comes after a checkpoint: by the allocation that gets them, by
 * claims in its extents, and in pages that TRIM gives back.  Content that is logged for another
 * reason does not count: because it is small, or because the server was promoted.
 */
bool
blob_store_frees_after_flush(void)
{
	return blob_wal_logs_content();
}

/* Move all absent pages that are covered from the pending set. */
static void
move_absent(BlobStoreShared *shared, XLogRecPtr completed_redo)
{
	int			moved;

	do
	{
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		moved = blob_pending_move(blob_store_area, &shared->absent_pending, completed_redo,
								  &shared->absent, MOVE_RUNS);
		LWLockRelease(&shared->lock);
	} while (moved == MOVE_RUNS);
}

/*
 * Give the pages of pending runs out whose FREE ends at `covered` or before.  While this process
 * drops the dirty pages of their old life, they are in none of the sets, so no other process can
 * begin their new one.  Nothing here fails.  Returns whether there were any.
 */
static bool
release(const BlobStoreId *store, BlobStoreShared *shared, XLogRecPtr covered)
{
	BlobPageRun list[MOVE_RUNS];
	BlobFreeRuns taken;
	bool		moved_any = false;
	int			moved;

	blob_free_runs_init(&taken);
	do
	{
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		moved = blob_pending_move(blob_store_area, &shared->pending, covered, &taken, MOVE_RUNS);
		LWLockRelease(&shared->lock);
		if (moved == 0)
			break;
		moved_any = true;
		blob_dirty_drop(store, list, blob_free_runs_list(blob_store_area, &taken, list));
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		while (blob_free_runs_move_one(blob_store_area, &taken, &shared->free_runs))
			;
		LWLockRelease(&shared->lock);
	} while (moved == MOVE_RUNS);
	return moved_any;
}

/* Whether a checkpoint has begun that covers runs of a pending set, so that one may be complete. */
static bool
may_be_covered(XLogRecPtr oldest, XLogRecPtr started_redo)
{
	return oldest != InvalidXLogRecPtr && oldest <= started_redo;
}

bool
blob_store_mature(const BlobStoreId *store, BlobStoreShared *shared, bool flush)
{
	XLogRecPtr	started_redo = GetRedoRecPtr();
	XLogRecPtr	completed_redo;
	XLogRecPtr	oldest;
	XLogRecPtr	newest;
	XLogRecPtr	oldest_absent;
	bool		after_flush = blob_store_frees_after_flush();
	bool		moved = false;

	LWLockAcquire(&shared->lock, LW_SHARED);
	oldest = blob_pending_oldest(&shared->pending);
	newest = blob_pending_newest(&shared->pending);
	oldest_absent = blob_pending_oldest(&shared->absent_pending);
	LWLockRelease(&shared->lock);

	if (after_flush && newest != InvalidXLogRecPtr)
	{
		if (flush)
			XLogFlush(newest);
		moved = release(store, shared, GetFlushRecPtr(NULL));
	}
	/* If no such checkpoint has begun, none is complete.  This spares reading the file. */
	if ((after_flush || !may_be_covered(oldest, started_redo)) &&
		!may_be_covered(oldest_absent, started_redo))
		return moved;

	completed_redo = blob_store_completed_redo();
	if (!after_flush && release(store, shared, completed_redo))
	{
		moved = true;
		blob_store_checkpoint_was_seen(shared);
	}
	move_absent(shared, completed_redo);
	return moved;
}

/* ---- extents ---- */

/* Free the extents of one record; their pages become pending.  Returns the record's end. */
static XLogRecPtr
free_batch(BlobStore *store, BlobStoreShared *shared, const BlobFreedExtent *extents, int count,
		   TransactionId horizon, uint64 *freed_pages)
{
	uint64	   *pages = palloc(sizeof(uint64) * count);
	dsa_pointer nodes = blob_free_runs_reserve(blob_store_area, count);
	XLogRecPtr	started_redo;
	XLogRecPtr	lsn;

	PG_TRY();
	{
		lsn = blob_map_free(store->map, extents, count, horizon,
							blob_store_frees_after_flush() ? BLOB_REUSE_AFTER_FLUSH :
							BLOB_REUSE_AFTER_CHECKPOINT, pages);
	}
	PG_CATCH();
	{
		blob_free_runs_release(blob_store_area, nodes);
		PG_RE_THROW();
	}
	PG_END_TRY();

	started_redo = GetRedoRecPtr();
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		blob_pending_give(blob_store_area, &shared->pending, &nodes, lsn, started_redo,
						  extents[i].first_page, pages[i]);
		*freed_pages += pages[i];
	}
	LWLockRelease(&shared->lock);
	pfree(pages);
	return lsn;
}

XLogRecPtr
blob_store_free(BlobStore *store, const BlobFreedExtent *extents, int count,
				TransactionId horizon, uint64 *freed_pages)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	Assert(!RecoveryInProgress());
	Assert(store->lock_mode >= RowExclusiveLock);

	*freed_pages = 0;
	if (!shared->loaded)
		blob_store_load(store, shared);
	/*
	 * There are only a few batches, one for each checkpoint.  So empty those that are covered
	 * before adding to them.
	 */
	(void) blob_store_mature(&store->id, shared, false);
	for (int done = 0; done < count;)
	{
		int			batch = blob_map_free_batch(extents + done, count - done);

		CHECK_FOR_INTERRUPTS();
		lsn = free_batch(store, shared, extents + done, batch, horizon, freed_pages);
		done += batch;
	}
	return lsn;
}

void
blob_store_release(BlobStore *store, XLogRecPtr end)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);

	Assert(shared->loaded);
	XLogFlush(end);
	(void) blob_store_mature(&store->id, shared, true);
}

static void
freeing_tag(LOCKTAG *tag, const BlobStore *store)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, RelationRelationId, RelationGetRelid(store->map),
					   BLOB_STORE_FREEING_LOCK);
}

bool
blob_store_lock_freeing(BlobStore *store, LOCKMODE lock_mode, bool wait)
{
	LOCKTAG		tag;

	freeing_tag(&tag, store);
	return LockAcquire(&tag, lock_mode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

void
blob_store_unlock_freeing(BlobStore *store, LOCKMODE lock_mode)
{
	LOCKTAG		tag;

	freeing_tag(&tag, store);
	LockRelease(&tag, lock_mode, false);
}

/*
 * No snapshot, here or on a standby, ever saw a reference to these extents, so there is no horizon.
 */
void
blob_store_free_abandoned(BlobStore *store, const BlobFreedExtent *extents, int count,
						  uint64 *freed_pages)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);

	(void) blob_store_free(store, extents, count, InvalidTransactionId, freed_pages);
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->allocated_pages -= Min(shared->allocated_pages, *freed_pages);
	LWLockRelease(&shared->lock);
}

/* ---- segments ---- */

/* A segment that this process has taken from all sets. */
typedef struct TakenSegment
{
	BlobPageNo	first_page;
	BlobPageNo	absent_page;	/* where its absent pages begin; or its end */
	BlobPageNo	end_page;
} TakenSegment;

static uint64
count_absent(BlobStoreShared *shared, BlobPageNo first_page, BlobPageNo end_page)
{
	return blob_free_runs_count(blob_store_area, &shared->absent, first_page, end_page, NULL) +
		blob_pending_count(blob_store_area, &shared->absent_pending, first_page, end_page, NULL);
}

/*
 * Take a segment that has a file and no allocated page from all sets; false if it is not such a
 * one.  After that no process can allocate there.
 */
static bool
take_segment(BlobStoreShared *shared, dsa_pointer *nodes, TakenSegment *segment)
{
	BlobPageNo	first_page = segment->first_page;
	BlobPageNo	end_page = segment->end_page;
	uint64		present;
	uint64		absent;
	bool		is_ours;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	absent = count_absent(shared, first_page, end_page);
	present = blob_free_runs_count(blob_store_area, &shared->free_runs, first_page, end_page,
								   NULL) +
		blob_pending_count(blob_store_area, &shared->pending, first_page, end_page, NULL);
	is_ours = present > 0 && present + absent == end_page - first_page;
	if (is_ours)
	{
		(void) blob_free_runs_cut(blob_store_area, &shared->free_runs, nodes, first_page,
								  end_page);
		(void) blob_pending_cut(blob_store_area, &shared->pending, nodes, first_page, end_page);
		(void) blob_free_runs_cut(blob_store_area, &shared->absent, nodes, first_page, end_page);
		(void) blob_pending_cut(blob_store_area, &shared->absent_pending, nodes, first_page,
								end_page);
		segment->absent_page = end_page - absent;
	}
	LWLockRelease(&shared->lock);
	return is_ours;
}

/*
 * Put the pages of a segment from absent_page on into absent_pending, and those before into
 * pending.
 */
static void
put_segment(BlobStoreShared *shared, dsa_pointer *nodes, const TakenSegment *segment,
			XLogRecPtr lsn)
{
	XLogRecPtr	started_redo = GetRedoRecPtr();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (segment->absent_page > segment->first_page)
		blob_pending_give(blob_store_area, &shared->pending, nodes, lsn, started_redo,
						  segment->first_page, segment->absent_page - segment->first_page);
	if (segment->end_page > segment->absent_page)
		blob_pending_give(blob_store_area, &shared->absent_pending, nodes, lsn, started_redo,
						  segment->absent_page, segment->end_page - segment->absent_page);
	LWLockRelease(&shared->lock);
}

/*
 * Remove the file of a segment that was taken.  First the record is flushed, then the file is
 * removed; after a completed checkpoint past the record, the number may be used again.
 */
static void
remove_taken(BlobStore *store, BlobStoreShared *shared, dsa_pointer *nodes, TakenSegment *segment)
{
	uint32		segment_no = blob_segment_of(segment->first_page);
	XLogRecPtr	lsn;

	PG_TRY();
	{
		lsn = blob_map_set_absent(store->map, segment_no, segment->absent_page);
	}
	PG_CATCH();
	{
		/* Nothing was logged.  Some of the pages may have waited, so now all of them wait. */
		put_segment(shared, nodes, segment, GetXLogInsertRecPtr());
		blob_free_runs_release(blob_store_area, *nodes);
		PG_RE_THROW();
	}
	PG_END_TRY();

	segment->absent_page = segment->first_page;
	put_segment(shared, nodes, segment, lsn);
	XLogFlush(lsn);
	/* A file that cannot be removed does no harm; the next load tries again. */
	(void) blob_segment_remove(&store->id, segment_no);
}

/* Remove the file of a segment if nothing is allocated there. */
static bool
reclaim_segment(BlobStore *store, BlobStoreShared *shared, uint32 segment_no)
{
	TakenSegment segment = {
		.first_page = segment_no * BLOB_SEGMENT_PAGES,
		.end_page = segment_no * BLOB_SEGMENT_PAGES + BLOB_SEGMENT_PAGES
	};
	dsa_pointer nodes;
	bool		taken;

	/* The growth lock serialises removals with reservations. */
	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	nodes = blob_free_runs_reserve(blob_store_area, SEGMENT_NODES);
	taken = take_segment(shared, &nodes, &segment);
	if (taken)
		remove_taken(store, shared, &nodes, &segment);
	blob_free_runs_release(blob_store_area, nodes);
	LWLockRelease(&shared->growth_lock);
	return taken;
}

int
blob_store_reclaim(BlobStore *store)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	BlobPageNo	end_page;
	int			removed = 0;

	Assert(!RecoveryInProgress());
	Assert(store->lock_mode >= RowExclusiveLock);

	if (!shared->loaded)
		blob_store_load(store, shared);
	(void) blob_store_mature(&store->id, shared, true);

	LWLockAcquire(&shared->lock, LW_SHARED);
	end_page = shared->reserved_pages;
	LWLockRelease(&shared->lock);
	/* A segment at the end is left alone until it is reserved as a whole. */
	for (BlobPageNo page = 0; page + BLOB_SEGMENT_PAGES <= end_page; page += BLOB_SEGMENT_PAGES)
	{
		CHECK_FOR_INTERRUPTS();
		if (reclaim_segment(store, shared, blob_segment_of(page)))
			removed++;
	}
	blob_store_ask_for_checkpoint(shared);
	return removed;
}

uint64
blob_store_pending_pages(BlobStore *store, BlobPageNo first_page, BlobPageNo end_page)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	uint64		pages;

	if (RecoveryInProgress())
		return 0;
	if (!shared->loaded)
		blob_store_load(store, shared);
	LWLockAcquire(&shared->lock, LW_SHARED);
	pages = blob_pending_count(blob_store_area, &shared->pending, first_page, end_page, NULL);
	LWLockRelease(&shared->lock);
	return pages;
}

/* ---- whole stores ---- */

/*
 * Before any file is removed, the record is flushed, and with it the commit of the transaction that
 * dropped the store, so that neither can be lost in a crash.  A lost record would not be written
 * again, and standbys would keep their files.
 */
bool
blob_store_drop(const BlobStoreId *id)
{
	XLogFlush(blob_wal_log_drop(id));
	blob_store_forget(id);
	return blob_segment_remove_dir(id);
}
