/*
 * store/reclaim.c
 *	  Giving space back: extents to the allocator, stores to the disk.
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
#define MOVE_RUNS BLOB_STORE_MOVE_RUNS

/* Hollow pages that are covered may be filled. */
static void
move_hollow(BlobStoreShared *shared, XLogRecPtr completed_redo)
{
	int			moved;

	do
	{
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		moved = blob_pending_move(blob_store_area, &shared->hollow_pending, completed_redo,
								  &shared->hollow, MOVE_RUNS);
		blob_sets_check(shared);
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
	int			count;

	Assert(covered <= blob_store_covered());
	blob_free_runs_init(&taken);
	do
	{
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		moved = blob_pending_move(blob_store_area, &shared->pending, covered, &taken, MOVE_RUNS);
		if (moved > 0)
			blob_sets_count_move(shared, BLOB_PAGE_PENDING, BLOB_PAGE_HELD, taken.page_count);
		LWLockRelease(&shared->lock);
		if (moved == 0)
			break;
		moved_any = true;
		count = blob_free_runs_list(blob_store_area, &taken, list);
		blob_dirty_drop(store, list, count);
		blob_dirty_check_none(store, list, count);
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		blob_sets_count_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_FREE, taken.page_count);
		while (blob_free_runs_move_one(blob_store_area, &taken, &shared->free_runs))
			;
		blob_sets_check(shared);
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
	XLogRecPtr	oldest_hollow;
	XLogRecPtr	awaited;
	bool		after_flush = blob_store_frees_after_flush();
	bool		moved = false;

	LWLockAcquire(&shared->lock, LW_SHARED);
	oldest = blob_pending_oldest(&shared->pending);
	newest = blob_pending_newest(&shared->pending);
	oldest_hollow = blob_pending_oldest(&shared->hollow_pending);
	awaited = shared->checkpoint_awaited ? shared->checkpoint_lsn : InvalidXLogRecPtr;
	LWLockRelease(&shared->lock);

	if (after_flush && newest != InvalidXLogRecPtr)
	{
		if (flush)
			XLogFlush(newest);
		moved = release(store, shared, GetFlushRecPtr(NULL));
	}
	/* If no such checkpoint has begun, none is complete.  This spares reading the file. */
	if ((after_flush || !may_be_covered(oldest, started_redo)) &&
		!may_be_covered(oldest_hollow, started_redo) && !may_be_covered(awaited, started_redo))
		return moved;

	completed_redo = blob_store_completed_redo();
	blob_store_checkpoint_was_seen(shared, completed_redo);
	if (!after_flush && release(store, shared, completed_redo))
		moved = true;
	move_hollow(shared, completed_redo);
	return moved;
}

/* ---- extents ---- */

/* Free the extents of one record; their pages become pending.  Returns the record's end. */
static XLogRecPtr
free_batch(BlobStore *store, BlobStoreShared *shared, const BlobFreedExtent *extents, int count,
		   TransactionId horizon, uint64 *freed_pages)
{
	dsa_pointer nodes = blob_free_runs_reserve(blob_store_area, count);
	XLogRecPtr	started_redo;
	XLogRecPtr	lsn;

	PG_TRY();
	{
		lsn = blob_map_free(store->map, extents, count, horizon,
							blob_store_frees_after_flush() ? BLOB_REUSE_AFTER_FLUSH :
							BLOB_REUSE_AFTER_CHECKPOINT);
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
						  extents[i].first_page, extents[i].pages);
		blob_sets_check_move(shared, BLOB_PAGE_EXTENT, BLOB_PAGE_PENDING, extents[i].first_page,
							 extents[i].pages);
		*freed_pages += extents[i].pages;
		shared->used_pages -= extents[i].pages;
	}
	shared->freed_lsn = Max(shared->freed_lsn, lsn);
	LWLockRelease(&shared->lock);
	return lsn;
}

/* A BlobMapVisitor: notes that an extent begins there. */
static void
note_extent(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	*(bool *) context = true;
}

/* Under the lock of the store. */
static bool
reaches_into_unloaded(const BlobStoreShared *shared, BlobPageNo first_page, BlobPageNo end_page)
{
	return !shared->loaded && first_page < shared->load.end_page &&
		end_page > shared->load.next_page;
}

/* The sets first: a page that leaves them after that look is in an extent at the next one. */
bool
blob_store_may_free(BlobStore *store, BlobPageNo first_page, uint64 pages, bool is_loaded)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	BlobPageNo	end_page = first_page + pages;
	BlobPageUse use = {0};
	bool		is_inside;
	bool		is_crossed = false;

	if (!is_loaded)
		blob_store_load(store, shared);
	LWLockAcquire(&shared->lock, LW_SHARED);
	is_inside = pages <= shared->reserved_pages && end_page <= shared->reserved_pages &&
		!reaches_into_unloaded(shared, first_page, end_page);
	if (is_inside)
		blob_store_count_use(shared, first_page, end_page, &use);
	LWLockRelease(&shared->lock);
	if (!is_inside || use.free + use.pending + use.hollow > 0)
		return false;
	blob_map_visit_range(store->map, first_page + 1, end_page, NULL, note_extent, &is_crossed);
	return !is_crossed;
}

static void
freeing_tag(LOCKTAG *tag, const BlobStore *store)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, RelationRelationId, RelationGetRelid(store->map),
					   BLOB_STORE_FREEING_LOCK);
}

/* The caller's look at the map holds until FREE: it is the sweep, or keeps the sweep out. */
static void
assert_may_free(const BlobStore *store)
{
#ifdef USE_ASSERT_CHECKING
	LOCKTAG		tag;

	freeing_tag(&tag, store);
	Assert(blob_lock_is_held(&tag, ExclusiveLock) || blob_lock_is_held(&tag, ShareLock));
	Assert(!RecoveryInProgress());
	Assert(store->lock_mode >= RowExclusiveLock);
#endif
}

/* Free extents whose pages are loaded. */
static XLogRecPtr
free_loaded(BlobStore *store, BlobStoreShared *shared, const BlobFreedExtent *extents, int count,
			TransactionId horizon, uint64 *freed_pages)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	assert_may_free(store);
	*freed_pages = 0;
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

XLogRecPtr
blob_store_free(BlobStore *store, const BlobFreedExtent *extents, int count,
				TransactionId horizon, uint64 *freed_pages)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);

	blob_store_load(store, shared);
	return free_loaded(store, shared, extents, count, horizon, freed_pages);
}

void
blob_store_release(BlobStore *store, XLogRecPtr end)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);

	Assert(shared->loaded);
	XLogFlush(end);
	(void) blob_store_mature(&store->id, shared, true);
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
 * They were allocated since the start, so their pages have been loaded.
 */
void
blob_store_free_abandoned(BlobStore *store, const BlobFreedExtent *extents, int count,
						  uint64 *freed_pages)
{
	(void) free_loaded(store, blob_store_shared(&store->id), extents, count,
					   InvalidTransactionId, freed_pages);
}

/* ---- space ---- */

/* Before any space can be reclaimed: it is loaded, and pages are free that may be. */
static BlobStoreShared *
prepare(BlobStore *store)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);

	Assert(!RecoveryInProgress());
	Assert(store->lock_mode >= RowExclusiveLock);

	blob_store_load(store, shared);
	(void) blob_store_mature(&store->id, shared, true);
	return shared;
}

int
blob_store_reclaim(BlobStore *store, BlobStoreMayGoOn may_go_on, void *argument)
{
	BlobStoreShared *shared;
	int			removed;

	/* A session that frees what it has abandoned does not wait for that: the collector comes. */
	if (may_go_on == NULL && !blob_store_is_loaded(&store->id))
		return 0;
	shared = prepare(store);
	if (may_go_on != NULL)
	{
		blob_store_punch_again(store, shared, may_go_on, argument);
		(void) blob_store_punch(store, shared, may_go_on, argument);
	}
	removed = blob_store_remove_segments(store, shared);
	if (may_go_on != NULL && blob_store_rest(shared) &&
		blob_store_punch(store, shared, may_go_on, argument) > 0)
		removed += blob_store_remove_segments(store, shared);
	blob_store_ask_for_checkpoint(shared);
	return removed;
}

int
blob_store_reclaim_at_rest(BlobStore *store, BlobStoreMayGoOn may_go_on, void *argument)
{
	BlobStoreShared *shared = prepare(store);
	int			removed;

	blob_store_punch_again(store, shared, may_go_on, argument);
	removed = blob_store_remove_segments(store, shared);
	(void) blob_store_rest(shared);
	blob_store_ask_for_checkpoint(shared);
	return removed;
}

uint64
blob_store_pending_pages(BlobStore *store, BlobPageNo first_page, BlobPageNo end_page)
{
	BlobStoreShared *shared;
	XLogRecPtr	covered;
	uint64		pages;

	/* A view shall not make a store. */
	if (RecoveryInProgress() || !blob_segment_dir_exists(&store->id))
		return 0;
	shared = blob_store_shared(&store->id);
	blob_store_load(store, shared);
	covered = blob_store_covered();
	LWLockAcquire(&shared->lock, LW_SHARED);
	pages = blob_pending_count_after(blob_store_area, &shared->pending, covered, first_page,
									 end_page);
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
	XLogRecPtr	lsn = blob_wal_log_drop(id);

	XLogFlush(lsn);
	blob_store_note_drop(lsn);
	blob_store_forget(id);
	return blob_segment_remove_dir(id);
}
