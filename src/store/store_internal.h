/*
 * store/store_internal.h
 *	  Declarations that the files of the allocator share: store.c, shared.c, checkpoint.c,
 *	  load.c, grow.c, reclaim.c, holes.c, remove.c, sets.c.
 */
#ifndef BLOB_STORE_INTERNAL_H
#define BLOB_STORE_INTERNAL_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "store/free_runs.h"
#include "store/pending.h"
#include "store/store.h"
#include "storage/lwlock.h"

/* How far the free space of a store is loaded (load.c). */
typedef struct BlobStoreLoad
{
	BlobPageNo	next_page;		/* pages from here to end_page are unloaded: in no set yet */
	BlobPageNo	end_page;		/* of the store when the load began */
	BlockNumber next_block;		/* of the map, to be read next */
	XLogRecPtr	run_lsn;		/* largest LSN of the present free run's blocks */
	uint32		settled_segments;	/* below this number no write of a killed process is left */
	bool		is_in_doubt;	/* pages from next_page on may be an extent with a damaged entry */
	uint64		damaged_count;	/* damaged entries */
	BlobPageNo	damaged_page;	/* the first one */
	uint64		lost_pages;		/* that were in doubt */
} BlobStoreLoad;

/*
 * One per store.  Each page below reserved_pages is in an allocated extent, in one of the sets, in
 * the hands of one process that moves it from one to another, or not loaded yet (sets.c).
 */
typedef struct BlobStoreShared
{
	BlobStoreId id;				/* hash key */
	LWLock		lock;			/* protects the members below growth_lock */
	LWLock		growth_lock;
	pg_atomic_uint32 growth_waiters;	/* processes that wait for the store to grow */
	bool		begun;			/* this and the next two change under both locks; false: not yet */
	bool		loaded;			/* false: pages between the two of load are in no set yet */
	BlobStoreLoad load;
	BlobFreeRuns free_runs;
	BlobPending pending;		/* freed, not to be given out yet */
	BlobFreeRuns resting;		/* free, taken out of free_runs to be punched */
	XLogRecPtr	resting_lsn;	/* they are punched when a completed checkpoint is past it */
	BlobHolePace pace;			/* of a worker that punches them; 0 pages: none has begun */
	XLogRecPtr	freed_lsn;		/* of the last FREE or TRIM since the load */
	BlobFreeRuns hollow;		/* free, without blocks, as map entries say: punched or absent */
	BlobPending hollow_pending; /* the same; they must not be filled yet */
	XLogRecPtr	removed_lsn;	/* of the last REMOVE, if a checkpoint may not cover it */
	bool		knows_no_holes; /* the file system; found by trying */
	bool		holes_are_checked;	/* since the start; like the one before, read without a lock */
	bool		has_sums;		/* new extents get checksums; read without lock, stays true */
	uint64		reserved_pages;
	uint64		used_pages;		/* of loaded extents, pages behind damaged entries, and allocations
								 * under way */
	BlobGeneration next_generation;
	BlobGeneration generation_limit;
	TimestampTz checkpoint_request; /* when a checkpoint was asked for last */
	XLogRecPtr	checkpoint_lsn; /* where the WAL ended then: its redo pointer is not before */
	bool		checkpoint_awaited; /* and not seen to be complete yet */
	int			checkpoint_pause_ms;	/* from one request to the next */
	uint64		allocated_pages;	/* given out, freed ones, too: it never falls */
#ifdef USE_ASSERT_CHECKING
	/* Pages below reserved_pages that are in no set, see sets.c. */
	uint64		extent_pages;
	uint64		held_pages;
	uint64		lost_pages;
	uint64		unloaded_pages;
#endif
} BlobStoreShared;

/*
 * This backend's attachment to the memory of the sets of all stores; valid after
 * blob_store_shared().
 */
extern PGDLLEXPORT dsa_area *blob_store_area;

/*
 * The shared part of a store, made on first use.  ERROR if the store has no files yet, and
 * blobext.max_databases databases have a store.
 */
extern PGDLLEXPORT BlobStoreShared *blob_store_shared(const BlobStoreId *id);

/*
 * The same for a process that holds no lock on the map: NULL unless the store was loaded.  The
 * launcher and its workers may use it, because they alone forget stores.
 */
extern BlobStoreShared *blob_store_shared_if_loaded(const BlobStoreId *id);

/* How the pages of a range are used that are in no extent. */
typedef struct BlobPageUse
{
	uint64		free;			/* resting ones, too */
	uint64		pending;
	uint64		hollow;
} BlobPageUse;

/* Count the pages of a range that are in the sets.  Under the lock. */
extern void blob_store_count_use(const BlobStoreShared *shared, BlobPageNo first_page,
								 BlobPageNo end_page, BlobPageUse *use);

/* Lock the table of stores, and find one; NULL if there is none.  Unlock either way. */
extern BlobStoreShared *blob_store_lock_table(const BlobStoreId *id);
extern void blob_store_unlock_table(void);

/*
 * Remove the shared part of a store, if there is one.  No process has a pointer to it: that takes a
 * lock on the map, and the map is gone.
 */
extern void blob_store_forget(const BlobStoreId *id);

/*
 * load.c: find the free space in the map, once after each start of the server.  All take the growth
 * lock.  The first reads the meta page: from then on pages and generations can be given out, and
 * all pages of the store are unloaded.  The second loads some blocks of the map, unless another
 * process has the growth lock: then it waits for that one's part.  The third loads all that is
 * left; can be interrupted.
 */
extern void blob_store_load_begin(BlobStore *store, BlobStoreShared *shared);
extern PGDLLEXPORT void blob_store_load_some(BlobStore *store, BlobStoreShared *shared);
extern PGDLLEXPORT void blob_store_load(BlobStore *store, BlobStoreShared *shared);

/*
 * Before a claim of pages [first_page, end_page): writes of killed processes to them have ended.
 */
extern void blob_store_settle_claim(BlobStore *store, BlobStoreShared *shared,
									BlobPageNo first_page, BlobPageNo end_page);

/*
 * Reserve disk space for at least needed_pages in one run, and more for each process that waits for
 * the same.  If another process has the growth lock, waits for that one instead, and the caller
 * looks for pages again.  Asks for a checkpoint if enough freed space waits for one.
 *
 * If the disk has no room for needed_pages, it sets *anywhere, once, instead of growing: the caller
 * looks for pages again, in as many runs as need be.  After that, if *may_wait is true, it may wait
 * for a checkpoint, and sets *may_wait to false.  ERROR (SQLSTATE 53100) if neither has helped.
 */
extern void blob_store_grow(BlobStore *store, BlobStoreShared *shared, uint64 needed_pages,
							bool *may_wait, bool *anywhere);

/*
 * After freeing, and from time to time while pages are allocated: ask for a checkpoint if more
 * pages wait for one than are free, and it is worth its price.  The second function is called when
 * the completed checkpoint was looked up, with its redo pointer: if it is the one that was asked
 * for, the time that it took says when the next one may be.
 */
extern void blob_store_ask_for_checkpoint(BlobStoreShared *shared);
extern void blob_store_checkpoint_was_seen(BlobStoreShared *shared, XLogRecPtr completed_redo);

/*
 * grow.c: how many pages extents take, at most while not all are loaded (blobext.max_store_size).
 * Under the lock.
 */
static inline uint64
blob_store_used_pages(const BlobStoreShared *shared)
{
	return shared->used_pages + (shared->load.end_page - shared->load.next_page);
}

/* Whether that would pass the limit with `pages` more.  Under the lock. */
extern bool blob_store_is_over_limit(const BlobStoreShared *shared, uint64 pages);

/*
 * An error context callback of what needs space; its argument is the store's BlobStoreId.  Calls
 * the refusal hook if the error is that there is none, and lets the hint say what comes of it.
 */
extern void blob_store_at_refusal(void *id);

/* ERROR 53400 for a value that needs `pages` more. */
extern void blob_store_report_limit(BlobStoreShared *shared, uint64 pages);

/* Make sure that `count` more generations can be drawn.  Takes the growth lock. */
extern void blob_store_reserve_generations(BlobStore *store, BlobStoreShared *shared, int count);

/* Runs that are moved from set to set while the lock is held once. */
#define BLOB_STORE_MOVE_RUNS 1000

/* Pages that have blocks in a file.  Under the lock. */
static inline uint64
blob_store_file_pages(const BlobStoreShared *shared)
{
	return shared->reserved_pages - shared->hollow.page_count -
		blob_pending_pages(&shared->hollow_pending);
}

/*
 * holes.c: the free pages that a store keeps for the next values (blobext.keep_free), and how many
 * more are worth being punched.  Under the lock.
 */
extern uint64 blob_store_kept_pages(const BlobStoreShared *shared);

/*
 * Give resting pages back to the free runs: `pages` of them, or until a free run has needed_pages.
 * Returns whether there were any.
 */
extern bool blob_store_wake(BlobStoreShared *shared, uint64 needed_pages, uint64 pages);

/*
 * Take surplus pages out of the free runs, if punching them is worth it.  Returns whether pages
 * rest then.
 */
extern bool blob_store_rest(BlobStoreShared *shared);

/*
 * Punch the resting pages if a completed checkpoint covers them, as long as may_go_on(argument) is
 * true; returns the number of pages.  Takes the growth lock.  Can be interrupted.
 */
extern uint64 blob_store_punch(BlobStore *store, BlobStoreShared *shared,
							   BlobStoreMayGoOn may_go_on, void *argument);

/*
 * Once after each start: make holes again that the map has and the files have not, as long as
 * may_go_on(argument) is true.  Takes the growth lock.  Can be interrupted.
 */
extern void blob_store_punch_again(BlobStore *store, BlobStoreShared *shared,
								   BlobStoreMayGoOn may_go_on, void *argument);

/*
 * Reserve blocks of hollow pages again, lowest first, and put the pages into the free runs: one run
 * of at least min_pages, and others, up to max_pages in all.  False if there is no such run.  The
 * caller has the growth lock.  ERROR 53100 if the disk is full.
 */
extern bool blob_store_fill(BlobStore *store, BlobStoreShared *shared, uint64 min_pages,
							uint64 max_pages);

/*
 * remove.c: remove the files of segments in which nothing is allocated; returns their number.
 * Takes the growth lock.  Can be interrupted between files.
 */
extern int	blob_store_remove_segments(BlobStore *store, BlobStoreShared *shared);

/* checkpoint.c: whether the last request was long enough ago; if so, this counts as one. */
extern bool blob_store_may_ask(BlobStoreShared *shared);
extern void blob_store_ask_for_checkpoint_now(BlobStoreShared *shared);

/* Redo pointer of the last completed checkpoint. */
extern XLogRecPtr blob_store_completed_redo(void);

/*
 * Whether freed pages may be given out once FREE is flushed, because all content that this server
 * writes is in the WAL.  Otherwise they wait for a checkpoint.
 */
extern bool blob_store_frees_after_flush(void);

/*
 * The position of the WAL up to which freed pages may be given out: that of the flush, or the redo
 * pointer of the last completed checkpoint.
 */
extern XLogRecPtr blob_store_covered(void);

/*
 * Make pages and segment numbers available that may be given out by now; false if no pages became
 * free.  With flush, the WAL is flushed before if pages wait for that.  Not under a lock of the
 * store.
 */
extern bool blob_store_mature(const BlobStoreId *store, BlobStoreShared *shared, bool flush);

/*
 * sets.c: the states of a page, and that each page is in one of them; asserted at each move.
 * Without assertions all of this is nothing.
 */
#ifdef USE_ASSERT_CHECKING

/* See "States of a page" in the README of this folder. */
typedef enum BlobPageState
{
	BLOB_PAGE_FREE,				/* the first five have sets of these names */
	BLOB_PAGE_RESTING,
	BLOB_PAGE_PENDING,
	BLOB_PAGE_HOLLOW_PENDING,
	BLOB_PAGE_HOLLOW,
	BLOB_PAGE_SEGMENT,			/* only to move from: any of these, of a segment without extents */
	BLOB_PAGE_HELD,				/* in the hands of one process */
	BLOB_PAGE_EXTENT,
	BLOB_PAGE_LOST,				/* no memory to give them back, or a damaged entry before them */
	BLOB_PAGE_UNLOADED,			/* only to move from: the map was not read there since the start */
	BLOB_PAGE_NEW				/* only to move from: reserved now */
} BlobPageState;

#define BLOB_PAGE_STATES (BLOB_PAGE_NEW + 1)

/*
 * A run has been moved: it was in the one state, is in the other, and in no set besides.  The
 * caller holds the store's lock exclusively.
 */
extern void blob_sets_check_move(BlobStoreShared *shared, BlobPageState from, BlobPageState to,
								 BlobPageNo first_page, uint64 pages);

/* The same for pages of unknown runs; blob_sets_check() comes next. */
extern void blob_sets_count_move(BlobStoreShared *shared, BlobPageState from, BlobPageState to,
								 uint64 pages);

/*
 * All sets are sound trees, have no page in common, and lie in the store.  The caller holds the
 * store's lock.  Takes time in proportion to the number of runs.
 */
extern void blob_sets_check(const BlobStoreShared *shared);

/* All pages of the store are unloaded.  The caller holds both locks. */
extern void blob_sets_begin(BlobStoreShared *shared);

/* This process has no pages in its hands: it begins something, or has ended it. */
extern void blob_sets_check_empty_hands(void);

#else

#define blob_sets_check_move(shared, from, to, first_page, pages) ((void) 0)
#define blob_sets_count_move(shared, from, to, pages) ((void) 0)
#define blob_sets_check(shared) ((void) 0)
#define blob_sets_begin(shared) ((void) 0)
#define blob_sets_check_empty_hands() ((void) 0)

#endif							/* USE_ASSERT_CHECKING */

#endif							/* BLOB_STORE_INTERNAL_H */
