/*
 * recovery/content_queue.c
 *	  The content queue: writes of replayed content in flight, and the segments to sync, see
 *	  recovery/content_queue.h.
 *
 * The buffers of the I/O engine are used in turn.  So the next buffer is that of the oldest write,
 * and at most BLOB_IO_BUFFER_COUNT - 1 other segments are opened before a write is waited for:
 * fewer than the descriptors that stay open (BLOB_SEGMENT_PINS).
 */
#include "postgres.h"

#include "io/engine.h"
#include "io/segment.h"
#include "io/write_counts.h"
#include "recovery/content_queue.h"
#include "recovery/invalid_segments.h"

/* Segments that are on the sync list at a time. */
#define SYNC_LIST_SIZE 16

/* A write; static, as the buffers are, because it outlives the redo of its record. */
typedef struct QueuedWrite
{
	BlobIoRequest request;
	BlobStoreId store;
	BlobPageNo	first_page;
	BlobPageNo	end_page;
	bool		is_pending;		/* its result has not been looked at */
} QueuedWrite;

StaticAssertDecl(BLOB_IO_BUFFER_COUNT < BLOB_SEGMENT_PINS,
				 "files of writes in flight must stay open");

static QueuedWrite writes[BLOB_IO_BUFFER_COUNT];	/* by the number of the buffer */
static int	next_write = 0;		/* the oldest one */
static bool has_claim = false;	/* of the I/O engine */

static BlobSegmentId sync_list[SYNC_LIST_SIZE];
static int	sync_count = 0;

/* Wait for one write, and count it.  PANIC if it has failed. */
static void
finish_write(QueuedWrite *write)
{
	if (!write->is_pending)
		return;
	blob_io_wait(&write->request);
	write->is_pending = false;
	if (write->request.error != 0)
	{
		errno = write->request.error;
		ereport(PANIC,
				(errcode_for_file_access(),
				 errmsg("could not replay content of page " UINT64_FORMAT ": %m",
						write->first_page)));
	}
	blob_write_counts_add(&write->store, write->first_page, write->end_page - write->first_page);
}

void
blob_content_queue_wait(void)
{
	if (!has_claim)
		return;
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		finish_write(&writes[i]);
	blob_io_end();
	has_claim = false;
}

void
blob_content_queue_sync(void)
{
	blob_content_queue_wait();
	for (int i = 0; i < sync_count; i++)
	{
		BlobStoreId store = {
			.dboid = sync_list[i].dboid,
			.incarnation = sync_list[i].incarnation
		};

		if (!blob_segment_sync(&store, sync_list[i].segment_no, 0))
			blob_invalid_segments_disappeared(&store, sync_list[i].segment_no);
	}
	sync_count = 0;
}

static bool
is_of(const BlobSegmentId *entry, const BlobStoreId *store, uint32 segment_no)
{
	return entry->dboid == store->dboid && entry->incarnation == store->incarnation &&
		(entry->segment_no == segment_no || segment_no == BLOB_ALL_SEGMENTS);
}

void
blob_content_queue_forget(const BlobStoreId *store, uint32 segment_no)
{
	for (int i = sync_count - 1; i >= 0; i--)
	{
		if (is_of(&sync_list[i], store, segment_no))
			sync_list[i] = sync_list[--sync_count];
	}
}

/*
 * Put a segment on the sync list.  It is there before its first write is started.  A startup
 * process that was killed may have left writes to it, which are waited for.
 */
static void
list_segment(const BlobStoreId *store, uint32 segment_no)
{
	for (int i = 0; i < sync_count; i++)
	{
		if (is_of(&sync_list[i], store, segment_no))
			return;
	}
	if (sync_count == SYNC_LIST_SIZE)
		blob_content_queue_sync();
	blob_segment_settle(store, segment_no);
	sync_list[sync_count++] = (BlobSegmentId) {store->incarnation, store->dboid, segment_no};
}

/* Wait for the writes in flight that have a page in common with these: they come first. */
static void
finish_overlapping(const BlobStoreId *store, BlobPageNo first_page, BlobPageNo end_page)
{
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
	{
		QueuedWrite *write = &writes[i];

		if (write->is_pending && write->first_page < end_page && first_page < write->end_page &&
			blob_store_id_equals(&write->store, store))
			finish_write(write);
	}
}

/*
 * A write in flight has a claim of the engine, and a segment that is synced afterwards; no two of
 * them have a page in common, for then the device would choose the order.
 */
static void
assert_queue(void)
{
#ifdef USE_ASSERT_CHECKING
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
	{
		const QueuedWrite *write = &writes[i];
		bool		is_listed = false;

		if (!write->is_pending)
			continue;
		for (int k = 0; k < sync_count; k++)
			is_listed |= is_of(&sync_list[k], &write->store, blob_segment_of(write->first_page));
		Assert(has_claim && is_listed);
		for (int k = 0; k < i; k++)
			Assert(!writes[k].is_pending ||
				   !blob_store_id_equals(&writes[k].store, &write->store) ||
				   writes[k].first_page >= write->end_page ||
				   write->first_page >= writes[k].end_page);
	}
#endif
}

#ifdef USE_ASSERT_CHECKING

void
blob_content_queue_check_complete(void)
{
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		Assert(!writes[i].is_pending);
}

void
blob_content_queue_check_durable(void)
{
	blob_content_queue_check_complete();
	Assert(sync_count == 0);
}

#endif							/* USE_ASSERT_CHECKING */

/* The engine's next buffer, which no write uses, and the write that will. */
static QueuedWrite *
take_buffer(char **buffer)
{
	QueuedWrite *write = &writes[next_write];

	if (!has_claim)
		blob_io_begin();
	has_claim = true;
	finish_write(write);
	write->request.buffer_no = next_write;
	*buffer = blob_io_buffer(next_write);
	next_write = (next_write + 1) % BLOB_IO_BUFFER_COUNT;
	return write;
}

void
blob_content_queue_write(const BlobStoreId *store, BlobPageNo first_page, const char *data,
						 uint32 length_bytes)
{
	uint32		segment_no = blob_segment_of(first_page);
	BlobPageNo	end_page = first_page + blob_pages_for(length_bytes);
	uint32		page_bytes = (uint32) (end_page - first_page) * BLOB_PAGE_SIZE;
	QueuedWrite *write;
	char	   *buffer;

	list_segment(store, segment_no);
	finish_overlapping(store, first_page, end_page);
	write = take_buffer(&buffer);
	memcpy(buffer, data, length_bytes);
	memset(buffer + length_bytes, 0, page_bytes - length_bytes);
	write->store = *store;
	write->first_page = first_page;
	write->end_page = end_page;
	write->request.is_write = true;
	write->request.fd = blob_segment_open(store, segment_no, BLOB_SEGMENT_CREATE);
	write->request.file_offset = (first_page % BLOB_SEGMENT_PAGES) * BLOB_PAGE_SIZE;
	write->request.length = page_bytes;
	blob_io_start(&write->request);
	write->is_pending = true;
	assert_queue();
	blob_io_submit();
}
