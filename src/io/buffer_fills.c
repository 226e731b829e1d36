/*
 * io/buffer_fills.c
 *	  Slabs that this process owns or pins from one call to another: fills from the device, and
 *	  writes, see io/buffer.h.  How readers are kept off is in buffer.c.
 */
#include "postgres.h"

#include "io/buffer.h"
#include "io/buffer_table.h"
#include "io/dirty.h"
#include "io/engine.h"
#include "io/syncer.h"
#include "miscadmin.h"
#include "storage/ipc.h"

/* How this process holds a slab. */
typedef enum HoldKind
{
	HOLD_NONE,
	HOLD_OWNED,				/* the ownership: to fill the slab, or to write from it */
	HOLD_PIN					/* a pin: the writer has entered the slab, or adds pages to it */
} HoldKind;

typedef struct BufferHold
{
	HoldKind	kind;
	BufferSlab *slab;
	BufferKey	key;
	uint32		hash;
	uint32		start_bytes;	/* of a write: its range in the chunk, whole pages */
	uint32		end_bytes;
	BlobPageNo	page;			/* of a write: where the chunk begins */
} BufferHold;

/* First the holds of reads and writes, then those of fills ahead. */
static BufferHold holds[BLOB_BUFFER_MAX_HOLDS + BLOB_BUFFER_MAX_AHEAD_FILLS];
static pid_t exit_registered_pid = 0;

/*
 * Slabs that scans of this process have taken last, in rings by their size.  They are taken again,
 * so that content larger than the buffer does not evict all other.  There are as many as requests
 * ahead need, and the reads of those that have arrived, and at most a part of the buffer.
 */
#define MAX_WHOLE_SCAN_SLABS 128
#define MAX_SMALL_SCAN_SLABS 256
#define SCAN_PARTS 8

typedef struct ScanSlab
{
	BufferSlab *slab;
	BufferKey	key;			/* that the scan gave it */
} ScanSlab;

typedef struct ScanRing
{
	uint64		next;
	ScanSlab	slabs[MAX_SMALL_SCAN_SLABS];
} ScanRing;

static ScanRing whole_ring;
static ScanRing small_ring;

/* ---- fills ---- */

/* A process that ends in the middle of a read still owns slabs; the kernel may write to them. */
static void
give_up_at_exit(int code, Datum arg)
{
	blob_io_abandon();
	blob_buffer_abandon();
}

/* An unused number from first_no to end_no - 1, or -1. */
static int
find_hold(int first_no, int end_no)
{
	if (blob_buffer_table == NULL)
		return -1;
	for (int no = first_no; no < end_no; no++)
	{
		if (holds[no].kind == HOLD_NONE)
			return no;
	}
	return -1;
}

/* The place in a ring whose slab a scan takes next. */
static ScanSlab *
next_scan_slab(uint32 chunk_bytes)
{
	bool		is_whole = chunk_bytes == BLOB_BUFFER_CHUNK_BYTES;
	ScanRing   *ring = is_whole ? &whole_ring : &small_ring;
	uint64		count = Min(blob_buffer_shared->total_bytes / chunk_bytes / SCAN_PARTS,
							is_whole ? MAX_WHOLE_SCAN_SLABS : MAX_SMALL_SCAN_SLABS);

	return &ring->slabs[ring->next++ % Max(count, 1)];
}

/* Take a slab for a key: for a scan one that a scan of this process has used before. */
static BufferSlab *
take_slab(const BufferKey *key, BlobBufferUse use)
{
	ScanSlab   *scan;
	BufferSlab *slab = NULL;

	if (use != BLOB_BUFFER_SCAN)
		return blob_slab_take(key->chunk_bytes, blob_buffer_evict);
	scan = next_scan_slab(key->chunk_bytes);
	if (scan->slab != NULL)
		slab = blob_slab_take_again(scan->slab, &scan->key, blob_buffer_evict);
	if (slab == NULL)
		slab = blob_slab_take(key->chunk_bytes, blob_buffer_evict);
	scan->slab = slab;
	scan->key = *key;
	return slab;
}

/* Whether a key has no slab.  An outdated one is taken out of the table, if that is possible. */
static bool
has_no_slab(const BufferKey *key, uint32 hash)
{
	BufferSlab *slab = blob_buffer_find_and_pin(key, hash);
	bool		is_useless;

	if (slab == NULL)
		return !blob_buffer_has_slab(key, hash);
	is_useless = blob_buffer_is_outdated(slab, hash);
	blob_slab_unpin(slab);
	return is_useless && blob_buffer_forget_chunk(key, hash);
}

/* Begin a fill that gets one of the numbers from first_no to end_no - 1, or -1. */
static int
begin_fill(const BlobStoreId *store, BlobGeneration generation, uint32 chunk_bytes,
		   uint64 offset_bytes, BlobBufferUse use, int first_no, int end_no)
{
	int 		fill_no = find_hold(first_no, end_no);
	BufferHold *fill;

	if (fill_no < 0)
		return -1;
	fill = &holds[fill_no];
	blob_buffer_make_key(&fill->key, store, generation, chunk_bytes, offset_bytes);
	fill->hash = get_hash_value(blob_buffer_table, &fill->key);
	if (!has_no_slab(&fill->key, fill->hash))
		return -1;
	fill->slab = take_slab(&fill->key, use);
	if (fill->slab == NULL)
		return -1;
	fill->slab->rewrites_seen = pg_atomic_read_u32(blob_buffer_rewrite_count(fill->hash));
	fill->kind = HOLD_OWNED;
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
					  BLOB_BUFFER_MAX_HOLDS);
}

int
blob_buffer_begin_ahead(const BlobStoreId *store, const BlobExtent *extent, uint64 offset_bytes,
						bool is_neighbour, BlobBufferUse use)
{
	uint32		chunk_bytes = blob_buffer_chunk_bytes(extent->pages);
	int			fill_no = begin_fill(store, extent->generation, chunk_bytes, offset_bytes, use,
									 BLOB_BUFFER_MAX_HOLDS, lengthof(holds));
	BufferHold *fill;

	if (fill_no < 0)
		return -1;
	fill = &holds[fill_no];
	if (is_neighbour)
	{
		fill->slab->is_neighbour = true;
		fill->slab->count_no =
			blob_write_count_no(store, extent->first_page + offset_bytes / BLOB_PAGE_SIZE);
		fill->slab->count_seen = blob_write_count(fill->slab->count_no);
	}
	/* Its lock is a barrier: the request comes after the count was read. */
	if (blob_buffer_enter(fill->slab, &fill->key, fill->hash))
		return fill_no;
	blob_slab_disown(fill->slab);
	fill->kind = HOLD_NONE;
	return -1;
}

char *
blob_buffer_fill_memory(int fill_no)
{
	Assert(holds[fill_no].kind == HOLD_OWNED);
	return blob_slab_content(holds[fill_no].slab);
}

void
blob_buffer_end_fill(int fill_no, uint32 start_bytes, uint32 length_bytes)
{
	BufferHold *fill = &holds[fill_no];
	BufferSlab *slab = fill->slab;

	Assert(fill->kind == HOLD_OWNED);
	Assert(start_bytes + length_bytes <= fill->key.chunk_bytes);

	fill->kind = HOLD_NONE;
	slab->valid_start = start_bytes;
	slab->valid_end = start_bytes + length_bytes;
	if (fill_no >= BLOB_BUFFER_MAX_HOLDS)
	{
		/* The slab is in the table, and stays there, even with an empty range. */
		blob_slab_set_unused(slab);
		blob_slab_disown(slab);
	}
	else if (length_bytes > 0)
		blob_buffer_enter_and_end(slab, &fill->key, fill->hash);
	else
		blob_slab_disown(slab);
}

/* ---- writes ---- */

/* Pin the slab of the key, so that pages can be added to it; false if they do not fit there. */
static bool
begin_addition(BufferHold *write)
{
	BufferSlab *slab = blob_buffer_find_and_pin(&write->key, write->hash);

	if (slab == NULL)
		return false;
	if (slab->valid_end != write->start_bytes || slab->is_neighbour ||
		blob_buffer_is_outdated(slab, write->hash))
	{
		blob_slab_unpin(slab);
		return false;
	}
	write->slab = slab;
	write->kind = HOLD_PIN;
	return true;
}

/* A chunk that crosses the end of a segment has no dirty slab, since it lies in two files. */
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
	int 		write_no = find_hold(0, BLOB_BUFFER_MAX_HOLDS);
	BufferHold *write;

	Assert(offset_bytes % BLOB_PAGE_SIZE == 0 && length_bytes % BLOB_PAGE_SIZE == 0);
	Assert(offset_bytes % chunk_bytes + length_bytes <= chunk_bytes);

	blob_buffer_process_begins();
	if (write_no < 0)
		return -1;
	write = &holds[write_no];
	blob_buffer_make_key(&write->key, store, extent->generation, chunk_bytes, offset_bytes);
	write->hash = get_hash_value(blob_buffer_table, &write->key);
	write->start_bytes = offset_bytes % chunk_bytes;
	write->end_bytes = write->start_bytes + length_bytes;
	write->page = extent->first_page + offset_bytes / chunk_bytes * (chunk_bytes / BLOB_PAGE_SIZE);
	if (crosses_segment(write->page, extent, chunk_bytes))
		return -1;
	if (blob_buffer_has_slab(&write->key, write->hash))
		return begin_addition(write) ? write_no : -1;
	write->slab = blob_slab_take(chunk_bytes, blob_buffer_evict);
	if (write->slab == NULL)
		return -1;
	write->slab->rewrites_seen = pg_atomic_read_u32(blob_buffer_rewrite_count(write->hash));
	write->kind = HOLD_OWNED;
	return write_no;
}

char *
blob_buffer_write_memory(int write_no)
{
	Assert(holds[write_no].kind != HOLD_NONE);
	return blob_slab_content(holds[write_no].slab) + holds[write_no].start_bytes;
}

bool
blob_buffer_enter_write(int write_no, uint32 content_bytes)
{
	BufferHold *write = &holds[write_no];
	BufferSlab *slab = write->slab;
	uint32		valid_end = write->start_bytes + content_bytes;

	Assert(valid_end <= write->end_bytes);

	if (write->kind == HOLD_PIN)
	{
		/* The bytes before the end of their range. */
		pg_write_barrier();
		slab->valid_end = valid_end;
		return true;
	}
	slab->valid_start = write->start_bytes;
	slab->valid_end = valid_end;
	if (!blob_buffer_enter(slab, &write->key, write->hash))
		return false;
	blob_slab_disown_pinned(slab);
	write->kind = HOLD_PIN;
	return true;
}

bool
blob_buffer_defer(const int *write_nos, int count, bool is_logged)
{
	BlobDirtyRange ranges[BLOB_BUFFER_MAX_HOLDS];
	bool		is_due;

	Assert(count <= BLOB_BUFFER_MAX_HOLDS);

	for (int i = 0; i < count; i++)
	{
		const BufferHold *write = &holds[write_nos[i]];

		Assert(write->kind == HOLD_PIN);
		ranges[i].slab = write->slab;
		ranges[i].page = write->page;
		ranges[i].start_bytes = write->start_bytes;
		ranges[i].end_bytes = write->end_bytes;
	}
	if (!blob_dirty_add(ranges, count, is_logged, &is_due))
		return false;
	if (is_due)
		blob_syncer_wake();
	return true;
}

void
blob_buffer_end_write(int write_no)
{
	BufferHold *write = &holds[write_no];

	if (write->kind == HOLD_PIN)
		blob_slab_unpin(write->slab);
	else if (write->kind == HOLD_OWNED)
		blob_slab_disown(write->slab);
	write->kind = HOLD_NONE;
}

void
blob_buffer_abandon(void)
{
	for (int i = 0; i < BLOB_BUFFER_MAX_HOLDS; i++)
		blob_buffer_end_write(i);
}
