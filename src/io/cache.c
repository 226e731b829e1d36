/*
 * io/cache.c
 *	  Shared read cache of extent content.
 *
 * Structures.  An array of frames of BLOB_CACHE_CHUNK_BYTES each, an array of frame headers, and
 * a partitioned hash table from key to frame number.  Every frame is in one of three states:
 *
 *	unused		no key, not in the table
 *	cached		has a key, the table leads to it; pins >= 0 readers copy from it
 *	claimed		pins = FRAME_CLAIMED: one process owns it and may change key and content
 *
 * Locking.  A partition's LWLock protects its part of the table: shared to look up, exclusive to
 * insert and delete.  It is held for table operations only, never while bytes are copied, and
 * never two at a time.
 *
 * Why no reader sees a frame that is being refilled.  A frame is claimed by compare-and-swap of
 * pins from 0 to FRAME_CLAIMED, so there is no reader at that moment, and one claimant at most; a
 * reader pins by compare-and-swap too, and gives up (a miss) on a claimed frame, so there is none
 * until the claim ends.  What remains is that a reader looked up key K, and finds the frame
 * unclaimed again, but with another key: it cannot be, because a claimant deletes K from the table
 * under K's partition lock held exclusively before it changes the frame, and a reader holds that
 * lock shared from its lookup until it has pinned.  The claim ends with a full barrier after
 * key, range and content were written; the reader's successful swap is a full barrier before
 * it reads them.
 *
 * A claimant that copies neither waits for anything but a partition lock nor throws.  One that
 * has the device read into the frame (a fill) keeps its claim over the read; errors and the
 * process's exit give it back after the request has ended.
 * A process that dies inside one takes the whole cluster through a restart, as with any LWLock.
 *
 * Replacement is a clock sweep: a new chunk starts with usage 1, a hit raises it up to
 * MAX_USAGE, so a large scan replaces its own chunks before it replaces hot ones.  The work of one
 * put is bounded; when the sweep finds nothing, the chunk is not cached.
 */
#include "postgres.h"

#include "core/memory.h"
#include "core/settings.h"
#include "io/cache.h"
#include "io/engine.h"
#include "io/io_internal.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#define FRAME_CLAIMED PG_UINT32_MAX
#define MAX_USAGE 5

/* Frames that one put looks at before it gives up. */
#define SWEEP_LIMIT 256

/* How much of the cache's memory is touched at the start of the server. */
#define MAX_TOUCHED_BYTES ((Size) 256 * 1024 * 1024)

/* Hashed as bytes: no padding, reserved is always 0. */
typedef struct CacheKey
{
	uint64		incarnation;
	BlobGeneration generation;	/* 0: the frame is unused */
	uint64		chunk_no;
	Oid			dboid;
	uint32		reserved;
} CacheKey;

StaticAssertDecl(sizeof(CacheKey) == 32, "CacheKey must not have padding");

typedef struct CacheEntry
{
	CacheKey	key;
	uint32		frame_no;
} CacheEntry;

typedef struct CacheFrame
{
	pg_atomic_uint32 pins;		/* readers, or FRAME_CLAIMED */
	pg_atomic_uint32 usage;		/* 0 .. MAX_USAGE; races lose a count, no more */
	uint32		valid_start;	/* bytes of the chunk; written by the claimant, read by */
	uint32		valid_end;		/* readers with a pin */
	CacheKey	key;			/* written and read by the claimant only */
} CacheFrame;

typedef struct CacheShared
{
	pg_atomic_uint64 hand;		/* of the clock; modulo frame_count */
	pg_atomic_uint64 used_chunks;
	uint32		frame_count;
} CacheShared;

/* A frame that this process has claimed and is reading content into; frame NULL: none. */
typedef struct CacheFill
{
	CacheFrame *frame;
	CacheKey	key;
	uint32		hash;
} CacheFill;

static CacheFill fills[BLOB_CACHE_MAX_FILLS];
static pid_t exit_registered_pid = 0;

static CacheShared *cache_shared = NULL;
static CacheFrame *cache_frames = NULL;
static char *cache_data = NULL;
static HTAB *cache_table = NULL;
static LWLockPadded *cache_locks = NULL;

/* Frames that blobext.cache_size pays for. */
static uint32
configured_frames(void)
{
	return (uint32) (blob_cache_kb / (BLOB_CACHE_CHUNK_BYTES / 1024));
}

Size
blob_cache_shmem_size(void)
{
	uint32		frame_count = configured_frames();
	Size		bytes;

	if (frame_count == 0)
		return 0;

	bytes = CACHELINEALIGN(sizeof(CacheShared));
	bytes = add_size(bytes, CACHELINEALIGN(mul_size(frame_count, sizeof(CacheFrame))));
	bytes = add_size(bytes, mul_size(frame_count, BLOB_CACHE_CHUNK_BYTES));
	bytes = add_size(bytes, BLOB_PAGE_SIZE);
	bytes = add_size(bytes, hash_estimate_size(frame_count, sizeof(CacheEntry)));
	return bytes;
}

/*
 * Touch the memory, so that the first reads after a start need not: on a virtual machine a fresh
 * page can cost more than reading it from the device.  A large cache is touched in part only;
 * the start of the server shall not wait for long.
 */
static void
touch_content(Size bytes)
{
	for (Size offset = 0; offset < Min(bytes, MAX_TOUCHED_BYTES); offset += BLOB_PAGE_SIZE)
		*(volatile char *) (cache_data + offset) = 0;
}

/* Called under AddinShmemInitLock. */
void
blob_cache_shmem_init(void)
{
	uint32		frame_count = configured_frames();
	HASHCTL		control;
	char	   *data;
	bool		found;

	if (frame_count == 0)
		return;

	cache_locks = GetNamedLWLockTranche(BLOB_CACHE_TRANCHE);
	cache_shared = ShmemInitStruct("blobext cache", sizeof(CacheShared), &found);
	if (!found)
	{
		pg_atomic_init_u64(&cache_shared->hand, 0);
		pg_atomic_init_u64(&cache_shared->used_chunks, 0);
		cache_shared->frame_count = frame_count;
	}

	cache_frames = ShmemInitStruct("blobext cache frames",
								   mul_size(frame_count, sizeof(CacheFrame)), &found);
	if (!found)
	{
		memset(cache_frames, 0, frame_count * sizeof(CacheFrame));
		for (uint32 i = 0; i < frame_count; i++)
		{
			pg_atomic_init_u32(&cache_frames[i].pins, 0);
			pg_atomic_init_u32(&cache_frames[i].usage, 0);
		}
	}

	data = ShmemInitStruct("blobext cache content",
						   add_size(mul_size(frame_count, BLOB_CACHE_CHUNK_BYTES),
									BLOB_PAGE_SIZE), &found);
	cache_data = (char *) TYPEALIGN(BLOB_PAGE_SIZE, data);
	if (!found)
		touch_content(mul_size(frame_count, BLOB_CACHE_CHUNK_BYTES));

	control.keysize = sizeof(CacheKey);
	control.entrysize = sizeof(CacheEntry);
	control.num_partitions = BLOB_CACHE_PARTITIONS;
	cache_table = ShmemInitHash("blobext cache table", frame_count, frame_count, &control,
								HASH_ELEM | HASH_BLOBS | HASH_PARTITION | HASH_FIXED_SIZE);
}

static void
make_key(CacheKey *key, const BlobSpaceId *space, BlobGeneration generation, uint64 chunk_no)
{
	Assert(generation != BLOB_INVALID_GENERATION);

	key->incarnation = space->incarnation;
	key->generation = generation;
	key->chunk_no = chunk_no;
	key->dboid = space->dboid;
	key->reserved = 0;
}

static LWLock *
partition_lock(uint32 hash)
{
	return &cache_locks[hash % BLOB_CACHE_PARTITIONS].lock;
}

static char *
frame_content(uint32 frame_no)
{
	return cache_data + (Size) frame_no * BLOB_CACHE_CHUNK_BYTES;
}

/*
 * Map a frame's memory into this process in one go, the first time that it is filled here.  Which
 * frames that were is remembered in a bitmap, made at the first use.
 */
static void
map_frame(uint32 frame_no)
{
	static uint8 *is_mapped = NULL;

	if (is_mapped == NULL)
		is_mapped = MemoryContextAllocExtended(TopMemoryContext, cache_shared->frame_count / 8 + 1,
											   MCXT_ALLOC_ZERO | MCXT_ALLOC_NO_OOM);
	if (is_mapped == NULL || (is_mapped[frame_no / 8] & (1 << frame_no % 8)) != 0)
		return;
	is_mapped[frame_no / 8] |= 1 << frame_no % 8;
	blob_memory_populate_shared(frame_content(frame_no), BLOB_CACHE_CHUNK_BYTES);
}

/* Keep the frame from being claimed; fails if it is.  Under the partition lock of its key. */
static bool
pin_frame(CacheFrame *frame)
{
	uint32		pins = pg_atomic_read_u32(&frame->pins);

	while (pins != FRAME_CLAIMED)
	{
		if (pg_atomic_compare_exchange_u32(&frame->pins, &pins, pins + 1))
			return true;
	}
	return false;
}

static void
unpin_frame(CacheFrame *frame)
{
	pg_atomic_fetch_sub_u32(&frame->pins, 1);
}

/* Own the frame, if nobody reads or owns it. */
static bool
claim_frame(CacheFrame *frame)
{
	uint32		expected = 0;

	return pg_atomic_compare_exchange_u32(&frame->pins, &expected, FRAME_CLAIMED);
}

/* End of the claim: readers may come.  The exchange is a full barrier. */
static void
disclaim_frame(CacheFrame *frame)
{
	uint32		claimed PG_USED_FOR_ASSERTS_ONLY;

	claimed = pg_atomic_exchange_u32(&frame->pins, 0);
	Assert(claimed == FRAME_CLAIMED);
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
	if (entry != NULL && pin_frame(&cache_frames[entry->frame_no]))
		frame = &cache_frames[entry->frame_no];
	LWLockRelease(lock);
	return frame;
}

bool
blob_cache_get(const BlobSpaceId *space, BlobGeneration generation,
			   uint64 offset_bytes, uint32 length_bytes, char *dst)
{
	uint32		start = offset_bytes % BLOB_CACHE_CHUNK_BYTES;
	CacheKey	key;
	CacheFrame *frame;
	bool		is_hit = false;

	Assert((uint64) start + length_bytes <= BLOB_CACHE_CHUNK_BYTES);

	if (cache_table == NULL)
		return false;

	make_key(&key, space, generation, offset_bytes / BLOB_CACHE_CHUNK_BYTES);
	frame = find_and_pin(&key);
	if (frame != NULL)
	{
		if (start >= frame->valid_start && start + length_bytes <= frame->valid_end)
		{
			memcpy(dst, frame_content(frame - cache_frames) + start, length_bytes);
			if (pg_atomic_read_u32(&frame->usage) < MAX_USAGE)
				pg_atomic_fetch_add_u32(&frame->usage, 1);
			is_hit = true;
		}
		unpin_frame(frame);
	}

	if (is_hit)
		blob_stat_count(cache_hits, 1);
	else
		blob_stat_count(cache_misses, 1);
	return is_hit;
}

/*
 * Add bytes to a claimed frame that holds some of the same chunk.  A range that neither overlaps
 * nor touches the present one replaces it if it is the longer.
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
	memcpy(frame_content(frame - cache_frames) + start, data, length_bytes);
}

/*
 * If the key is cached: add the data to its frame (if that can be claimed), and return true.  The
 * entry stays in the table; readers who find the frame claimed have a miss.
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
	if (is_cached && claim_frame(&cache_frames[entry->frame_no]))
		frame = &cache_frames[entry->frame_no];
	LWLockRelease(lock);

	if (frame != NULL)
	{
		merge_range(frame, start, data, length_bytes);
		disclaim_frame(frame);
	}
	return is_cached;
}

/* Claim a frame for new content: an unused or the least used one.  NULL if none was found. */
static CacheFrame *
claim_victim(void)
{
	for (int i = 0; i < SWEEP_LIMIT; i++)
	{
		uint64		hand = pg_atomic_fetch_add_u64(&cache_shared->hand, 1);
		CacheFrame *frame = &cache_frames[hand % cache_shared->frame_count];
		uint32		usage = pg_atomic_read_u32(&frame->usage);

		if (usage > 0)
			pg_atomic_compare_exchange_u32(&frame->usage, &usage, usage - 1);
		else if (claim_frame(frame))
			return frame;
	}
	return NULL;
}

/* Take a claimed frame's old content out of the table.  Takes that key's lock exclusively. */
static void
evict(CacheFrame *frame)
{
	uint32		hash;
	LWLock	   *lock;

	if (frame->key.generation == BLOB_INVALID_GENERATION)
		return;

	hash = get_hash_value(cache_table, &frame->key);
	lock = partition_lock(hash);
	LWLockAcquire(lock, LW_EXCLUSIVE);
	hash_search_with_hash_value(cache_table, &frame->key, hash, HASH_REMOVE, NULL);
	LWLockRelease(lock);

	memset(&frame->key, 0, sizeof(CacheKey));
	pg_atomic_fetch_sub_u64(&cache_shared->used_chunks, 1);
}

/* Enter a filled, claimed frame into the table.  If somebody was faster, it stays unused. */
static void
publish(CacheFrame *frame, const CacheKey *key, uint32 hash)
{
	LWLock	   *lock = partition_lock(hash);
	CacheEntry *entry;
	bool		found;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = hash_search_with_hash_value(cache_table, key, hash, HASH_ENTER_NULL, &found);
	if (entry != NULL && !found)
	{
		entry->frame_no = frame - cache_frames;
		frame->key = *key;
		pg_atomic_write_u32(&frame->usage, 1);
		pg_atomic_fetch_add_u64(&cache_shared->used_chunks, 1);
	}
	LWLockRelease(lock);
	disclaim_frame(frame);
}

void
blob_cache_put(const BlobSpaceId *space, BlobGeneration generation, uint64 offset_bytes,
			   const char *data, uint32 length_bytes)
{
	uint32		start = offset_bytes % BLOB_CACHE_CHUNK_BYTES;
	CacheKey	key;
	CacheFrame *frame;
	uint32		hash;

	Assert((uint64) start + length_bytes <= BLOB_CACHE_CHUNK_BYTES);

	if (cache_table == NULL || length_bytes == 0)
		return;

	make_key(&key, space, generation, offset_bytes / BLOB_CACHE_CHUNK_BYTES);
	hash = get_hash_value(cache_table, &key);
	if (refresh_existing(&key, hash, start, data, length_bytes))
		return;

	frame = claim_victim();
	if (frame == NULL)
		return;
	evict(frame);
	map_frame(frame - cache_frames);
	memcpy(frame_content(frame - cache_frames) + start, data, length_bytes);
	frame->valid_start = start;
	frame->valid_end = start + length_bytes;
	publish(frame, &key, hash);
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

int
blob_cache_begin_fill(const BlobSpaceId *space, BlobGeneration generation, uint64 offset_bytes)
{
	CacheFill  *fill;
	int			fill_no = 0;

	if (cache_table == NULL)
		return -1;
	while (fill_no < BLOB_CACHE_MAX_FILLS && fills[fill_no].frame != NULL)
		fill_no++;
	if (fill_no == BLOB_CACHE_MAX_FILLS)
		return -1;

	if (exit_registered_pid != MyProcPid)
	{
		exit_registered_pid = MyProcPid;
		before_shmem_exit(give_up_at_exit, (Datum) 0);
	}

	fill = &fills[fill_no];
	make_key(&fill->key, space, generation, offset_bytes / BLOB_CACHE_CHUNK_BYTES);
	fill->hash = get_hash_value(cache_table, &fill->key);
	if (is_cached(&fill->key, fill->hash))
		return -1;
	fill->frame = claim_victim();
	if (fill->frame == NULL)
		return -1;
	evict(fill->frame);
	map_frame(fill->frame - cache_frames);
	return fill_no;
}

char *
blob_cache_fill_memory(int fill_no)
{
	Assert(fills[fill_no].frame != NULL);
	return frame_content(fills[fill_no].frame - cache_frames);
}

void
blob_cache_end_fill(int fill_no, uint32 start_bytes, uint32 length_bytes)
{
	CacheFill  *fill = &fills[fill_no];
	CacheFrame *frame = fill->frame;

	Assert(frame != NULL);
	Assert(start_bytes + length_bytes <= BLOB_CACHE_CHUNK_BYTES);

	fill->frame = NULL;
	if (length_bytes == 0)
	{
		disclaim_frame(frame);
		return;
	}
	frame->valid_start = start_bytes;
	frame->valid_end = start_bytes + length_bytes;
	publish(frame, &fill->key, fill->hash);
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
blob_cache_stats(uint64 *hits, uint64 *misses, uint64 *used_chunks, uint64 *total_chunks)
{
	*hits = blob_stat != NULL ? pg_atomic_read_u64(&blob_stat->cache_hits) : 0;
	*misses = blob_stat != NULL ? pg_atomic_read_u64(&blob_stat->cache_misses) : 0;
	*used_chunks = cache_table != NULL ? pg_atomic_read_u64(&cache_shared->used_chunks) : 0;
	*total_chunks = cache_table != NULL ? cache_shared->frame_count : 0;
}
