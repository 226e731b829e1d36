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

/* How the pages of a segment are used. */
typedef struct SegmentUse
{
	uint64		free;			/* resting ones, too */
	uint64		pending;
	uint64		punched;
	uint64		absent;
} SegmentUse;

/* A segment that this process has taken from all sets. */
typedef struct TakenSegment
{
	BlobPageNo	first_page;
	BlobPageNo	absent_page;	/* where its absent pages begin; or its end */
	BlobPageNo	reserved_end;	/* its end, or that of the store */
	BlobPageNo	end_page;
	BlobPageRun *holes;			/* in page order, as the map's entries say */
	int			hole_count;
} TakenSegment;

/* Under the lock. */
static void
count_use(const BlobStoreShared *shared, BlobPageNo first_page, BlobPageNo end_page,
		  SegmentUse *use)
{
	dsa_area   *area = blob_store_area;

	use->free = blob_free_runs_count(area, &shared->free_runs, first_page, end_page, NULL) +
		blob_free_runs_count(area, &shared->resting, first_page, end_page, NULL);
	use->pending = blob_pending_count(area, &shared->pending, first_page, end_page, NULL);
	use->punched = blob_free_runs_count(area, &shared->punched, first_page, end_page, NULL) +
		blob_pending_count(area, &shared->punched_pending, first_page, end_page, NULL);
	use->absent = blob_free_runs_count(area, &shared->absent, first_page, end_page, NULL) +
		blob_pending_count(area, &shared->absent_pending, first_page, end_page, NULL);
}

/*
 * May the last segment be removed, although it is reserved in part only?  The next growth would
 * make another one at once if the store kept too little, and each removal uses up a number until a
 * checkpoint is complete.  Under the lock.
 */
static bool
may_remove_last(const BlobStoreShared *shared, const SegmentUse *use)
{
	return blob_pending_pages(&shared->absent_pending) == 0 &&
		shared->free_runs.page_count + shared->resting.page_count - use->free >=
		blob_store_kept_pages(shared);
}

/* Whether a segment has a file and no allocated page.  Under the lock. */
static bool
is_unused(const BlobStoreShared *shared, const TakenSegment *segment, SegmentUse *use)
{
	count_use(shared, segment->first_page, segment->end_page, use);
	return use->absent < segment->reserved_end - segment->first_page &&
		use->free + use->pending + use->punched + use->absent ==
		segment->reserved_end - segment->first_page &&
		(segment->reserved_end == segment->end_page || may_remove_last(shared, use));
}

/*
 * Take a segment from all sets, if it is still unused.  After that no process can allocate there.
 */
static bool
take_segment(BlobStoreShared *shared, dsa_pointer *nodes, TakenSegment *segment)
{
	BlobPageNo	first_page = segment->first_page;
	BlobPageNo	end_page = segment->end_page;
	dsa_area   *area = blob_store_area;
	SegmentUse	use;
	bool		is_ours;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	is_ours = is_unused(shared, segment, &use);
	if (is_ours)
	{
		(void) blob_free_runs_cut(area, &shared->free_runs, nodes, first_page, end_page);
		(void) blob_free_runs_cut(area, &shared->resting, nodes, first_page, end_page);
		(void) blob_pending_cut(area, &shared->pending, nodes, first_page, end_page);
		(void) blob_free_runs_cut(area, &shared->punched, nodes, first_page, end_page);
		(void) blob_pending_cut(area, &shared->punched_pending, nodes, first_page, end_page);
		(void) blob_free_runs_cut(area, &shared->absent, nodes, first_page, end_page);
		(void) blob_pending_cut(area, &shared->absent_pending, nodes, first_page, end_page);
		segment->absent_page = end_page - use.absent;
		blob_sets_check_move(shared, BLOB_PAGE_SEGMENT, BLOB_PAGE_HELD, first_page,
							 segment->reserved_end - first_page);
	}
	LWLockRelease(&shared->lock);
	return is_ours;
}

/*
 * Put a segment back that could not be removed: its holes into punched_pending, its other pages
 * with blocks into the resting ones (is_resting: none of them was pending), or into pending.
 */
static void
put_back(BlobStoreShared *shared, dsa_pointer *nodes, const TakenSegment *segment, bool is_resting,
		 XLogRecPtr lsn)
{
	XLogRecPtr	started_redo = GetRedoRecPtr();
	BlobPageNo	page = segment->first_page;
	BlobPageNo	end_page = Min(segment->absent_page, segment->reserved_end);

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i <= segment->hole_count; i++)
	{
		const BlobPageRun *hole = &segment->holes[i];
		BlobPageNo	stop = i < segment->hole_count ? hole->first_page : end_page;

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
		if (i == segment->hole_count)
			break;
		blob_pending_give(blob_store_area, &shared->punched_pending, nodes, lsn, started_redo,
						  page, hole->pages);
		blob_sets_check_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_PUNCHED_PENDING, page,
							 hole->pages);
		page += hole->pages;
	}
	if (segment->absent_page < segment->end_page)
	{
		blob_pending_give(blob_store_area, &shared->absent_pending, nodes, lsn, started_redo,
						  segment->absent_page, segment->end_page - segment->absent_page);
		blob_sets_check_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_ABSENT_PENDING,
							 segment->absent_page, segment->end_page - segment->absent_page);
	}
	blob_sets_check_empty_hands();
	if (is_resting)
		shared->resting_lsn = Max(shared->resting_lsn, shared->freed_lsn);
	else
		shared->freed_lsn = Max(shared->freed_lsn, lsn);
	LWLockRelease(&shared->lock);
}

/* All pages of a removed segment are absent. */
static void
put_removed(BlobStoreShared *shared, dsa_pointer *nodes, const TakenSegment *segment,
			XLogRecPtr lsn)
{
	XLogRecPtr	started_redo = GetRedoRecPtr();

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->reserved_pages = Max(shared->reserved_pages, segment->end_page);
	blob_pending_give(blob_store_area, &shared->absent_pending, nodes, lsn, started_redo,
					  segment->first_page, segment->end_page - segment->first_page);
	if (segment->reserved_end < segment->end_page)
		blob_sets_count_move(shared, BLOB_PAGE_NEW, BLOB_PAGE_ABSENT_PENDING,
							 segment->end_page - segment->reserved_end);
	blob_sets_check_move(shared, BLOB_PAGE_HELD, BLOB_PAGE_ABSENT_PENDING, segment->first_page,
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
			blob_map_join_punched(store->map, segment->first_page, segment->absent_page);
		lsn = blob_map_set_absent(store->map, segment_no, segment->absent_page);
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
	/* A file that cannot be removed does no harm; the next load tries again. */
	(void) blob_segment_remove(&store->id, segment_no);
}

/*
 * Remove an unused segment, or prepare that: if its holes have too many entries for one record, and
 * some pages have blocks, these come to rest, to be punched, so that the entries can be joined.
 * Returns whether it was removed.
 */
static bool
remove_unused(BlobStore *store, BlobStoreShared *shared, TakenSegment *segment,
			  const SegmentUse *use)
{
	dsa_pointer nodes;
	bool		has_many = false;
	bool		is_removed = false;

	if (use->punched > 0)
		segment->hole_count = blob_map_list_punched(store->map, segment->first_page,
													segment->end_page, &segment->holes, &has_many);
	if (has_many && use->pending > 0)
		return false;			/* a later call will see */
	nodes = blob_free_runs_reserve(blob_store_area, SEGMENT_NODES + 2 * segment->hole_count);
	if (take_segment(shared, &nodes, segment))
	{
		is_removed = !has_many || use->free == 0;
		if (is_removed)
			remove_taken(store, shared, &nodes, segment, has_many);
		else
			put_back(shared, &nodes, segment, true, blob_wal_end());
	}
	blob_free_runs_release(blob_store_area, nodes);
	return is_removed;
}

/* Remove the file of a segment if nothing is allocated there. */
static bool
remove_segment(BlobStore *store, BlobStoreShared *shared, uint32 segment_no)
{
	TakenSegment segment = {
		.first_page = segment_no * BLOB_SEGMENT_PAGES,
		.end_page = segment_no * BLOB_SEGMENT_PAGES + BLOB_SEGMENT_PAGES
	};
	SegmentUse	use;
	bool		is_ours;

	/* The growth lock serialises removals with reservations. */
	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	LWLockAcquire(&shared->lock, LW_SHARED);
	segment.reserved_end = Min(segment.end_page, shared->reserved_pages);
	is_ours = segment.reserved_end > segment.first_page && is_unused(shared, &segment, &use);
	LWLockRelease(&shared->lock);
	if (is_ours)
		is_ours = remove_unused(store, shared, &segment, &use);
	LWLockRelease(&shared->growth_lock);
	if (segment.holes != NULL)
		pfree(segment.holes);
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
	/* The last one first: it is removed only while no number waits for a checkpoint. */
	while (segment_count-- > 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (remove_segment(store, shared, segment_count))
			removed++;
	}
	return removed;
}
