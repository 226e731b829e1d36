/*
 * io/cache.c
 *	  Shared read cache of extent content.
 *
 * Structures.  Frames of two sizes (cache_frames.c) and a partitioned hash table from key to frame
 * number.  Every frame is in one of three states:
 *
 *	unused		no key, not in the table
 *	cached		has a key, the table leads to it; pins >= 0 readers copy from it
 *	claimed		one process owns it and may change key and content
 *
 * Locking.  A partition's LWLock protects its part of the table: shared to look up, exclusive to
 * insert and delete.  It is held for table operations only, never while bytes are copied, and never
 * two at a time.
 *
 * Why no reader sees a frame that is being refilled.  A process claims a frame by compare-and-swap
 * of pins from 0.  So there is no reader at that moment, and one claimant at most.  A reader pins
 * by compare-and-swap, too, and gives up (a miss) on a claimed frame, so there is none until the
 * claim ends.  One case remains: a reader has looked up key K, and finds the frame unclaimed again,
 * but with another key.  That cannot happen: a claimant deletes K from the table, under K's
 * partition lock held exclusively, before it changes the frame; and a reader holds that lock shared
 * from its look-up until it has pinned.  The claim ends with a full barrier after key, range and
 * content were written.  The reader's successful swap is a full barrier before it reads them.
 *
 * A claimant that copies waits for nothing but a partition lock, and does not throw.  A claimant
 * that has the device read into the frame (a fill) keeps its claim during the read.  Error handling
 * and the process's exit give the frame back after the request has ended.
 *
 * A fill ahead is entered in the table at its beginning: a reader that is led to the frame finds it
 * claimed, and has a miss.  So the end of such a fill needs no lock, only a few stores and one
 * atomic exchange.  A signal handler can do that, whatever locks the interrupted process has taken.
 *
 * A process that is killed during a claim takes the whole cluster through a restart, as with any
 * LWLock.
 */
#include "postgres.h"

#include "io/cache.h"
#include "io/cache_frames.h"
#include "io/engine.h"
#include "io/io_internal.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

typedef struct CacheEntry
{
	CacheKey	key;
	uint32		frame_no;
} CacheEntry;

typedef struct CacheShared
{
	pg_atomic_uint64 used_bytes;
	uint64		total_bytes;
} CacheShared;

/* A frame that this process has claimed, and into which it is reading content; frame NULL: none. */
typedef struct CacheFill
{
	CacheFrame *frame;
	CacheKey	key;
	uint32		hash;
} CacheFill;

/* First the fills of reads, then the fills ahead. */
static CacheFill fills[BLOB_CACHE_MAX_FILLS + BLOB_CACHE_MAX_AHEAD_FILLS];
static pid_t exit_registered_pid = 0;

static CacheShared *cache_shared = NULL;
static HTAB *cache_table = NULL;
static LWLockPadded *cache_locks = NULL;

Size
blob_cache_shmem_size(void)
{
	uint32		frame_count = blob_frames_configured();
	Size		bytes;

	if (frame_count == 0)
		return 0;

	bytes = CACHELINEALIGN(sizeof(CacheShared));
	bytes = add_size(bytes, blob_frames_shmem_size());
	bytes = add_size(bytes, hash_estimate_size(frame_count, sizeof(CacheEntry)));
	return bytes;
}

/* Called under AddinShmemInitLock. */
void
blob_cache_shmem_init(void)
{
	uint32		frame_count = blob_frames_configured();
	HASHCTL		control;
	bool		found;

	if (frame_count == 0)
		return;

	cache_locks = GetNamedLWLockTranche(BLOB_CACHE_TRANCHE);
	cache_shared = ShmemInitStruct("blobext cache use", sizeof(CacheShared), &found);
	if (!found)
	{
		pg_atomic_init_u64(&cache_shared->used_bytes, 0);
		cache_shared->total_bytes = (uint64) frame_count * BLOB_CACHE_SMALL_CHUNK_BYTES;
	}
	blob_frames_shmem_init();

	control.keysize = sizeof(CacheKey);
	control.entrysize = sizeof(CacheEntry);
	control.num_partitions = BLOB_CACHE_PARTITIONS;
	cache_table = ShmemInitHash("blobext cache table", frame_count, frame_count, &control,
								HASH_ELEM | HASH_BLOBS | HASH_PARTITION | HASH_FIXED_SIZE);
}

static void
make_key(CacheKey *key, const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
		 uint64 offset_bytes)
{
	Assert(generation != BLOB_INVALID_GENERATION);

	key->incarnation = store->incarnation;
	key->generation = generation;
	key->chunk_no = offset_bytes / chunk_bytes;
	key->dboid = store->dboid;
	key->chunk_bytes = chunk_bytes;
}

static LWLock *
partition_lock(uint32 hash)
{
	return &cache_locks[hash % BLOB_CACHE_PARTITIONS].lock;
}

/* Find the key and pin its frame; NULL if it is not cached.  Takes the partition lock shared. */
static CacheFrame *
find_and_pin(const CacheKey *key)
{
	uint32		hash = get_hash_value(cache_table, key);
	LWLock	   *lock = partition_lock(hash);
	CacheFrame *frame = NULL;
	CacheEntry *entry;

	LWLockAcquire(lock, LW_SHARED);
	entry = hash_search_with_hash_value(cache_table, key, hash, HASH_FIND, NULL);
	if (entry != NULL && blob_frame_pin(blob_frame(entry->frame_no)))
		frame = blob_frame(entry->frame_no);
	LWLockRelease(lock);
	return frame;
}

bool
blob_cache_get(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
			   uint64 offset_bytes, uint32 length_bytes, char *dst)
{
	uint32		start = offset_bytes % chunk_bytes;
	CacheKey	key;
	CacheFrame *frame;
	bool		is_hit = false;

	Assert((uint64) start + length_bytes <= chunk_bytes);

	if (cache_table == NULL)
		return false;

	make_key(&key, store, generation, chunk_bytes, offset_bytes);
	frame = find_and_pin(&key);
	if (frame != NULL)
	{
		if (start >= frame->valid_start && start + length_bytes <= frame->valid_end)
		{
			memcpy(dst, blob_frame_content(frame) + start, length_bytes);
			blob_frame_touch(frame);
			is_hit = true;
		}
		blob_frame_unpin(frame);
	}

	if (is_hit)
		blob_stat_count(cache_hits, 1);
	else
		blob_stat_count(cache_misses, 1);
	return is_hit;
}

/*
 * Add bytes to a claimed frame that holds a part of the same chunk.  If the new range neither
 * overlaps nor touches the present one, the longer of the two is kept.
 */
static void
merge_range(CacheFrame *frame, uint32 start, const char *data, uint32 length_bytes)
{
	uint32		end = start + length_bytes;

	if (start >= frame->valid_start && end <= frame->valid_end)
		return;
	if (start <= frame->valid_end && end >= frame->valid_start)
	{
		frame->valid_start = Min(frame->valid_start, start);
		frame->valid_end = Max(frame->valid_end, end);
	}
	else if (length_bytes > frame->valid_end - frame->valid_start)
	{
		frame->valid_start = start;
		frame->valid_end = end;
	}
	else
		return;
	memcpy(blob_frame_content(frame) + start, data, length_bytes);
}

/*
 * If the key is cached, add the data to its frame (if that can be claimed), and return true.  The
 * entry stays in the table; readers that find the frame claimed have a miss.
 */
static bool
refresh_existing(const CacheKey *key, uint32 hash, uint32 start, const char *data,
				 uint32 length_bytes)
{
	LWLock	   *lock = partition_lock(hash);
	CacheFrame *frame = NULL;
	CacheEntry *entry;
	bool		is_cached;

	LWLockAcquire(lock, LW_SHARED);
	entry = hash_search_with_hash_value(cache_table, key, hash, HASH_FIND, NULL);
	is_cached = (entry != NULL);
	if (is_cached && blob_frame_claim(blob_frame(entry->frame_no)))
		frame = blob_frame(entry->frame_no);
	LWLockRelease(lock);

	if (frame != NULL)
	{
		merge_range(frame, start, data, length_bytes);
		blob_frame_disclaim(frame);
	}
	return is_cached;
}

/* Take a claimed frame's old content out of the table.  Takes that key's lock exclusively. */
static void
evict(CacheFrame *frame)
{
	uint32		hash = get_hash_value(cache_table, &frame->key);
	LWLock	   *lock = partition_lock(hash);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	hash_search_with_hash_value(cache_table, &frame->key, hash, HASH_REMOVE, NULL);
	LWLockRelease(lock);
	pg_atomic_fetch_sub_u64(&cache_shared->used_bytes, frame->key.chunk_bytes);
}

/*
 * Enter a claimed frame into the table.  False if the key is there already: then the frame stays
 * unused.
 */
static bool
enter(CacheFrame *frame, const CacheKey *key, uint32 hash)
{
	LWLock	   *lock = partition_lock(hash);
	CacheEntry *entry;
	bool		found;
	bool		is_entered;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = hash_search_with_hash_value(cache_table, key, hash, HASH_ENTER_NULL, &found);
	is_entered = entry != NULL && !found;
	if (is_entered)
	{
		entry->frame_no = blob_frame_number(frame);
		frame->key = *key;
		pg_atomic_fetch_add_u64(&cache_shared->used_bytes, key->chunk_bytes);
	}
	LWLockRelease(lock);
	return is_entered;
}

/* Enter a filled, claimed frame into the table, and end the claim. */
static void
enter_in_table(CacheFrame *frame, const CacheKey *key, uint32 hash)
{
	(void) enter(frame, key, hash);
	blob_frame_disclaim(frame);
}

void
blob_cache_put(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
			   uint64 offset_bytes, const char *data, uint32 length_bytes)
{
	uint32		start = offset_bytes % chunk_bytes;
	CacheKey	key;
	CacheFrame *frame;
	uint32		hash;

	Assert((uint64) start + length_bytes <= chunk_bytes);

	if (cache_table == NULL || length_bytes == 0)
		return;

	make_key(&key, store, generation, chunk_bytes, offset_bytes);
	hash = get_hash_value(cache_table, &key);
	if (refresh_existing(&key, hash, start, data, length_bytes))
		return;

	frame = blob_frame_take(chunk_bytes, evict);
	if (frame == NULL)
		return;
	memcpy(blob_frame_content(frame) + start, data, length_bytes);
	frame->valid_start = start;
	frame->valid_end = start + length_bytes;
	enter_in_table(frame, &key, hash);
}

/* A process that ends in the middle of a read still owns frames; the kernel may write to them. */
static void
give_up_at_exit(int code, Datum arg)
{
	blob_io_abandon();
	blob_cache_abandon_fills();
}

static bool
is_cached(const CacheKey *key, uint32 hash)
{
	LWLock	   *lock = partition_lock(hash);
	bool		found;

	LWLockAcquire(lock, LW_SHARED);
	(void) hash_search_with_hash_value(cache_table, key, hash, HASH_FIND, &found);
	LWLockRelease(lock);
	return found;
}

/* Begin a fill that gets one of the numbers from first_no to end_no - 1, or -1. */
static int
begin_fill(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
		   uint64 offset_bytes, int first_no, int end_no)
{
	CacheFill  *fill;
	int			fill_no = first_no;

	if (cache_table == NULL)
		return -1;
	while (fill_no < end_no && fills[fill_no].frame != NULL)
		fill_no++;
	if (fill_no == end_no)
		return -1;

	fill = &fills[fill_no];
	make_key(&fill->key, store, generation, chunk_bytes, offset_bytes);
	fill->hash = get_hash_value(cache_table, &fill->key);
	if (is_cached(&fill->key, fill->hash))
		return -1;
	fill->frame = blob_frame_take(chunk_bytes, evict);
	return fill->frame == NULL ? -1 : fill_no;
}

void
blob_cache_process_begins(void)
{
	if (exit_registered_pid == MyProcPid)
		return;
	exit_registered_pid = MyProcPid;
	before_shmem_exit(give_up_at_exit, (Datum) 0);
}

int
blob_cache_begin_fill(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
					  uint64 offset_bytes)
{
	blob_cache_process_begins();
	return begin_fill(store, generation, chunk_bytes, offset_bytes, 0, BLOB_CACHE_MAX_FILLS);
}

int
blob_cache_begin_ahead(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
					   uint64 offset_bytes)
{
	int			fill_no = begin_fill(store, generation, chunk_bytes, offset_bytes,
									 BLOB_CACHE_MAX_FILLS, lengthof(fills));
	CacheFill  *fill;

	if (fill_no < 0)
		return -1;
	fill = &fills[fill_no];
	if (enter(fill->frame, &fill->key, fill->hash))
		return fill_no;
	blob_frame_disclaim(fill->frame);
	fill->frame = NULL;
	return -1;
}

char *
blob_cache_fill_memory(int fill_no)
{
	Assert(fills[fill_no].frame != NULL);
	return blob_frame_content(fills[fill_no].frame);
}

void
blob_cache_end_fill(int fill_no, uint32 start_bytes, uint32 length_bytes)
{
	CacheFill  *fill = &fills[fill_no];
	CacheFrame *frame = fill->frame;

	Assert(frame != NULL);
	Assert(start_bytes + length_bytes <= fill->key.chunk_bytes);

	fill->frame = NULL;
	frame->valid_start = start_bytes;
	frame->valid_end = start_bytes + length_bytes;
	if (fill_no >= BLOB_CACHE_MAX_FILLS)
	{
		/* The frame is in the table, and stays there, even with an empty range. */
		blob_frame_set_unused(frame);
		blob_frame_disclaim(frame);
	}
	else if (length_bytes > 0)
		enter_in_table(frame, &fill->key, fill->hash);
	else
		blob_frame_disclaim(frame);
}

void
blob_cache_abandon_fills(void)
{
	for (int i = 0; i < BLOB_CACHE_MAX_FILLS; i++)
	{
		if (fills[i].frame != NULL)
			blob_cache_end_fill(i, 0, 0);
	}
}

void
blob_cache_stats(uint64 *hits, uint64 *misses, uint64 *used_bytes, uint64 *total_bytes)
{
	*hits = blob_stat != NULL ? pg_atomic_read_u64(&blob_stat->cache_hits) : 0;
	*misses = blob_stat != NULL ? pg_atomic_read_u64(&blob_stat->cache_misses) : 0;
	*used_bytes = cache_table != NULL ? pg_atomic_read_u64(&cache_shared->used_bytes) : 0;
	*total_bytes = cache_table != NULL ? cache_shared->total_bytes : 0;
}
