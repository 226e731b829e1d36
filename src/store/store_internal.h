/*
 * store/store_internal.h
 *	  What the files of the allocator share: store.c, grow.c, reclaim.c.
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
 * sets, or in the hands of a process that moves it from one to another.
 */
typedef struct BlobStoreShared
{
	BlobStoreId id;				/* hash key */
	LWLock		lock;			/* protects all below */
	LWLock		growth_lock;
	bool		loaded;			/* changes under both locks */
	BlobFreeRuns free_runs;
	BlobPending pending;		/* freed, not yet to be given out */
	BlobFreeRuns absent;		/* without a file; begins where map entries say so */
	BlobPending absent_pending; /* without a file, which must not be made anew yet */
	uint64		reserved_pages;
	BlobGeneration next_generation;
	BlobGeneration generation_limit;
	TimestampTz checkpoint_request; /* when one was asked for last */
	bool		checkpoint_awaited; /* and not yet seen to be complete */
	int			checkpoint_pause_ms;	/* until the next one may be asked for */
	uint64		allocated_pages;	/* given out since the start, less freed abandoned ones */
} BlobStoreShared;

/* This backend's attachment to the memory of all sets; valid after blob_store_shared(). */
extern PGDLLEXPORT dsa_area *blob_store_area;

/* The shared part of a store; made on first use. */
extern PGDLLEXPORT BlobStoreShared *blob_store_shared(const BlobStoreId *id);

/*
 * Give up the shared part of a store, if there is one.  Who has a pointer to one has its map
 * locked; the map is gone.
 */
extern void blob_store_forget(const BlobStoreId *id);

/* Find the free space in the map, once after each start of the server (store/grow.c). */
extern void blob_store_load(BlobStore *store, BlobStoreShared *shared);

/*
 * Reserve disk space for at least needed_pages in one run, unless somebody just did.  Asks for a
 * checkpoint where enough freed space waits for one; *may_wait: may wait for it instead of growing
 * where the disk is full, and becomes false then.
 */
extern void blob_store_grow(BlobStore *store, BlobStoreShared *shared, uint64 needed_pages,
							bool *may_wait);

/*
 * After freeing: ask for a checkpoint if more waits for one than is free, and it is worth it.  When
 * one is seen to be complete, to be told, as its length says when the next one may be asked for.
 */
extern void blob_store_ask_for_checkpoint(BlobStoreShared *shared);
extern void blob_store_checkpoint_was_seen(BlobStoreShared *shared);

/* Make sure that so many more generations can be drawn. */
extern void blob_store_reserve_generations(BlobStore *store, BlobStoreShared *shared, int count);

/* Redo pointer of the last completed checkpoint (store/reclaim.c). */
extern XLogRecPtr blob_store_completed_redo(void);

/*
 * Make pages and segment numbers available that a completed checkpoint has covered meanwhile;
 * false if there are none.
 */
extern bool blob_store_mature(BlobStoreShared *shared);

#endif							/* BLOB_STORE_INTERNAL_H */
