/*
 * blob/create.c
 *	  Writing a value to extents: allocate, write while hashing, log.
 *
 * Order: extents are allocated, in the map and in the WAL first, so that a crash leaves no page
 * that the map calls free and that some index key names.  Content is written through a ring of
 * buffers; each piece is copied, handed to the kernel, then hashed while the device works.  A
 * piece is logged (where content is logged at all) after its write has completed.  All writes
 * have completed on return; whether they are durable then is up to blob/durability.c.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "blob/blob.h"
#include "blob/durability.h"
#include "blob/layout.h"
#include "blob/writer.h"
#include "core/settings.h"
#include "fmgr.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "space/space.h"
#include "wal/insert.h"

#define PIECE_PAGES (BLOB_IO_BUFFER_BYTES / BLOB_PAGE_SIZE)

StaticAssertDecl(BLOB_IO_BUFFER_BYTES <= BLOB_WAL_CONTENT_MAX_BYTES, "a piece fits one record");

/* A write that was started; the ring's buffer of the same number holds its bytes. */
typedef struct PendingWrite
{
	BlobIoRequest request;
	BlobPageNo	first_page;
	uint32		content_bytes;
	bool		is_pending;
} PendingWrite;

/* Static, like the buffers: the kernel may still look at it after an error. */
static PendingWrite pending[BLOB_IO_BUFFER_COUNT];

bool
blob_may_allocate(void)
{
	return !XactReadOnly && !RecoveryInProgress() && !IsParallelWorker() &&
		(!IsInParallelMode() || TransactionIdIsValid(GetTopTransactionIdIfAny()));
}

static void
report_write_error(const BlobSpaceId *space, BlobPageNo page, int error)
{
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), space, blob_segment_of(page));
	errno = error;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not write content to file \"%s\": %m", path)));
}

/* Wait for one write; then its bytes may be logged.  is_last: the commit may come next. */
static void
finish_write(const BlobSpaceId *space, int buffer_no, bool is_last)
{
	PendingWrite *write = &pending[buffer_no];

	if (!write->is_pending)
		return;
	blob_io_wait(&write->request);
	write->is_pending = false;
	if (write->request.error != 0)
		report_write_error(space, write->first_page, write->request.error);
	if (blob_wal_logs_content())
	{
		blob_wal_log_content(space, write->first_page, blob_io_buffer(buffer_no),
							 write->content_bytes, !is_last);
		blob_stat_count(wal_content_bytes, write->content_bytes);
	}
}

/* Copy a piece to a buffer and hand it to the kernel; the rest of its last page becomes zero. */
static void
start_write(const BlobSpaceId *space, int buffer_no, BlobPiece piece, const char *data,
			uint32 content_bytes)
{
	PendingWrite *write = &pending[buffer_no];
	char	   *buffer = blob_io_buffer(buffer_no);
	uint32		length = piece.pages * BLOB_PAGE_SIZE;

	memcpy(buffer, data, content_bytes);
	memset(buffer + content_bytes, 0, length - content_bytes);
	write->first_page = piece.first_page;
	write->content_bytes = content_bytes;
	write->request.is_write = true;
	write->request.fd = blob_segment_open(space, blob_segment_of(piece.first_page),
										  BLOB_SEGMENT_MUST_EXIST);
	write->request.file_offset = blob_layout_file_offset(piece.first_page);
	write->request.buffer_no = buffer_no;
	write->request.length = length;
	blob_io_start(&write->request);
	write->is_pending = true;
	blob_io_submit();
}

/*
 * Log what has been written meanwhile, from the oldest on, so that the WAL is flushed in the
 * background while later pieces are hashed and written.
 */
static int
finish_completed(const BlobSpaceId *space, int oldest)
{
	while (pending[oldest].is_pending && blob_io_poll(&pending[oldest].request))
	{
		finish_write(space, oldest, false);
		oldest = (oldest + 1) % BLOB_IO_BUFFER_COUNT;
	}
	return oldest;
}

static void
write_pieces(const BlobSpaceId *space, const BlobExtent *extents, int extent_count,
			 const char *data, uint64 size_bytes, BlobDigest *digest)
{
	BlobLayoutCursor cursor = {.extents = extents, .extent_count = extent_count};
	uint64		done_bytes = 0;
	int			buffer_no = 0;
	int			oldest = 0;

	while (done_bytes < size_bytes)
	{
		uint64		left_pages = blob_pages_for(size_bytes - done_bytes);
		BlobPiece	piece = blob_layout_next(&cursor, (uint32) Min(left_pages, PIECE_PAGES));
		uint32		bytes = (uint32) Min((uint64) piece.pages * BLOB_PAGE_SIZE,
										 size_bytes - done_bytes);

		CHECK_FOR_INTERRUPTS();
		if (pending[buffer_no].is_pending)
		{
			finish_write(space, buffer_no, false);
			oldest = (buffer_no + 1) % BLOB_IO_BUFFER_COUNT;
		}
		blob_durability_note(space, blob_segment_of(piece.first_page));
		start_write(space, buffer_no, piece, data + done_bytes, bytes);
		blob_digest_update(digest, data + done_bytes, bytes);
		done_bytes += bytes;
		buffer_no = (buffer_no + 1) % BLOB_IO_BUFFER_COUNT;
		if (blob_wal_logs_content())
			oldest = finish_completed(space, oldest);
	}
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		finish_write(space, (buffer_no + i) % BLOB_IO_BUFFER_COUNT, true);
}

/* Write all content; nothing is in flight when this returns or throws. */
static void
write_content(const BlobSpaceId *space, const BlobExtent *extents, int extent_count,
			  const char *data, uint64 size_bytes, BlobDigest *digest)
{
	int			segment_count = 0;

	for (int i = 0; i < extent_count; i++)
		segment_count += blob_segment_of(extents[i].first_page + extents[i].pages - 1) -
			blob_segment_of(extents[i].first_page) + 1;
	blob_durability_prepare(segment_count);

	blob_io_begin();
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		pending[i].is_pending = false;
	PG_TRY();
	{
		write_pieces(space, extents, extent_count, data, size_bytes, digest);
	}
	PG_FINALLY();
	{
		blob_io_drain();
		blob_io_end();
	}
	PG_END_TRY();
}

static struct varlena *
create_extents(const char *data, uint64 size_bytes)
{
	BlobTierPlan plan = blob_tier_plan(blob_pages_for(size_bytes), blob_tail_extents);
	BlobExtent *extents = palloc(sizeof(BlobExtent) * (plan.extent_count + 1));
	BlobDescriptor descriptor = {.size_bytes = size_bytes};
	BlobDigest	digest;
	BlobSpace	space;
	int			extent_count;
	struct varlena *datum;

	(void) GetTopTransactionId();	/* so that the commit writes a record, after our content */
	blob_space_open(&space, RowExclusiveLock);
	extent_count = blob_space_allocate(&space, &plan, size_bytes, extents);

	blob_digest_begin(&digest);
	write_content(&space.id, extents, extent_count, data, size_bytes, &digest);
	blob_space_close(&space);
	blob_durability_publish();

	blob_digest_finish(&digest, descriptor.sha256, descriptor.state);
	memcpy(descriptor.prefix, data, Min(size_bytes, BLOB_PREFIX_BYTES));
	for (int i = 0; i < extent_count; i++)
		descriptor.generation = Max(descriptor.generation, extents[i].generation);
	datum = blob_descriptor_pack(&descriptor, extents, extent_count);
	pfree(extents);

	blob_stat_count(stored_blobs, 1);
	blob_stat_count(stored_bytes, size_bytes);
	return datum;
}

Datum
blob_from_bytes(const char *data, uint64 size_bytes, bool may_externalize)
{
	struct varlena *datum;

	if (may_externalize && size_bytes > (uint64) blob_inline_limit_bytes && blob_may_allocate())
		return PointerGetDatum(create_extents(data, size_bytes));

	datum = blob_inline_make(size_bytes);
	memcpy(blob_inline_content(datum), data, size_bytes);
	return PointerGetDatum(datum);
}

Datum
blob_externalize(Datum datum)
{
	struct varlena *plain;
	BlobValue	value;
	Datum		result;

	/* Cheap way out for what is surely small enough. */
	if (VARATT_IS_SHORT(DatumGetPointer(datum)) &&
		VARSIZE_SHORT(DatumGetPointer(datum)) <= (Size) blob_inline_limit_bytes)
		return datum;

	plain = PG_DETOAST_DATUM_PACKED(datum);
	blob_value_unpack(plain, &value);
	if (value.is_inline && value.size_bytes > (uint64) blob_inline_limit_bytes &&
		blob_may_allocate())
		result = PointerGetDatum(create_extents(value.inline_data, value.size_bytes));
	else
	{
		/* It may be one of ours, from before, that has not been synced. */
		if (!value.is_inline)
			blob_durability_publish();
		result = datum;
	}
	if ((Pointer) plain != DatumGetPointer(datum))
		pfree(plain);
	return result;
}
