/*
 * extents/pipeline.c
 *	  The write pipeline, see extents/pipeline.h.
 *
 * Content is copied and hashed in one go, piece by piece, into frames of the buffer.  A piece whose
 * write can be left to others becomes dirty there, and is logged at once.  Another piece is handed
 * to the kernel, from the frames, so that the device works while the next piece is hashed; where
 * content is logged, it is logged after its write has completed.  If no frames can be had, a piece
 * is written from where it lies, or goes through a buffer of the I/O engine.
 *
 * The last piece is hashed after its write was started, so that its hash and its write overlap,
 * too.
 *
 * Where the caller allows it, a call returns while its writes are in flight: they trail.
 */
#include "postgres.h"

#include "access/xact.h"
#include "core/hasher.h"
#include "core/settings.h"
#include "extents/durability.h"
#include "extents/layout.h"
#include "extents/omissions.h"
#include "extents/pipeline.h"
#include "io/buffer.h"
#include "io/disk_room.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"
#include "io/syncer.h"
#include "io/write_counts.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "utils/memutils.h"
#include "wal/insert.h"

#define PIECE_PAGES (BLOB_IO_BUFFER_BYTES / BLOB_PAGE_SIZE)

/* Parts of a piece: each lies in one chunk of the buffer. */
#define MAX_PARTS BLOB_WAL_CONTENT_MAX_PARTS

/* Writes in flight: of content that is logged, fewer, since flushes of the WAL must get through. */
#define MAX_PIECES BLOB_IO_BUFFER_COUNT
#define MAX_LOGGED_PIECES 4

/* Content that is not logged is written at once, unless it is as small as this. */
#define MAX_UNLOGGED_BYTES (128 * 1024)

/* How often a transaction of many values asks for a flush of the WAL. */
#define FLUSH_INTERVAL_BYTES (1024 * 1024)

/* The commit of a transaction that has logged more than this is not expected soon. */
#define NEAR_COMMIT_BYTES (16 * 1024 * 1024)

/*
 * Values in memory that are hashed by the thread: to wake it up takes as long as to hash 80 kB.
 * The second limit is that of logged content while no other process stores.
 */
#define MIN_OVERLAP_BYTES (512 * 1024)
#define MIN_ALONE_OVERLAP_BYTES (192 * 1024)

StaticAssertDecl(BLOB_IO_BUFFER_BYTES <= BLOB_WAL_CONTENT_MAX_BYTES, "a piece fits one record");
StaticAssertDecl(MAX_PARTS <= BLOB_IO_MAX_VECTORS, "its parts fit one request");

typedef struct WritePart
{
	const BlobExtent *extent;
	uint64		extent_offset;	/* bytes, a multiple of the page */
	uint32		length;			/* bytes, a multiple of the page */
	uint32		content_bytes;
	char	   *memory;
	int			write_no;		/* of the buffer, or -1 */
	bool		is_in_place;	/* the memory is the source's */
} WritePart;

/* Pages that are adjacent in one segment file, and their content. */
typedef struct WritePiece
{
	BlobIoRequest request;
	BlobPageNo	first_page;
	uint32		content_bytes;
	int			part_count;
	WritePart	parts[MAX_PARTS];
	bool		is_pending;		/* its write was started */
} WritePiece;

/* Static, like the buffers: the kernel may still look at a request after an error. */
static WritePiece pieces[MAX_PIECES];

StaticAssertDecl(MAX_PIECES <= BLOB_IO_MAX_TRAILING, "all pieces may trail");

/* Pieces that trail. */
static bool may_trail;
static bool trails;
static BlobStoreId trailing_store;	/* that all of them belong to */
static BlobWriteRun *trailing_runs; /* of their call */
static int	trailing_run_count;
static int	trailing_run_capacity;

/* A call of blob_pipeline_write(). */
typedef struct Pipeline
{
	const BlobStoreId *store;
	const BlobWriteRun *runs;
	int			run_count;
	int			run_no;			/* where the next piece begins */
	uint64		page_in_run;
	const BlobSource *source;
	uint64		done_bytes;		/* of the source */
	BlobDigest *digest;			/* NULL: nothing is hashed */
	uint64		skip_bytes;		/* that are hashed already */
	bool		uses_thread;	/* it hashes the content of this call */
	bool		overlaps;		/* it hashes a value in memory, and the process waits for it */
	bool		is_logged;
	int			piece_count;	/* of pieces[], used in turn */
	bool		uses_buffer;
	bool		may_defer;
	bool		has_deferred;	/* a piece that is not logged */
	bool		trails;			/* its writes may trail */
} Pipeline;

/* ---- the content of a piece ---- */

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

/* Copy and hash a part in one go; false, and nothing done, if it is not in one place in memory. */
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

/* Hash the content of a part, without bytes that are hashed already. */
static void
hash_part(const Pipeline *pipeline, const WritePart *part, uint64 offset)
{
	uint32		skip = (uint32) Min(part->content_bytes,
									pipeline->skip_bytes - Min(pipeline->skip_bytes, offset));

	if (pipeline->digest != NULL && skip < part->content_bytes)
		blob_digest_update(pipeline->digest, part->memory + skip, part->content_bytes - skip);
}

/* Hand a part of the source over to the thread, where it lies, without bytes that are hashed. */
static void
hand_over(const Pipeline *pipeline, uint64 offset, uint32 length)
{
	const BlobSource *source = pipeline->source;
	uint64		end = offset + length;
	uint64		start = Max(offset, pipeline->skip_bytes);

	if (start < Min(end, source->first_bytes))
	{
		uint64		first_end = Min(end, source->first_bytes);

		blob_hasher_add(pipeline->digest, source->first + start, first_end - start);
		start = first_end;
	}
	if (start < end)
		blob_hasher_add(pipeline->digest, source->second + (start - source->first_bytes),
						end - start);
}

/* Copy the content of a piece to its memory, and hash it there, or in one go, or not here. */
static void
copy_piece(const Pipeline *pipeline, const WritePiece *piece, bool hashes)
{
	uint64		offset = pipeline->done_bytes;

	for (int i = 0; i < piece->part_count; i++)
	{
		const WritePart *part = &piece->parts[i];
		uint32		bytes = part->content_bytes;

		if (pipeline->uses_thread)
			hand_over(pipeline, offset, bytes);
		if (part->is_in_place || !hashes || pipeline->digest == NULL ||
			offset < pipeline->skip_bytes ||
			!copy_and_hash(pipeline->source, offset, bytes, part->memory, pipeline->digest))
		{
			if (!part->is_in_place)
				copy_source(pipeline->source, offset, bytes, part->memory);
			if (hashes)
				hash_part(pipeline, part, offset);
		}
		memset(part->memory + bytes, 0, part->length - bytes);
		offset += bytes;
	}
}

/* Hash a piece whose content was copied only. */
static void
hash_piece(const Pipeline *pipeline, const WritePiece *piece)
{
	uint64		offset = pipeline->done_bytes;

	for (int i = 0; i < piece->part_count; i++)
	{
		hash_part(pipeline, &piece->parts[i], offset);
		offset += piece->parts[i].content_bytes;
	}
}

/* ---- the place of a piece ---- */

/*
 * Add the next pages of the runs to a piece, as far as they lie in one chunk of the buffer.  False
 * if they do not continue the piece, or it is full.
 */
static bool
add_part(Pipeline *pipeline, WritePiece *piece, uint32 left_pages, uint32 left_bytes)
{
	const BlobWriteRun *run = &pipeline->runs[pipeline->run_no];
	uint64		page_in_extent = run->page_in_extent + pipeline->page_in_run;
	BlobPageNo	page = run->extent.first_page + page_in_extent;
	uint32		chunk_pages = blob_buffer_chunk_bytes(run->extent.pages) / BLOB_PAGE_SIZE;
	uint64		pages = Min(run->pages - pipeline->page_in_run,
							chunk_pages - page_in_extent % chunk_pages);
	WritePart  *part = &piece->parts[piece->part_count];

	if (piece->part_count == MAX_PARTS ||
		(piece->part_count > 0 && (page % BLOB_SEGMENT_PAGES == 0 ||
								   page != piece->first_page +
								   piece->request.length / BLOB_PAGE_SIZE)))
		return false;
	pages = Min(pages, blob_layout_pages_left_in_segment(page));
	pages = Min(pages, left_pages);
	if (piece->part_count++ == 0)
		piece->first_page = page;
	part->extent = &run->extent;
	part->extent_offset = page_in_extent * BLOB_PAGE_SIZE;
	part->length = (uint32) pages * BLOB_PAGE_SIZE;
	part->content_bytes = Min(part->length, left_bytes);
	piece->content_bytes += part->content_bytes;
	piece->request.length += part->length;
	pipeline->page_in_run += pages;
	if (pipeline->page_in_run == run->pages)
	{
		pipeline->run_no++;
		pipeline->page_in_run = 0;
	}
	return true;
}

/* Take the next pages of the runs, as many as one request can have, as a piece. */
static void
take_piece(Pipeline *pipeline, WritePiece *piece)
{
	uint64		left_bytes = pipeline->source->total_bytes - pipeline->done_bytes;
	uint32		pages = (uint32) Min(blob_pages_for(left_bytes), PIECE_PAGES);
	uint32		bytes = (uint32) Min(left_bytes, (uint64) pages * BLOB_PAGE_SIZE);

	piece->part_count = 0;
	piece->content_bytes = 0;
	piece->request.length = 0;
	while (piece->content_bytes < bytes &&
		   add_part(pipeline, piece, pages - piece->request.length / BLOB_PAGE_SIZE,
					bytes - piece->content_bytes))
		;
}

/*
 * Where the source has the content of a part, if it can be written from there: whole pages in one
 * place, which begin at a multiple of a page, as direct I/O wants it.  Otherwise NULL.
 */
static char *
find_in_place(const BlobSource *source, uint64 offset, const WritePart *part)
{
	const char *start;

	if (part->content_bytes < part->length)
		return NULL;
	if (offset >= source->first_bytes)
		start = source->second + (offset - source->first_bytes);
	else if (offset + part->length <= source->first_bytes)
		start = source->first + offset;
	else
		return NULL;
	return (uintptr_t) start % BLOB_PAGE_SIZE == 0 ? (char *) start : NULL;
}

static void
claim_engine(void)
{
	if (!blob_io_is_claimed())
		blob_io_begin();
}

static void
end_claim(void)
{
	if (blob_io_is_claimed())
		blob_io_end();
}

/*
 * Find memory for the parts of a piece: frames of the buffer; or the source's, or the engine's
 * buffer of the same number.  True if all are frames.
 */
static bool
place_piece(Pipeline *pipeline, int piece_no)
{
	WritePiece *piece = &pieces[piece_no];
	bool		are_frames = true;
	uint32		offset = 0;

	for (int i = 0; i < piece->part_count; i++)
	{
		WritePart  *part = &piece->parts[i];

		part->is_in_place = false;
		part->write_no = !pipeline->uses_buffer ? -1 :
			blob_buffer_begin_write(pipeline->store, part->extent, part->extent_offset,
									part->length);
		if (part->write_no >= 0)
			part->memory = blob_buffer_write_memory(part->write_no);
		else
		{
			are_frames = false;
			claim_engine();
			part->memory = find_in_place(pipeline->source, pipeline->done_bytes + offset, part);
			part->is_in_place = part->memory != NULL;
			if (!part->is_in_place)
				part->memory = blob_io_buffer(piece_no) + offset;
		}
		offset += part->length;
	}
	return are_frames;
}

/* Enter the frames of a piece in the table of the buffer; false if not all parts are there. */
static bool
enter_piece(const WritePiece *piece)
{
	bool		are_entered = true;

	for (int i = 0; i < piece->part_count; i++)
	{
		const WritePart *part = &piece->parts[i];

		are_entered &= part->write_no >= 0 &&
			blob_buffer_enter_write(part->write_no, part->content_bytes);
	}
	return are_entered;
}

/* ---- the end of a piece ---- */

/* Content that the transaction has logged. */
typedef struct LoggedContent
{
	TransactionId xid;
	uint64		bytes;
	uint64		bytes_flushed;	/* of these, before the last request for a flush, or early write */
} LoggedContent;

static LoggedContent logged;

static void
count_logged(uint32 content_bytes)
{
	TransactionId xid = GetTopTransactionIdIfAny();

	if (xid != logged.xid)
		logged = (LoggedContent) {.xid = xid};
	logged.bytes += content_bytes;
}

/*
 * Whether the commit comes soon, as far as can be said, and its own sync is all that it waits for.
 * A standby gets only WAL that is flushed, so a commit that waits for one wants it flushed early.
 */
static bool
is_commit_near(void)
{
	bool		waits_for_standby = SyncRepRequested() && SyncRepStandbyNames != NULL &&
		SyncRepStandbyNames[0] != '\0';

	return logged.bytes <= NEAR_COMMIT_BYTES && !waits_for_standby;
}

/*
 * Whether to ask for a flush of the WAL: more of this value comes, or the values of a transaction
 * have logged much since it last asked, because each of them left its end to the commit.
 */
static bool
is_flush_due(bool more_comes)
{
	return more_comes || logged.bytes - logged.bytes_flushed > FLUSH_INTERVAL_BYTES;
}

/* more_comes: the call is about to log more. */
static void
log_content(const Pipeline *pipeline, const WritePiece *piece, bool more_comes)
{
	BlobWalContentPart parts[MAX_PARTS];
	bool		is_near;
	bool		writes_early;
	bool		flush_soon;

	count_logged(piece->content_bytes);
	is_near = is_commit_near();
	writes_early = pipeline->overlaps || (pipeline->source->is_whole && more_comes && is_near);
	flush_soon = !writes_early && is_flush_due(more_comes);
	for (int i = 0; i < piece->part_count; i++)
	{
		parts[i].data = piece->parts[i].memory;
		parts[i].length_bytes = piece->parts[i].content_bytes;
	}
	blob_wal_log_content(pipeline->store, piece->first_page, parts, piece->part_count,
						 flush_soon);
	blob_stat_count(wal_content_bytes, piece->content_bytes);
	if (writes_early)
		blob_wal_write_early(more_comes, !is_near);
	if (writes_early || flush_soon)
		logged.bytes_flushed = logged.bytes;
}

/* Give up the frames of a piece, which was written or left to others. */
static void
release_piece(const WritePiece *piece)
{
	for (int i = 0; i < piece->part_count; i++)
	{
		if (piece->parts[i].write_no >= 0)
			blob_buffer_end_write(piece->parts[i].write_no);
	}
}

/*
 * Leave the write of a piece to others, and log it where content is logged; false if that is not
 * possible now.  Like a write that has completed, the pages are dirty before CONTENT is inserted.
 */
static bool
defer_piece(Pipeline *pipeline, const WritePiece *piece, bool is_last)
{
	int			write_nos[MAX_PARTS];

	for (int i = 0; i < piece->part_count; i++)
		write_nos[i] = piece->parts[i].write_no;
	if (!blob_buffer_defer(write_nos, piece->part_count, pipeline->is_logged))
		return false;
	if (pipeline->is_logged)
		log_content(pipeline, piece, !is_last);
	else
		pipeline->has_deferred = true;
	release_piece(piece);
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

/* Hand a piece to the kernel; is_ahead: as a request that goes on when the claim has ended. */
static void
start_write(const BlobStoreId *store, WritePiece *piece, bool is_ahead)
{
	BlobIoRequest *request = &piece->request;

	request->is_write = true;
	request->fd = blob_segment_open(store, blob_segment_of(piece->first_page),
									BLOB_SEGMENT_MUST_EXIST);
	request->file_offset = blob_layout_file_offset(piece->first_page);
	request->buffer_no = 0;
	request->vector_count = piece->part_count;
	for (int i = 0; i < piece->part_count; i++)
	{
		request->vectors[i].iov_base = piece->parts[i].memory;
		request->vectors[i].iov_len = piece->parts[i].length;
	}
	if (is_ahead)
		blob_io_start_ahead(request);
	else
		blob_io_start(request);
	piece->is_pending = true;
	blob_io_submit();
}

/*
 * Wait for the write of a piece, and count it, since frames of neighbours may have older bytes.
 * The engine does not go on with a request ahead that was cut short, because it does not know
 * whether its file is still open: such a piece is written again.
 */
static void
await_write(const BlobStoreId *store, WritePiece *piece)
{
	blob_io_wait(&piece->request);
	if (piece->request.error == EAGAIN)
	{
		start_write(store, piece, false);
		blob_io_wait(&piece->request);
	}
	blob_write_counts_add(store, piece->first_page, piece->request.length / BLOB_PAGE_SIZE);
	piece->is_pending = false;
}

/*
 * Wait for the write of a piece, if there is one, then log it where content is logged.  is_last:
 * the commit may come next.  ERROR if the write has failed.
 */
static void
finish_write(const Pipeline *pipeline, WritePiece *piece, bool is_last)
{
	if (!piece->is_pending)
		return;
	await_write(pipeline->store, piece);
	if (piece->request.error != 0)
		report_write_error(pipeline->store, piece->first_page, piece->request.error);
	if (pipeline->is_logged)
		log_content(pipeline, piece, !is_last);
	release_piece(piece);
}

/* ---- trailing writes ---- */

void
blob_pipeline_begin_trailing(void)
{
	may_trail = true;
}

bool
blob_pipeline_may_trail(void)
{
	return may_trail;
}

bool
blob_pipeline_trails(void)
{
	return trails;
}

/*
 * Wait for the writes that trail; they have no frames, and are not logged.  After an error only the
 * kernel is waited for: the pages are of a value that will never become complete.  Otherwise
 * returns a piece that was not written, or NULL, and may throw.
 */
static const WritePiece *
await_trailing(bool is_after_error)
{
	const WritePiece *failed = NULL;

	blob_io_begin_vectors();
	for (int i = 0; i < MAX_PIECES; i++)
	{
		if (!pieces[i].is_pending)
			continue;
		if (is_after_error)
			blob_io_wait(&pieces[i].request);
		else
			await_write(&trailing_store, &pieces[i]);
		pieces[i].is_pending = false;
		if (pieces[i].request.error != 0)
			failed = &pieces[i];
	}
	blob_io_end();
	trails = false;
	return failed;
}

/*
 * OMITTED is inserted here, and not before the commit: until the end of the COPY its lock keeps
 * others from dropping the store.
 */
void
blob_pipeline_finish_trailing(void)
{
	const WritePiece *failed;

	if (!trails)
		return;
	failed = await_trailing(false);
	if (failed != NULL)
		report_write_error(&trailing_store, failed->first_page, failed->request.error);
	blob_omissions_log(&trailing_store, trailing_runs, trailing_run_count);
}

/* Keep the runs of a call whose writes may trail; before they are started. */
static void
keep_runs(const Pipeline *pipeline)
{
	if (pipeline->run_count > trailing_run_capacity)
	{
		int			capacity = Max(pipeline->run_count, 2 * trailing_run_capacity);

		if (trailing_runs != NULL)
			pfree(trailing_runs);
		trailing_runs = NULL;
		trailing_run_capacity = 0;
		trailing_runs = MemoryContextAlloc(TopMemoryContext, capacity * sizeof(*trailing_runs));
		trailing_run_capacity = capacity;
	}
	memcpy(trailing_runs, pipeline->runs, pipeline->run_count * sizeof(*trailing_runs));
	trailing_run_count = pipeline->run_count;
	trailing_store = *pipeline->store;
}

void
blob_pipeline_end_trailing(bool is_after_error)
{
	may_trail = false;
	if (!is_after_error)
		blob_pipeline_finish_trailing();
	else if (trails)
		(void) await_trailing(true);
}

/* ---- the call ---- */

/*
 * Log the pieces whose writes have completed meanwhile, from the oldest on.  So the WAL is written
 * while later pieces are hashed and written.  Returns the oldest piece in use.
 */
static int
finish_completed(const Pipeline *pipeline, int oldest, bool is_last)
{
	while (pieces[oldest].is_pending && blob_io_poll(&pieces[oldest].request))
	{
		finish_write(pipeline, &pieces[oldest], is_last);
		oldest = (oldest + 1) % pipeline->piece_count;
	}
	return oldest;
}

/* Store the next piece of the source.  True if its write was started. */
static bool
store_piece(Pipeline *pipeline, int piece_no)
{
	WritePiece *piece = &pieces[piece_no];
	bool		is_last;
	bool		are_frames;
	bool		defers;
	bool		is_hashed;

	take_piece(pipeline, piece);
	is_last = pipeline->done_bytes + piece->content_bytes == pipeline->source->total_bytes;
	blob_disk_room_take_for_wal(pipeline->is_logged ? piece->content_bytes : 0);
	blob_durability_note(pipeline->store, blob_segment_of(piece->first_page),
						 pipeline->is_logged);
	are_frames = place_piece(pipeline, piece_no);
	defers = are_frames && pipeline->may_defer &&
		blob_buffer_may_defer(piece->request.length, pipeline->is_logged);
	is_hashed = pipeline->uses_thread || defers || !is_last;
	copy_piece(pipeline, piece, is_hashed && !pipeline->uses_thread);
	if (enter_piece(piece) && defers && defer_piece(pipeline, piece, is_last))
		return false;
	claim_engine();
	pipeline->trails = pipeline->trails && blob_io_is_asynchronous();
	if (pipeline->trails)
	{
		trails = true;
		blob_stat_count(trailing_write_bytes, piece->request.length);
	}
	start_write(pipeline->store, piece, pipeline->trails);
	if (!is_hashed)
		hash_piece(pipeline, piece);
	return true;
}

/* Store all pieces of the source. */
static void
store_pieces(Pipeline *pipeline)
{
	int			piece_no = 0;
	int			oldest = 0;

	while (pipeline->done_bytes < pipeline->source->total_bytes)
	{
		WritePiece *piece = &pieces[piece_no];

		CHECK_FOR_INTERRUPTS();
		if (piece->is_pending)
		{
			finish_write(pipeline, piece, false);
			oldest = (piece_no + 1) % pipeline->piece_count;
		}
		if (store_piece(pipeline, piece_no))
			piece_no = (piece_no + 1) % pipeline->piece_count;
		pipeline->done_bytes += piece->content_bytes;
		if (pipeline->is_logged)
			oldest = finish_completed(pipeline, oldest,
									  pipeline->done_bytes == pipeline->source->total_bytes);
	}
	if (trails)
		return;
	for (int i = 0; i < pipeline->piece_count; i++)
		finish_write(pipeline, &pieces[(piece_no + i) % pipeline->piece_count], true);
	end_claim();
	if (pipeline->digest == NULL)
		return;
	if (pipeline->overlaps && pipeline->source->is_last && !pipeline->is_logged &&
		blob_hasher_is_busy(pipeline->digest))
		blob_durability_use_wait();
	blob_hasher_wait(pipeline->digest);
}

/* Segment files to which the runs belong, at most. */
static int
count_segments(const BlobWriteRun *runs, int run_count)
{
	int			count = 0;

	for (int i = 0; i < run_count; i++)
	{
		BlobPageNo	first = runs[i].extent.first_page + runs[i].page_in_extent;

		count += blob_segment_of(first + runs[i].pages - 1) - blob_segment_of(first) + 1;
	}
	return count;
}

/* Whether the source can be written from where it lies, as a whole, and stays there. */
static bool
stays_in_place(const BlobSource *source)
{
	return source->may_trail && source->total_bytes <= source->first_bytes &&
		source->total_bytes % BLOB_PAGE_SIZE == 0 &&
		(uintptr_t) source->first % BLOB_PAGE_SIZE == 0;
}

/*
 * The smallest value in memory that the thread hashes.  Where other processes store, a processor
 * that has nothing to do is soon needed by one of them.
 */
static uint64
min_overlap_bytes(const Pipeline *pipeline)
{
	bool		others_store = blob_syncer_others_want();

	if (!pipeline->is_logged || (others_store && blob_digest_thread == BLOB_DIGEST_THREAD_AUTO))
		return MIN_OVERLAP_BYTES;
	return MIN_ALONE_OVERLAP_BYTES;
}

/*
 * Whether a value in memory shall be hashed by the thread.  Its client waits, so the thread needs a
 * processor that has nothing to do: others would only take turns.
 */
static bool
overlaps_digest(const Pipeline *pipeline)
{
	uint64		bytes = pipeline->source->total_bytes;

	return pipeline->source->is_whole && pipeline->digest != NULL &&
		pipeline->digest->last_piece_no == 0 &&
		bytes >= min_overlap_bytes(pipeline) &&
		blob_hasher_is_worth(pipeline->digest, 1);
}

/* Choose whether content is logged, goes through the buffer, is left there, and trails. */
static void
choose_way(Pipeline *pipeline)
{
	uint64		bytes = pipeline->source->total_bytes;

	pipeline->is_logged = blob_durability_wants_log(bytes);
	pipeline->piece_count = pipeline->is_logged ? MAX_LOGGED_PIECES : MAX_PIECES;
	pipeline->uses_buffer =
		blob_buffer_use_for(pipeline->source->before_bytes + bytes) == BLOB_BUFFER_KEEP;
	pipeline->may_defer = pipeline->uses_buffer &&
		(pipeline->is_logged || bytes <= MAX_UNLOGGED_BYTES);
	pipeline->trails = may_trail && !pipeline->is_logged && !pipeline->uses_buffer &&
		stays_in_place(pipeline->source);
	pipeline->overlaps = !pipeline->trails && overlaps_digest(pipeline);
	pipeline->uses_thread = pipeline->overlaps ||
		(pipeline->digest != NULL && pipeline->digest->last_piece_no != 0);
}

/* Nothing of this call may be in flight, or be hashed, any more; cannot fail. */
static void
end_failed_call(BlobDigest *digest)
{
	if (trails)
		(void) await_trailing(true);
	end_claim();
	blob_buffer_abandon();
	if (digest != NULL)
		blob_hasher_cancel(digest);
}

void
blob_pipeline_write(const BlobStoreId *store, const BlobWriteRun *runs, int run_count,
					const BlobSource *source, BlobDigest *digest, uint64 skip_bytes)
{
	Pipeline	pipeline = {
		.store = store,
		.runs = runs,
		.run_count = run_count,
		.source = source,
		.digest = digest,
		.skip_bytes = skip_bytes
	};

	blob_pipeline_finish_trailing();
	blob_durability_prepare(count_segments(runs, run_count));
	blob_omissions_prepare(run_count);
	choose_way(&pipeline);
	if (pipeline.is_logged)
		blob_disk_room_require_for_wal(source->total_bytes);
	if (pipeline.trails)
		keep_runs(&pipeline);
	for (int i = 0; i < MAX_PIECES; i++)
		pieces[i].is_pending = false;
	PG_TRY();
	{
		store_pieces(&pipeline);
	}
	PG_CATCH();
	{
		end_failed_call(digest);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_claim();
	if (pipeline.is_logged || trails)
		return;
	if (pipeline.has_deferred)
		blob_omissions_note(store, runs, run_count);
	else
		blob_omissions_log(store, runs, run_count);
}
