/*
 * store/holes.c
 *	  Blocks of free pages go back to the file system, and are taken again.
 *
 * The states of a page and the order of durability are in the README of this folder, under "Holes".
 */
#include "postgres.h"

#include "access/xlog.h"
#include "core/settings.h"
#include "io/dirty.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "store/hole_pace.h"
#include "store/store_internal.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* No shorter run is punched: 256 kB. */
#define MIN_HOLE_PAGES 64

/* A store keeps at most this part of its allocated pages. */
#define KEPT_PART 8

/* A surplus that is worth being punched: 16 MB, and this part of the allocated pages. */
#define MIN_WORTH_PAGES UINT64CONST(4096)
#define WORTH_PART 16

/* Runs that are punched at a time. */
#define PUNCH_RUNS 8

StaticAssertDecl(PUNCH_RUNS <= BLOB_MAP_PUNCH_MAX_RUNS, "a batch must fit into a record");

/* Hollow runs that are filled at a time. */
#define FILL_RUNS 64

#define PAGES_PER_MB (1024 * 1024 / BLOB_PAGE_SIZE)

/* ---- how much ---- */

/* Pages in the hands of processes count as allocated. */
static uint64
allocated_now(const BlobStoreShared *shared)
{
	return blob_store_file_pages(shared) - shared->free_runs.page_count -
		shared->resting.page_count - blob_pending_pages(&shared->pending);
}

uint64
blob_store_kept_pages(const BlobStoreShared *shared)
{
	uint64		part = allocated_now(shared) / KEPT_PART;

	return blob_keep_free_mb < 0 ? part : Min(part, (uint64) blob_keep_free_mb * PAGES_PER_MB);
}

static uint64
worth_pages(const BlobStoreShared *shared)
{
	return Max(MIN_WORTH_PAGES, allocated_now(shared) / WORTH_PART);
}

static bool
may_punch(const BlobStoreShared *shared)
{
	return blob_keep_free_mb >= 0 && !shared->knows_no_holes;
}

/* Pages that rest, and may be punched by now; 0 also if it is not known that they may. */
static uint64
count_due(BlobStoreShared *shared, XLogRecPtr *completed_redo)
{
	XLogRecPtr	awaited;
	uint64		resting;

	LWLockAcquire(&shared->lock, LW_SHARED);
	resting = shared->resting.page_count;
	awaited = shared->resting_lsn;
	LWLockRelease(&shared->lock);
	if (resting == 0 || !may_punch(shared) || awaited > GetRedoRecPtr())
		return 0;
	*completed_redo = blob_store_completed_redo();
	return awaited <= *completed_redo ? resting : 0;
}

/* ---- resting ---- */

bool
blob_store_wake(BlobStoreShared *shared, uint64 needed_pages, uint64 pages)
{
	uint64		left;
	uint64		end;
	bool		is_any;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	left = shared->resting.page_count;
	is_any = left > 0;
	end = left - Min(left, pages);
	for (int i = 1; shared->resting.page_count > end &&
		 blob_free_runs_longest(blob_store_area, &shared->free_runs) < needed_pages; i++)
	{
		(void) blob_free_runs_move_one(blob_store_area, &shared->resting, &shared->free_runs);
		if (i % BLOB_STORE_MOVE_RUNS == 0)
		{
			LWLockRelease(&shared->lock);
			LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		}
	}
	blob_sets_check(shared);
	LWLockRelease(&shared->lock);
	return is_any;
}

/*
 * Move runs from the end of the free runs to the resting ones, up to *surplus pages.  Returns
 * whether there may be more.
 */
static bool
rest_some(BlobStoreShared *shared, uint64 *surplus)
{
	dsa_pointer nodes = blob_free_runs_reserve(blob_store_area, BLOB_STORE_MOVE_RUNS);
	int			moved = 0;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (shared->resting.page_count == 0)
		shared->pace.pages = 0;
	for (; moved < BLOB_STORE_MOVE_RUNS; moved++)
	{
		BlobPageNo	first_page;
		uint64		pages = blob_free_runs_take_last(blob_store_area, &shared->free_runs,
													 MIN_HOLE_PAGES, *surplus, &first_page);

		if (pages == 0)
			break;
		blob_free_runs_give_reserved(blob_store_area, &shared->resting, &nodes, first_page, pages);
		blob_sets_check_move(shared, BLOB_PAGE_FREE, BLOB_PAGE_RESTING, first_page, pages);
		*surplus -= pages;
	}
	shared->resting_lsn = Max(shared->resting_lsn, shared->freed_lsn);
	LWLockRelease(&shared->lock);
	blob_free_runs_release(blob_store_area, nodes);
	return moved == BLOB_STORE_MOVE_RUNS;
}

/*
 * Do pages rest that a completed checkpoint has covered, while one of the free pages may not be
 * covered?  All that rest are punched together, so these would wait for another checkpoint; and if
 * sessions free all the time, for one after the other.
 */
static bool
must_punch_first(BlobStoreShared *shared)
{
	XLogRecPtr	completed_redo;
	bool		is_behind = false;

	if (count_due(shared, &completed_redo) > 0)
	{
		LWLockAcquire(&shared->lock, LW_SHARED);
		is_behind = completed_redo < shared->freed_lsn;
		LWLockRelease(&shared->lock);
	}
	return is_behind;
}

bool
blob_store_rest(BlobStoreShared *shared)
{
	uint64		kept;
	uint64		free_pages;
	uint64		resting;
	uint64		worth;
	uint64		surplus;

	LWLockAcquire(&shared->lock, LW_SHARED);
	kept = blob_store_kept_pages(shared);
	worth = worth_pages(shared);
	free_pages = shared->free_runs.page_count;
	resting = shared->resting.page_count;
	LWLockRelease(&shared->lock);

	if (!may_punch(shared))
	{
		(void) blob_store_wake(shared, PG_UINT64_MAX, PG_UINT64_MAX);
		return false;
	}
	surplus = free_pages > kept ? free_pages - kept : 0;
	if (resting + surplus >= worth && !must_punch_first(shared))
	{
		while (surplus >= MIN_HOLE_PAGES && rest_some(shared, &surplus))
			CHECK_FOR_INTERRUPTS();
	}
	LWLockAcquire(&shared->lock, LW_SHARED);
	resting = shared->resting.page_count;
	LWLockRelease(&shared->lock);
	return resting > 0;
}

/* ---- waiting for a checkpoint ---- */

/* Under the lock. */
static uint64
count_waiting(const BlobStoreShared *shared)
{
	uint64		pages = shared->resting.page_count;

	if (!may_punch(shared))
		return 0;
	if (!blob_store_frees_after_flush())
		pages += blob_pending_pages(&shared->pending);
	return pages >= worth_pages(shared) ? pages : 0;
}

uint64
blob_store_waiting_pages(const BlobStoreId *id)
{
	BlobStoreShared *shared = blob_store_lock_table(id);
	uint64		pages = 0;

	if (shared != NULL)
	{
		LWLockAcquire(&shared->lock, LW_SHARED);
		if (shared->loaded)
			pages = count_waiting(shared);
		LWLockRelease(&shared->lock);
	}
	blob_store_unlock_table();
	return pages;
}

bool
blob_store_is_loaded(const BlobStoreId *id)
{
	return blob_store_shared_if_loaded(id) != NULL;
}

void
blob_store_wake_pages(const BlobStoreId *id, uint64 pages)
{
	BlobStoreShared *shared = blob_store_shared_if_loaded(id);
	uint64		wanted;
	uint64		free_pages;
	bool		is_left;

	if (shared == NULL || pages == 0)
		return;
	LWLockAcquire(&shared->lock, LW_SHARED);
	wanted = blob_store_kept_pages(shared) + pages;
	free_pages = shared->free_runs.page_count;
	LWLockRelease(&shared->lock);
	if (free_pages < wanted)
		(void) blob_store_wake(shared, PG_UINT64_MAX, wanted - free_pages);
	LWLockAcquire(&shared->lock, LW_SHARED);
	is_left = shared->resting.page_count >= worth_pages(shared);
	LWLockRelease(&shared->lock);
	if (!is_left)
		(void) blob_store_wake(shared, PG_UINT64_MAX, PG_UINT64_MAX);
}

void
blob_store_ask_for_waiting(const BlobStoreId *id)
{
	BlobStoreShared *shared = blob_store_shared_if_loaded(id);

	if (shared != NULL)
		blob_store_ask_for_checkpoint_now(shared);
}

XLogRecPtr
blob_store_waiting_lsn(const BlobStoreId *id)
{
	BlobStoreShared *shared = blob_store_shared_if_loaded(id);
	XLogRecPtr	lsn;

	if (shared == NULL)
		return InvalidXLogRecPtr;
	LWLockAcquire(&shared->lock, LW_SHARED);
	lsn = shared->freed_lsn;
	if (blob_store_frees_after_flush())
		lsn = shared->resting.page_count > 0 ? shared->resting_lsn : InvalidXLogRecPtr;
	LWLockRelease(&shared->lock);
	return lsn;
}

bool
blob_store_checkpoint_is_past(XLogRecPtr lsn)
{
	return lsn <= GetRedoRecPtr() && lsn <= blob_store_completed_redo();
}

/* ---- punching ---- */

/*
 * Take resting runs for one PUNCH, each inside of one segment, in page order; returns their number.
 * No run is longer than max_pages, and none is taken when the others have that number.  None if
 * runs have come to rest meanwhile that are not covered.
 */
static int
take_resting(BlobStoreShared *shared, XLogRecPtr completed_redo, uint64 max_pages,
			 dsa_pointer *nodes, BlobPageRun *runs)
{
	uint64		taken = 0;
	int			count = 0;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	while (count < PUNCH_RUNS && taken < max_pages && shared->resting_lsn <= completed_redo)
	{
		BlobPageNo	first_page;
		BlobPageNo	segment_end;
		uint64		pages = blob_free_runs_take_some(blob_store_area, &shared->resting, 1,
													 Min(max_pages, BLOB_SEGMENT_PAGES),
													 &first_page);

		if (pages == 0)
			break;
		blob_sets_check_move(shared, BLOB_PAGE_RESTING, BLOB_PAGE_HELD, first_page, pages);
		segment_end = blob_segment_end(first_page);
		if (first_page + pages > segment_end)
		{
			blob_free_runs_give_reserved(blob_store_area, &shared->resting, nodes, segment_end,
										 first_page + pages - segment_end);
			blob_sets_check_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_RESTING, segment_end,
								 first_page + pages - segment_end);
			pages = segment_end - first_page;
		}
		runs[count].first_page = first_page;
		runs[count++].pages = pages;
		taken += pages;
	}
	LWLockRelease(&shared->lock);
	return count;
}

/* Put runs into the free runs, or with an lsn into hollow_pending. */
static void
give_runs(BlobStoreShared *shared, dsa_pointer *nodes, const BlobPageRun *runs, int count,
		  XLogRecPtr lsn)
{
	XLogRecPtr	started_redo = GetRedoRecPtr();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		if (lsn == InvalidXLogRecPtr)
			blob_free_runs_give_reserved(blob_store_area, &shared->free_runs, nodes,
										 runs[i].first_page, runs[i].pages);
		else
			blob_pending_give(blob_store_area, &shared->hollow_pending, nodes, lsn, started_redo,
							  runs[i].first_page, runs[i].pages);
		blob_sets_check_move(shared, BLOB_PAGE_HELD, lsn == InvalidXLogRecPtr ? BLOB_PAGE_FREE :
							 BLOB_PAGE_HOLLOW_PENDING, runs[i].first_page, runs[i].pages);
	}
	LWLockRelease(&shared->lock);
}

/*
 * Punch runs that were taken.  From PUNCH on they are punched, whatever happens to the holes;
 * before that they are free.  Returns the number of pages.
 */
static uint64
punch_taken(BlobStore *store, BlobStoreShared *shared, dsa_pointer *nodes, const BlobPageRun *runs,
			int count)
{
	XLogRecPtr	lsn;
	uint64		pages;

	PG_TRY();
	{
		(void) blob_map_raise_format(store->map, BLOB_MAP_VERSION_2);
		lsn = blob_map_punch(store->map, runs, count);
	}
	PG_CATCH();
	{
		give_runs(shared, nodes, runs, count, InvalidXLogRecPtr);
		blob_free_runs_release(blob_store_area, *nodes);
		PG_RE_THROW();
	}
	PG_END_TRY();

	give_runs(shared, nodes, runs, count, lsn);
	XLogFlush(lsn);
	pages = 0;
	for (int i = 0; i < count; i++)
	{
		pages += runs[i].pages;
		if (!blob_segment_punch(&store->id, runs[i].first_page,
								runs[i].first_page + runs[i].pages))
			shared->knows_no_holes = true;	/* a hint */
	}
	blob_stat_count(punched_bytes, pages * BLOB_PAGE_SIZE);
	return pages;
}

/* Punch runs of one record, of about max_pages; returns the number of pages. */
static uint64
punch_some(BlobStore *store, BlobStoreShared *shared, XLogRecPtr completed_redo, uint64 max_pages)
{
	BlobPageRun runs[PUNCH_RUNS];
	dsa_pointer nodes;
	uint64		pages = 0;
	int			count;

	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	nodes = blob_free_runs_reserve(blob_store_area, 2 * PUNCH_RUNS);
	count = take_resting(shared, completed_redo, max_pages, &nodes, runs);
	if (count > 0)
		pages = punch_taken(store, shared, &nodes, runs, count);
	blob_free_runs_release(blob_store_area, nodes);
	LWLockRelease(&shared->growth_lock);
	return pages;
}

uint64
blob_store_punch(BlobStore *store, BlobStoreShared *shared, BlobStoreMayGoOn may_go_on,
				 void *argument)
{
	XLogRecPtr	completed_redo;
	uint64		pages = 0;
	uint64		more;

	if (count_due(shared, &completed_redo) == 0)
		return 0;
	blob_store_checkpoint_was_seen(shared, completed_redo);
	do
	{
		TimestampTz started_at = GetCurrentTimestamp();

		CHECK_FOR_INTERRUPTS();
		more = punch_some(store, shared, completed_redo, PG_UINT64_MAX);
		pages += more;
		pg_usleep(blob_hole_pace_short_pause_us(GetCurrentTimestamp() - started_at));
	} while (more > 0 && may_go_on(argument));
	return pages;
}

bool
blob_store_begin_holes(const BlobStoreId *id, BlobHolePace *pace)
{
	BlobStoreShared *shared = blob_store_shared_if_loaded(id);
	XLogRecPtr	completed_redo;
	uint64		pages = shared == NULL ? 0 : count_due(shared, &completed_redo);

	if (pages == 0)
		return false;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	blob_hole_pace_begin(&shared->pace, pages);
	*pace = shared->pace;
	LWLockRelease(&shared->lock);
	return true;
}

uint64
blob_store_punch_some(BlobStore *store, uint64 max_pages)
{
	BlobStoreShared *shared = blob_store_shared_if_loaded(&store->id);
	XLogRecPtr	completed_redo;

	Assert(!RecoveryInProgress());
	Assert(store->lock_mode >= RowExclusiveLock);

	if (shared == NULL || count_due(shared, &completed_redo) == 0)
		return 0;
	blob_store_checkpoint_was_seen(shared, completed_redo);
	return punch_some(store, shared, completed_redo, max_pages);
}

/*
 * Make the holes of a segment again, if its file takes more of the disk than its pages with blocks
 * do: it is a copy, or a crash came between PUNCH and the holes.
 */
static void
punch_segment_again(BlobStore *store, BlobStoreShared *shared, uint32 segment_no)
{
	BlobPageRun *runs;
	BlobPageNo	file_end;
	uint64		hollow = 0;
	int64		file_bytes;
	bool		are_many;
	int			count;

	/* No page of these is being filled meanwhile. */
	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	count = blob_map_list_hollow(store->map, segment_no, &runs, &are_many);
	file_bytes = blob_segment_file_bytes(&store->id, segment_no);
	file_end = segment_no * BLOB_SEGMENT_PAGES + Max(file_bytes, 0) / BLOB_PAGE_SIZE;
	for (int i = 0; i < count && runs[i].first_page < file_end; i++)
		hollow += Min(runs[i].pages, file_end - runs[i].first_page);
	if (blob_segment_disk_bytes(&store->id, segment_no) + (int64) (hollow * BLOB_PAGE_SIZE) >
		file_bytes + file_bytes / WORTH_PART)
	{
		for (int i = 0; i < count; i++)
			(void) blob_segment_punch(&store->id, runs[i].first_page,
									  runs[i].first_page + runs[i].pages);
	}
	LWLockRelease(&shared->growth_lock);
	pfree(runs);
}

void
blob_store_punch_again(BlobStore *store, BlobStoreShared *shared, BlobStoreMayGoOn may_go_on,
					   void *argument)
{
	uint32		segment_count;

	if (shared->holes_are_checked || !may_punch(shared))
		return;
	LWLockAcquire(&shared->lock, LW_SHARED);
	segment_count = (shared->reserved_pages + BLOB_SEGMENT_PAGES - 1) / BLOB_SEGMENT_PAGES;
	LWLockRelease(&shared->lock);
	for (uint32 segment_no = 0; segment_no < segment_count; segment_no++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!may_go_on(argument))
			return;
		punch_segment_again(store, shared, segment_no);
	}
	shared->holes_are_checked = true;
}

/* ---- filling ---- */

/*
 * Take hollow runs: the first of at least min_pages, up to max_pages in all; returns their number.
 */
static int
take_hollow(BlobStoreShared *shared, uint64 min_pages, uint64 max_pages, BlobPageRun *runs)
{
	uint64		taken = 0;
	int			count = 0;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	while (count < FILL_RUNS && taken < max_pages)
	{
		uint64		pages = blob_free_runs_take_some(blob_store_area, &shared->hollow,
													 count == 0 ? min_pages : 1, max_pages - taken,
													 &runs[count].first_page);

		if (pages == 0)
			break;
		blob_sets_check_move(shared, BLOB_PAGE_HOLLOW, BLOB_PAGE_HELD, runs[count].first_page,
							 pages);
		taken += pages;
		runs[count++].pages = pages;
	}
	LWLockRelease(&shared->lock);
	return count;
}

static int
compare_runs(const void *a, const void *b)
{
	BlobPageNo	left = ((const BlobPageRun *) a)->first_page;
	BlobPageNo	right = ((const BlobPageRun *) b)->first_page;

	return left < right ? -1 : left > right;
}

/* The parts of files that runs are: the map says which are holes. */
typedef struct Parts
{
	int			count;
	int			room;
	BlobSegmentPart *parts;
	uint64		hole_pages;
} Parts;

/* Add pages of one entry, to the last part if they continue it. */
static void
add_part(Parts *list, BlobPageNo first_page, uint64 pages, bool is_hole)
{
	BlobSegmentPart *last = list->count > 0 ? &list->parts[list->count - 1] : NULL;

	if (is_hole)
		list->hole_pages += pages;
	if (last != NULL && last->is_hole == is_hole && last->first_page + last->pages == first_page &&
		blob_segment_of(last->first_page) == blob_segment_of(first_page))
	{
		last->pages += pages;
		return;
	}
	if (list->count == list->room)
	{
		list->room *= 2;
		list->parts = repalloc(list->parts, sizeof(BlobSegmentPart) * list->room);
	}
	list->parts[list->count++] = (BlobSegmentPart) {first_page, pages, is_hole, 0};
}

/* Look the parts of the runs up in the map.  ERROR (data corrupted) if it has no such pages. */
static void
find_parts(BlobStore *store, const BlobPageRun *runs, int count, Parts *list)
{
	*list = (Parts) {.room = FILL_RUNS, .parts = palloc(sizeof(BlobSegmentPart) * FILL_RUNS)};
	for (int i = 0; i < count; i++)
	{
		BlobPageNo	end_page = runs[i].first_page + runs[i].pages;

		for (BlobPageNo page = runs[i].first_page, next; page < end_page; page = next)
		{
			BlobMapEntry entry = blob_map_hollow_entry(store->map, page);

			next = Min(page + blob_map_entry_pages(&entry), end_page);
			add_part(list, page, next - page, blob_map_entry_state(&entry) == BLOB_MAP_PUNCHED);
		}
	}
}

/* Log that the parts have blocks, in page order.  *filled advances with the pages. */
static void
log_filled(BlobStore *store, const Parts *list, volatile uint64 *filled)
{
	for (int i = 0; i < list->count; i++)
	{
		BlobPageNo	page = list->parts[i].first_page;
		BlobPageNo	end_page = page + list->parts[i].pages;

		for (BlobPageNo next; page < end_page; page = next)
		{
			next = blob_map_fill(store->map, page, end_page);
			*filled += next - page;
		}
	}
}

/*
 * Put the first `filled` pages of the runs into the free runs, the others back among the hollow.
 */
static void
give_filled(BlobStoreShared *shared, dsa_pointer nodes, const BlobPageRun *runs, int count,
			uint64 filled)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		uint64		part = Min(filled, runs[i].pages);

		if (part > 0)
		{
			blob_free_runs_give_reserved(blob_store_area, &shared->free_runs, &nodes,
										 runs[i].first_page, part);
			blob_sets_check_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_FREE, runs[i].first_page, part);
		}
		if (part < runs[i].pages)
		{
			blob_free_runs_give_reserved(blob_store_area, &shared->hollow, &nodes,
										 runs[i].first_page + part, runs[i].pages - part);
			blob_sets_check_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_HOLLOW,
								 runs[i].first_page + part, runs[i].pages - part);
		}
		filled -= part;
	}
	LWLockRelease(&shared->lock);
	blob_free_runs_release(blob_store_area, nodes);
}

/* Fill runs that were taken.  On an error, those that are not in the WAL are hollow still. */
static void
fill_taken(BlobStore *store, BlobStoreShared *shared, dsa_pointer nodes, const BlobPageRun *runs,
		   int count)
{
	volatile uint64 filled = 0;
	Parts		list;

	PG_TRY();
	{
		find_parts(store, runs, count, &list);
		blob_segment_fill(&store->id, list.parts, list.count);
		log_filled(store, &list, &filled);
	}
	PG_CATCH();
	{
		give_filled(shared, nodes, runs, count, filled);
		PG_RE_THROW();
	}
	PG_END_TRY();
	give_filled(shared, nodes, runs, count, filled);
	blob_stat_count(filled_bytes, list.hole_pages * BLOB_PAGE_SIZE);
	pfree(list.parts);
}

bool
blob_store_fill(BlobStore *store, BlobStoreShared *shared, uint64 min_pages, uint64 max_pages)
{
	BlobPageRun runs[FILL_RUNS];
	dsa_pointer nodes = blob_free_runs_reserve(blob_store_area, FILL_RUNS + 1);
	int			count = take_hollow(shared, min_pages, max_pages, runs);

	if (count == 0)
	{
		blob_free_runs_release(blob_store_area, nodes);
		return false;
	}
	qsort(runs, count, sizeof(BlobPageRun), compare_runs);
	blob_dirty_check_none(&store->id, runs, count);
	fill_taken(store, shared, nodes, runs, count);
	return true;
}
