/*
 * store/grow.c
 *	  Growth: loading the free space from the map, reserving more of the disk, reserving
 *	  generations; all under the growth lock.  (holes.c fills hollow pages.)
 */
#include "postgres.h"

#include "access/xlog.h"
#include "core/compat.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "postmaster/bgwriter.h"
#include "store/disk_room.h"
#include "store/limits.h"
#include "store/store_internal.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Generations that are reserved in the WAL at a time. */
#define GENERATION_BATCH 8192

/* The store grows by a 32nd, within these bounds; by a 64th if much will be free soon. */
#define GROWTH_PART 32
#define SMALL_GROWTH_PART 64
#define MIN_GROWTH_PAGES UINT64CONST(4096)	/* 16 MiB */
#define MAX_GROWTH_PAGES BLOB_SEGMENT_PAGES

/* The pages that the map can address: MaxBlockNumber - 1 blocks of entries, about 8 PiB. */
#define MAX_STORE_PAGES ((BlobPageNo) (MaxBlockNumber - 1) * BLOB_MAP_ENTRIES)

/* Freed pages that are worth a checkpoint: a sixteenth of the store. */
#define WORTH_CHECKPOINT_PAGES UINT64CONST(16384)	/* at least 64 MiB */
#define WORTH_CHECKPOINT_PART 16

/* ---- loading ---- */

/*
 * State of a load.  The pages between extents are free; the map does not say since when.  If an
 * extent was freed there, and its pages were not given out since, the block of its first page has
 * at least the LSN of its record; but the extent may reach into later blocks.  So the pages of a
 * free run in one block were freed not later than the largest LSN of the run's blocks up to this
 * one.
 */
typedef struct LoadState
{
	BlobStoreShared *shared;
	XLogRecPtr	completed_redo;
	XLogRecPtr	started_redo;
	BlobPageNo	next_page;		/* pages below it are dealt with */
	XLogRecPtr	run_lsn;		/* largest LSN of the present free run's blocks */
	uint64		extent_pages;	/* of the extents so far */
	uint64		damaged_count;	/* damaged entries */
	BlobPageNo	damaged_page;	/* the first one */
	bool		is_in_doubt;	/* pages from next_page on may be an extent with a damaged entry */
	uint64		lost_pages;		/* that were */
} LoadState;

static void
report_overlap(BlobPageNo page)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the extent map is damaged at page " UINT64_FORMAT, page),
			 errdetail("An extent overlaps the one before it or lies outside of the store."),
			 errhint("Run blobext_check() to see which values are affected.")));
}

/* Add pages to runs if a completed checkpoint covers lsn, else to pending. */
static void
load_pages(LoadState *state, BlobFreeRuns *runs, BlobPending *pending, BlobPageNo first_page,
		   BlobPageNo end_page, XLogRecPtr lsn)
{
	dsa_pointer nodes;

	if (first_page >= end_page)
		return;
	if (lsn <= state->completed_redo)
	{
		blob_free_runs_give(blob_store_area, runs, first_page, end_page - first_page);
		return;
	}
	nodes = blob_free_runs_reserve(blob_store_area, 1);
	blob_pending_give(blob_store_area, pending, &nodes, lsn, state->started_redo, first_page,
					  end_page - first_page);
}

/* Add the pages from next_page to end_page, which are free. */
static void
load_free(LoadState *state, BlobPageNo end_page)
{
	end_page = Min(end_page, state->shared->reserved_pages);
	if (end_page <= state->next_page)
		return;
	if (state->is_in_doubt)
	{
		state->lost_pages += end_page - state->next_page;
		state->next_page = end_page;
		return;
	}
	if (state->run_lsn > state->completed_redo)
		state->shared->freed_lsn = Max(state->shared->freed_lsn, state->run_lsn);
	load_pages(state, &state->shared->free_runs, &state->shared->pending, state->next_page,
			   end_page, state->run_lsn);
	state->next_page = end_page;
}

/* Deal with the pages before an entry, which are free, and with those of the entry. */
static void
load_entry(LoadState *state, BlobPageNo first_page, const BlobMapEntry *entry, XLogRecPtr lsn)
{
	BlobPageNo	end_page = first_page + blob_map_entry_pages(entry);

	if (first_page < state->next_page || end_page > state->shared->reserved_pages)
		report_overlap(first_page);
	load_free(state, first_page);
	state->is_in_doubt = false;
	if (blob_map_entry_is_extent(entry))
		state->extent_pages += blob_map_entry_pages(entry);
	if (blob_map_entry_is_hollow(entry))
		load_pages(state, &state->shared->hollow, &state->shared->hollow_pending, first_page,
				   end_page, lsn);
	if (blob_map_entry_state(entry) == BLOB_MAP_ABSENT)
		state->shared->removed_lsn = Max(state->shared->removed_lsn, lsn);
	state->next_page = end_page;
}

/*
 * A damaged entry.  Inside of an extent, or of hollow pages, it had checksums at most.  Elsewhere
 * it may have been an extent, which ends where the next entry begins: those pages are not given
 * out.
 */
static void
load_damaged(LoadState *state, BlobPageNo page)
{
	if (state->damaged_count++ == 0)
		state->damaged_page = page;
	if (page < state->next_page)
		return;
	load_free(state, page);
	state->is_in_doubt = true;
}

/* Deal with all pages of one block of the map. */
static void
load_block(LoadState *state, BlockNumber block, Page page)
{
	BlobPageNo	end_page = blob_map_page_at(block, BLOB_MAP_ENTRIES - 1) + 1;
	XLogRecPtr	lsn = PageIsNew(page) ? InvalidXLogRecPtr : PageGetLSN(page);

	if (state->next_page < end_page)
		state->run_lsn = Max(state->run_lsn, lsn);
	for (uint32 slot = 0; slot < BLOB_MAP_ENTRIES && !PageIsNew(page); slot++)
	{
		const BlobMapEntry *entry = &blob_map_page_entries(page)[slot];

		if (blob_map_entry_is_damaged(entry))
			load_damaged(state, blob_map_page_at(block, slot));
		if (blob_map_entry_is_vacant(entry) || blob_map_entry_is_damaged(entry))
			continue;
		load_entry(state, blob_map_page_at(block, slot), entry, lsn);
		/* The next run begins here, or in a later block. */
		state->run_lsn = state->next_page < end_page ? lsn : InvalidXLogRecPtr;
	}
	load_free(state, end_page);
}

/* Deal with all blocks; the log says which entries are damaged. */
static void
load_map(Relation map, LoadState *state)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	BlockNumber block_count = RelationGetNumberOfBlocks(map);
	PGAlignedBlock copy;

	for (BlockNumber block = BLOB_MAP_META_BLOCK + 1; block < block_count; block++)
	{
		CHECK_FOR_INTERRUPTS();
		blob_map_copy_block(map, block, strategy, (Page) copy.data);
		load_block(state, block, (Page) copy.data);
	}
	load_free(state, state->shared->reserved_pages);
	FreeAccessStrategy(strategy);
	if (state->damaged_count > 0)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("blobext: %llu entries of the extent map are damaged",
						(unsigned long long) state->damaged_count),
				 errdetail("The first one is that of page %llu. %llu bytes that may belong to "
						   "values are not given out.",
						   (unsigned long long) state->damaged_page,
						   (unsigned long long) (state->lost_pages * BLOB_PAGE_SIZE)),
				 errhint("Run blobext_check() to see which values are affected.")));
}

/*
 * Remove the file of a segment that the map says has none.  The process that logged REMOVE may have
 * ended before it removed the file.
 */
static void
remove_orphan(const BlobStore *store, uint32 segment_no)
{
	if (blob_map_is_absent(store->map, segment_no) &&
		blob_segment_file_bytes(&store->id, segment_no) >= 0)
		(void) blob_segment_remove(&store->id, segment_no);
}

/*
 * ERROR if the store's directory is missing: pg_upgrade, for one, carries relations only.  Going on
 * would make new files, in which old values have zeros.
 */
static void
require_directory(const BlobStoreId *store, const BlobMapMeta *meta)
{
	char		path[MAXPGPATH];

	if (meta->reserved_pages == 0 || blob_segment_dir_exists(store))
		return;
	blob_segment_dir_path(path, sizeof(path), store);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FILE),
			 errmsg("the files of the extent store are missing"),
			 errdetail("There is no directory \"%s\".", path),
			 errhint("After pg_upgrade, stop the server and run blobext_upgrade.")));
}

/*
 * Fill the sets from the map.  The caller holds the growth lock; while loaded is false, no other
 * process touches the sets.
 */
static void
load(BlobStore *store, BlobStoreShared *shared)
{
	BlobMapMeta meta;
	XLogRecPtr	meta_lsn;
	LoadState	state = {
		.shared = shared,
		.completed_redo = blob_store_completed_redo(),
		.started_redo = GetRedoRecPtr()
	};

	meta_lsn = blob_map_read_meta_lsn(store->map, &meta);
	require_directory(&store->id, &meta);
	blob_limits_note(&store->id, meta_lsn, meta.generation_limit);
	blob_store_clear_sets(shared);
	shared->freed_lsn = shared->resting_lsn = shared->removed_lsn = InvalidXLogRecPtr;
	shared->reserved_pages = meta.reserved_pages;
	shared->has_sums = meta.version >= BLOB_MAP_VERSION_3;
	/* Generations below the limit may have been drawn before a crash. */
	shared->next_generation = shared->generation_limit = meta.generation_limit;

	/*
	 * A killed backend may have had writes in flight to extents whose ALLOC record was lost with
	 * it.  Their pages look free now, and must not be given out before those writes end.
	 */
	for (BlobPageNo page = 0; page < meta.reserved_pages; page += BLOB_SEGMENT_PAGES)
		blob_segment_settle(&store->id, blob_segment_of(page));

	load_map(store->map, &state);
	for (BlobPageNo page = 0; page < meta.reserved_pages; page += BLOB_SEGMENT_PAGES)
		remove_orphan(store, blob_segment_of(page));
	blob_sets_check_loaded(shared, state.extent_pages, state.lost_pages);
}

void
blob_store_load(BlobStore *store, BlobStoreShared *shared)
{
	Assert(!RecoveryInProgress());	/* replay changes the map behind our back */

	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	if (!shared->loaded)
	{
		load(store, shared);
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		shared->loaded = true;
		LWLockRelease(&shared->lock);
	}
	LWLockRelease(&shared->growth_lock);
}

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
	LWLockRelease(&shared->lock);
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

void
blob_store_require_room(BlobStore *store, uint64 pages)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	Situation	now;
	uint64		has_pages;

	if (!shared->loaded)
		blob_store_load(store, shared);
	look(shared, &now);
	has_pages = now.free_pages + now.pending_pages;
	if (pages <= has_pages || pages - has_pages <= disk_pages())
		return;
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

/*
 * How many pages to reserve if needed_pages are needed: few if much will be free soon, and just the
 * needed ones if the growth would be over a quarter of what the disk has for stores.
 */
static uint64
growth_pages(const Situation *now, uint64 needed_pages)
{
	uint64		part = now->pending_pages >= worth_pages(now) ? SMALL_GROWTH_PART :
		GROWTH_PART;
	uint64		pages = Max(MIN_GROWTH_PAGES, Min(MAX_GROWTH_PAGES, now->store_pages / part));

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

void
blob_store_grow(BlobStore *store, BlobStoreShared *shared, uint64 needed_pages, bool *may_wait)
{
	Situation	now;
	int			flags = CHECKPOINT_FAST;
	bool		wants;

	Assert(!RecoveryInProgress());
	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	look(shared, &now);
	/* Resting pages cost nothing; the caller tries again. */
	if (now.longest_pages >= needed_pages || blob_store_wake(shared, needed_pages, PG_UINT64_MAX))
	{
		LWLockRelease(&shared->growth_lock);
		return;
	}

	if (*may_wait && now.pending_pages >= needed_pages && disk_pages() < needed_pages)
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
