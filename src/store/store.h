/*
 * store/store.h
 *	  The extent store of the current database: identity, and allocation of extents.
 *
 * What is declared PGDLLEXPORT is called by test/unit, too, in the library of a running server.
 */
#ifndef BLOB_STORE_H
#define BLOB_STORE_H

#include "access/xlogdefs.h"
#include "core/page.h"
#include "core/tier.h"
#include "store/drafts.h"
#include "store/map.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

/* Object locks on the map have these numbers: one round at a time (gc/), and freeing (below). */
#define BLOB_STORE_ROUND_LOCK 1
#define BLOB_STORE_FREEING_LOCK 2

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
 * Open the store of this database: AccessShareLock to read, RowExclusiveLock to allocate.  ERROR
 * where the extension is not installed or the library is not preloaded.
 */
extern PGDLLEXPORT void blob_store_open(BlobStore *store, LOCKMODE lock_mode);
extern PGDLLEXPORT void blob_store_close(BlobStore *store);

/*
 * The same where nobody must be waited for: false if the map is locked, or was moved by this
 * transaction, or there is none (*exists).
 */
extern bool blob_store_try_open(BlobStore *store, LOCKMODE lock_mode, bool *exists);

/*
 * Allocate the extents of plan for size_bytes of content: extents[] gets plan->extent_count
 * entries and, if there is one, the tail.  Side by side where the free space allows.  They are in
 * the map and in the WAL on return, and stay allocated whatever becomes of the transaction.  The
 * draft of the value that they are for has them before they are there (NULL, for tests: none).
 * Returns their number.  ERROR 53100 if the file system is full.
 */
extern PGDLLEXPORT int blob_store_allocate(BlobStore *store, const BlobTierPlan *plan,
										   uint64 size_bytes, BlobDraft *draft,
										   BlobExtent *extents);

/*
 * ERROR 53100 unless the store and the file system have room for so many pages now.  A caller that
 * allocates in steps asks before the first one; that reserves nothing.
 */
extern void blob_store_require_room(BlobStore *store, uint64 pages);

/*
 * Claim the bytes [from_bytes, to_bytes) of an extent of tier size, for a value of generation
 * max_generation that ends at from_bytes: no two callers win the same bytes, ever.  Logged on
 * return, before anything is written there.  Who wins is told the extent's generation.
 */
extern BlobClaimResult blob_store_claim(BlobStore *store, BlobExtent *extent,
										BlobGeneration max_generation, uint64 from_bytes,
										uint64 to_bytes);

/*
 * Give the pages of an extent from the pages-th on back.  It was allocated by the caller, no
 * descriptor names it, and no write to these pages was ever started.  It is a tail then.
 */
extern void blob_store_trim(BlobStore *store, BlobExtent *extent, uint64 pages);

/*
 * The collector's part: which extents are old enough, giving them back, giving back disk space.
 * To look at extents, see blob_map_visit_range().
 */

/*
 * Every extent that was drawn before this call has a generation of at most the result, every later
 * one a larger one.  An extent that was drawn may not be in the map yet: whoever drew it has a
 * transaction id, so wait for the transactions that run now before looking at the map.
 */
extern PGDLLEXPORT BlobGeneration blob_store_cutoff(BlobStore *store);

/*
 * Free extents, sorted by first page: nothing refers to them, and nobody who could see a reference
 * is left but on standbys, where queries with a snapshot that sees horizon as running are
 * cancelled.  The store was opened with RowExclusiveLock.  Logs FREE, as many records as it takes;
 * returns the end of the last one (InvalidXLogRecPtr without extents), and the sum of the pages.
 * Nothing needs to be flushed: the pages are given out again only after a completed checkpoint
 * whose redo pointer lies past their record, which includes its flush; call XLogFlush() to not
 * find the same extents again after a crash.  ERROR (data corrupted) where the map does not say
 * what is expected; all extents of records before that are free then.  Can be interrupted between
 * records.
 */
extern PGDLLEXPORT XLogRecPtr blob_store_free(BlobStore *store, const BlobFreedExtent *extents,
											  int count, TransactionId horizon,
											  uint64 *freed_pages);

/*
 * A process that frees looks at the map first; no other may free what it finds before its FREE.
 * The collector, with ExclusiveLock, and owners of abandoned extents, with ShareLock, keep each
 * other out.  wait: else false if somebody has it.  A heavyweight lock, taken with the map open.
 */
extern bool blob_store_lock_freeing(BlobStore *store, LOCKMODE lock_mode, bool wait);
extern void blob_store_unlock_freeing(BlobStore *store, LOCKMODE lock_mode);

/*
 * blob_store_free() for extents of an abandoned draft.  They do not count as given out any more
 * (blob_store_allocated_pages).  The caller has blob_store_lock_freeing().
 */
extern void blob_store_free_abandoned(BlobStore *store, const BlobFreedExtent *extents, int count,
									  uint64 *freed_pages);

/*
 * After freeing: make what a checkpoint has covered by now available, and remove the files of
 * segments in which nothing is allocated.  The store was opened with RowExclusiveLock.  Returns
 * the number of files removed.  Can be interrupted between files.
 */
extern PGDLLEXPORT int blob_store_reclaim(BlobStore *store);

/*
 * Pages given out since the start of the server, less those of abandoned drafts that were freed; 0
 * for a store that was not used since.
 */
extern uint64 blob_store_allocated_pages(const BlobStoreId *id);

/*
 * Called each time that this number has passed another 16 MiB, by who allocated, without locks of
 * ours.  Must not fail, nor wait for more than a moment.
 */
typedef void (*BlobStoreAllocationHook) (const BlobStoreId *id, uint64 allocated_pages);
extern PGDLLEXPORT BlobStoreAllocationHook blob_store_allocation_hook;

/*
 * Log that a store is gone, and remove its files; true when they are.  For what only the collector
 * knows: the drop of its map or database has committed, nobody can lock that map any more.
 */
extern bool blob_store_drop(const BlobStoreId *id);

/*
 * Pages of a range that were freed and wait for a checkpoint.  Loads the free space if nobody did;
 * 0 on a standby, which does not know.
 */
extern uint64 blob_store_pending_pages(BlobStore *store, BlobPageNo first_page,
									   BlobPageNo end_page);

#endif							/* BLOB_STORE_H */
