/*
 * io/dirty.h
 *	  Dirty slabs of the buffer: pages that have yet to be written to their files; see "Deferred
 *	  writes" in the README of this folder.
 *
 * For every process a dirty page is a page of its file whose write has completed.
 */
#ifndef BLOB_DIRTY_H
#define BLOB_DIRTY_H

#include "core/page.h"

extern Size blob_dirty_shmem_size(void);
extern void blob_dirty_shmem_init(void);

struct BufferSlab;

/* Pages of a pinned slab that become dirty; the slab is in the table of the buffer. */
typedef struct BlobDirtyRange
{
	struct BufferSlab *slab;
	BlobPageNo	page;			/* where the slab's chunk begins */
	uint32		start_bytes;	/* in the chunk, multiples of the page */
	uint32		end_bytes;
} BlobDirtyRange;

/*
 * Make these pages dirty: all, or none if the result is false.  Then the caller has to write them.
 * That is so if there is no room; and for logged pages, if the syncer does not accept them now.
 *
 * Logged pages (is_logged) are written by the syncer, before it lets a checkpoint go on; the caller
 * inserts CONTENT afterwards.  Other pages may be written by the syncer at any time, and are
 * written at the latest when the caller's transaction syncs their segment (io/segment.h).  *is_due:
 * since these pages some are to be written soon, so the caller wakes the syncer.
 *
 * Takes the list lock, an LWLock.  ERROR for a page that is dirty already, or that lies before one
 * of its slab that is.
 */
extern bool blob_dirty_add(const BlobDirtyRange *ranges, int count, bool is_logged, bool *is_due);

/* Whether this number of bytes would be accepted now; without a lock, so only a hint. */
extern bool blob_dirty_has_room(uint64 bytes, bool is_logged);

/* Why a file could not be written. */
typedef struct BlobDirtyFailure
{
	BlobStoreId store;
	uint32		segment_no;
	int			error;			/* errno; ENOENT: the file is missing, or ends before the page */
} BlobDirtyFailure;

/* A count that every page that becomes dirty advances.  Takes no lock. */
extern uint64 blob_dirty_time(void);

/*
 * Write all pages of a segment that have become dirty since start_time (of blob_dirty_time()) and
 * are dirty at the call, and wait for that.  Pages of the same slabs that became dirty earlier are
 * written with them.  ERROR if a write fails; its pages stay dirty.  If the file is missing, the
 * result is false.
 */
extern bool blob_dirty_write_segment(const BlobStoreId *store, uint32 segment_no,
									 uint64 start_time);

/* The same for the pages of one extent, whose file must exist. */
extern void blob_dirty_write_extent(const BlobStoreId *store, const BlobExtent *extent);

/*
 * For the syncer: write all pages that are dirty at the call.  False if a logged page could not be
 * written: all such pages stay dirty, and *failure is one of the reasons.  Does not throw.
 */
extern bool blob_dirty_write_all(BlobDirtyFailure *failure);

/*
 * The same for pages that are not logged, of which there are many.  False if some could not be
 * written; they stay dirty.
 */
extern bool blob_dirty_write_unlogged(BlobDirtyFailure *failure);

/*
 * Forget the dirty pages of these runs, which are in ascending order and do not overlap.  The
 * extents to which the pages belonged have been freed, durably, and no process but the caller may
 * give the pages out.  On return no page of them is dirty, and no write of one is under way: none
 * can come after the writes of the next life of the pages.  Waits for such writes.  Does not throw.
 * Not to be called with an LWLock held.
 */
extern void blob_dirty_drop(const BlobStoreId *store, const BlobPageRun *runs, int run_count);

/*
 * Bracket around the removal of a segment's file, or with BLOB_ALL_SEGMENTS of any file of a store.
 * The removal lock (an LWLock) is held in between, so that no process writes dirty pages meanwhile.
 * At the end the pages of the segment or store are forgotten; with NULL all are kept.
 */
extern void blob_dirty_begin_removal(void);
extern void blob_dirty_end_removal(const BlobStoreId *store, uint32 segment_no);

/*
 * For the syncer: whether logged pages are accepted.  They may be while checkpoints wait for the
 * syncer.  It must stop that, and write all pages, before it lets them go on.
 */
extern void blob_dirty_open(void);
extern void blob_dirty_close(void);

/*
 * Assert that no page of the runs is dirty; and that no logged page is, nor will be before
 * blob_dirty_open().  Take the list lock.  Or that this process is removing a file, so that no
 * dirty page is being written; and has counted that.
 */
#ifdef USE_ASSERT_CHECKING
extern void blob_dirty_check_none(const BlobStoreId *store, const BlobPageRun *runs,
								  int run_count);
extern void blob_dirty_check_written(void);
extern void blob_dirty_check_removing(void);
extern void blob_dirty_check_counted(void);
#else
#define blob_dirty_check_none(store, runs, run_count) ((void) 0)
#define blob_dirty_check_written() ((void) 0)
#define blob_dirty_check_removing() ((void) 0)
#define blob_dirty_check_counted() ((void) 0)
#endif

/*
 * The number of dirty pages; whether that is large enough to write all of them soon; and whether
 * some are to be written soon: all, or those that are not logged (4 MB).  Take no lock.
 */
extern uint64 blob_dirty_page_count(void);
extern bool blob_dirty_is_filling(void);
extern bool blob_dirty_is_write_due(void);

#endif							/* BLOB_DIRTY_H */
