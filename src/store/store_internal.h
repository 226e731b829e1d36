/*
 * store/store_internal.h
 *	  Declarations that the files of the allocator share: store.c, grow.c, reclaim.c.
 */
#ifndef BLOB_STORE_INTERNAL_H
#define BLOB_STORE_INTERNAL_H

#include "datatype/timestamp.h"
#include "store/free_runs.h"
#include "store/pending.h"
#include "store/store.h"
#include "storage/lwlock.h"

/*
 * One per store.  Each page below reserved_pages is in an allocated extent, in one of the four
 * sets, or in the hands of one process that moves it from one to another.
 */
typedef struct BlobStoreShared
{
	BlobStoreId id;				/* hash key */
	LWLock		lock;			/* protects the members below growth_lock */
	LWLock		growth_lock;
	bool		loaded;			/* changes under both locks; false: see load() */
	BlobFreeRuns free_runs;
	BlobPending pending;		/* freed, not to be given out yet */
	BlobFreeRuns absent;		/* without a file, as map entries say */
	BlobPending absent_pending; /* the same; the file must not be made anew yet */
	uint64		reserved_pages;
	BlobGeneration next_generation;
	BlobGeneration generation_limit;
	TimestampTz checkpoint_request; /* when a checkpoint was asked for last */
	bool		checkpoint_awaited; /* and not seen to be complete yet */
	int			checkpoint_pause_ms;	/* from one request to the next */
	uint64		allocated_pages;	/* given out, less freed abandoned ones */
} BlobStoreShared;

/*
 * This backend's attachment to the memory of the sets of all stores; valid after
 * blob_store_shared().
 */
extern PGDLLEXPORT dsa_area *blob_store_area;

/* The shared part of a store, made on first use.  ERROR if blobext.max_databases stores exist. */
extern PGDLLEXPORT BlobStoreShared *blob_store_shared(const BlobStoreId *id);

/*
 * Remove the shared part of a store, if there is one.  No process has a pointer to it: that takes a
 * lock on the map, and the map is gone.
 */
extern void blob_store_forget(const BlobStoreId *id);

/*
 * Find the free space in the map, once after each start of the server (store/grow.c).  Takes the
 * growth lock.
 */
extern void blob_store_load(BlobStore *store, BlobStoreShared *shared);

/*
 * Reserve disk space for at least needed_pages in one run, unless another process just did.  Takes
 * the growth lock.  Asks for a checkpoint if enough freed space waits for one.  If the disk is
 * full, and *may_wait is true, it may wait for a checkpoint instead of growing; *may_wait becomes
 * false then.
 */
extern void blob_store_grow(BlobStore *store, BlobStoreShared *shared, uint64 needed_pages,
							bool *may_wait);

/*
 * After freeing: ask for a checkpoint if more pages wait for one than are free, and it is worth its
 * price.  The second function is called when a checkpoint is seen to be complete: the time that it
 * took says when the next one may be asked for.
 */
extern void blob_store_ask_for_checkpoint(BlobStoreShared *shared);
extern void blob_store_checkpoint_was_seen(BlobStoreShared *shared);

/* Make sure that `count` more generations can be drawn.  Takes the growth lock. */
extern void blob_store_reserve_generations(BlobStore *store, BlobStoreShared *shared, int count);

/* Redo pointer of the last completed checkpoint (store/reclaim.c). */
extern XLogRecPtr blob_store_completed_redo(void);

/*
 * Whether freed pages may be given out once FREE is flushed, because all content that this server
 * writes is in the WAL.  Otherwise they wait for a checkpoint.
 */
extern bool blob_store_frees_after_flush(void);

/*
 * Make pages and segment numbers available that may be given out by now; false if no pages became
 * free.  With flush, the WAL is flushed before if pages wait for that.  Not under a lock of the
 * store.
 */
extern bool blob_store_mature(const BlobStoreId *store, BlobStoreShared *shared, bool flush);

#endif							/* BLOB_STORE_INTERNAL_H */
