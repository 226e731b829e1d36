/*
 * store/load.c
 *	  Loading the free space of a store from its map, after each start of the server.
 *
 * In steps, each of a block of the map.  The argument, and which process waits for which other one,
 * is in the README of this folder, "Loading".
 */
#include "postgres.h"

#include "access/xlog.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "store/limits.h"
#include "store/store_internal.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * Blocks that are loaded while the growth lock is held once: 2 MB, for 510 MB of the store; and the
 * pause of the background process then.
 */
#define BATCH_BLOCKS 256
#define WORKER_PAUSE_US 1000

/* The state of the pages of a run in the map. */
typedef enum LoadedKind
{
	LOADED_FREE,
	LOADED_HOLLOW,
	LOADED_EXTENT
} LoadedKind;

typedef struct LoadedRun
{
	LoadedKind	kind;
	bool		is_absent;		/* of hollow pages */
	BlobPageNo	first_page;
	uint64		pages;
	XLogRecPtr	lsn;			/* free, or hollow, not later than that */
} LoadedRun;

/* An entry, and the free pages before it; and the free pages behind the last one. */
#define MAX_STEP_RUNS (2 * BLOB_MAP_ENTRIES + 1)

/*
 * One step: the state behind it, and the runs that it has found.  Nothing in shared memory changes
 * until all of it is known.
 *
 * The pages between extents are free; the map does not say since when.  If an extent was freed
 * there, and its pages were not given out since, the block of its first page has at least the LSN
 * of its record; but the extent may reach into later blocks.  So the pages of a free run in one
 * block were freed not later than the largest LSN of the run's blocks up to this one (run_lsn).
 */
typedef struct LoadStep
{
	BlobStoreLoad load;
	int			run_count;
	LoadedRun	runs[MAX_STEP_RUNS];
} LoadStep;

static void
report_overlap(BlobPageNo page)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the extent map is damaged at page " UINT64_FORMAT, page),
			 errdetail("An extent overlaps the one before it or lies outside of the store."),
			 errhint("Run blobext_check() to see which values are affected.")));
}

/* ---- finding out ---- */

/* The pages from next_page to end_page are of this kind. */
static void
note_run(LoadStep *step, LoadedKind kind, BlobPageNo end_page, XLogRecPtr lsn)
{
	Assert(step->run_count < (int) MAX_STEP_RUNS);
	step->runs[step->run_count++] = (LoadedRun) {
		.kind = kind,
		.first_page = step->load.next_page,
		.pages = end_page - step->load.next_page,
		.lsn = lsn
	};
	step->load.next_page = end_page;
}

/*
 * The pages from next_page to end_page are free, or behind a damaged entry: then they count as
 * those of an extent, because they are if the entry is mended.
 */
static void
note_free(LoadStep *step, BlobPageNo end_page)
{
	end_page = Min(end_page, step->load.end_page);
	if (end_page <= step->load.next_page)
		return;
	if (step->load.is_in_doubt)
		step->load.lost_pages += end_page - step->load.next_page;
	note_run(step, step->load.is_in_doubt ? LOADED_EXTENT : LOADED_FREE, end_page,
			 step->load.run_lsn);
}

/* The pages before an entry, which are free, and those of the entry. */
static void
note_entry(LoadStep *step, BlobPageNo first_page, const BlobMapEntry *entry, XLogRecPtr lsn)
{
	BlobPageNo	end_page = first_page + blob_map_entry_pages(entry);

	if (first_page < step->load.next_page || end_page > step->load.end_page)
		report_overlap(first_page);
	note_free(step, first_page);
	step->load.is_in_doubt = false;
	note_run(step, blob_map_entry_is_hollow(entry) ? LOADED_HOLLOW : LOADED_EXTENT, end_page, lsn);
	step->runs[step->run_count - 1].is_absent = blob_map_entry_state(entry) == BLOB_MAP_ABSENT;
}

/*
 * A damaged entry.  Inside of an extent, or of hollow pages, it had checksums at most.  Elsewhere
 * it may have been an extent, which ends where the next entry begins: those pages are not given
 * out.
 */
static void
note_damaged(LoadStep *step, BlobPageNo page)
{
	if (step->load.damaged_count++ == 0)
		step->load.damaged_page = page;
	if (page < step->load.next_page)
		return;
	note_free(step, page);
	step->load.is_in_doubt = true;
}

/* All pages of one block of the map that are below the end of the load. */
static void
note_block(LoadStep *step, BlockNumber block, Page page)
{
	BlobPageNo	end_page = Min(blob_map_page_at(block, BLOB_MAP_ENTRIES - 1) + 1,
							   step->load.end_page);
	XLogRecPtr	lsn = PageIsNew(page) ? InvalidXLogRecPtr : PageGetLSN(page);

	if (step->load.next_page < end_page)
		step->load.run_lsn = Max(step->load.run_lsn, lsn);
	for (uint32 slot = 0; slot < BLOB_MAP_ENTRIES && !PageIsNew(page); slot++)
	{
		const BlobMapEntry *entry = &blob_map_page_entries(page)[slot];
		BlobPageNo	first_page = blob_map_page_at(block, slot);

		if (first_page >= step->load.end_page)
			break;				/* reserved since the load began: these pages are known */
		if (blob_map_entry_is_damaged(entry))
			note_damaged(step, first_page);
		if (blob_map_entry_is_vacant(entry) || blob_map_entry_is_damaged(entry))
			continue;
		note_entry(step, first_page, entry, lsn);
		/* The next run begins here, or in a later block. */
		step->load.run_lsn = step->load.next_page < end_page ? lsn : InvalidXLogRecPtr;
	}
	note_free(step, end_page);
}

/* The next block; behind the last one all pages up to the end are free. */
static void
find_out(Relation map, BufferAccessStrategy strategy, LoadStep *step)
{
	BlockNumber block = step->load.next_block;
	PGAlignedBlock copy;

	step->run_count = 0;
	if (block < RelationGetNumberOfBlocks(map) &&
		blob_map_page_at(block, 0) < step->load.end_page)
	{
		blob_map_copy_block(map, block, strategy, (Page) copy.data);
		note_block(step, block, (Page) copy.data);
		step->load.next_block++;
	}
	else
		note_free(step, step->load.end_page);
}

/* ---- before pages are given out ---- */

/*
 * A killed backend may have had writes in flight to extents whose ALLOC record was lost with it.
 * Their pages look free now, and must not be given out before those writes end.
 */
static void
settle(const BlobStore *store, BlobStoreLoad *load)
{
	while (load->next_page > load->settled_segments * BLOB_SEGMENT_PAGES)
		blob_segment_settle(&store->id, load->settled_segments++);
}

/*
 * Remove the file of a segment that the map says has none.  The process that logged REMOVE may have
 * ended before it removed the file.
 */
static void
remove_orphan(const BlobStore *store, uint32 segment_no)
{
	if (blob_segment_file_bytes(&store->id, segment_no) >= 0 &&
		blob_map_is_absent(store->map, segment_no))
		(void) blob_segment_remove(&store->id, segment_no);
}

/* ---- the sets ---- */

/* Add a run to its set; it waits there if no completed checkpoint covers it.  Under the lock. */
static void
give_run(BlobStoreShared *shared, dsa_pointer *nodes, const LoadedRun *run,
		 XLogRecPtr completed_redo, XLogRecPtr started_redo)
{
	bool		is_free = run->kind == LOADED_FREE;
	bool		waits = run->lsn > completed_redo;

	if (waits)
		blob_pending_give(blob_store_area, is_free ? &shared->pending : &shared->hollow_pending,
						  nodes, run->lsn, started_redo, run->first_page, run->pages);
	else
		blob_free_runs_give_reserved(blob_store_area,
									 is_free ? &shared->free_runs : &shared->hollow, nodes,
									 run->first_page, run->pages);
	if (is_free && waits)
		shared->freed_lsn = Max(shared->freed_lsn, run->lsn);
	if (run->is_absent)
		shared->removed_lsn = Max(shared->removed_lsn, run->lsn);
	blob_sets_check_move(shared, BLOB_PAGE_UNLOADED,
						 waits ? (is_free ? BLOB_PAGE_PENDING : BLOB_PAGE_HOLLOW_PENDING) :
						 (is_free ? BLOB_PAGE_FREE : BLOB_PAGE_HOLLOW),
						 run->first_page, run->pages);
}

/* The step is done: its pages leave the unloaded ones.  Nothing here fails. */
static void
apply(BlobStoreShared *shared, dsa_pointer *nodes, const LoadStep *step,
	  XLogRecPtr completed_redo)
{
	XLogRecPtr	started_redo = GetRedoRecPtr();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->load = step->load;
	for (int i = 0; i < step->run_count; i++)
	{
		const LoadedRun *run = &step->runs[i];

		if (run->kind != LOADED_EXTENT)
			give_run(shared, nodes, run, completed_redo, started_redo);
		else
		{
			shared->used_pages += run->pages;
			blob_sets_check_move(shared, BLOB_PAGE_UNLOADED, BLOB_PAGE_EXTENT, run->first_page,
								 run->pages);
		}
	}
	shared->loaded = shared->load.next_page == shared->load.end_page;
	LWLockRelease(&shared->lock);
}

/* One step.  If it fails, nothing has changed, and the next process repeats it. */
static void
load_block(BlobStore *store, BlobStoreShared *shared, BufferAccessStrategy strategy,
		   LoadStep *step, XLogRecPtr completed_redo)
{
	dsa_pointer nodes;

	step->load = shared->load;
	find_out(store->map, strategy, step);
	settle(store, &step->load);
	for (int i = 0; i < step->run_count; i++)
	{
		if (step->runs[i].is_absent)
			remove_orphan(store, blob_segment_of(step->runs[i].first_page));
	}
	nodes = blob_free_runs_reserve(blob_store_area, step->run_count);
	apply(shared, &nodes, step, completed_redo);
	blob_free_runs_release(blob_store_area, nodes);
}

/* ---- the whole ---- */

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

/* Take over what the meta page says; all pages are unloaded then.  Under the growth lock. */
static void
begin(BlobStore *store, BlobStoreShared *shared)
{
	BlobMapMeta meta;
	XLogRecPtr	meta_lsn = blob_map_read_meta_lsn(store->map, &meta);

	require_directory(&store->id, &meta);
	blob_limits_note(&store->id, meta_lsn, meta.generation_limit);

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->reserved_pages = meta.reserved_pages;
	shared->has_sums = meta.version >= BLOB_MAP_VERSION_3;
	/* Generations below the limit may have been drawn before a crash. */
	shared->next_generation = shared->generation_limit = meta.generation_limit;
	shared->load = (BlobStoreLoad) {
		.end_page = meta.reserved_pages,
		.next_block = BLOB_MAP_META_BLOCK + 1
	};
	blob_sets_begin(shared);
	shared->begun = true;
	shared->loaded = meta.reserved_pages == 0;
	LWLockRelease(&shared->lock);
}

void
blob_store_load_begin(BlobStore *store, BlobStoreShared *shared)
{
	Assert(!RecoveryInProgress());	/* replay changes the map behind our back */

	if (shared->begun)
		return;
	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	if (!shared->begun)
		begin(store, shared);
	LWLockRelease(&shared->growth_lock);
}

static void
log_damage(const BlobStoreLoad *load)
{
	if (load->damaged_count == 0)
		return;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("blobext: %llu entries of the extent map are damaged",
					(unsigned long long) load->damaged_count),
			 errdetail("The first one is that of page %llu. %llu bytes that may belong to "
					   "values are not given out.",
					   (unsigned long long) load->damaged_page,
					   (unsigned long long) (load->lost_pages * BLOB_PAGE_SIZE)),
			 errhint("Run blobext_check() to see which values are affected.")));
}

static void
check_sets(BlobStoreShared *shared)
{
#ifdef USE_ASSERT_CHECKING
	LWLockAcquire(&shared->lock, LW_SHARED);
	blob_sets_check(shared);
	LWLockRelease(&shared->lock);
#endif
}

void
blob_store_load_some(BlobStore *store, BlobStoreShared *shared)
{
	BufferAccessStrategy strategy;
	LoadStep   *step;
	XLogRecPtr	completed_redo;

	blob_store_load_begin(store, shared);
	if (!LWLockAcquireOrWait(&shared->growth_lock, LW_EXCLUSIVE))
		return;
	strategy = GetAccessStrategy(BAS_BULKREAD);
	step = palloc(sizeof(LoadStep));
	if (!shared->loaded)
	{
		completed_redo = blob_store_completed_redo();
		for (int i = 0; i < BATCH_BLOCKS && !shared->loaded; i++)
			load_block(store, shared, strategy, step, completed_redo);
		check_sets(shared);
		if (shared->loaded)
			log_damage(&shared->load);
	}
	LWLockRelease(&shared->growth_lock);
	pfree(step);
	FreeAccessStrategy(strategy);
}

void
blob_store_load(BlobStore *store, BlobStoreShared *shared)
{
	while (!shared->loaded)
	{
		CHECK_FOR_INTERRUPTS();
		blob_store_load_some(store, shared);
	}
}

bool
blob_store_load_step(BlobStore *store)
{
	BlobStoreShared *shared;

	Assert(!RecoveryInProgress());
	/* Without files there is nothing to load, and no entry is made. */
	if (!blob_segment_dir_exists(&store->id))
		return false;
	shared = blob_store_shared(&store->id);
	if (shared->loaded)
		return false;
	blob_store_load_some(store, shared);
	/* Those that wait for the growth lock shall get it: it is not handed over. */
	pg_usleep(WORKER_PAUSE_US);
	return !shared->loaded;
}

/*
 * Writes of killed processes to the pages of a claim may be in flight (README, "Claims and cuts"):
 * of an extent that is not loaded yet.
 */
void
blob_store_settle_claim(BlobStore *store, BlobStoreShared *shared, BlobPageNo first_page,
						BlobPageNo end_page)
{
	bool		is_unloaded;

	blob_store_load_begin(store, shared);
	if (shared->loaded)
		return;
	LWLockAcquire(&shared->lock, LW_SHARED);
	is_unloaded = end_page > shared->load.settled_segments * BLOB_SEGMENT_PAGES &&
		first_page < shared->load.end_page;
	LWLockRelease(&shared->lock);
	for (BlobPageNo page = first_page; is_unloaded && page < end_page;
		 page = blob_segment_end(page))
		blob_segment_settle(&store->id, blob_segment_of(page));
}
