/*
 * io/dirty_write.c
 *	  Writing the dirty slabs of the buffer, see io/dirty.h; locks are those of dirty.c.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "utils/wait_event.h"
#include "io/dirty.h"
#include "io/dirty_internal.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

/* Slabs that one look at the list collects. */
#define MAX_ITEMS 4096

/*
 * Requests that are in flight together: 1 MiB.  A disk works at full speed then, and the flushes of
 * the WAL beside them need not wait long.
 */
#define BATCH_REQUESTS 4

/* A slab that a process has found in the list, and what it found there. */
typedef struct DirtyItem
{
	BufferSlab *slab;
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

/* Static: no memory is needed to write pages. */
static DirtyItem items[MAX_ITEMS];
static DirtyRequest requests[BATCH_REQUESTS];

/* ---- collecting ---- */

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
 * Collect slabs that are meant and that no process writes, in the order of their pages.  Returns
 * their number, at most MAX_ITEMS; *is_busy: another process writes one that is meant.  Takes
 * list_lock.
 */
static int
collect(const BlobDirtyFilter *filter, bool *is_busy)
{
	int			count = 0;

	*is_busy = false;
	LWLockAcquire(blob_dirty->list_lock, LW_SHARED);
	blob_dirty_assert_list();
	for (uint32 i = 0; i < blob_dirty->slab_count && count < MAX_ITEMS; i++)
	{
		BufferSlab *slab = blob_dirty->list[i];
		DirtyItem  *item = &items[count];

		if (!blob_dirty_matches(slab, filter))
			continue;
		if (slab->is_writing)
		{
			*is_busy = true;
			continue;
		}
		item->slab = slab;
		item->seq = slab->dirty_seq;
		blob_dirty_store_of(slab, &item->store);
		item->page = slab->page + slab->dirty_start / BLOB_PAGE_SIZE;
		item->start_bytes = slab->dirty_start;
		item->end_bytes = slab->dirty_end;
		count++;
	}
	LWLockRelease(blob_dirty->list_lock);
	qsort(items, count, sizeof(*items), compare_places);
	return count;
}

/* ---- writing ---- */

/*
 * Add memory to the vectors of a request: to the last one, if it goes on there, as slabs that were
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
	if (!add_memory(&request->io, blob_slab_content(item->slab) + item->start_bytes, length))
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

/* Whether the slab is as it was collected, and no process writes it. */
static bool
is_unchanged(const DirtyItem *item)
{
	const BufferSlab *slab = item->slab;

	return slab->dirty_end == item->end_bytes && slab->dirty_start == item->start_bytes &&
		slab->dirty_seq == item->seq && !slab->is_writing;
}

/*
 * Mark the slabs of a request as being written; false if one has changed since it was collected.
 * Then the next look at the list finds it.  The caller holds list_lock exclusively.
 */
static bool
mark(DirtyRequest *request)
{
	Assert(LWLockHeldByMe(blob_dirty->removal_lock));	/* so the file is there until the end */
	for (int i = 0; i < request->item_count; i++)
	{
		if (!is_unchanged(&request->items[i]))
			return false;
	}
	for (int i = 0; i < request->item_count; i++)
		request->items[i].slab->is_writing = true;
	return true;
}

/* Start the requests whose files are there.  Nothing is thrown from here to finish_batch(). */
static void
start_batch(int request_count)
{
	LWLockAcquire(blob_dirty->list_lock, LW_EXCLUSIVE);
	for (int i = 0; i < request_count; i++)
		requests[i].is_started = requests[i].io.error == 0 && mark(&requests[i]);
	LWLockRelease(blob_dirty->list_lock);
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

/* Take the pages of a request out of the dirty range of their slabs, if they were written. */
static void
finish_items(const DirtyRequest *request)
{
	for (int i = 0; i < request->item_count; i++)
	{
		BufferSlab *slab = request->items[i].slab;
		uint32		end = request->items[i].end_bytes;

		/* No other process has written this, or dropped it. */
		Assert(slab->is_writing && slab->dirty_seq == request->items[i].seq);
		slab->is_writing = false;
		if (request->io.error != 0)
			continue;
		if (slab->dirty_end == end)
			blob_dirty_remove_slab(slab);
		else
			blob_dirty_set_range(slab, end, slab->dirty_end);	/* pages were added meanwhile */
	}
}

/*
 * Whether a failed request keeps the caller from going on.  The pages of a request that was not
 * started may be in the list no longer: their file was removed, or another process has written
 * them.
 */
static bool
matters(const DirtyRequest *request, const BlobDirtyFilter *filter)
{
	for (int i = 0; i < request->item_count; i++)
	{
		const DirtyItem *item = &request->items[i];

		if ((request->is_started || is_unchanged(item)) &&
			(filter->must_succeed || item->slab->is_logged))
			return true;
	}
	return false;
}

/*
 * End the requests of a batch.  False if one has failed that matters.  If another one has, a caller
 * that need not succeed goes on without pages that are not logged, for it would find them again.
 */
static bool
finish_batch(int request_count, BlobDirtyFilter *filter, BlobDirtyFailure *failure)
{
	bool		are_written = true;

	LWLockAcquire(blob_dirty->list_lock, LW_EXCLUSIVE);
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
	LWLockRelease(blob_dirty->list_lock);
	ConditionVariableBroadcast(&blob_dirty->written);
	return are_written;
}

/* Write the beginning of a list of items; *tried_count is how many were tried. */
static bool
write_batch(DirtyItem *first, int count, int *tried_count, BlobDirtyFilter *filter,
			BlobDirtyFailure *failure)
{
	int			request_count = plan_batch(first, count, tried_count);
	bool		are_written;

	LWLockAcquire(blob_dirty->gate_lock, LW_SHARED);
	LWLockAcquire(blob_dirty->removal_lock, LW_SHARED);
	LWLockRelease(blob_dirty->gate_lock);
	for (int i = 0; i < request_count; i++)
		open_file(&requests[i]);
	Assert(!blob_io_is_used());
	blob_io_begin_vectors();
	start_batch(request_count);
	are_written = finish_batch(request_count, filter, failure);
	blob_io_end();
	LWLockRelease(blob_dirty->removal_lock);
	return are_written;
}

/* Wait until no process writes a page that is meant. */
static void
wait_for_others(const BlobDirtyFilter *filter)
{
	bool		is_busy;

	ConditionVariablePrepareToSleep(&blob_dirty->written);
	while (collect(filter, &is_busy) == 0 && is_busy)
		ConditionVariableSleep(&blob_dirty->written, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

/*
 * Write all pages that are meant, and wait for those that other processes write.  False if some
 * could not be written.
 */
static bool
write_matching(BlobDirtyFilter *filter, BlobDirtyFailure *failure)
{
	bool		are_written = true;
	bool		is_busy;
	int			count;
	int			tried;

	if (blob_dirty == NULL || pg_atomic_read_u64(&blob_dirty->dirty_bytes) == 0)
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
	BlobDirtyFilter filter = {
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
	BlobDirtyFilter filter = {
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
	BlobDirtyFilter filter = {.store = NULL};

	return write_matching(&filter, failure);
}

bool
blob_dirty_write_unlogged(BlobDirtyFailure *failure)
{
	BlobDirtyFilter filter = {.store = NULL, .only_unlogged = true, .must_succeed = true};

	return write_matching(&filter, failure);
}
