/*
 * store/grow.c
 *	  Growth: reserving more of the disk, reserving generations; all under the growth lock.
 *	  (load.c loads the free space from the map, holes.c fills hollow pages.)
 */
#include "postgres.h"

#include "access/xlog.h"
#include "core/compat.h"
#include "core/settings.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "postmaster/bgwriter.h"
#include "store/disk_room.h"
#include "store/store_internal.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Generations that are reserved in the WAL at a time. */
#define GENERATION_BATCH 8192

/* The store grows by a 32nd, within these bounds; by a 64th if much will be free soon. */
#define GROWTH_PART 32
#define SMALL_GROWTH_PART 64
#define MIN_GROWTH_PAGES UINT64CONST(4096)	/* 16 MiB */
#define MAX_GROWTH_PAGES BLOB_SEGMENT_PAGES

/* And by as much for each further process that waits for it. */
#define WAITER_GROWTH_PAGES UINT64CONST(1024)	/* 4 MiB */

/* The pages that the map can address: MaxBlockNumber - 1 blocks of entries, about 8 PiB. */
#define MAX_STORE_PAGES ((BlobPageNo) (MaxBlockNumber - 1) * BLOB_MAP_ENTRIES)

/* Freed pages that are worth a checkpoint: a sixteenth of the store. */
#define WORTH_CHECKPOINT_PAGES UINT64CONST(16384)	/* at least 64 MiB */
#define WORTH_CHECKPOINT_PART 16

/* The argument is in the README of this folder, "Checksums of values that exist". */
bool
blob_store_enable_sums(BlobStore *store)
{
	bool		is_new = blob_map_raise_format(store->map, BLOB_MAP_VERSION_3);
	BlobStoreShared *shared = blob_store_lock_table(&store->id);
	BlobMapMeta meta;

	blob_store_unlock_table();
	XLogFlush(blob_map_read_meta_lsn(store->map, &meta));
	if (shared != NULL)
	{
		/* A process that loads the store may have read the meta page before. */
		LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
		shared->has_sums = true;
		LWLockRelease(&shared->growth_lock);
	}
	return is_new;
}

/* ---- growing ---- */

/* The state of the store on which growth decides, as it was at one moment. */
typedef struct Situation
{
	uint64		longest_pages;	/* of the free runs */
	uint64		free_pages;		/* resting ones, too */
	uint64		pending_pages;
	uint64		store_pages;	/* with blocks in a file */
	BlobPageNo	end_page;
	XLogRecPtr	oldest_pending;
	bool		is_loaded;		/* false: there may be more free pages */
	uint64		waiters;		/* other processes that wait for the store to grow */
} Situation;

static void
look(BlobStoreShared *shared, Situation *now)
{
	LWLockAcquire(&shared->lock, LW_SHARED);
	now->longest_pages = blob_free_runs_longest(blob_store_area, &shared->free_runs);
	now->free_pages = shared->free_runs.page_count + shared->resting.page_count;
	now->pending_pages = blob_pending_pages(&shared->pending);
	now->oldest_pending = blob_pending_oldest(&shared->pending);
	now->end_page = shared->reserved_pages;
	now->store_pages = blob_store_file_pages(shared);
	now->is_loaded = shared->loaded;
	LWLockRelease(&shared->lock);
	now->waiters = pg_atomic_read_u32(&shared->growth_waiters);
}

/* Pages by which stores may grow on their file system; very many if that is unknown. */
static uint64
disk_pages(void)
{
	return blob_disk_room_for_segments() / BLOB_PAGE_SIZE;
}

/* How many pages must wait for a checkpoint, so that one is worth its price. */
static uint64
worth_pages(const Situation *now)
{
	return Max(WORTH_CHECKPOINT_PAGES, now->store_pages / WORTH_CHECKPOINT_PART);
}

/* ---- the limit ---- */

#define PAGES_PER_MB (1024 * 1024 / BLOB_PAGE_SIZE)

bool
blob_store_is_over_limit(const BlobStoreShared *shared, uint64 pages)
{
	return blob_max_store_mb >= 0 &&
		blob_store_used_pages(shared) + pages > (uint64) blob_max_store_mb * PAGES_PER_MB;
}

void
blob_store_report_limit(BlobStoreShared *shared, uint64 pages)
{
	uint64		used_pages;

	LWLockAcquire(&shared->lock, LW_SHARED);
	used_pages = blob_store_used_pages(shared);
	LWLockRelease(&shared->lock);
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not store blob content: the values of this database take all the space "
					"that they can have"),
			 errdetail("The content needs %llu bytes. Values take %llu, those among them that "
					   "the collector has yet to free, and blobext.max_store_size is %llu.",
					   (unsigned long long) (pages * BLOB_PAGE_SIZE),
					   (unsigned long long) (used_pages * BLOB_PAGE_SIZE),
					   (unsigned long long) blob_max_store_mb * 1024 * 1024),
			 errhint("Delete values and call blobext_gc(), or have a superuser increase "
					 "blobext.max_store_size by ALTER DATABASE.")));
}

/* ---- refusals ---- */

BlobStoreRefusalHook blob_store_refusal_hook;

void
blob_store_at_refusal(void *id)
{
	int			code = geterrcode();

	if (code != ERRCODE_DISK_FULL && code != ERRCODE_CONFIGURATION_LIMIT_EXCEEDED)
		return;
	if (blob_store_refusal_hook != NULL && blob_store_refusal_hook(id))
		errhint("The collector was asked to free the space of deleted values: try again in a "
				"moment. If that does not help, delete more values, or increase what the message "
				"names: free disk space, a quota, or the limit.");
}

/* ---- room ---- */

/* ERROR if the disk has no room for `pages` more. */
static void
require_room(BlobStore *store, uint64 pages)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	Situation	now;
	uint64		has_pages;

	blob_store_load_begin(store, shared);
	for (;;)
	{
		look(shared, &now);
		has_pages = now.free_pages + now.pending_pages;
		if (pages <= has_pages || pages - has_pages <= disk_pages())
			return;
		if (now.is_loaded)
			break;
		blob_store_load(store, shared); /* before a value is refused */
	}
	ereport(ERROR,
			(errcode(ERRCODE_DISK_FULL),
			 errmsg("could not reserve space for blob content: %s", strerror(ENOSPC)),
			 errdetail("The value needs %llu more bytes. The store has %llu to give, the file "
					   "system of \"%s\" has %llu besides those that blobext.min_free_disk keeps.",
					   (unsigned long long) (pages * BLOB_PAGE_SIZE),
					   (unsigned long long) (has_pages * BLOB_PAGE_SIZE), BLOB_STORE_DIR,
					   (unsigned long long) (disk_pages() * BLOB_PAGE_SIZE)),
			 errhint("Check free disk space and quotas.")));
}

void
blob_store_require_room(BlobStore *store, uint64 pages)
{
	ErrorContextCallback callback = {error_context_stack, blob_store_at_refusal, &store->id};

	error_context_stack = &callback;
	require_room(store, pages);
	error_context_stack = callback.previous;
}

/*
 * How many pages to reserve if needed_pages are needed: few if much will be free soon, or known to
 * be free, and just the needed ones if the growth would be over a quarter of what the disk has for
 * stores.
 */
static uint64
growth_pages(const Situation *now, uint64 needed_pages)
{
	uint64		part = now->pending_pages >= worth_pages(now) ? SMALL_GROWTH_PART :
		GROWTH_PART;
	uint64		pages = Max(MIN_GROWTH_PAGES, Min(MAX_GROWTH_PAGES, now->store_pages / part));

	if (!now->is_loaded)
		pages = MIN_GROWTH_PAGES;
	pages = Min(MAX_GROWTH_PAGES, Max(pages, needed_pages) + now->waiters * WAITER_GROWTH_PAGES);
	if (pages <= needed_pages || pages > disk_pages() / 4)
		return needed_pages;
	return pages;
}

/* Extend the store at its end.  ERROR if the map cannot address more pages. */
static void
grow_end(BlobStore *store, BlobStoreShared *shared, BlobPageNo first_page, uint64 pages)
{
	dsa_pointer nodes;

	if (first_page + pages > MAX_STORE_PAGES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the extent store of this database is full")));
	nodes = blob_free_runs_reserve(blob_store_area, 1);
	PG_TRY();
	{
		blob_segment_reserve(&store->id, first_page, first_page + pages);
		blob_map_extend(store->map, first_page + pages);
		blob_map_set_reserved(store->map, first_page + pages);
	}
	PG_CATCH();
	{
		blob_free_runs_release(blob_store_area, nodes);
		PG_RE_THROW();
	}
	PG_END_TRY();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->reserved_pages = first_page + pages;
	blob_free_runs_give_reserved(blob_store_area, &shared->free_runs, &nodes, first_page, pages);
	blob_sets_check_move(shared, BLOB_PAGE_NEW, BLOB_PAGE_FREE, first_page, pages);
	LWLockRelease(&shared->lock);
}

/*
 * Whether enough pages wait for a checkpoint, so that one may be asked for.  A store that is
 * written and emptied at a high rate would grow by all that is freed between two checkpoints.  A
 * true result counts as the request.  Never true where pages wait for a flush only.
 */
static bool
wants_checkpoint(BlobStoreShared *shared, const Situation *now)
{
	return now->pending_pages >= worth_pages(now) && !blob_store_frees_after_flush() &&
		blob_store_may_ask(shared);
}

static void
ask_for_checkpoint(const Situation *now, int flags)
{
	ereport(DEBUG1,
			(errmsg_internal("blobext asks for a checkpoint: " UINT64_FORMAT
							 " freed pages wait for one", now->pending_pages)));
	RequestCheckpoint(flags);
}

void
blob_store_ask_for_checkpoint(BlobStoreShared *shared)
{
	Situation	now;

	if (blob_store_frees_after_flush())
		return;
	look(shared, &now);
	if (now.free_pages < now.pending_pages && wants_checkpoint(shared, &now))
		ask_for_checkpoint(&now, CHECKPOINT_FAST);
}

/* Before the store takes most of what the disk has left, all of its own free space is known. */
static bool
must_load_first(const Situation *now, uint64 needed_pages)
{
	return !now->is_loaded && disk_pages() / 4 < Max(needed_pages, MIN_GROWTH_PAGES);
}

/*
 * Take the growth lock, to grow the store for all that wait for it.  False if another process had
 * it: that one has most likely grown the store.  The processes that wait are woken together, and
 * need not have the lock one after the other.
 */
static bool
take_growth_lock(BlobStoreShared *shared)
{
	bool		is_taken;

	pg_atomic_fetch_add_u32(&shared->growth_waiters, 1);
	is_taken = LWLockAcquireOrWait(&shared->growth_lock, LW_EXCLUSIVE);
	pg_atomic_fetch_sub_u32(&shared->growth_waiters, 1);
	return is_taken;
}

void
blob_store_grow(BlobStore *store, BlobStoreShared *shared, uint64 needed_pages, bool *may_wait,
				bool *anywhere)
{
	Situation	now;
	int			flags = CHECKPOINT_FAST;
	bool		has_room;
	bool		wants;

	Assert(!RecoveryInProgress());
	if (!take_growth_lock(shared))
		return;
	look(shared, &now);
	/* Resting pages cost nothing; the caller tries again. */
	if (now.longest_pages >= needed_pages || blob_store_wake(shared, needed_pages, PG_UINT64_MAX))
	{
		LWLockRelease(&shared->growth_lock);
		return;
	}
	if (must_load_first(&now, needed_pages))
	{
		LWLockRelease(&shared->growth_lock);
		blob_store_load_some(store, shared);
		return;
	}

	has_room = disk_pages() >= needed_pages;
	if (!has_room && !*anywhere)
	{
		*anywhere = true;
		wants = false;
	}
	else if (!has_room && *may_wait && now.pending_pages > 0 &&
			 now.free_pages + now.pending_pages >= needed_pages)
	{
		/*
		 * The disk is full, but a checkpoint will free enough: wait for it instead of failing.
		 * Where a flush is enough, the caller flushes when it looks for pages again.
		 */
		flags = CHECKPOINT_FAST | CHECKPOINT_FORCE | CHECKPOINT_WAIT;
		wants = !blob_store_frees_after_flush();
		*may_wait = false;
	}
	else
	{
		uint64		pages = growth_pages(&now, needed_pages);

		blob_disk_room_require_for_segments(pages * BLOB_PAGE_SIZE);
		if (!blob_store_fill(store, shared, needed_pages, pages))
			grow_end(store, shared, now.end_page, pages);
		wants = wants_checkpoint(shared, &now);
	}
	LWLockRelease(&shared->growth_lock);

	if (wants)
		ask_for_checkpoint(&now, flags);
}

void
blob_store_reserve_generations(BlobStore *store, BlobStoreShared *shared, int count)
{
	BlobGeneration limit;
	bool		enough;

	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	LWLockAcquire(&shared->lock, LW_SHARED);
	enough = shared->next_generation + count <= shared->generation_limit;
	limit = shared->generation_limit + Max(count, GENERATION_BATCH);
	LWLockRelease(&shared->lock);

	if (!enough)
	{
		blob_map_set_generation_limit(store->map, limit);
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		shared->generation_limit = limit;
		LWLockRelease(&shared->lock);
	}
	LWLockRelease(&shared->growth_lock);
}
