/*
 * io/buffer_table.h
 *	  The table of the buffer, from keys to slabs, for buffer.c and buffer_fills.c.
 */
#ifndef BLOB_BUFFER_TABLE_H
#define BLOB_BUFFER_TABLE_H

#include "io/buffer_slabs.h"
#include "io/io_internal.h"
#include "io/write_counts.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

typedef struct BufferEntry
{
	BufferKey	key;
	uint32		slab_no;
} BufferEntry;

/* Chunks share counts of rewrites by their hash. */
#define REWRITE_COUNTS 4096

typedef struct BlobBufferShared
{
	pg_atomic_uint64 used_bytes;
	uint64		total_bytes;
	pg_atomic_uint32 rewrites;	/* of pages that were written anew: raised before a count is */
	pg_atomic_uint32 rewrite_counts[REWRITE_COUNTS];
} BlobBufferShared;

/* NULL if there is no buffer. */
extern BlobBufferShared *blob_buffer_shared;
extern HTAB *blob_buffer_table;
extern LWLockPadded *blob_buffer_locks;

static inline void
blob_buffer_make_key(BufferKey *key, const BlobStoreId *store, BlobGeneration generation,
					 uint32 chunk_bytes, uint64 offset_bytes)
{
	Assert(generation != BLOB_INVALID_GENERATION);

	key->incarnation = store->incarnation;
	key->generation = generation;
	key->chunk_no = offset_bytes / chunk_bytes;
	key->dboid = store->dboid;
	key->chunk_bytes = chunk_bytes;
}

static inline LWLock *
blob_buffer_partition_lock(uint32 hash)
{
	return &blob_buffer_locks[hash % BLOB_BUFFER_PARTITIONS].lock;
}

static inline pg_atomic_uint32 *
blob_buffer_rewrite_count(uint32 hash)
{
	return &blob_buffer_shared->rewrite_counts[hash % REWRITE_COUNTS];
}

/* Find the key and pin its slab; NULL if it is not kept.  Takes the partition lock shared. */
static inline BufferSlab *
blob_buffer_find_and_pin(const BufferKey *key, uint32 hash)
{
	LWLock	   *lock = blob_buffer_partition_lock(hash);
	BufferSlab *slab = NULL;
	BufferEntry *entry;

	LWLockAcquire(lock, LW_SHARED);
	entry = hash_search_with_hash_value(blob_buffer_table, key, hash, HASH_FIND, NULL);
	if (entry != NULL && blob_slab_pin(blob_slab(entry->slab_no)))
		slab = blob_slab(entry->slab_no);
	LWLockRelease(lock);
	return slab;
}

/*
 * Whether pages of a pinned or owned slab may have been written since it was filled: those of a
 * neighbour, or those that a repair has written anew.  Its dirty pages are right all the same.
 */
static inline bool
blob_buffer_is_outdated(const BufferSlab *slab, uint32 hash)
{
	return pg_atomic_read_u32(blob_buffer_rewrite_count(hash)) != slab->rewrites_seen ||
		(slab->is_neighbour && blob_write_count(slab->count_no) != slab->count_seen);
}

/* Whether the table leads from the key to a slab, which may be another one soon. */
static inline bool
blob_buffer_has_slab(const BufferKey *key, uint32 hash)
{
	LWLock	   *lock = blob_buffer_partition_lock(hash);
	bool		found;

	LWLockAcquire(lock, LW_SHARED);
	(void) hash_search_with_hash_value(blob_buffer_table, key, hash, HASH_FIND, &found);
	LWLockRelease(lock);
	return found;
}

/* ---- buffer.c ---- */

/* Take an owned slab's old content out of the table.  Takes that key's lock exclusively. */
extern void blob_buffer_evict(BufferSlab *slab);

/*
 * Take a key out of the table.  False if its slab is in use.  The look-up needs the key's lock in
 * shared mode only: no process pins a slab that is owned.
 */
extern bool blob_buffer_forget_chunk(const BufferKey *key, uint32 hash);

/*
 * Enter an owned slab into the table.  False if the key is there already: then the slab stays
 * unused.
 */
extern bool blob_buffer_enter(BufferSlab *slab, const BufferKey *key, uint32 hash);

/* Enter a filled, owned slab into the table, and end the ownership. */
static inline void
blob_buffer_enter_and_end(BufferSlab *slab, const BufferKey *key, uint32 hash)
{
	(void) blob_buffer_enter(slab, key, hash);
	blob_slab_disown(slab);
}

#endif							/* BLOB_BUFFER_TABLE_H */
