/*
 * io/buffer.c
 *	  The buffer: shared memory for content of extents, see io/buffer.h.
 *
 * Structures.  Slabs of two sizes (buffer_slabs.c) and a partitioned hash table from key to slab
 * number.  Every slab is in one of these states:
 *
 *	unused		no key, not in the table
 *	kept		has a key, the table leads to it; pins >= 0 processes use its content
 *	dirty		the same, and one of the pins is that of the list of dirty slabs (dirty.c)
 *	owned		one process owns it and may change key and content
 *
 * Locking.  A partition's LWLock protects its part of the table: shared to look up, exclusive to
 * insert and delete.  It is held for table operations only, never while bytes are copied, and never
 * two at a time.
 *
 * Why no reader sees a slab that is being refilled.  A process takes a slab by compare-and-swap
 * of pins from 0.  So there is no reader at that moment, and one owner at most.  A reader pins
 * by compare-and-swap, too, and gives up (a miss) on an owned slab, so there is none until the
 * ownership ends.  One case remains: a reader has looked up key K, and finds the slab not owned
 * again, but with another key.  That cannot happen: an owner deletes K from the table, under K's
 * partition lock held exclusively, before it changes the slab; and a reader holds that lock shared
 * from its look-up until it has pinned.  The ownership ends with a full barrier after key, range
 * and content were written.  The reader's successful swap is a full barrier before it reads them.
 *
 * Why a reader that goes to the device finds the page there.  A dirty slab has a pin, so it is
 * never owned, and stays in the table.  So a reader that has no slab of the key, or finds it
 * owned, knows that the chunk has no dirty page.  A page does not become dirty again.
 *
 * A writer adds pages to a slab that has a key under a pin, without ownership: it writes behind the
 * valid range, where no process reads, and then raises the end of that range.  Two writers never do
 * so at once, because a claim of pages in the map has one winner, and the next one comes after the
 * value of the first is complete.  A process that merges bytes read from the device takes the
 * slab, which a pin prevents.
 *
 * An owner that copies waits for nothing but a partition lock, and does not throw.  An owner
 * that has the device read into the slab (a fill), or write from it, keeps its ownership meanwhile.
 * Error handling and the process's exit give the slab back after the request has ended.
 *
 * A fill ahead is entered in the table at its beginning: a reader that is led to the slab finds it
 * owned, and has a miss.  So the end of such a fill needs no lock, only a few stores and one
 * atomic exchange.  A signal handler can do that, whatever locks the interrupted process has taken.
 *
 * A fill of a neighbour may bring pages that have yet to be written.  The README of this folder has
 * the argument why no reader takes them for content ("Neighbours"), and why none keeps the bytes of
 * pages that a repair has written anew ("Rewritten pages").
 *
 * A process that is killed during ownership takes the whole cluster through a restart, as with any
 * LWLock.
 */
#include "postgres.h"

#include "core/compat.h"
#include "io/buffer.h"
#include "io/buffer_table.h"
#include "io/dirty.h"
#include "io/stat.h"
#include "storage/shmem.h"

/* The buffer is full when less than one of this number of parts is free. */
#define FULL_PARTS 16

BlobBufferShared *blob_buffer_shared = NULL;
HTAB	   *blob_buffer_table = NULL;
LWLockPadded *blob_buffer_locks = NULL;

Size
blob_buffer_shmem_size(void)
{
	uint32		slab_count = blob_slabs_configured();
	Size		bytes;

	if (slab_count == 0)
		return 0;

	bytes = CACHELINEALIGN(sizeof(BlobBufferShared));
	bytes = add_size(bytes, blob_slabs_shmem_size());
	bytes = add_size(bytes, hash_estimate_size(slab_count, sizeof(BufferEntry)));
	return bytes;
}

/* Called under AddinShmemInitLock. */
void
blob_buffer_shmem_init(void)
{
	uint32		slab_count = blob_slabs_configured();
	HASHCTL		control;
	bool		found;

	if (slab_count == 0)
		return;

	blob_buffer_locks = GetNamedLWLockTranche(BLOB_BUFFER_TRANCHE);
	blob_buffer_shared = ShmemInitStruct("blobext buffer", sizeof(BlobBufferShared), &found);
	if (!found)
	{
		pg_atomic_init_u64(&blob_buffer_shared->used_bytes, 0);
		blob_buffer_shared->total_bytes = (uint64) slab_count * BLOB_BUFFER_SMALL_CHUNK_BYTES;
		pg_atomic_init_u32(&blob_buffer_shared->rewrites, 0);
		for (int i = 0; i < REWRITE_COUNTS; i++)
			pg_atomic_init_u32(&blob_buffer_shared->rewrite_counts[i], 0);
	}
	blob_slabs_shmem_init();

	control.keysize = sizeof(BufferKey);
	control.entrysize = sizeof(BufferEntry);
	control.num_partitions = BLOB_BUFFER_PARTITIONS;
	blob_buffer_table = blob_shmem_init_hash("blobext buffer table", slab_count, &control,
											 HASH_ELEM | HASH_BLOBS | HASH_PARTITION |
											 HASH_FIXED_SIZE);
}

/*
 * The bytes of a pinned slab, from start on, that a reader may copy.  Without only_dirty these are
 * the valid ones; with it, those on dirty pages.  If there are none, *device_bytes says how far the
 * reader may go to the device.  The ranges may change meanwhile: the valid one grows at its end, by
 * bytes that belong to no value of the reader; the dirty one loses pages that have been written.
 */
static uint32
readable_bytes(const BufferSlab *slab, uint32 start, bool only_dirty, uint32 *device_bytes)
{
	volatile const BufferSlab *shared = slab;
	uint32		dirty_start = Max(shared->dirty_start, shared->valid_start);
	uint32		dirty_end = Min(shared->dirty_end, shared->valid_end);
	uint32		from = only_dirty ? dirty_start : shared->valid_start;
	uint32		to = only_dirty ? dirty_end : shared->valid_end;

	/* A writer stores the bytes before it raises the end. */
	pg_read_barrier();
	if (start >= from && start < to)
		return to - start;
	if (start < dirty_start && dirty_start < dirty_end)
		*device_bytes = dirty_start - start / BLOB_PAGE_SIZE * BLOB_PAGE_SIZE;
	return 0;
}

uint32
blob_buffer_get(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
				uint64 offset_bytes, uint32 length_bytes, BlobBufferUse use, char *dst,
				uint32 *device_bytes)
{
	uint32		start = offset_bytes % chunk_bytes;
	BufferKey	key;
	uint32		hash;
	BufferSlab *slab;
	uint32		copied = 0;

	Assert((uint64) start + length_bytes <= chunk_bytes);

	*device_bytes = PG_UINT32_MAX;
	if (blob_buffer_table == NULL)
		return 0;

	blob_buffer_make_key(&key, store, generation, chunk_bytes, offset_bytes);
	hash = get_hash_value(blob_buffer_table, &key);
	slab = blob_buffer_find_and_pin(&key, hash);
	if (slab != NULL)
	{
		bool		only_dirty = use == BLOB_BUFFER_BYPASS || blob_buffer_is_outdated(slab, hash);

		copied = Min(readable_bytes(slab, start, only_dirty, device_bytes), length_bytes);
		if (copied > 0)
		{
			memcpy(dst, blob_slab_content(slab) + start, copied);
			if (use == BLOB_BUFFER_KEEP || use == BLOB_BUFFER_LOOK)
				blob_slab_touch(slab);
			if (unlikely(start < slab->dirty_end))
				blob_stat_count(deferred_page_reads, 1);
		}
		blob_slab_unpin(slab);
	}

	if (copied > 0)
		blob_stat_count(cache_hits, 1);
	else if (use != BLOB_BUFFER_LOOK)
		blob_stat_count(cache_misses, 1);
	/* The caller's request must come after the look. */
	pg_memory_barrier();
	return copied;
}

bool
blob_buffer_get_range(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
					  uint64 offset_bytes, uint32 *start_bytes, uint32 *end_bytes)
{
	BufferKey	key;
	uint32		hash;
	BufferSlab *slab;

	if (blob_buffer_table == NULL)
		return false;
	blob_buffer_make_key(&key, store, generation, chunk_bytes, offset_bytes);
	hash = get_hash_value(blob_buffer_table, &key);
	slab = blob_buffer_find_and_pin(&key, hash);
	if (slab == NULL)
		return false;
	*start_bytes = slab->valid_start;
	*end_bytes = slab->valid_end;
	if (blob_buffer_is_outdated(slab, hash))
	{
		*start_bytes = Max(*start_bytes, slab->dirty_start);
		*end_bytes = Min(*end_bytes, slab->dirty_end);
	}
	blob_slab_unpin(slab);
	/* The caller's request must come after the look. */
	pg_memory_barrier();
	return *start_bytes < *end_bytes;
}

/* Bytes that are offered to the buffer. */
typedef struct Offer
{
	BufferKey	key;
	uint32		hash;
	uint32		start;			/* in the chunk */
	uint32		length;
	const char *data;
	uint32		rewrites_seen;	/* the count of the chunk, from before the bytes were read */
} Offer;

/*
 * Add bytes to an owned slab that holds a part of the same chunk.  If the new range neither
 * overlaps nor touches the present one, the longer of the two is kept.  Nothing is kept of a slab
 * that is outdated, nor of bytes that are.
 */
static void
merge_range(BufferSlab *slab, const Offer *offer)
{
	uint32		start = offer->start;
	uint32		end = start + offer->length;

	if (blob_buffer_is_outdated(slab, offer->hash))
	{
		slab->is_neighbour = false;
		slab->rewrites_seen = offer->rewrites_seen;
		slab->valid_start = slab->valid_end = start;
	}
	else if (slab->rewrites_seen != offer->rewrites_seen)
		return;
	if (start >= slab->valid_start && end <= slab->valid_end)
		return;
	if (start <= slab->valid_end && end >= slab->valid_start)
	{
		slab->valid_start = Min(slab->valid_start, start);
		slab->valid_end = Max(slab->valid_end, end);
	}
	else if (offer->length > slab->valid_end - slab->valid_start)
	{
		slab->valid_start = start;
		slab->valid_end = end;
	}
	else
		return;
	memcpy(blob_slab_content(slab) + start, offer->data, offer->length);
}

/*
 * If the key is kept, add the data to its slab (if that can be taken), and return true.  The
 * entry stays in the table; readers that find the slab owned have a miss.
 */
static bool
refresh_existing(const Offer *offer)
{
	LWLock	   *lock = blob_buffer_partition_lock(offer->hash);
	BufferSlab *slab = NULL;
	BufferEntry *entry;
	bool		is_kept;

	LWLockAcquire(lock, LW_SHARED);
	entry = hash_search_with_hash_value(blob_buffer_table, &offer->key, offer->hash, HASH_FIND,
										NULL);
	is_kept = (entry != NULL);
	if (is_kept && blob_slab_own(blob_slab(entry->slab_no)))
		slab = blob_slab(entry->slab_no);
	LWLockRelease(lock);

	if (slab != NULL)
	{
		merge_range(slab, offer);
		blob_slab_disown(slab);
	}
	return is_kept;
}

void
blob_buffer_evict(BufferSlab *slab)
{
	uint32		hash = get_hash_value(blob_buffer_table, &slab->key);
	LWLock	   *lock = blob_buffer_partition_lock(hash);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	hash_search_with_hash_value(blob_buffer_table, &slab->key, hash, HASH_REMOVE, NULL);
	LWLockRelease(lock);
	pg_atomic_fetch_sub_u64(&blob_buffer_shared->used_bytes, slab->key.chunk_bytes);
}

bool
blob_buffer_forget_chunk(const BufferKey *key, uint32 hash)
{
	LWLock	   *lock = blob_buffer_partition_lock(hash);
	BufferSlab *slab = NULL;
	BufferEntry *entry;

	LWLockAcquire(lock, LW_SHARED);
	entry = hash_search_with_hash_value(blob_buffer_table, key, hash, HASH_FIND, NULL);
	if (entry != NULL && blob_slab_own(blob_slab(entry->slab_no)))
		slab = blob_slab(entry->slab_no);
	LWLockRelease(lock);
	if (slab == NULL)
		return entry == NULL;
	blob_buffer_evict(slab);
	blob_slab_set_unused(slab);
	slab->key.generation = BLOB_INVALID_GENERATION;
	blob_slab_disown(slab);
	return true;
}

void
blob_buffer_outdate(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
					uint64 offset_bytes, uint64 length_bytes)
{
	uint64		end = offset_bytes + length_bytes;

	if (blob_buffer_table == NULL)
		return;
	/* First: bytes that were read before are not offered under the new count, see put. */
	pg_atomic_fetch_add_u32(&blob_buffer_shared->rewrites, 1);
	for (uint64 offset = offset_bytes / chunk_bytes * chunk_bytes; offset < end;
		 offset += chunk_bytes)
	{
		BufferKey	key;

		blob_buffer_make_key(&key, store, generation, chunk_bytes, offset);
		pg_atomic_fetch_add_u32(blob_buffer_rewrite_count(get_hash_value(blob_buffer_table, &key)),
								1);
	}
}

/*
 * Keys are read without a pin.  One that an owner changes meanwhile may be read in parts: it gets
 * the key of another store, as no process fills chunks of this one any more.  A slab that is in use
 * may stay in the table; it is outdated then, also if its owner ends a read of such a chunk later:
 * that began before, under the old count.  It has no dirty page, because the files are gone.
 */
void
blob_buffer_forget_store(const BlobStoreId *store)
{
	uint32		slab_count = blob_buffer_table != NULL ? blob_slabs_configured() : 0;

	if (slab_count > 0)
		pg_atomic_fetch_add_u32(&blob_buffer_shared->rewrites, 1);
	for (uint32 slab_no = 0; slab_no < slab_count; slab_no++)
	{
		BufferKey	key = blob_slab(slab_no)->key;
		uint32		hash;

		if (key.generation == BLOB_INVALID_GENERATION || key.dboid != store->dboid ||
			key.incarnation != store->incarnation)
			continue;
		hash = get_hash_value(blob_buffer_table, &key);
		pg_atomic_fetch_add_u32(blob_buffer_rewrite_count(hash), 1);
		(void) blob_buffer_forget_chunk(&key, hash);
	}
}

uint32
blob_buffer_rewrites(void)
{
	return blob_buffer_table != NULL ? pg_atomic_read_u32(&blob_buffer_shared->rewrites) : 0;
}

bool
blob_buffer_enter(BufferSlab *slab, const BufferKey *key, uint32 hash)
{
	LWLock	   *lock = blob_buffer_partition_lock(hash);
	BufferEntry *entry;
	bool		found;
	bool		is_entered;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = hash_search_with_hash_value(blob_buffer_table, key, hash, HASH_ENTER_NULL, &found);
	is_entered = entry != NULL && !found;
	if (is_entered)
	{
		entry->slab_no = blob_slab_number(slab);
		slab->key = *key;
		pg_atomic_fetch_add_u64(&blob_buffer_shared->used_bytes, key->chunk_bytes);
	}
	LWLockRelease(lock);
	return is_entered;
}

void
blob_buffer_put(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
				uint64 offset_bytes, const char *data, uint32 length_bytes, uint32 rewrites)
{
	Offer		offer = {
		.start = offset_bytes % chunk_bytes,
		.length = length_bytes,
		.data = data
	};
	BufferSlab *slab;

	Assert((uint64) offer.start + length_bytes <= chunk_bytes);

	if (blob_buffer_table == NULL || length_bytes == 0)
		return;

	blob_buffer_make_key(&offer.key, store, generation, chunk_bytes, offset_bytes);
	offer.hash = get_hash_value(blob_buffer_table, &offer.key);
	offer.rewrites_seen = pg_atomic_read_u32(blob_buffer_rewrite_count(offer.hash));
	pg_read_barrier();
	if (blob_buffer_rewrites() != rewrites || refresh_existing(&offer))
		return;

	slab = blob_slab_take(chunk_bytes, blob_buffer_evict);
	if (slab == NULL)
		return;
	memcpy(blob_slab_content(slab) + offer.start, data, length_bytes);
	slab->valid_start = offer.start;
	slab->valid_end = offer.start + length_bytes;
	slab->rewrites_seen = offer.rewrites_seen;
	blob_buffer_enter_and_end(slab, &offer.key, offer.hash);
}

BlobBufferUse
blob_buffer_use_for(uint64 value_bytes)
{
	return value_bytes > blob_buffer_bytes() / BLOB_BUFFER_SHARES ? BLOB_BUFFER_SCAN :
		BLOB_BUFFER_KEEP;
}

bool
blob_buffer_is_full(void)
{
	return blob_buffer_table == NULL || pg_atomic_read_u64(&blob_buffer_shared->used_bytes) >
		blob_buffer_shared->total_bytes - blob_buffer_shared->total_bytes / FULL_PARTS;
}

bool
blob_buffer_may_defer(uint64 bytes, bool is_logged)
{
	return blob_dirty_has_room(bytes, is_logged);
}

void
blob_buffer_flush_extent(const BlobStoreId *store, const BlobExtent *extent)
{
	blob_dirty_write_extent(store, extent);
}

uint64
blob_buffer_bytes(void)
{
	return blob_buffer_table != NULL ? blob_buffer_shared->total_bytes : 0;
}

void
blob_buffer_stats(uint64 *hits, uint64 *misses, uint64 *used_bytes, uint64 *total_bytes)
{
	*hits = blob_stat != NULL ? pg_atomic_read_u64(&blob_stat->cache_hits) : 0;
	*misses = blob_stat != NULL ? pg_atomic_read_u64(&blob_stat->cache_misses) : 0;
	*used_bytes =
		blob_buffer_table != NULL ? pg_atomic_read_u64(&blob_buffer_shared->used_bytes) : 0;
	*total_bytes = blob_buffer_table != NULL ? blob_buffer_shared->total_bytes : 0;
}
