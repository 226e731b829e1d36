/*
 * io/buffer.c
 *	  The buffer: shared memory for content of extents, see io/buffer.h.
 *
 * Structures.  Frames of two sizes (buffer_frames.c) and a partitioned hash table from key to frame
 * number.  Every frame is in one of these states:
 *
 *	unused		no key, not in the table
 *	kept		has a key, the table leads to it; pins >= 0 processes use its content
 *	dirty		the same, and one of the pins is that of the list of dirty frames (dirty.c)
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
 * Why a reader that goes to the device finds the page there.  A dirty frame has a pin, so it is
 * never claimed, and stays in the table.  So a reader that has no frame of the key, or finds it
 * claimed, knows that the chunk has no dirty page.  A page does not become dirty again.
 *
 * A writer adds pages to a frame that has a key under a pin, without a claim: it writes behind the
 * valid range, where no process reads, and then raises the end of that range.  Two writers never do
 * so at once, because a claim of pages in the map has one winner, and the next one comes after the
 * value of the first is complete.  A process that merges bytes read from the device claims the
 * frame, which a pin prevents.
 *
 * A claimant that copies waits for nothing but a partition lock, and does not throw.  A claimant
 * that has the device read into the frame (a fill), or write from it, keeps its claim meanwhile.
 * Error handling and the process's exit give the frame back after the request has ended.
 *
 * A fill ahead is entered in the table at its beginning: a reader that is led to the frame finds it
 * claimed, and has a miss.  So the end of such a fill needs no lock, only a few stores and one
 * atomic exchange.  A signal handler can do that, whatever locks the interrupted process has taken.
 *
 * A fill of a neighbour may bring pages that have yet to be written.  The README of this folder has
 * the argument why no reader takes them for content ("Neighbours"), and why none keeps the bytes of
 * pages that a repair has written anew ("Rewritten pages").
 *
 * A process that is killed during a claim takes the whole cluster through a restart, as with any
 * LWLock.
 */
#include "postgres.h"

#include "core/compat.h"
#include "io/buffer.h"
#include "io/buffer_frames.h"
#include "io/dirty.h"
#include "io/engine.h"
#include "io/io_internal.h"
#include "io/stat.h"
#include "io/write_counts.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

typedef struct BufferEntry
{
	BufferKey	key;
	uint32		frame_no;
} BufferEntry;

/* Chunks share counts of rewrites by their hash. */
#define REWRITE_COUNTS 4096

typedef struct BufferShared
{
	pg_atomic_uint64 used_bytes;
	uint64		total_bytes;
	pg_atomic_uint32 rewrites;	/* of pages that were written anew: raised before a count is */
	pg_atomic_uint32 rewrite_counts[REWRITE_COUNTS];
} BufferShared;

/* How this process holds a frame. */
typedef enum ClaimKind
{
	CLAIM_NONE,
	CLAIM_WHOLE,				/* the claim: to fill the frame, or to write from it */
	CLAIM_PIN					/* a pin: the writer has entered the frame, or adds pages to it */
} ClaimKind;

typedef struct BufferClaim
{
	ClaimKind	kind;
	BufferFrame *frame;
	BufferKey	key;
	uint32		hash;
	uint32		start_bytes;	/* of a write: its range in the chunk, whole pages */
	uint32		end_bytes;
	BlobPageNo	page;			/* of a write: where the chunk begins */
} BufferClaim;

/* First the claims of reads and writes, then those of fills ahead. */
static BufferClaim claims[BLOB_BUFFER_MAX_CLAIMS + BLOB_BUFFER_MAX_AHEAD_FILLS];
static pid_t exit_registered_pid = 0;

/*
 * Frames that scans of this process have taken last, in rings by their size.  They are taken again,
 * so that content larger than the buffer does not evict all other.  There are as many as requests
 * ahead need, and the reads of those that have arrived, and at most a part of the buffer.
 */
#define MAX_WHOLE_SCAN_FRAMES 128
#define MAX_SMALL_SCAN_FRAMES 256
#define SCAN_PARTS 8

typedef struct ScanFrame
{
	BufferFrame *frame;
	BufferKey	key;			/* that the scan gave it */
} ScanFrame;

typedef struct ScanRing
{
	uint64		next;
	ScanFrame	frames[MAX_SMALL_SCAN_FRAMES];
} ScanRing;

/* The buffer is full when less than one of this number of parts is free. */
#define FULL_PARTS 16

static ScanRing whole_ring;
static ScanRing small_ring;

static BufferShared *buffer_shared = NULL;
static HTAB *buffer_table = NULL;
static LWLockPadded *buffer_locks = NULL;

Size
blob_buffer_shmem_size(void)
{
	uint32		frame_count = blob_frames_configured();
	Size		bytes;

	if (frame_count == 0)
		return 0;

	bytes = CACHELINEALIGN(sizeof(BufferShared));
	bytes = add_size(bytes, blob_frames_shmem_size());
	bytes = add_size(bytes, hash_estimate_size(frame_count, sizeof(BufferEntry)));
	return bytes;
}

/* Called under AddinShmemInitLock. */
void
blob_buffer_shmem_init(void)
{
	uint32		frame_count = blob_frames_configured();
	HASHCTL		control;
	bool		found;

	if (frame_count == 0)
		return;

	buffer_locks = GetNamedLWLockTranche(BLOB_BUFFER_TRANCHE);
	buffer_shared = ShmemInitStruct("blobext buffer", sizeof(BufferShared), &found);
	if (!found)
	{
		pg_atomic_init_u64(&buffer_shared->used_bytes, 0);
		buffer_shared->total_bytes = (uint64) frame_count * BLOB_BUFFER_SMALL_CHUNK_BYTES;
		pg_atomic_init_u32(&buffer_shared->rewrites, 0);
		for (int i = 0; i < REWRITE_COUNTS; i++)
			pg_atomic_init_u32(&buffer_shared->rewrite_counts[i], 0);
	}
	blob_frames_shmem_init();

	control.keysize = sizeof(BufferKey);
	control.entrysize = sizeof(BufferEntry);
	control.num_partitions = BLOB_BUFFER_PARTITIONS;
	buffer_table = blob_shmem_init_hash("blobext buffer table", frame_count, &control,
										HASH_ELEM | HASH_BLOBS | HASH_PARTITION | HASH_FIXED_SIZE);
}

static void
make_key(BufferKey *key, const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
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
	return &buffer_locks[hash % BLOB_BUFFER_PARTITIONS].lock;
}

static pg_atomic_uint32 *
rewrite_count(uint32 hash)
{
	return &buffer_shared->rewrite_counts[hash % REWRITE_COUNTS];
}

/* Find the key and pin its frame; NULL if it is not cached.  Takes the partition lock shared. */
static BufferFrame *
find_and_pin(const BufferKey *key, uint32 hash)
{
	LWLock	   *lock = partition_lock(hash);
	BufferFrame *frame = NULL;
	BufferEntry *entry;

	LWLockAcquire(lock, LW_SHARED);
	entry = hash_search_with_hash_value(buffer_table, key, hash, HASH_FIND, NULL);
	if (entry != NULL && blob_frame_pin(blob_frame(entry->frame_no)))
		frame = blob_frame(entry->frame_no);
	LWLockRelease(lock);
	return frame;
}

/*
 * The bytes of a pinned frame, from start on, that a reader may copy.  Without only_dirty these are
 * the valid ones; with it, those on dirty pages.  If there are none, *device_bytes says how far the
 * reader may go to the device.  The ranges may change meanwhile: the valid one grows at its end, by
 * bytes that belong to no value of the reader; the dirty one loses pages that have been written.
 */
static uint32
readable_bytes(const BufferFrame *frame, uint32 start, bool only_dirty, uint32 *device_bytes)
{
	volatile const BufferFrame *shared = frame;
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

/*
 * Whether pages of a pinned or claimed frame may have been written since it was filled: those of a
 * neighbour, or those that a repair has written anew.  Its dirty pages are right all the same.
 */
static bool
is_outdated(const BufferFrame *frame, uint32 hash)
{
	return pg_atomic_read_u32(rewrite_count(hash)) != frame->rewrites_seen ||
		(frame->is_neighbour && blob_write_count(frame->count_no) != frame->count_seen);
}

uint32
blob_buffer_get(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
				uint64 offset_bytes, uint32 length_bytes, BlobBufferUse use, char *dst,
				uint32 *device_bytes)
{
	uint32		start = offset_bytes % chunk_bytes;
	BufferKey	key;
	uint32		hash;
	BufferFrame *frame;
	uint32		copied = 0;

	Assert((uint64) start + length_bytes <= chunk_bytes);

	*device_bytes = PG_UINT32_MAX;
	if (buffer_table == NULL)
		return 0;

	make_key(&key, store, generation, chunk_bytes, offset_bytes);
	hash = get_hash_value(buffer_table, &key);
	frame = find_and_pin(&key, hash);
	if (frame != NULL)
	{
		bool		only_dirty = use == BLOB_BUFFER_BYPASS || is_outdated(frame, hash);

		copied = Min(readable_bytes(frame, start, only_dirty, device_bytes), length_bytes);
		if (copied > 0)
		{
			memcpy(dst, blob_frame_content(frame) + start, copied);
			if (use == BLOB_BUFFER_KEEP || use == BLOB_BUFFER_LOOK)
				blob_frame_touch(frame);
			if (unlikely(start < frame->dirty_end))
				blob_stat_count(deferred_page_reads, 1);
		}
		blob_frame_unpin(frame);
	}

	if (copied > 0)
		blob_stat_count(cache_hits, 1);
	else if (use != BLOB_BUFFER_LOOK)
		blob_stat_count(cache_misses, 1);
	/* The caller's request must come after the look. */
	pg_memory_barrier();
	return copied;
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
 * Add bytes to a claimed frame that holds a part of the same chunk.  If the new range neither
 * overlaps nor touches the present one, the longer of the two is kept.  Nothing is kept of a frame
 * that is outdated, nor of bytes that are.
 */
static void
merge_range(BufferFrame *frame, const Offer *offer)
{
	uint32		start = offer->start;
	uint32		end = start + offer->length;

	if (is_outdated(frame, offer->hash))
	{
		frame->is_neighbour = false;
		frame->rewrites_seen = offer->rewrites_seen;
		frame->valid_start = frame->valid_end = start;
	}
	else if (frame->rewrites_seen != offer->rewrites_seen)
		return;
	if (start >= frame->valid_start && end <= frame->valid_end)
		return;
	if (start <= frame->valid_end && end >= frame->valid_start)
	{
		frame->valid_start = Min(frame->valid_start, start);
		frame->valid_end = Max(frame->valid_end, end);
	}
	else if (offer->length > frame->valid_end - frame->valid_start)
	{
		frame->valid_start = start;
		frame->valid_end = end;
	}
	else
		return;
	memcpy(blob_frame_content(frame) + start, offer->data, offer->length);
}

/*
 * If the key is cached, add the data to its frame (if that can be claimed), and return true.  The
 * entry stays in the table; readers that find the frame claimed have a miss.
 */
static bool
refresh_existing(const Offer *offer)
{
	LWLock	   *lock = partition_lock(offer->hash);
	BufferFrame *frame = NULL;
	BufferEntry *entry;
	bool		is_cached;

	LWLockAcquire(lock, LW_SHARED);
	entry = hash_search_with_hash_value(buffer_table, &offer->key, offer->hash, HASH_FIND, NULL);
	is_cached = (entry != NULL);
	if (is_cached && blob_frame_claim(blob_frame(entry->frame_no)))
		frame = blob_frame(entry->frame_no);
	LWLockRelease(lock);

	if (frame != NULL)
	{
		merge_range(frame, offer);
		blob_frame_disclaim(frame);
	}
	return is_cached;
}

/* Take a claimed frame's old content out of the table.  Takes that key's lock exclusively. */
static void
evict(BufferFrame *frame)
{
	uint32		hash = get_hash_value(buffer_table, &frame->key);
	LWLock	   *lock = partition_lock(hash);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	hash_search_with_hash_value(buffer_table, &frame->key, hash, HASH_REMOVE, NULL);
	LWLockRelease(lock);
	pg_atomic_fetch_sub_u64(&buffer_shared->used_bytes, frame->key.chunk_bytes);
}

/*
 * Take a key out of the table.  False if its frame is in use.  The look-up needs the key's lock in
 * shared mode only: no process pins a frame that is claimed.
 */
static bool
forget_chunk(const BufferKey *key, uint32 hash)
{
	LWLock	   *lock = partition_lock(hash);
	BufferFrame *frame = NULL;
	BufferEntry *entry;

	LWLockAcquire(lock, LW_SHARED);
	entry = hash_search_with_hash_value(buffer_table, key, hash, HASH_FIND, NULL);
	if (entry != NULL && blob_frame_claim(blob_frame(entry->frame_no)))
		frame = blob_frame(entry->frame_no);
	LWLockRelease(lock);
	if (frame == NULL)
		return entry == NULL;
	evict(frame);
	blob_frame_set_unused(frame);
	frame->key.generation = BLOB_INVALID_GENERATION;
	blob_frame_disclaim(frame);
	return true;
}

void
blob_buffer_outdate(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
					uint64 offset_bytes, uint64 length_bytes)
{
	uint64		end = offset_bytes + length_bytes;

	if (buffer_table == NULL)
		return;
	/* First: bytes that were read before are not offered under the new count, see put. */
	pg_atomic_fetch_add_u32(&buffer_shared->rewrites, 1);
	for (uint64 offset = offset_bytes / chunk_bytes * chunk_bytes; offset < end;
		 offset += chunk_bytes)
	{
		BufferKey	key;

		make_key(&key, store, generation, chunk_bytes, offset);
		pg_atomic_fetch_add_u32(rewrite_count(get_hash_value(buffer_table, &key)), 1);
	}
}

uint32
blob_buffer_rewrites(void)
{
	return buffer_table != NULL ? pg_atomic_read_u32(&buffer_shared->rewrites) : 0;
}

/*
 * Enter a claimed frame into the table.  False if the key is there already: then the frame stays
 * unused.
 */
static bool
enter(BufferFrame *frame, const BufferKey *key, uint32 hash)
{
	LWLock	   *lock = partition_lock(hash);
	BufferEntry *entry;
	bool		found;
	bool		is_entered;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = hash_search_with_hash_value(buffer_table, key, hash, HASH_ENTER_NULL, &found);
	is_entered = entry != NULL && !found;
	if (is_entered)
	{
		entry->frame_no = blob_frame_number(frame);
		frame->key = *key;
		pg_atomic_fetch_add_u64(&buffer_shared->used_bytes, key->chunk_bytes);
	}
	LWLockRelease(lock);
	return is_entered;
}

/* Enter a filled, claimed frame into the table, and end the claim. */
static void
enter_in_table(BufferFrame *frame, const BufferKey *key, uint32 hash)
{
	(void) enter(frame, key, hash);
	blob_frame_disclaim(frame);
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
	BufferFrame *frame;

	Assert((uint64) offer.start + length_bytes <= chunk_bytes);

	if (buffer_table == NULL || length_bytes == 0)
		return;

	make_key(&offer.key, store, generation, chunk_bytes, offset_bytes);
	offer.hash = get_hash_value(buffer_table, &offer.key);
	offer.rewrites_seen = pg_atomic_read_u32(rewrite_count(offer.hash));
	pg_read_barrier();
	if (blob_buffer_rewrites() != rewrites || refresh_existing(&offer))
		return;

	frame = blob_frame_take(chunk_bytes, evict);
	if (frame == NULL)
		return;
	memcpy(blob_frame_content(frame) + offer.start, data, length_bytes);
	frame->valid_start = offer.start;
	frame->valid_end = offer.start + length_bytes;
	frame->rewrites_seen = offer.rewrites_seen;
	enter_in_table(frame, &offer.key, offer.hash);
}

/* A process that ends in the middle of a read still owns frames; the kernel may write to them. */
static void
give_up_at_exit(int code, Datum arg)
{
	blob_io_abandon();
	blob_buffer_abandon();
}

static bool
has_frame(const BufferKey *key, uint32 hash)
{
	LWLock	   *lock = partition_lock(hash);
	bool		found;

	LWLockAcquire(lock, LW_SHARED);
	(void) hash_search_with_hash_value(buffer_table, key, hash, HASH_FIND, &found);
	LWLockRelease(lock);
	return found;
}

/* An unused number from first_no to end_no - 1, or -1. */
static int
find_claim(int first_no, int end_no)
{
	if (buffer_table == NULL)
		return -1;
	for (int no = first_no; no < end_no; no++)
	{
		if (claims[no].kind == CLAIM_NONE)
			return no;
	}
	return -1;
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
	return buffer_table == NULL || pg_atomic_read_u64(&buffer_shared->used_bytes) >
		buffer_shared->total_bytes - buffer_shared->total_bytes / FULL_PARTS;
}

/* The place in a ring whose frame a scan takes next. */
static ScanFrame *
next_scan_frame(uint32 chunk_bytes)
{
	bool		is_whole = chunk_bytes == BLOB_BUFFER_CHUNK_BYTES;
	ScanRing   *ring = is_whole ? &whole_ring : &small_ring;
	uint64		count = Min(buffer_shared->total_bytes / chunk_bytes / SCAN_PARTS,
							is_whole ? MAX_WHOLE_SCAN_FRAMES : MAX_SMALL_SCAN_FRAMES);

	return &ring->frames[ring->next++ % Max(count, 1)];
}

/* Claim a frame for a key: for a scan one that a scan of this process has used before. */
static BufferFrame *
take_frame(const BufferKey *key, BlobBufferUse use)
{
	ScanFrame  *scan;
	BufferFrame *frame = NULL;

	if (use != BLOB_BUFFER_SCAN)
		return blob_frame_take(key->chunk_bytes, evict);
	scan = next_scan_frame(key->chunk_bytes);
	if (scan->frame != NULL)
		frame = blob_frame_take_again(scan->frame, &scan->key, evict);
	if (frame == NULL)
		frame = blob_frame_take(key->chunk_bytes, evict);
	scan->frame = frame;
	scan->key = *key;
	return frame;
}

/* Whether a key has no frame.  An outdated one is taken out of the table, if that is possible. */
static bool
has_no_frame(const BufferKey *key, uint32 hash)
{
	BufferFrame *frame = find_and_pin(key, hash);
	bool		is_useless;

	if (frame == NULL)
		return !has_frame(key, hash);
	is_useless = is_outdated(frame, hash);
	blob_frame_unpin(frame);
	return is_useless && forget_chunk(key, hash);
}

/* Begin a fill that gets one of the numbers from first_no to end_no - 1, or -1. */
static int
begin_fill(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
		   uint64 offset_bytes, BlobBufferUse use, int first_no, int end_no)
{
	int			fill_no = find_claim(first_no, end_no);
	BufferClaim *fill;

	if (fill_no < 0)
		return -1;
	fill = &claims[fill_no];
	make_key(&fill->key, store, generation, chunk_bytes, offset_bytes);
	fill->hash = get_hash_value(buffer_table, &fill->key);
	if (!has_no_frame(&fill->key, fill->hash))
		return -1;
	fill->frame = take_frame(&fill->key, use);
	if (fill->frame == NULL)
		return -1;
	fill->frame->rewrites_seen = pg_atomic_read_u32(rewrite_count(fill->hash));
	fill->kind = CLAIM_WHOLE;
	return fill_no;
}

void
blob_buffer_process_begins(void)
{
	if (exit_registered_pid == MyProcPid)
		return;
	exit_registered_pid = MyProcPid;
	before_shmem_exit(give_up_at_exit, (Datum) 0);
}

int
blob_buffer_begin_fill(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
					   uint64 offset_bytes, BlobBufferUse use)
{
	blob_buffer_process_begins();
	return begin_fill(store, generation, chunk_bytes, offset_bytes, use, 0,
					  BLOB_BUFFER_MAX_CLAIMS);
}

int
blob_buffer_begin_ahead(const BlobStoreId *store, const BlobExtent *extent, uint64 offset_bytes,
						bool is_neighbour, BlobBufferUse use)
{
	uint32		chunk_bytes = blob_buffer_chunk_bytes(extent->pages);
	int			fill_no = begin_fill(store, extent->generation, chunk_bytes, offset_bytes, use,
									 BLOB_BUFFER_MAX_CLAIMS, lengthof(claims));
	BufferClaim *fill;

	if (fill_no < 0)
		return -1;
	fill = &claims[fill_no];
	if (is_neighbour)
	{
		fill->frame->is_neighbour = true;
		fill->frame->count_no =
			blob_write_count_no(store, extent->first_page + offset_bytes / BLOB_PAGE_SIZE);
		fill->frame->count_seen = blob_write_count(fill->frame->count_no);
	}
	/* Its lock is a barrier: the request comes after the count was read. */
	if (enter(fill->frame, &fill->key, fill->hash))
		return fill_no;
	blob_frame_disclaim(fill->frame);
	fill->kind = CLAIM_NONE;
	return -1;
}

char *
blob_buffer_fill_memory(int fill_no)
{
	Assert(claims[fill_no].kind == CLAIM_WHOLE);
	return blob_frame_content(claims[fill_no].frame);
}

void
blob_buffer_end_fill(int fill_no, uint32 start_bytes, uint32 length_bytes)
{
	BufferClaim  *fill = &claims[fill_no];
	BufferFrame *frame = fill->frame;

	Assert(fill->kind == CLAIM_WHOLE);
	Assert(start_bytes + length_bytes <= fill->key.chunk_bytes);

	fill->kind = CLAIM_NONE;
	frame->valid_start = start_bytes;
	frame->valid_end = start_bytes + length_bytes;
	if (fill_no >= BLOB_BUFFER_MAX_CLAIMS)
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

/* ---- writes ---- */

/* Pin the frame of the key, so that pages can be added to it; false if they do not fit there. */
static bool
begin_addition(BufferClaim *write)
{
	BufferFrame *frame = find_and_pin(&write->key, write->hash);

	if (frame == NULL)
		return false;
	if (frame->valid_end != write->start_bytes || frame->is_neighbour ||
		is_outdated(frame, write->hash))
	{
		blob_frame_unpin(frame);
		return false;
	}
	write->frame = frame;
	write->kind = CLAIM_PIN;
	return true;
}

/* A chunk that crosses the end of a segment has no dirty frame, since it lies in two files. */
static bool
crosses_segment(BlobPageNo chunk_page, const BlobExtent *extent, uint32 chunk_bytes)
{
	BlobPageNo	end = Min(chunk_page + chunk_bytes / BLOB_PAGE_SIZE,
						  extent->first_page + extent->pages);

	return blob_segment_of(chunk_page) != blob_segment_of(end - 1);
}

int
blob_buffer_begin_write(const BlobStoreId *store, const BlobExtent *extent, uint64 offset_bytes,
						uint32 length_bytes)
{
	uint32		chunk_bytes = blob_buffer_chunk_bytes(extent->pages);
	int			write_no = find_claim(0, BLOB_BUFFER_MAX_CLAIMS);
	BufferClaim *write;

	Assert(offset_bytes % BLOB_PAGE_SIZE == 0 && length_bytes % BLOB_PAGE_SIZE == 0);
	Assert(offset_bytes % chunk_bytes + length_bytes <= chunk_bytes);

	blob_buffer_process_begins();
	if (write_no < 0)
		return -1;
	write = &claims[write_no];
	make_key(&write->key, store, extent->generation, chunk_bytes, offset_bytes);
	write->hash = get_hash_value(buffer_table, &write->key);
	write->start_bytes = offset_bytes % chunk_bytes;
	write->end_bytes = write->start_bytes + length_bytes;
	write->page = extent->first_page + offset_bytes / chunk_bytes * (chunk_bytes / BLOB_PAGE_SIZE);
	if (crosses_segment(write->page, extent, chunk_bytes))
		return -1;
	if (has_frame(&write->key, write->hash))
		return begin_addition(write) ? write_no : -1;
	write->frame = blob_frame_take(chunk_bytes, evict);
	if (write->frame == NULL)
		return -1;
	write->frame->rewrites_seen = pg_atomic_read_u32(rewrite_count(write->hash));
	write->kind = CLAIM_WHOLE;
	return write_no;
}

char *
blob_buffer_write_memory(int write_no)
{
	Assert(claims[write_no].kind != CLAIM_NONE);
	return blob_frame_content(claims[write_no].frame) + claims[write_no].start_bytes;
}

bool
blob_buffer_enter_write(int write_no, uint32 content_bytes)
{
	BufferClaim *write = &claims[write_no];
	BufferFrame *frame = write->frame;
	uint32		valid_end = write->start_bytes + content_bytes;

	Assert(valid_end <= write->end_bytes);

	if (write->kind == CLAIM_PIN)
	{
		/* The bytes before the end of their range. */
		pg_write_barrier();
		frame->valid_end = valid_end;
		return true;
	}
	frame->valid_start = write->start_bytes;
	frame->valid_end = valid_end;
	if (!enter(frame, &write->key, write->hash))
		return false;
	blob_frame_disclaim_pinned(frame);
	write->kind = CLAIM_PIN;
	return true;
}

bool
blob_buffer_may_defer(uint64 bytes, bool is_logged)
{
	return blob_dirty_has_room(bytes, is_logged);
}

bool
blob_buffer_defer(const int *write_nos, int count, bool is_logged)
{
	BlobDirtyRange ranges[BLOB_BUFFER_MAX_CLAIMS];

	Assert(count <= BLOB_BUFFER_MAX_CLAIMS);

	for (int i = 0; i < count; i++)
	{
		const BufferClaim *write = &claims[write_nos[i]];

		Assert(write->kind == CLAIM_PIN);
		ranges[i].frame = write->frame;
		ranges[i].page = write->page;
		ranges[i].start_bytes = write->start_bytes;
		ranges[i].end_bytes = write->end_bytes;
	}
	return blob_dirty_add(ranges, count, is_logged);
}

void
blob_buffer_end_write(int write_no)
{
	BufferClaim *write = &claims[write_no];

	if (write->kind == CLAIM_PIN)
		blob_frame_unpin(write->frame);
	else if (write->kind == CLAIM_WHOLE)
		blob_frame_disclaim(write->frame);
	write->kind = CLAIM_NONE;
}

void
blob_buffer_abandon(void)
{
	for (int i = 0; i < BLOB_BUFFER_MAX_CLAIMS; i++)
		blob_buffer_end_write(i);
}

void
blob_buffer_flush_extent(const BlobStoreId *store, const BlobExtent *extent)
{
	blob_dirty_write_extent(store, extent);
}

uint64
blob_buffer_bytes(void)
{
	return buffer_table != NULL ? buffer_shared->total_bytes : 0;
}

void
blob_buffer_stats(uint64 *hits, uint64 *misses, uint64 *used_bytes, uint64 *total_bytes)
{
	*hits = blob_stat != NULL ? pg_atomic_read_u64(&blob_stat->cache_hits) : 0;
	*misses = blob_stat != NULL ? pg_atomic_read_u64(&blob_stat->cache_misses) : 0;
	*used_bytes = buffer_table != NULL ? pg_atomic_read_u64(&buffer_shared->used_bytes) : 0;
	*total_bytes = buffer_table != NULL ? buffer_shared->total_bytes : 0;
}
