/*
 * io/dirty.c
 *	  Dirty frames of the buffer, see io/dirty.h.
 *
 * The argument is in the README of this folder, "Deferred writes".
 *
 * Structures.  A list of the dirty frames, in no order.  The range of a frame that is dirty, and
 * its place in the list, are in the frame.  While a frame is in the list, the list has a pin of it.
 *
 * Locking.  list_lock protects the list, and what frames have of it.  It is held for memory
 * operations only.  A process that writes pages marks their frames as being written, under
 * list_lock; no other process writes them then.  When it has finished, it wakes all processes that
 * wait for that.
 *
 * A process that writes holds removal_lock, shared, from before it looks for the files to the end
 * of the writes.  A process that removes a file takes it exclusively.  Shared holders may follow
 * each other without a gap, so both take gate_lock first, and a removal keeps it until it has
 * removal_lock.  Order: gate_lock, removal_lock, list_lock.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/xlog.h"
#include "utils/wait_event.h"
#include "core/settings.h"
#include "io/buffer_frames.h"
#include "io/dirty.h"
#include "io/engine_internal.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "io/stat.h"
#include "io/syncer.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

/*
 * How much may be dirty: a part of the buffer, and about what a device writes in a second, since a
 * checkpoint waits for it.
 */
#define LIMIT_PARTS 2
#define MAX_LIMIT_BYTES (UINT64CONST(256) * 1024 * 1024)

/*
 * The syncer writes without waiting for a checkpoint when less than this part of the limit is left,
 * which is room for stores meanwhile.  Earlier writes would only compete with flushes of the WAL.
 */
#define SPARE_PARTS 4

/*
 * The syncer writes pages that are not logged when there is as much of them: their transactions
 * wait for these writes before they commit.  It is as much as four batches.
 */
#define MANY_UNLOGGED_BYTES (UINT64CONST(4) * 1024 * 1024)

/* Frames that one look at the list collects. */
#define MAX_ITEMS 4096

/*
 * Requests that are in flight together: 1 MiB.  A disk works at full speed then, and the flushes of
 * the WAL beside them need not wait long.
 */
#define BATCH_REQUESTS 4

typedef struct DirtyShared
{
	LWLock	   *list_lock;
	LWLock	   *removal_lock;
	LWLock	   *gate_lock;
	ConditionVariable written;	/* a process has finished writes */
	volatile bool is_open;		/* read without the lock as a hint */
	uint64		limit_bytes;
	pg_atomic_uint64 next_seq;	/* changed under list_lock, which protects the rest */
	uint32		frame_count;
	pg_atomic_uint64 dirty_bytes;	/* read without the lock as a hint */
	pg_atomic_uint64 unlogged_bytes;	/* of these in frames that are not logged; likewise */
	pg_atomic_uint64 frame_bytes;	/* memory of the frames; likewise */
	BufferFrame *list[FLEXIBLE_ARRAY_MEMBER];
} DirtyShared;

/* A frame that a process has found in the list, and what it found there. */
typedef struct DirtyItem
{
	BufferFrame *frame;
	uint64		seq;
	BlobStoreId store;
	BlobPageNo	page;			/* of the first dirty byte */
	uint32		start_bytes;
	uint32		end_bytes;
} DirtyItem;

/* A write of neighbouring items. */
typedef struct DirtyRequest
{
	BlobIoRequest io;
	DirtyItem  *items;
	int			item_count;
	bool		is_started;
} DirtyRequest;

/* Which frames are meant. */
typedef struct DirtyFilter
{
	const BlobStoreId *store;	/* NULL: of all stores */
	uint32		segment_no;		/* BLOB_ALL_SEGMENTS: of all */
	BlobGeneration generation;	/* BLOB_INVALID_GENERATION: of all extents */
	uint64		start_seq;		/* frames that got dirty pages at this time or later */
	uint64		end_seq;		/* frames that became dirty before */
	bool		must_succeed;	/* report failures of pages that are not logged, too */
	bool		only_logged;	/* others could not be written, and are left alone */
	bool		only_unlogged;	/* frames without a logged page */
} DirtyFilter;

static DirtyShared *shared = NULL;

/* Static: no memory is needed to write pages. */
static DirtyItem items[MAX_ITEMS];
static DirtyRequest requests[BATCH_REQUESTS];

Size
blob_dirty_shmem_size(void)
{
	return add_size(offsetof(DirtyShared, list),
					mul_size(blob_frames_configured(), sizeof(BufferFrame *)));
}

/* Called under AddinShmemInitLock. */
void
blob_dirty_shmem_init(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche(BLOB_DIRTY_TRANCHE);
	uint64		buffer_bytes = (uint64) blob_frames_configured() * BLOB_BUFFER_SMALL_CHUNK_BYTES;
	bool		found;

	shared = ShmemInitStruct("blobext dirty frames", blob_dirty_shmem_size(), &found);
	if (found)
		return;
	memset(shared, 0, offsetof(DirtyShared, list));
	shared->list_lock = &locks[0].lock;
	shared->removal_lock = &locks[1].lock;
	shared->gate_lock = &locks[2].lock;
	ConditionVariableInit(&shared->written);
	shared->limit_bytes = Min(buffer_bytes / LIMIT_PARTS, MAX_LIMIT_BYTES);
	pg_atomic_init_u64(&shared->next_seq, 1);
	pg_atomic_init_u64(&shared->dirty_bytes, 0);
	pg_atomic_init_u64(&shared->unlogged_bytes, 0);
	pg_atomic_init_u64(&shared->frame_bytes, 0);
}

/* ---- the list; the caller holds list_lock exclusively ---- */

static uint32
dirty_bytes_of(const BufferFrame *frame)
{
	return frame->dirty_end - frame->dirty_start;
}

/*
 * The list has each dirty frame in its place, and the sums are those of its frames.  The caller
 * holds list_lock in any mode.
 */
static void
assert_list(void)
{
#ifdef USE_ASSERT_CHECKING
	uint64		dirty = 0;
	uint64		unlogged = 0;
	uint64		memory = 0;

	for (uint32 i = 0; i < shared->frame_count; i++)
	{
		const BufferFrame *frame = shared->list[i];

		Assert(frame->dirty_no == i);
		Assert(frame->dirty_start < frame->dirty_end &&
			   frame->dirty_end <= frame->key.chunk_bytes);
		dirty += dirty_bytes_of(frame);
		unlogged += frame->is_logged ? 0 : dirty_bytes_of(frame);
		memory += frame->key.chunk_bytes;
	}
	Assert(dirty == pg_atomic_read_u64(&shared->dirty_bytes));
	Assert(unlogged == pg_atomic_read_u64(&shared->unlogged_bytes));
	Assert(memory == pg_atomic_read_u64(&shared->frame_bytes));
#endif
}

/*
 * Set the dirty range; readers look at it without the lock, see readable_bytes() in buffer.c.  Each
 * sum changes in one step: a process that reads a zero in between would take its pages for written.
 */
static void
set_range(BufferFrame *frame, uint32 start, uint32 end)
{
	int64		change = -(int64) dirty_bytes_of(frame);

	if (end == 0)
	{
		frame->dirty_end = 0;
		frame->dirty_start = 0;
	}
	else
	{
		frame->dirty_start = start;
		frame->dirty_end = end;
	}
	change += dirty_bytes_of(frame);
	pg_atomic_fetch_add_u64(&shared->dirty_bytes, change);
	if (!frame->is_logged)
		pg_atomic_fetch_add_u64(&shared->unlogged_bytes, change);
}

/* A frame that is in the list gets logged pages. */
static void
set_logged(BufferFrame *frame)
{
	if (!frame->is_logged)
		pg_atomic_fetch_sub_u64(&shared->unlogged_bytes, dirty_bytes_of(frame));
	frame->is_logged = true;
}

/* Put a range into the list.  A frame that is there already gets a longer range. */
static void
add_range(const BlobDirtyRange *range, bool is_logged)
{
	BufferFrame *frame = range->frame;
	uint64		seq = pg_atomic_fetch_add_u64(&shared->next_seq, 1);

	/* Logged pages only while checkpoints wait for the syncer. */
	Assert(!is_logged || shared->is_open);
	if (frame->dirty_end > 0)
	{
		if (range->start_bytes < frame->dirty_end && range->end_bytes > frame->dirty_start)
			elog(ERROR, "page " UINT64_FORMAT " is written twice",
				 range->page + range->start_bytes / BLOB_PAGE_SIZE);
		if (is_logged)
			set_logged(frame);
		frame->added_seq = seq;
		/* Pages between the two ranges have been written, and may be written again. */
		set_range(frame, Min(frame->dirty_start, range->start_bytes),
				  Max(frame->dirty_end, range->end_bytes));
		return;
	}
	if (!blob_frame_pin(frame))
		elog(ERROR, "frame of page " UINT64_FORMAT " is not pinned", range->page);
	frame->page = range->page;
	frame->is_logged = is_logged;
	frame->is_writing = false;
	frame->dirty_seq = seq;
	frame->added_seq = seq;
	frame->dirty_no = shared->frame_count;
	shared->list[shared->frame_count++] = frame;
	pg_atomic_fetch_add_u64(&shared->frame_bytes, frame->key.chunk_bytes);
	set_range(frame, range->start_bytes, range->end_bytes);
}

/* Take a frame out of the list, and give up the list's pin. */
static void
remove_frame(BufferFrame *frame)
{
	BufferFrame *last = shared->list[--shared->frame_count];

	Assert(shared->list[frame->dirty_no] == frame && !frame->is_writing);
	set_range(frame, 0, 0);
	pg_atomic_fetch_sub_u64(&shared->frame_bytes, frame->key.chunk_bytes);
	last->dirty_no = frame->dirty_no;
	shared->list[last->dirty_no] = last;
	blob_frame_unpin(frame);
}

/* ---- adding ---- */

uint64
blob_dirty_time(void)
{
	return shared == NULL ? 0 : pg_atomic_read_u64(&shared->next_seq);
}

/*
 * The limit counts the memory of frames, which are pinned, however few of their pages are dirty.
 *
 * With fsync = off no page is left to the syncer, so that content survives a crash of the server as
 * rows do.
 */
bool
blob_dirty_has_room(uint64 bytes, bool is_logged)
{
	return shared != NULL &&
		(!is_logged || (shared->is_open && blob_background_sync && enableFsync)) &&
		pg_atomic_read_u64(&shared->frame_bytes) + bytes <= shared->limit_bytes;
}

bool
blob_dirty_add(const BlobDirtyRange *ranges, int count, bool is_logged)
{
	uint64		bytes = 0;
	bool		was_due;
	bool		is_due;
	bool		is_added;

	for (int i = 0; i < count; i++)
		bytes += ranges[i].end_bytes - ranges[i].start_bytes;
	if (!blob_dirty_has_room(bytes, is_logged))
		return false;

	LWLockAcquire(shared->list_lock, LW_EXCLUSIVE);
	was_due = blob_dirty_is_write_due();
	is_added = blob_dirty_has_room(bytes, is_logged);
	for (int i = 0; i < count && is_added; i++)
		add_range(&ranges[i], is_logged);
	is_due = blob_dirty_is_write_due();
	LWLockRelease(shared->list_lock);
	if (!is_added)
		return false;

	blob_stat_count(deferred_pages, bytes / BLOB_PAGE_SIZE);
	if (!was_due && is_due)
		blob_syncer_wake();
	return true;
}

/* ---- collecting ---- */

static void
store_of(const BufferFrame *frame, BlobStoreId *store)
{
	store->dboid = frame->key.dboid;
	store->incarnation = frame->key.incarnation;
}

/* Whether a frame of the list is meant.  All of a frame lies in one segment. */
static bool
matches(const BufferFrame *frame, const DirtyFilter *filter)
{
	BlobStoreId store;

	if (frame->dirty_seq >= filter->end_seq || frame->added_seq < filter->start_seq ||
		(filter->only_logged && !frame->is_logged) ||
		(filter->only_unlogged && frame->is_logged))
		return false;
	if (filter->store == NULL)
		return true;
	store_of(frame, &store);
	return blob_store_id_equals(&store, filter->store) &&
		(filter->segment_no == BLOB_ALL_SEGMENTS ||
		 filter->segment_no == blob_segment_of(frame->page)) &&
		(filter->generation == BLOB_INVALID_GENERATION ||
		 filter->generation == frame->key.generation);
}

static int
compare_places(const void *a, const void *b)
{
	const DirtyItem *one = a;
	const DirtyItem *other = b;

	if (one->store.dboid != other->store.dboid)
		return one->store.dboid < other->store.dboid ? -1 : 1;
	if (one->store.incarnation != other->store.incarnation)
		return one->store.incarnation < other->store.incarnation ? -1 : 1;
	return one->page < other->page ? -1 : one->page > other->page;
}

/*
 * Collect frames that are meant and that no process writes, in the order of their pages.  Returns
 * their number, at most MAX_ITEMS; *is_busy: another process writes one that is meant.  Takes
 * list_lock.
 */
static int
collect(const DirtyFilter *filter, bool *is_busy)
{
	int			count = 0;

	*is_busy = false;
	LWLockAcquire(shared->list_lock, LW_SHARED);
	assert_list();
	for (uint32 i = 0; i < shared->frame_count && count < MAX_ITEMS; i++)
	{
		BufferFrame *frame = shared->list[i];
		DirtyItem  *item = &items[count];

		if (!matches(frame, filter))
			continue;
		if (frame->is_writing)
		{
			*is_busy = true;
			continue;
		}
		item->frame = frame;
		item->seq = frame->dirty_seq;
		store_of(frame, &item->store);
		item->page = frame->page + frame->dirty_start / BLOB_PAGE_SIZE;
		item->start_bytes = frame->dirty_start;
		item->end_bytes = frame->dirty_end;
		count++;
	}
	LWLockRelease(shared->list_lock);
	qsort(items, count, sizeof(*items), compare_places);
	return count;
}

/* ---- writing ---- */

/*
 * Add memory to the vectors of a request: to the last one, if it goes on there, as frames that were
 * taken one after the other often do; false if there are too many.
 */
static bool
add_memory(BlobIoRequest *io, char *memory, uint32 length)
{
	struct iovec *last = io->vector_count > 0 ? &io->vectors[io->vector_count - 1] : NULL;

	if (last != NULL && (char *) last->iov_base + last->iov_len == memory)
	{
		last->iov_len += length;
		return true;
	}
	if (io->vector_count == BLOB_IO_MAX_VECTORS)
		return false;
	io->vectors[io->vector_count].iov_base = memory;
	io->vectors[io->vector_count++].iov_len = length;
	return true;
}

/* Add an item to a request; false if it is not the neighbour of the last one, or too much. */
static bool
join(DirtyRequest *request, DirtyItem *item)
{
	const DirtyItem *last = &request->items[request->item_count - 1];
	uint32		length = item->end_bytes - item->start_bytes;

	if (request->item_count > 0 &&
		(!blob_store_id_equals(&item->store, &last->store) ||
		 item->page != last->page + (last->end_bytes - last->start_bytes) / BLOB_PAGE_SIZE ||
		 item->page % BLOB_SEGMENT_PAGES == 0 ||
		 request->io.length + length > BLOB_IO_BUFFER_BYTES))
		return false;
	if (!add_memory(&request->io, blob_frame_content(item->frame) + item->start_bytes, length))
		return false;
	request->io.length += length;
	request->item_count++;
	return true;
}

/* Divide items into requests, as many as a batch can have.  Returns the number of requests. */
static int
plan_batch(DirtyItem *first, int item_count, int *planned_count)
{
	int			count = 0;
	int			i = 0;

	while (i < item_count && count < BATCH_REQUESTS)
	{
		DirtyRequest *request = &requests[count++];

		request->items = first + i;
		request->item_count = 0;
		request->is_started = false;
		request->io.is_write = true;
		request->io.buffer_no = 0;
		request->io.vector_count = 0;
		request->io.length = 0;
		request->io.error = 0;
		while (i < item_count && join(request, first + i))
			i++;
	}
	*planned_count = i;
	return count;
}

/*
 * Open the file of a request.  If it is missing, the request's error is ENOENT.  Dirty pages had
 * been reserved, so a file that is too short is being copied to its place.  The caller holds
 * removal_lock.  So a file that is not there was not removed: a process that removes a file forgets
 * its pages before it releases that lock.
 */
static void
open_file(DirtyRequest *request)
{
	const DirtyItem *first = &request->items[0];
	struct stat status;

	request->io.fd = blob_segment_open(&first->store, blob_segment_of(first->page),
									   BLOB_SEGMENT_TRY);
	request->io.file_offset = first->page % BLOB_SEGMENT_PAGES * BLOB_PAGE_SIZE;
	if (request->io.fd < 0 || fstat(request->io.fd, &status) != 0)
		request->io.error = errno;
	else if (status.st_size < (off_t) (request->io.file_offset + request->io.length))
		request->io.error = ENOENT;
}

/* Whether the frame is as it was collected, and no process writes it. */
static bool
is_unchanged(const DirtyItem *item)
{
	const BufferFrame *frame = item->frame;

	return frame->dirty_end == item->end_bytes && frame->dirty_start == item->start_bytes &&
		frame->dirty_seq == item->seq && !frame->is_writing;
}

/*
 * Mark the frames of a request as being written; false if one has changed since it was collected.
 * Then the next look at the list finds it.  The caller holds list_lock exclusively.
 */
static bool
mark(DirtyRequest *request)
{
	Assert(LWLockHeldByMe(shared->removal_lock));	/* so the file is there until the end */
	for (int i = 0; i < request->item_count; i++)
	{
		if (!is_unchanged(&request->items[i]))
			return false;
	}
	for (int i = 0; i < request->item_count; i++)
		request->items[i].frame->is_writing = true;
	return true;
}

/* Start the requests whose files are there.  Nothing is thrown from here to finish_batch(). */
static void
start_batch(int request_count)
{
	LWLockAcquire(shared->list_lock, LW_EXCLUSIVE);
	for (int i = 0; i < request_count; i++)
		requests[i].is_started = requests[i].io.error == 0 && mark(&requests[i]);
	LWLockRelease(shared->list_lock);
	for (int i = 0; i < request_count; i++)
	{
		if (!requests[i].is_started)
			continue;
		blob_io_start(&requests[i].io);
		blob_stat_count(deferred_writes, 1);
	}
	blob_io_submit();
	for (int i = 0; i < request_count; i++)
	{
		if (requests[i].is_started)
			blob_io_wait(&requests[i].io);
	}
}

/* Take the pages of a request out of the dirty range of their frames, if they were written. */
static void
finish_items(const DirtyRequest *request)
{
	for (int i = 0; i < request->item_count; i++)
	{
		BufferFrame *frame = request->items[i].frame;
		uint32		end = request->items[i].end_bytes;

		/* No other process has written this, or dropped it. */
		Assert(frame->is_writing && frame->dirty_seq == request->items[i].seq);
		frame->is_writing = false;
		if (request->io.error != 0)
			continue;
		if (frame->dirty_end == end)
			remove_frame(frame);
		else
			set_range(frame, end, frame->dirty_end);	/* pages were added meanwhile */
	}
}

/*
 * Whether a failed request keeps the caller from going on.  The pages of a request that was not
 * started may be in the list no longer: their file was removed, or another process has written
 * them.
 */
static bool
matters(const DirtyRequest *request, const DirtyFilter *filter)
{
	for (int i = 0; i < request->item_count; i++)
	{
		const DirtyItem *item = &request->items[i];

		if ((request->is_started || is_unchanged(item)) &&
			(filter->must_succeed || item->frame->is_logged))
			return true;
	}
	return false;
}

/*
 * End the requests of a batch.  False if one has failed that matters.  If another one has, a caller
 * that need not succeed goes on without pages that are not logged, for it would find them again.
 */
static bool
finish_batch(int request_count, DirtyFilter *filter, BlobDirtyFailure *failure)
{
	bool		are_written = true;

	LWLockAcquire(shared->list_lock, LW_EXCLUSIVE);
	for (int i = 0; i < request_count; i++)
	{
		const DirtyRequest *request = &requests[i];

		if (request->is_started)
			finish_items(request);
		if (request->io.error == 0)
			continue;
		if (!matters(request, filter))
		{
			/* A caller that must succeed finds them again, or waits for their writer. */
			filter->only_logged = !filter->must_succeed;
			continue;
		}
		are_written = false;
		failure->store = request->items[0].store;
		failure->segment_no = blob_segment_of(request->items[0].page);
		failure->error = request->io.error;
	}
	LWLockRelease(shared->list_lock);
	ConditionVariableBroadcast(&shared->written);
	return are_written;
}

/* Write the beginning of a list of items; *tried_count is how many were tried. */
static bool
write_batch(DirtyItem *first, int count, int *tried_count, DirtyFilter *filter,
			BlobDirtyFailure *failure)
{
	int			request_count = plan_batch(first, count, tried_count);
	bool		are_written;

	LWLockAcquire(shared->gate_lock, LW_SHARED);
	LWLockAcquire(shared->removal_lock, LW_SHARED);
	LWLockRelease(shared->gate_lock);
	for (int i = 0; i < request_count; i++)
		open_file(&requests[i]);
	Assert(!blob_io_is_claimed());
	blob_io_begin_vectors();
	start_batch(request_count);
	are_written = finish_batch(request_count, filter, failure);
	blob_io_end();
	LWLockRelease(shared->removal_lock);
	return are_written;
}

/* Wait until no process writes a page that is meant. */
static void
wait_for_others(const DirtyFilter *filter)
{
	bool		is_busy;

	ConditionVariablePrepareToSleep(&shared->written);
	while (collect(filter, &is_busy) == 0 && is_busy)
		ConditionVariableSleep(&shared->written, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

/*
 * Write all pages that are meant, and wait for those that other processes write.  False if some
 * could not be written.
 */
static bool
write_matching(DirtyFilter *filter, BlobDirtyFailure *failure)
{
	bool		are_written = true;
	bool		is_busy;
	int			count;
	int			tried;

	if (shared == NULL || pg_atomic_read_u64(&shared->dirty_bytes) == 0)
		return true;
	filter->end_seq = blob_dirty_time();
	while (are_written)
	{
		count = collect(filter, &is_busy);
		if (count == 0 && !is_busy)
			return true;
		if (count == 0)
			wait_for_others(filter);
		for (int i = 0; i < count; i += tried)
		{
			CHECK_FOR_INTERRUPTS();
			are_written &= write_batch(items + i, count - i, &tried, filter, failure);
		}
	}
	return false;
}

static void
report_failure(const BlobDirtyFailure *failure)
{
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), &failure->store, failure->segment_no);
	errno = failure->error;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not write content to file \"%s\": %m", path)));
}

bool
blob_dirty_write_segment(const BlobStoreId *store, uint32 segment_no, uint64 start_time)
{
	DirtyFilter filter = {
		.store = store,
		.segment_no = segment_no,
		.start_seq = start_time,
		.must_succeed = true
	};
	BlobDirtyFailure failure;

	if (write_matching(&filter, &failure))
		return true;
	if (failure.error != ENOENT)
		report_failure(&failure);
	return false;
}

void
blob_dirty_write_extent(const BlobStoreId *store, const BlobExtent *extent)
{
	DirtyFilter filter = {
		.store = store,
		.segment_no = BLOB_ALL_SEGMENTS,
		.generation = extent->generation,
		.must_succeed = true
	};
	BlobDirtyFailure failure;

	if (!write_matching(&filter, &failure))
		report_failure(&failure);
}

bool
blob_dirty_write_all(BlobDirtyFailure *failure)
{
	DirtyFilter filter = {.store = NULL};

	return write_matching(&filter, failure);
}

bool
blob_dirty_write_unlogged(BlobDirtyFailure *failure)
{
	DirtyFilter filter = {.store = NULL, .only_unlogged = true, .must_succeed = true};

	return write_matching(&filter, failure);
}

/* ---- freed pages ---- */

/* Whether a frame of the list lies in one of the runs, which are in order. */
static bool
is_in_runs(const BufferFrame *frame, const BlobPageRun *runs, int run_count)
{
	int			low = 0;
	int			high = run_count;

	/* The last run that begins at the page or before it. */
	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (runs[middle].first_page <= frame->page)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && frame->page < runs[low - 1].first_page + runs[low - 1].pages;
}

/*
 * Forget the dirty frames of a store that lie in the runs, except those that are being written.
 * Returns the number of these.  Takes list_lock.
 */
static int
forget_runs(const BlobStoreId *store, const BlobPageRun *runs, int run_count)
{
	DirtyFilter filter = {
		.store = store,
		.segment_no = BLOB_ALL_SEGMENTS,
		.end_seq = PG_UINT64_MAX
	};
	int			busy_count = 0;

	LWLockAcquire(shared->list_lock, LW_EXCLUSIVE);
	for (uint32 i = shared->frame_count; i > 0; i--)
	{
		BufferFrame *frame = shared->list[i - 1];

		if (!matches(frame, &filter) || !is_in_runs(frame, runs, run_count))
			continue;
		if (frame->is_writing)
			busy_count++;
		else
			remove_frame(frame);
	}
	LWLockRelease(shared->list_lock);
	return busy_count;
}

void
blob_dirty_drop(const BlobStoreId *store, const BlobPageRun *runs, int run_count)
{
	if (shared == NULL || pg_atomic_read_u64(&shared->dirty_bytes) == 0)
		return;
	/* The caller's pages would be lost until the next start if this were interrupted. */
	HOLD_INTERRUPTS();
	ConditionVariablePrepareToSleep(&shared->written);
	while (forget_runs(store, runs, run_count) > 0)
		ConditionVariableSleep(&shared->written, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
	RESUME_INTERRUPTS();
}

#ifdef USE_ASSERT_CHECKING

/* The runs are in order, as for blob_dirty_drop(). */
void
blob_dirty_check_none(const BlobStoreId *store, const BlobPageRun *runs, int run_count)
{
	DirtyFilter filter = {
		.store = store,
		.segment_no = BLOB_ALL_SEGMENTS,
		.end_seq = PG_UINT64_MAX
	};

	if (shared == NULL)
		return;
	LWLockAcquire(shared->list_lock, LW_SHARED);
	assert_list();
	for (uint32 i = 0; i < shared->frame_count; i++)
		Assert(!matches(shared->list[i], &filter) ||
			   !is_in_runs(shared->list[i], runs, run_count));
	LWLockRelease(shared->list_lock);
}

void
blob_dirty_check_written(void)
{
	LWLockAcquire(shared->list_lock, LW_SHARED);
	Assert(!shared->is_open);
	for (uint32 i = 0; i < shared->frame_count; i++)
		Assert(!shared->list[i]->is_logged);
	LWLockRelease(shared->list_lock);
}

#endif							/* USE_ASSERT_CHECKING */

/* ---- removal of files ---- */

void
blob_dirty_begin_removal(void)
{
	LWLockAcquire(shared->gate_lock, LW_EXCLUSIVE);
	LWLockAcquire(shared->removal_lock, LW_EXCLUSIVE);
	LWLockRelease(shared->gate_lock);
}

void
blob_dirty_end_removal(const BlobStoreId *store, uint32 segment_no)
{
	DirtyFilter filter = {.store = store, .segment_no = segment_no, .end_seq = PG_UINT64_MAX};

	Assert(LWLockHeldByMeInMode(shared->removal_lock, LW_EXCLUSIVE));
	if (store != NULL)
	{
		LWLockAcquire(shared->list_lock, LW_EXCLUSIVE);
		for (uint32 i = shared->frame_count; i > 0; i--)
		{
			if (matches(shared->list[i - 1], &filter))
				remove_frame(shared->list[i - 1]);
		}
		LWLockRelease(shared->list_lock);
	}
	LWLockRelease(shared->removal_lock);
}

/* ---- for the syncer ---- */

static void
set_open(bool is_open)
{
	LWLockAcquire(shared->list_lock, LW_EXCLUSIVE);
	shared->is_open = is_open;
	LWLockRelease(shared->list_lock);
}

void
blob_dirty_open(void)
{
	set_open(true);
}

void
blob_dirty_close(void)
{
	set_open(false);
}

uint64
blob_dirty_page_count(void)
{
	return shared == NULL ? 0 : pg_atomic_read_u64(&shared->dirty_bytes) / BLOB_PAGE_SIZE;
}

bool
blob_dirty_is_filling(void)
{
	return shared != NULL && shared->limit_bytes > 0 &&
		pg_atomic_read_u64(&shared->frame_bytes) >=
		shared->limit_bytes - shared->limit_bytes / SPARE_PARTS;
}

bool
blob_dirty_is_write_due(void)
{
	return shared != NULL && (blob_dirty_is_filling() ||
							  pg_atomic_read_u64(&shared->unlogged_bytes) >= MANY_UNLOGGED_BYTES);
}
