/*
 * store/store.h
 *	  The extent store of the current database: identity, and allocation of extents.
 *
 * Functions that are declared PGDLLEXPORT are also called by test/unit, in the library of a running
 * server.
 */
#ifndef BLOB_STORE_H
#define BLOB_STORE_H

#include "access/xlogdefs.h"
#include "core/page.h"
#include "core/tier.h"
#include "store/drafts.h"
#include "store/hole_pace.h"
#include "store/map.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

/*
 * Numbers of object locks on the map: one round of the collector at a time (gc/), freeing (below),
 * and one repair at a time (heal/).
 */
#define BLOB_STORE_ROUND_LOCK 1
#define BLOB_STORE_FREEING_LOCK 2
#define BLOB_STORE_HEAL_LOCK 3

typedef struct BlobStore
{
	BlobStoreId id;
	Relation	map;
	LOCKMODE	lock_mode;		/* held on the map until blob_store_close() */
} BlobStore;

extern void blob_store_shmem_request(void);
extern void blob_store_shmem_init(void);

/* Whether the library was preloaded; ERROR 55000 with hint if it was not. */
extern bool blob_store_is_preloaded(void);
extern void blob_store_require_preload(void);

/*
 * Open the store of this database, and lock its map: AccessShareLock to read, RowExclusiveLock to
 * allocate.  ERROR if the extension is not installed or the library is not preloaded.  Closing
 * releases the lock.
 */
extern PGDLLEXPORT void blob_store_open(BlobStore *store, LOCKMODE lock_mode);
extern PGDLLEXPORT void blob_store_close(BlobStore *store);

/*
 * Lock the store of this database as one that is written to, if there is one; waits.  Returns the
 * map's OID for blob_store_unlock(), else InvalidOid.  The relation cache may call back in it.
 */
extern Oid	blob_store_lock(BlobStoreId *store);
extern void blob_store_unlock(Oid map);

/*
 * The same as blob_store_open() without waiting: false if the map is locked, or was moved by this
 * transaction, or does not exist (*exists is false then).
 */
extern bool blob_store_try_open(BlobStore *store, LOCKMODE lock_mode, bool *exists);

/*
 * Open the store again, of which a value is being written.  Between two calls of the writer nothing
 * is locked, so the extension may have been dropped and created again: then the pages of the value
 * belong to other values of another store.  ERROR 55000 if that is so.
 */
extern void blob_store_open_same(BlobStore *store, LOCKMODE lock_mode, const BlobStoreId *id);

/*
 * Allocate the extents of plan for size_bytes of content: extents[] gets plan->extent_count entries
 * and, if there is one, the tail.  Side by side if the free space allows.  Returns their number.
 *
 * On return the extents are in the map and in the WAL, and stay allocated even if the transaction
 * aborts.  They are entered in the value's draft before (NULL, for tests: no draft).  The
 * caller has an XID and RowExclusiveLock on the map, and is not in recovery.  ERROR 53100 if the
 * file system is full, 53400 if the values of the database would take more than
 * blobext.max_store_size.
 */
extern PGDLLEXPORT int blob_store_allocate(BlobStore *store, const BlobTierPlan *plan,
										   uint64 size_bytes, BlobDraft *draft,
										   BlobExtent *extents);

/*
 * Draw a generation that no extent gets: for a value that has none of its own, and is to be told
 * from all others by its generation.  The caller has RowExclusiveLock on the map, and is not in
 * recovery.
 */
extern BlobGeneration blob_store_draw_generation(BlobStore *store);

/*
 * From now on new extents of the store get checksums; durable on return.  Returns whether they did
 * not before.  The caller has RowExclusiveLock on the map, and is not in recovery.
 */
extern bool blob_store_enable_sums(BlobStore *store);

/*
 * ERROR 53100 unless the store and the file system have room for this number of pages now.  A
 * caller that allocates in steps asks before the first one.  Nothing is reserved.
 */
extern void blob_store_require_room(BlobStore *store, uint64 pages);

/*
 * Claim the bytes [from_bytes, to_bytes) of an extent of tier size, for a value of generation
 * max_generation that ends at from_bytes.  No two callers ever win the same bytes.  CLAIM is logged
 * on return, before anything is written there.  If the claim is won, extent->generation is set.
 */
extern BlobClaimResult blob_store_claim(BlobStore *store, BlobExtent *extent,
										BlobGeneration max_generation, uint64 from_bytes,
										uint64 to_bytes);

/*
 * Keep the first `pages` pages of an extent, which becomes a tail, and give the others back.  The
 * caller has allocated the extent, no descriptor names it, and no write to the other pages was ever
 * started.
 */
extern void blob_store_trim(BlobStore *store, BlobExtent *extent, uint64 pages);

/*
 * Whether a crash now would replay WAL of the server that this one was a standby of: it was
 * promoted, and its first checkpoint is not complete.  Then replay may write old content to any
 * page, so new content must be in the WAL (README, "After a promotion").  Once false, it stays
 * false.  Reads a file while it is true, and at a process's first call.  Not in recovery.
 */
extern bool blob_store_replays_predecessor(void);

/*
 * For the collector: which extents are old enough, freeing them, and giving back disk space.  See
 * blob_map_visit_range() for looking at extents.
 */

/*
 * The largest generation that has been drawn.  Every extent that draws its generation after this
 * call has a larger one.
 *
 * An extent that drew its generation before may not be in the map yet.  Its process has a
 * transaction id, so wait for the transactions that run now before looking at the map.
 */
extern PGDLLEXPORT BlobGeneration blob_store_cutoff(BlobStore *store);

/*
 * Free extents, sorted by first page, that blob_store_may_free() has found sound.  Nothing refers
 * to them, and no session of this server could still see a reference.  On standbys, queries whose
 * snapshot sees `horizon` as running are cancelled.  The store was opened with RowExclusiveLock.
 *
 * Logs FREE, in as many records as needed.  Returns the end of the last one (InvalidXLogRecPtr
 * without extents), and in *freed_pages the sum of the pages.  ERROR (data corrupted) if the map
 * has another generation or length for an extent; the extents of all records before that one are
 * free then.  Can be interrupted between records.
 *
 * The caller need not flush the records: the pages are given out again after their flush at the
 * earliest, see blob_store_release().
 */
extern PGDLLEXPORT XLogRecPtr blob_store_free(BlobStore *store, const BlobFreedExtent *extents,
											  int count, TransactionId horizon,
											  uint64 *freed_pages);

/*
 * Whether an extent of this length can be freed at this page: it lies in the store, none of its
 * pages is free already, or not loaded, and no other extent begins in it.  Else its entry of the
 * map, or that of the other one, is damaged, and pages that are freed might be given out twice.
 * Loads the free space, unless the extent was allocated since the start, and so is_loaded.
 */
extern PGDLLEXPORT bool blob_store_may_free(BlobStore *store, BlobPageNo first_page,
											uint64 pages, bool is_loaded);

/*
 * After blob_store_free(), whose result is `end`: flush the records, and make the pages available
 * unless they have to wait for a checkpoint (README, "Freed space").  One flush serves any number
 * of records.  Where it is left out, the process that needs the pages flushes.
 */
extern PGDLLEXPORT void blob_store_release(BlobStore *store, XLogRecPtr end);

/*
 * Lock freeing.  A process that frees looks at the map first, and no other process may free what it
 * finds before its FREE.  So the collector, with ExclusiveLock, and owners of abandoned extents,
 * with ShareLock, exclude each other.  A heavyweight lock, taken with the map open.  Unless `wait`,
 * returns false if another process has it.
 */
extern bool blob_store_lock_freeing(BlobStore *store, LOCKMODE lock_mode, bool wait);
extern void blob_store_unlock_freeing(BlobStore *store, LOCKMODE lock_mode);

/*
 * blob_store_free() for extents of an abandoned draft.  The caller has blob_store_lock_freeing().
 */
extern void blob_store_free_abandoned(BlobStore *store, const BlobFreedExtent *extents, int count,
									  uint64 *freed_pages);

/*
 * After freeing, or later: make the pages available that may be given out by now, remove the files
 * of segments in which nothing is allocated, and give blocks of other free pages back to the file
 * system, as far as a completed checkpoint allows (README, "Holes").  The store was opened with
 * RowExclusiveLock.  Returns the number of files removed.  Can be interrupted between files.
 *
 * Holes take long, with pauses.  So they are made as long as may_go_on(argument) is true, which is
 * asked after each few of them; without may_go_on none is made.
 */
typedef bool (*BlobStoreMayGoOn) (void *argument);
extern PGDLLEXPORT int blob_store_reclaim(BlobStore *store, BlobStoreMayGoOn may_go_on,
										  void *argument);

/*
 * The same for a caller that makes the holes at its own pace, as blob_store_punch_some(): surplus
 * pages come to rest, but only those holes are made that the map has and the files lack.
 */
extern int	blob_store_reclaim_at_rest(BlobStore *store, BlobStoreMayGoOn may_go_on,
									   void *argument);

/*
 * The pace for the pages that rest and that a completed checkpoint allows to punch: at least that
 * of an earlier process, until its time is over.  False if there are none, or the store was not
 * used since the start.
 */
extern bool blob_store_begin_holes(const BlobStoreId *id, BlobHolePace *pace);

/*
 * Punch about max_pages of them, in one record.  The store was opened with RowExclusiveLock.
 * Returns their number; 0 if there are none, or no longer.  Takes the growth lock for that.
 */
extern uint64 blob_store_punch_some(BlobStore *store, uint64 max_pages);

/*
 * Pages that wait for a checkpoint so that their space can go back to the file system, if that is
 * worth a checkpoint; else 0.  Also 0 for a store whose free space is not loaded.
 */
extern uint64 blob_store_waiting_pages(const BlobStoreId *id);

/*
 * For a background process, after a start of the server: load the free space of the store, some of
 * it at a time.  Returns whether some is left.  The map is open, in any mode; not in recovery.
 * ERROR if it is damaged, or the store's files are missing.
 */
extern bool blob_store_load_step(BlobStore *store);

/* Whether the free space of a store was loaded since the start of the server, all of it. */
extern bool blob_store_is_loaded(const BlobStoreId *id);

/*
 * Give resting pages back to the free runs, until these have this number beyond those that the
 * store keeps, because they will be needed; and all if the others are not worth a checkpoint.
 */
extern void blob_store_wake_pages(const BlobStoreId *id, uint64 pages);

/*
 * The position that the checkpoint must be past for which pages wait now, invalid if none does; ask
 * for such a checkpoint; and whether one is complete.
 */
extern XLogRecPtr blob_store_waiting_lsn(const BlobStoreId *id);
extern void blob_store_ask_for_waiting(const BlobStoreId *id);
extern bool blob_store_checkpoint_is_past(XLogRecPtr lsn);

/*
 * Pages given out since the start of the server, freed ones, too, so it never falls; 0 for a store
 * that was not used since.
 */
extern uint64 blob_store_allocated_pages(const BlobStoreId *id);

/*
 * How the pages of a store are used, as shared memory has it: without a look at the map.  Pages
 * that a process is moving from one set to another count as allocated.
 */
typedef struct BlobStoreUsage
{
	Oid			database;
	uint64		file_pages;		/* of segment files, without punched ones */
	uint64		allocated_pages;
	uint64		free_pages;
	uint64		pending_pages;	/* freed, not to be given out yet */
} BlobStoreUsage;

/*
 * The stores that have an entry in shared memory, in palloc'd *ids; returns their number.  An entry
 * is made by a process of the database, and mostly, not always, the store has a directory.
 */
extern int	blob_store_list(BlobStoreId **ids);
extern bool blob_store_has_entry(const BlobStoreId *id);

/*
 * The stores that have been written to since the start of the server, in palloc'd *usages; returns
 * their number.  For any process; takes the lock of the table and, under it, those of the stores.
 */
extern int	blob_store_usages(BlobStoreUsage **usages);

/*
 * A hook that the allocating process calls each time that this number has passed another 4 MiB,
 * without holding a lock of blobext but that on the map.  The hook must not fail, nor wait for more
 * than a moment.
 */
typedef void (*BlobStoreAllocationHook) (const BlobStoreId *id, uint64 allocated_pages);
extern PGDLLEXPORT BlobStoreAllocationHook blob_store_allocation_hook;

/*
 * A hook that is called when a store is refused for want of space, while the error is being made,
 * perhaps under the growth lock.  True if a round of the collector was asked for.  It must neither
 * fail nor wait.
 */
typedef bool (*BlobStoreRefusalHook) (const BlobStoreId *id);
extern PGDLLEXPORT BlobStoreRefusalHook blob_store_refusal_hook;

/*
 * Log that a store is gone, and remove its files; true if they are gone.  For the collector: the
 * caller knows that the drop of the map or database has committed, so that no process can lock that
 * map any more.
 */
extern bool blob_store_drop(const BlobStoreId *id);

/*
 * Note that a DROP ends there, which was logged or replayed.  And whether recovery from a crash now
 * would replay one: it would take the files of a later store with the same identity, of which not
 * all content need be in the WAL.  ERROR if the control file cannot be read.
 */
extern void blob_store_note_drop(XLogRecPtr lsn);
extern bool blob_store_may_replay_drop(void);

/*
 * Pages of a range that were freed and may not be given out yet, as of now: not those that a flush
 * or a checkpoint has covered since, though no process has moved them yet.  Loads the free space if
 * necessary; 0 on a standby, where it is not known.
 */
extern uint64 blob_store_pending_pages(BlobStore *store, BlobPageNo first_page,
									   BlobPageNo end_page);

/*
 * Make the file of a segment anew, or lengthen it, so that it has all pages which the map expects.
 * The caller has noted all extents there that lack bytes (store/unlogged.h).  Takes the growth
 * lock.
 */
extern void blob_store_remake_segment(BlobStore *store, uint32 segment_no);

/* Pages of a segment, from its first one on, that must have a file. */
extern uint64 blob_store_segment_pages(BlobStore *store, uint32 segment_no);

#endif							/* BLOB_STORE_H */
