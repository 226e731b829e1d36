/*
 * extents/pipeline.c
 *	  The write pipeline, see extents/pipeline.h.
 *
 * Content goes through a fixed set of buffers in turn.  Each piece is copied and hashed in one go,
 * then handed to the kernel, so that the device works while the next piece is hashed.  The last
 * piece is hashed after that, so that its hash and its write overlap, too.  Where content is
 * logged, a piece is logged after its write has completed.
 *
 * Small writes that are logged are left to the syncer, if it accepts them (io/deferred.h).
 */
#include "postgres.h"

#include "extents/durability.h"
#include "extents/layout.h"
#include "extents/pipeline.h"
#include "io/deferred.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "wal/insert.h"

#define PIECE_PAGES (BLOB_IO_BUFFER_BYTES / BLOB_PAGE_SIZE)

StaticAssertDecl(BLOB_IO_BUFFER_BYTES <= BLOB_WAL_CONTENT_MAX_BYTES, "a piece fits one record");

/* A write that was started; the buffer of the same number holds its bytes. */
typedef struct PendingWrite
{
	BlobIoRequest request;
	BlobPageNo	first_page;
	uint32		content_bytes;
	bool		is_pending;
} PendingWrite;

/* Static, like the buffers: the kernel may still look at a request after an error. */
static PendingWrite pending[BLOB_IO_BUFFER_COUNT];

/* Whether the current call logs the content that it writes. */
static bool is_logged;

/* Copy [offset, offset + length) of a source to target. */
static void
copy_source(const BlobSource *source, uint64 offset, uint32 length, char *target)
{
	uint32		from_first = 0;

	if (offset < source->first_bytes)
	{
		from_first = (uint32) Min(length, source->first_bytes - offset);
		memcpy(target, source->first + offset, from_first);
	}
	if (from_first < length)
		memcpy(target + from_first, source->second + (offset + from_first - source->first_bytes),
			   length - from_first);
}

/* Copy and hash a piece in one go; false, and nothing done, if it is not in one place in memory. */
static bool
copy_and_hash(const BlobSource *source, uint64 offset, uint32 length, char *target,
			  BlobDigest *digest)
{
	const char *start;

	if (offset >= source->first_bytes)
		start = source->second + (offset - source->first_bytes);
	else if (offset + length <= source->first_bytes)
		start = source->first + offset;
	else
		return false;
	blob_digest_update_copy(digest, start, length, target);
	return true;
}

static void
log_content(const BlobStoreId *store, BlobPageNo first_page, const char *content,
			uint32 content_bytes, bool flush_soon)
{
	blob_wal_log_content(store, first_page, content, content_bytes, flush_soon);
	blob_stat_count(wal_content_bytes, content_bytes);
}

/*
 * Leave a small write to the syncer, and log it; false if the syncer does not accept it now.  Like
 * a write that has completed, the pages are put into the table before CONTENT is inserted.
 */
static bool
defer_write(const BlobStoreId *store, const BlobExtent *runs, int run_count,
			const BlobSource *source, BlobDigest *digest, uint64 skip_bytes)
{
	static char content[BLOB_DEFERRED_MAX_BYTES];
	BlobLayoutCursor cursor = {.extents = runs, .extent_count = run_count};
	BlobPageNo	pages[BLOB_DEFERRED_MAX_PAGES];
	uint32		total_bytes = (uint32) source->total_bytes;
	uint32		page_count = (uint32) blob_pages_for(total_bytes);
	BlobPiece	piece;

	copy_source(source, 0, total_bytes, content);
	memset(content + total_bytes, 0, page_count * BLOB_PAGE_SIZE - total_bytes);
	for (uint32 done = 0; done < page_count; done += piece.pages)
	{
		piece = blob_layout_next(&cursor, page_count - done);
		blob_durability_note(store, blob_segment_of(piece.first_page), true);
		for (uint32 i = 0; i < piece.pages; i++)
			pages[done + i] = piece.first_page + i;
	}
	if (!blob_deferred_put(store, pages, page_count, content))
		return false;
	if (digest != NULL)
		blob_digest_update(digest, content + skip_bytes, total_bytes - skip_bytes);

	cursor = (BlobLayoutCursor) {.extents = runs, .extent_count = run_count};
	for (uint32 done = 0; done < page_count; done += piece.pages)
	{
		piece = blob_layout_next(&cursor, page_count - done);
		log_content(store, piece.first_page, content + done * BLOB_PAGE_SIZE,
					Min(piece.pages * BLOB_PAGE_SIZE, total_bytes - done * BLOB_PAGE_SIZE), false);
	}
	return true;
}

static void
report_write_error(const BlobStoreId *store, BlobPageNo page, int error)
{
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), store, blob_segment_of(page));
	errno = error;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not write content to file \"%s\": %m", path)));
}

/*
 * Wait for the write of one buffer, if there is one, then log its bytes where content is logged.
 * is_last: the commit may come next.  ERROR if the write has failed.
 */
static void
finish_write(const BlobStoreId *store, int buffer_no, bool is_last)
{
	PendingWrite *write = &pending[buffer_no];

	if (!write->is_pending)
		return;
	blob_io_wait(&write->request);
	write->is_pending = false;
	if (write->request.error != 0)
		report_write_error(store, write->first_page, write->request.error);
	if (is_logged)
		log_content(store, write->first_page, blob_io_buffer(buffer_no), write->content_bytes,
					!is_last);
}

/*
 * Hand a piece in a buffer to the kernel.  The part of its last page behind the content becomes
 * zero.
 */
static void
start_write(const BlobStoreId *store, int buffer_no, BlobPiece piece, uint32 content_bytes)
{
	PendingWrite *write = &pending[buffer_no];
	uint32		length = piece.pages * BLOB_PAGE_SIZE;

	/* A deferred write of the page would come later, and undo this one. */
	if (blob_deferred_count_written(store, piece.first_page, piece.pages) < piece.pages)
		elog(ERROR, "page " UINT64_FORMAT " is written twice", piece.first_page);
	memset(blob_io_buffer(buffer_no) + content_bytes, 0, length - content_bytes);
	write->first_page = piece.first_page;
	write->content_bytes = content_bytes;
	write->request.is_write = true;
	write->request.fd = blob_segment_open(store, blob_segment_of(piece.first_page),
										  BLOB_SEGMENT_MUST_EXIST);
	write->request.file_offset = blob_layout_file_offset(piece.first_page);
	write->request.buffer_no = buffer_no;
	write->request.length = length;
	blob_io_start(&write->request);
	write->is_pending = true;
	blob_io_submit();
}

/*
 * Copy a piece to a buffer, start its write, and hash it without its first skip_bytes.  If digest
 * is NULL, nothing is hashed.  The last piece, and one that is hashed in part, is hashed after its
 * write was started.
 */
static void
write_piece(const BlobStoreId *store, int buffer_no, BlobPiece piece, const BlobSource *source,
			uint64 offset, uint32 content_bytes, BlobDigest *digest, uint32 skip_bytes)
{
	char	   *buffer = blob_io_buffer(buffer_no);
	bool		is_last = offset + content_bytes == source->total_bytes;
	bool		is_hashed = digest == NULL || skip_bytes == content_bytes;

	if (is_hashed || is_last || skip_bytes > 0 ||
		!copy_and_hash(source, offset, content_bytes, buffer, digest))
		copy_source(source, offset, content_bytes, buffer);
	else
		is_hashed = true;
	start_write(store, buffer_no, piece, content_bytes);
	if (!is_hashed)
		blob_digest_update(digest, buffer + skip_bytes, content_bytes - skip_bytes);
}

/*
 * Log the pieces whose writes have completed meanwhile, from the oldest on.  So the WAL is flushed
 * in the background while later pieces are hashed and written.  Returns the oldest buffer in use.
 */
static int
finish_completed(const BlobStoreId *store, int oldest, bool is_last)
{
	while (pending[oldest].is_pending && blob_io_poll(&pending[oldest].request))
	{
		finish_write(store, oldest, is_last);
		oldest = (oldest + 1) % BLOB_IO_BUFFER_COUNT;
	}
	return oldest;
}

/*
 * Write all pieces of a source.  The first skip_bytes of the source have been hashed already.  If
 * digest is NULL, nothing is hashed.
 */
static void
write_pieces(const BlobStoreId *store, const BlobExtent *runs, int run_count,
			 const BlobSource *source, BlobDigest *digest, uint64 skip_bytes)
{
	BlobLayoutCursor cursor = {.extents = runs, .extent_count = run_count};
	uint64		done_bytes = 0;
	int			buffer_no = 0;
	int			oldest = 0;

	while (done_bytes < source->total_bytes)
	{
		uint64		left_pages = blob_pages_for(source->total_bytes - done_bytes);
		BlobPiece	piece = blob_layout_next(&cursor, (uint32) Min(left_pages, PIECE_PAGES));
		uint32		bytes = (uint32) Min((uint64) piece.pages * BLOB_PAGE_SIZE,
										 source->total_bytes - done_bytes);

		CHECK_FOR_INTERRUPTS();
		if (pending[buffer_no].is_pending)
		{
			finish_write(store, buffer_no, false);
			oldest = (buffer_no + 1) % BLOB_IO_BUFFER_COUNT;
		}
		blob_durability_note(store, blob_segment_of(piece.first_page), is_logged);
		write_piece(store, buffer_no, piece, source, done_bytes, bytes, digest,
					(uint32) Min(bytes, skip_bytes - Min(skip_bytes, done_bytes)));
		done_bytes += bytes;
		buffer_no = (buffer_no + 1) % BLOB_IO_BUFFER_COUNT;
		if (is_logged)
			oldest = finish_completed(store, oldest, done_bytes == source->total_bytes);
	}
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		finish_write(store, (buffer_no + i) % BLOB_IO_BUFFER_COUNT, true);
}

/*
 * Log OMITTED in place of the content, so that copies of this server know which generations they
 * lack.  Adjacent generations are joined to one range.
 */
static void
log_omission(const BlobStoreId *store, const BlobExtent *runs, int run_count)
{
	BlobGenerationRange *ranges = palloc(sizeof(BlobGenerationRange) * run_count);
	BlobWalOmitted record = {.first_page = runs[0].first_page};

	for (int i = 0; i < run_count; i++)
	{
		BlobGeneration generation = runs[i].generation;
		BlobGenerationRange *last = record.range_count > 0 ?
			&ranges[record.range_count - 1] : NULL;

		Assert(generation != BLOB_INVALID_GENERATION);
		record.page_count += runs[i].pages;
		if (last != NULL && generation >= last->first && generation <= last->last + 1)
			last->last = Max(last->last, generation);
		else
		{
			ranges[record.range_count].first = generation;
			ranges[record.range_count++].last = generation;
		}
	}
	blob_wal_log_omitted(store, &record, ranges);
	pfree(ranges);
}

void
blob_pipeline_write(const BlobStoreId *store, const BlobExtent *runs, int run_count,
					const BlobSource *source, BlobDigest *digest, uint64 skip_bytes)
{
	int			segment_count = 0;

	for (int i = 0; i < run_count; i++)
		segment_count += blob_segment_of(runs[i].first_page + runs[i].pages - 1) -
			blob_segment_of(runs[i].first_page) + 1;
	blob_durability_prepare(segment_count);
	is_logged = blob_durability_wants_log(source->total_bytes);
	if (is_logged && source->total_bytes <= BLOB_DEFERRED_MAX_BYTES &&
		defer_write(store, runs, run_count, source, digest, skip_bytes))
		return;

	blob_io_begin();
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		pending[i].is_pending = false;
	PG_TRY();
	{
		write_pieces(store, runs, run_count, source, digest, skip_bytes);
	}
	PG_FINALLY();
	{
		blob_io_drain();
		blob_io_end();
	}
	PG_END_TRY();
	if (!is_logged)
		log_omission(store, runs, run_count);
}
