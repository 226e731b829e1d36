/*
 * store/remove.c
 *	  Removal of segments in which nothing is allocated.
 *
 * See "Removing a segment" and "Holes" in the README of this folder.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "store/store_internal.h"
#include "utils/rel.h"
#include "wal/insert.h"

/* Nodes that taking a segment from all sets, and giving it back, can use besides its holes. */
#define SEGMENT_NODES (2 * (3 + 2 * BLOB_PENDING_BATCHES) + 4)

/* A segment that this process has taken from all sets. */
typedef struct TakenSegment
{
	BlobPageNo	first_page;
	BlobPageNo	reserved_end;	/* its end, or that of the store */
	BlobPageNo	end_page;
	BlobPageRun *hollow;		/* in page order, as the map's entries say */
	int			hollow_count;
} TakenSegment;

void
blob_store_count_use(const BlobStoreShared *shared, BlobPageNo first_page, BlobPageNo end_page,
					 BlobPageUse *use)
{
	dsa_area   *area = blob_store_area;

	use->free = blob_free_runs_count(area, &shared->free_runs, first_page, end_page, NULL) +
		blob_free_runs_count(area, &shared->resting, first_page, end_page, NULL);
	use->pending = blob_pending_count(area, &shared->pending, first_page, end_page, NULL);
	use->hollow = blob_free_runs_count(area, &shared->hollow, first_page, end_page, NULL) +
		blob_pending_count(area, &shared->hollow_pending, first_page, end_page, NULL);
}

/*
 * Whether a segment has no allocated page.  If it is the last one, reserved in part only, the store
 * must keep enough without it: else the next growth would make another one at once.  Under the
 * lock.
 */
static bool
is_unused(const BlobStoreShared *shared, const TakenSegment *segment, BlobPageUse *use)
{
	blob_store_count_use(shared, segment->first_page, segment->end_page, use);
	return use->free + use->pending + use->hollow ==
		segment->reserved_end - segment->first_page &&
		(segment->reserved_end == segment->end_page ||
		 shared->free_runs.page_count + shared->resting.page_count - use->free >=
		 blob_store_kept_pages(shared));
}

/*
 * Take a segment from all sets, if it is still unused.  After that no process can allocate there.
 * *use is that of now: pages that were free may have been allocated, and freed, since it was
 * counted, and pending pages must go on waiting.
 */
static bool
take_segment(BlobStoreShared *shared, dsa_pointer *nodes, const TakenSegment *segment,
			 BlobPageUse *use)
{
	BlobPageNo	first_page = segment->first_page;
	BlobPageNo	end_page = segment->end_page;
	dsa_area   *area = blob_store_area;
	bool		is_ours;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	is_ours = is_unused(shared, segment, use);
	if (is_ours)
	{
		(void) blob_free_runs_cut(area, &shared->free_runs, nodes, first_page, end_page);
		(void) blob_free_runs_cut(area, &shared->resting, nodes, first_page, end_page);
		(void) blob_pending_cut(area, &shared->pending, nodes, first_page, end_page);
		(void) blob_free_runs_cut(area, &shared->hollow, nodes, first_page, end_page);
		(void) blob_pending_cut(area, &shared->hollow_pending, nodes, first_page, end_page);
		blob_sets_check_move(shared, BLOB_PAGE_SEGMENT, BLOB_PAGE_HELD, first_page,
							 segment->reserved_end - first_page);
	}
	LWLockRelease(&shared->lock);
	return is_ours;
}

/*
 * Put a segment back that could not be removed: its hollow pages into hollow_pending, its other
 * pages into the resting ones (is_resting: none of them was pending), or into pending.
 */
static void
put_back(BlobStoreShared *shared, dsa_pointer *nodes, const TakenSegment *segment, bool is_resting,
		 XLogRecPtr lsn)
{
	XLogRecPtr	started_redo = GetRedoRecPtr();
	BlobPageNo	page = segment->first_page;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i <= segment->hollow_count; i++)
	{
		const BlobPageRun *hollow = &segment->hollow[i];
		BlobPageNo	stop = i < segment->hollow_count ? hollow->first_page : segment->reserved_end;

		if (stop > page && is_resting)
			blob_free_runs_give_reserved(blob_store_area, &shared->resting, nodes, page,
										 stop - page);
		else if (stop > page)
			blob_pending_give(blob_store_area, &shared->pending, nodes, lsn, started_redo, page,
							  stop - page);
		if (stop > page)
			blob_sets_check_move(shared, BLOB_PAGE_HELD,
								 is_resting ? BLOB_PAGE_RESTING : BLOB_PAGE_PENDING, page,
								 stop - page);
		page = stop;
		if (i == segment->hollow_count)
			break;
		blob_pending_give(blob_store_area, &shared->hollow_pending, nodes, lsn, started_redo,
						  page, hollow->pages);
		blob_sets_check_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_HOLLOW_PENDING, page,
							 hollow->pages);
		page += hollow->pages;
	}
	blob_sets_check_empty_hands();
	if (is_resting)
		shared->resting_lsn = Max(shared->resting_lsn, shared->freed_lsn);
	else
		shared->freed_lsn = Max(shared->freed_lsn, lsn);
	LWLockRelease(&shared->lock);
}

/* All pages of a removed segment are hollow: absent. */
static void
put_removed(BlobStoreShared *shared, dsa_pointer *nodes, const TakenSegment *segment,
			XLogRecPtr lsn)
{
	XLogRecPtr	started_redo = GetRedoRecPtr();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->reserved_pages = Max(shared->reserved_pages, segment->end_page);
	shared->removed_lsn = lsn;
	blob_pending_give(blob_store_area, &shared->hollow_pending, nodes, lsn, started_redo,
					  segment->first_page, segment->end_page - segment->first_page);
	if (segment->reserved_end < segment->end_page)
		blob_sets_count_move(shared, BLOB_PAGE_NEW, BLOB_PAGE_HOLLOW_PENDING,
							 segment->end_page - segment->reserved_end);
	blob_sets_check_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_HOLLOW_PENDING, segment->first_page,
						 segment->reserved_end - segment->first_page);
	blob_sets_check_empty_hands();
	blob_sets_check(shared);
	LWLockRelease(&shared->lock);
}

/*
 * Remove the file of a segment that was taken.  First the record is flushed, then the file is
 * removed; after a completed checkpoint past the record, the number may be used again.
 */
static void
remove_taken(BlobStore *store, BlobStoreShared *shared, dsa_pointer *nodes, TakenSegment *segment,
			 bool has_many_holes)
{
	uint32		segment_no = blob_segment_of(segment->first_page);
	XLogRecPtr	lsn;

	PG_TRY();
	{
		if (has_many_holes)
			blob_map_join_punched(store->map, segment_no);
		lsn = blob_map_set_absent(store->map, segment_no);
	}
	PG_CATCH();
	{
		/* REMOVE was not logged.  Some of the pages may have waited, so now all of them wait. */
		put_back(shared, nodes, segment, false, blob_wal_end());
		blob_free_runs_release(blob_store_area, *nodes);
		PG_RE_THROW();
	}
	PG_END_TRY();

	put_removed(shared, nodes, segment, lsn);
	XLogFlush(lsn);
	/* A file that stays does no harm: its dirty pages are gone.  The next load tries again. */
	(void) blob_segment_remove(&store->id, segment_no);
}

/*
 * Remove an unused segment, or prepare that: if its holes have too many entries for one record, and
 * some pages have blocks, these come to rest, to be punched, so that the entries can be joined.
 * Returns whether it was removed.
 */
static bool
remove_unused(BlobStore *store, BlobStoreShared *shared, TakenSegment *segment, BlobPageUse *use)
{
	dsa_pointer nodes;
	bool		has_many = false;
	bool		is_removed = false;

	if (use->hollow > 0)
		segment->hollow_count = blob_map_list_hollow(store->map,
													 blob_segment_of(segment->first_page),
													 &segment->hollow, &has_many);
	if (has_many && use->pending > 0)
		return false;			/* a later call will see */
	nodes = blob_free_runs_reserve(blob_store_area, SEGMENT_NODES + 2 * segment->hollow_count);
	if (take_segment(shared, &nodes, segment, use))
	{
		is_removed = !has_many || use->free + use->pending == 0;
		if (is_removed)
			remove_taken(store, shared, &nodes, segment, has_many);
		else
			put_back(shared, &nodes, segment, use->pending == 0, blob_wal_end());
	}
	blob_free_runs_release(blob_store_area, nodes);
	return is_removed;
}

/*
 * Whether an unused segment has a file that may be removed.  The last segment, reserved in part
 * only, uses up a number each time; so it waits until a checkpoint covers the REMOVE before.
 */
static bool
may_remove(BlobStore *store, const BlobStoreShared *shared, const TakenSegment *segment)
{
	return !blob_map_is_absent(store->map, blob_segment_of(segment->first_page)) &&
		(segment->reserved_end == segment->end_page ||
		 blob_store_checkpoint_is_past(shared->removed_lsn));
}

/* Remove the file of a segment if nothing is allocated there. */
static bool
remove_segment(BlobStore *store, BlobStoreShared *shared, uint32 segment_no)
{
	TakenSegment segment = {
		.first_page = segment_no * BLOB_SEGMENT_PAGES,
		.end_page = segment_no * BLOB_SEGMENT_PAGES + BLOB_SEGMENT_PAGES
	};
	BlobPageUse	use;
	bool		is_ours;

	/* The growth lock serialises removals with reservations. */
	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	LWLockAcquire(&shared->lock, LW_SHARED);
	segment.reserved_end = Min(segment.end_page, shared->reserved_pages);
	is_ours = segment.reserved_end > segment.first_page && is_unused(shared, &segment, &use);
	LWLockRelease(&shared->lock);
	is_ours = is_ours && may_remove(store, shared, &segment) &&
		remove_unused(store, shared, &segment, &use);
	LWLockRelease(&shared->growth_lock);
	if (segment.hollow != NULL)
		pfree(segment.hollow);
	return is_ours;
}

int
blob_store_remove_segments(BlobStore *store, BlobStoreShared *shared)
{
	uint32		segment_count;
	int			removed = 0;

	LWLockAcquire(&shared->lock, LW_SHARED);
	segment_count = (shared->reserved_pages + BLOB_SEGMENT_PAGES - 1) / BLOB_SEGMENT_PAGES;
	LWLockRelease(&shared->lock);
	/* The last one first: may_remove() lets it go only while no REMOVE waits for a checkpoint. */
	while (segment_count-- > 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (remove_segment(store, shared, segment_count))
			removed++;
	}
	return removed;
}
