/*
 * store/store.c
 *	  Allocation of extents in shared memory, see store/store.h and the README of this folder.
 *
 * Each store has one BlobStoreShared.  Its lock is held for memory operations only.  Its growth
 * lock serialises the operations that do I/O: loading the free space from the map, reserving more
 * of the disk, removing segments, reserving generations.  Backends that find free space never touch
 * it.
 *
 * Lock order: growth lock, then either map buffer locks or lock; never I/O under lock.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "core/settings.h"
#include "miscadmin.h"
#include "store/map_sums.h"
#include "store/store_internal.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * An allocation may be divided into at most MAX_RUNS runs, of RUN_PAGES on average, if at
 * least 1/PIECES_PART of the store is free; and into single extents if at least 1/SCATTER_PART is.
 */
#define RUN_PAGES 32			/* 128 KiB */
#define MAX_RUNS 32
#define PIECES_PART 32
#define SCATTER_PART 8

/*
 * While the free space is being loaded, a process that finds no free run loads this number of parts
 * of the map itself, or waits for them, each for half a GB of the store, before it grows the store.
 */
#define MAX_LOAD_HELPS 4

/* The allocation hook is called each time that this number of pages has been allocated. */
#define HOOK_PAGES UINT64CONST(1024)	/* 4 MiB */

/*
 * How long, and how often, a reader that holds a buffer lock tries to lock the map, see lock_map().
 */
#define MAP_LOCK_TIMEOUT_MS 10000
#define MAP_LOCK_POLL_MS 10

BlobStoreAllocationHook blob_store_allocation_hook;

/*
 * ERROR if this transaction has moved the map.  If the transaction fails, the map goes back to its
 * old file: the map loses the extents that were allocated since, but shared memory does not.
 */
static void
check_not_moved(Relation map)
{
	if (map->rd_firstRelfilelocatorSubid != InvalidSubTransactionId)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot store in extents in the transaction that moved the extent map"),
				 errhint("Commit the transaction first.")));
}

/*
 * Lock the map.  Comparisons read while their caller holds a buffer lock.  A process that has the
 * map locked (ALTER TABLE, VACUUM FULL) may be waiting for that buffer.  No deadlock detector would
 * notice, and no interrupt could end the wait, so its time is limited there.
 */
static void
lock_map(Oid map, LOCKMODE lock_mode)
{
	long		waited_ms = 0;

	if (InterruptHoldoffCount == 0)
	{
		LockRelationOid(map, lock_mode);
		return;
	}
	while (!ConditionalLockRelationOid(map, lock_mode))
	{
		if (waited_ms >= MAP_LOCK_TIMEOUT_MS)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not lock the extent map to read content"),
					 errdetail("Another transaction alters the extent map or vacuums it in full."),
					 errhint("Try again when it has ended.")));
		pg_usleep(MAP_LOCK_POLL_MS * 1000L);
		waited_ms += MAP_LOCK_POLL_MS;
	}
}

void
blob_store_open(BlobStore *store, LOCKMODE lock_mode)
{
	Oid			map;

	blob_store_require_preload();
	map = blob_catalog_map_relation();
	lock_map(map, lock_mode);
	store->map = table_open(map, NoLock);
	store->lock_mode = lock_mode;
	if (lock_mode >= RowExclusiveLock)
		check_not_moved(store->map);
	store->id = blob_map_store_id(store->map);
}

bool
blob_store_try_open(BlobStore *store, LOCKMODE lock_mode, bool *exists)
{
	Oid			map = blob_catalog_map_relation_if_any();

	*exists = OidIsValid(map);
	if (!*exists || !ConditionalLockRelationOid(map, lock_mode))
		return false;
	store->map = try_relation_open(map, NoLock);
	if (store->map == NULL)
	{
		UnlockRelationOid(map, lock_mode);
		*exists = false;
		return false;
	}
	store->lock_mode = lock_mode;
	if (store->map->rd_firstRelfilelocatorSubid != InvalidSubTransactionId)
	{
		blob_store_close(store);
		return false;
	}
	store->id = blob_map_store_id(store->map);
	return true;
}

Oid
blob_store_lock(BlobStoreId *store)
{
	Oid			oid = blob_catalog_map_relation_if_any();
	Relation	map = OidIsValid(oid) ? try_relation_open(oid, RowExclusiveLock) : NULL;

	if (map == NULL)
		return InvalidOid;
	*store = blob_map_store_id(map);
	relation_close(map, NoLock);
	return oid;
}

void
blob_store_unlock(Oid map)
{
	UnlockRelationOid(map, RowExclusiveLock);
}

void
blob_store_close(BlobStore *store)
{
	table_close(store->map, store->lock_mode);
	store->map = NULL;
}

/*
 * Give extents back that were taken.  That needs memory; if there is none, the pages are lost until
 * the next start.  Under the lock.
 */
static void
untake(BlobStoreShared *shared, const BlobExtent *extents, int count)
{
	for (int i = 0; i < count; i++)
		blob_sets_count_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_LOST, extents[i].pages);
	for (int i = 0; i < count; i++)
	{
		blob_free_runs_give(blob_store_area, &shared->free_runs, extents[i].first_page,
							extents[i].pages);
		blob_sets_check_move(shared, BLOB_PAGE_LOST, BLOB_PAGE_FREE, extents[i].first_page,
							 extents[i].pages);
	}
}

/* Set the sizes of the plan's extents; returns their number. */
static int
lay_out(const BlobTierPlan *plan, BlobExtent *extents)
{
	int			count = plan->extent_count;

	for (int i = 0; i < count; i++)
	{
		extents[i].pages = blob_tier_pages(plan->first_extent_no + i);
		extents[i].is_tail = false;
	}
	if (plan->tail_pages > 0)
	{
		extents[count].pages = plan->tail_pages;
		extents[count].is_tail = true;
		count++;
	}
	return count;
}

void
blob_store_open_same(BlobStore *store, LOCKMODE lock_mode, const BlobStoreId *id)
{
	blob_store_open(store, lock_mode);
	if (!blob_store_id_equals(&store->id, id))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"blobext\" was created again while a value was being stored")));
}

/* Take all extents as one run; false if no run is long enough. */
static bool
take_side_by_side(BlobStoreShared *shared, uint64 total_pages, BlobExtent *extents, int count)
{
	BlobPageNo	page;

	if (!blob_free_runs_take(blob_store_area, &shared->free_runs, total_pages, &page))
		return false;
	blob_sets_check_move(shared, BLOB_PAGE_FREE, BLOB_PAGE_HELD, page, total_pages);
	for (int i = 0; i < count; i++)
	{
		extents[i].first_page = page;
		page += extents[i].pages;
	}
	return true;
}

/*
 * Take the extents in at most max_runs runs of neighbours, each with as many extents as fit into
 * the longest run that is free.  False, with nothing taken, if that is not possible.
 */
static bool
take_in_runs(BlobStoreShared *shared, BlobExtent *extents, int count, uint64 max_runs)
{
	int			taken = 0;

	for (uint64 runs = 0; taken < count; runs++)
	{
		uint64		longest = blob_free_runs_longest(blob_store_area, &shared->free_runs);
		uint64		pages = 0;
		int			fitting = 0;

		while (taken + fitting < count && pages + extents[taken + fitting].pages <= longest)
			pages += extents[taken + fitting++].pages;
		if (fitting == 0 || runs == max_runs ||
			!take_side_by_side(shared, pages, extents + taken, fitting))
		{
			untake(shared, extents, taken);
			return false;
		}
		taken += fitting;
	}
	return true;
}

/*
 * Take the extents one by one, the largest first: as many runs as there are extents, but none
 * longer than it must be.  Tiers ascend; a tail is last, whatever its length.  False, with nothing
 * taken, if that is not possible.
 */
static bool
take_one_by_one(BlobStoreShared *shared, BlobExtent *extents, int count)
{
	BlobExtent	tail = extents[count - 1];
	int			rank = count - 1;
	bool		taken = true;

	/* The tail between the tiers, until all are taken. */
	for (; rank > 0 && extents[rank - 1].pages > tail.pages; rank--)
		extents[rank] = extents[rank - 1];
	extents[rank] = tail;
	for (int i = count - 1; i >= 0 && taken; i--)
	{
		taken = take_side_by_side(shared, extents[i].pages, extents + i, 1);
		if (!taken)
			untake(shared, extents + i + 1, count - i - 1);
	}
	tail = extents[rank];
	memmove(extents + rank, extents + rank + 1, sizeof(BlobExtent) * (count - 1 - rank));
	extents[count - 1] = tail;
	return taken;
}

/*
 * Take the extents in several runs, if no run is long enough, but so large a part of the store is
 * free that growing it would waste the disk.  Long runs cost next to nothing when they are read, so
 * a smaller free part is enough for them.  Any part is, if `anywhere`: the store cannot grow.
 */
static bool
take_scattered(BlobStoreShared *shared, uint64 total_pages, BlobExtent *extents, int count,
			   bool anywhere)
{
	uint64		free_pages = shared->free_runs.page_count;
	uint64		store_pages = anywhere ? 0 : blob_store_file_pages(shared);
	uint64		max_runs = Min(1 + total_pages / RUN_PAGES, MAX_RUNS);

	if (free_pages < total_pages)
		return false;
	if (free_pages >= store_pages / PIECES_PART &&
		take_in_runs(shared, extents, count, max_runs))
		return true;
	return free_pages >= store_pages / SCATTER_PART && take_one_by_one(shared, extents, count);
}

/* Under the lock: no number is drawn twice, nor one that a start could give out again. */
static void
draw_generations(BlobStoreShared *shared, BlobExtent *extents, int count)
{
	Assert(LWLockHeldByMeInMode(&shared->lock, LW_EXCLUSIVE));
	Assert(shared->next_generation + count <= shared->generation_limit);
	for (int i = 0; i < count; i++)
		extents[i].generation = shared->next_generation++;
}

BlobGeneration
blob_store_draw_generation(BlobStore *store)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	BlobExtent	drawn[1];

	Assert(store->lock_mode >= RowExclusiveLock && !RecoveryInProgress());
	for (;;)
	{
		bool		has_begun;
		bool		is_drawn;

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		has_begun = shared->begun;
		is_drawn = has_begun && shared->next_generation < shared->generation_limit;
		if (is_drawn)
			draw_generations(shared, drawn, 1);
		LWLockRelease(&shared->lock);

		if (is_drawn)
			return drawn[0].generation;
		if (!has_begun)
			blob_store_load_begin(store, shared);
		else
			blob_store_reserve_generations(store, shared, 1);
	}
}

/*
 * Take pages and generations in memory, growing the store as needed.  Returns the sum of all pages
 * that were taken from the store so far.
 */
static uint64
take(BlobStore *store, BlobStoreShared *shared, uint64 total_pages, BlobExtent *extents, int count)
{
	bool		may_wait = true;
	bool		anywhere = false;
	int			helps = 0;

	for (;;)
	{
		bool		generations_left;
		bool		taken = false;
		bool		is_over;
		uint64		allocated_pages = 0;

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		generations_left = shared->next_generation + count <= shared->generation_limit;
		is_over = shared->begun && blob_store_is_over_limit(shared, total_pages);
		if (shared->begun && generations_left && !is_over)
		{
			taken = take_side_by_side(shared, total_pages, extents, count) ||
				take_scattered(shared, total_pages, extents, count, anywhere);
			if (taken)
			{
				draw_generations(shared, extents, count);
				shared->used_pages += total_pages;
				allocated_pages = shared->allocated_pages += total_pages;
			}
		}
		LWLockRelease(&shared->lock);

		if (taken)
			return allocated_pages;
		if (!shared->begun)
			blob_store_load_begin(store, shared);
		else if (!generations_left)
			blob_store_reserve_generations(store, shared, count);
		else if (is_over && !shared->loaded)
			blob_store_load_some(store, shared);	/* unloaded pages are free, perhaps */
		else if (is_over)
			blob_store_report_limit(shared, total_pages);
		else if (blob_store_mature(&store->id, shared, true))
			continue;
		else if (!shared->loaded && helps++ < MAX_LOAD_HELPS)
			blob_store_load_some(store, shared);
		else
			blob_store_grow(store, shared, total_pages, &may_wait, &anywhere);
	}
}

/* The first logged_count of the extents that were taken are in the map; give the others back. */
static void
settle(BlobStoreShared *shared, const BlobExtent *extents, int count, int logged_count)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = logged_count; i < count; i++)
		shared->used_pages -= extents[i].pages;
	for (int i = 0; i < logged_count; i++)
		blob_sets_count_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_EXTENT, extents[i].pages);
	untake(shared, extents + logged_count, count - logged_count);
	LWLockRelease(&shared->lock);
}

/*
 * Enter extents that were taken in memory in the map, and log them.  On failure, give back those
 * that are not in the map.  The draft has the extents before, so that no error leaves extents in
 * the map that are not in the draft.
 */
static void
record_allocation(BlobStore *store, BlobStoreShared *shared, BlobDraft *draft,
				  const BlobExtent *extents, int count, int first_extent_no, uint64 size_bytes)
{
	int			logged_count = 0;	/* changed through its address only: survives longjmp */

	PG_TRY();
	{
		if (draft != NULL)
			blob_draft_enter(draft, &store->id, extents, count);
		blob_map_allocate(store->map, &store->id, extents, count, first_extent_no, size_bytes,
						  &logged_count);
	}
	PG_CATCH();
	{
		settle(shared, extents, count, logged_count);
		PG_RE_THROW();
	}
	PG_END_TRY();
#ifdef USE_ASSERT_CHECKING
	settle(shared, extents, count, count);
#endif
}

/*
 * If the sum of allocated pages has passed a multiple of HOOK_PAGES, make covered pages available,
 * ask for a checkpoint if that is due, and call the hook.
 */
static void
at_allocation(BlobStore *store, BlobStoreShared *shared, uint64 pages, uint64 allocated_pages)
{
	if (allocated_pages / HOOK_PAGES == (allocated_pages - pages) / HOOK_PAGES)
		return;
	(void) blob_store_mature(&store->id, shared, false);
	blob_store_ask_for_checkpoint(shared);
	if (blob_store_allocation_hook != NULL)
		blob_store_allocation_hook(&store->id, allocated_pages);
}

int
blob_store_allocate(BlobStore *store, const BlobTierPlan *plan, uint64 size_bytes,
					BlobDraft *draft, BlobExtent *extents)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	int			count = lay_out(plan, extents);
	ErrorContextCallback callback = {error_context_stack, blob_store_at_refusal, &store->id};
	uint64		allocated_pages;

	Assert(!RecoveryInProgress());	/* replay changes the map behind our back */
	Assert(TransactionIdIsValid(GetTopTransactionIdIfAny()));
	blob_sets_check_empty_hands();
	error_context_stack = &callback;
	allocated_pages = take(store, shared, plan->total_pages, extents, count);
	error_context_stack = callback.previous;
	for (int i = 0; i < count; i++)
		extents[i].has_sums = shared->has_sums;
	record_allocation(store, shared, draft, extents, count, plan->first_extent_no, size_bytes);
	blob_sets_check_empty_hands();
	at_allocation(store, shared, plan->total_pages, allocated_pages);
	return count;
}

BlobClaimResult
blob_store_claim(BlobStore *store, BlobExtent *extent, BlobGeneration max_generation,
				 uint64 from_bytes, uint64 to_bytes)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);

	Assert(!RecoveryInProgress());
	Assert(TransactionIdIsValid(GetTopTransactionIdIfAny()));

	/* A claim that was lost in a crash may have left writes in flight. */
	if (!shared->loaded)
		blob_store_settle_claim(store, shared,
								extent->first_page + from_bytes / BLOB_PAGE_SIZE,
								extent->first_page + (to_bytes - 1) / BLOB_PAGE_SIZE + 1);
	return blob_map_claim(store->map, extent, max_generation, from_bytes, to_bytes);
}

/* The checksum that an extent's entry has when it is cut to one page; before it lies elsewhere. */
static uint32
own_sum(const BlobStore *store, const BlobExtent *extent, uint64 pages)
{
	uint32		sum = 0;

	if (extent->has_sums && pages == 1 &&
		blob_map_get_sums(store->map, extent, 0, 1, &sum) != BLOB_SUMS_FOUND)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the extent map lacks the checksum of page " UINT64_FORMAT,
						extent->first_page)));
	return sum;
}

void
blob_store_trim(BlobStore *store, BlobExtent *extent, uint64 pages)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	uint32		sum = own_sum(store, extent, pages);
	dsa_pointer nodes = blob_free_runs_reserve(blob_store_area, 1);

	PG_TRY();
	{
		blob_map_trim(store->map, extent, pages, sum);
	}
	PG_CATCH();
	{
		blob_free_runs_release(blob_store_area, nodes);
		PG_RE_THROW();
	}
	PG_END_TRY();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	blob_free_runs_give_reserved(blob_store_area, &shared->free_runs, &nodes,
								 extent->first_page + pages, extent->pages - pages);
	blob_sets_check_move(shared, BLOB_PAGE_EXTENT, BLOB_PAGE_FREE, extent->first_page + pages,
						 extent->pages - pages);
	shared->freed_lsn = Max(shared->freed_lsn, XactLastRecEnd);
	shared->used_pages -= extent->pages - pages;
	LWLockRelease(&shared->lock);
	blob_free_runs_release(blob_store_area, nodes);
	extent->pages = pages;
	extent->is_tail = true;
}

BlobGeneration
blob_store_cutoff(BlobStore *store)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	BlobGeneration next;

	blob_store_load_begin(store, shared);
	LWLockAcquire(&shared->lock, LW_SHARED);
	next = shared->next_generation;
	LWLockRelease(&shared->lock);
	return next - 1;
}
