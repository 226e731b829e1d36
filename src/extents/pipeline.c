/*
 * extents/pipeline.c
 *	  The write pipeline, see extents/pipeline.h, and "The write pipeline" in the README of this
 *	  folder.
 *
 * A put is cut into pieces: pages that are adjacent in one segment file.  A piece is copied and
 * hashed in one go, goes its way to the device, and is logged where content is.  Up to MAX_PIECES
 * are under way, so that the device works while the next piece is hashed.
 */
#include "postgres.h"

#include "extents/content_log.h"
#include "extents/durability.h"
#include "extents/hasher.h"
#include "extents/omissions.h"
#include "extents/piece.h"
#include "extents/pipeline.h"
#include "io/buffer.h"
#include "io/engine.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "store/disk_room.h"
#include "store/map_sums.h"

#define PIECE_PAGES (BLOB_IO_BUFFER_BYTES / BLOB_PAGE_SIZE)

/* Writes in flight: of content that is logged, fewer, since flushes of the WAL must get through. */
#define MAX_PIECES BLOB_IO_BUFFER_COUNT
#define MAX_LOGGED_PIECES 4

/* Content that is not logged is left dirty only if a put is as small as this. */
#define MAX_UNLOGGED_BYTES (128 * 1024)

/* A put as large as this is hashed by the thread: to wake it up takes as long as to hash 80 kB. */
#define MIN_THREAD_BYTES (512 * 1024)

StaticAssertDecl(MAX_PIECES <= BLOB_IO_MAX_TRAILING, "all pieces may trail");

/* The component that hashes the content of a put. */
typedef enum Hashing
{
	HASHED_BY_OWNER,			/* of the pipeline */
	HASHED_HERE,
	HASHED_BY_THREAD
} Hashing;

/* Static, like the I/O buffers: the kernel may still look at a request after an error. */
static BlobWritePiece pieces[MAX_PIECES];

/* The pipeline that has left writes in flight between two calls, if any. */
static const BlobPipeline *trailing;

/* A put that is under way. */
typedef struct Putting
{
	const BlobPut *put;
	int			run_no;			/* where the next piece begins */
	uint64		page_in_run;
	uint64		done_bytes;
	Hashing		hashing;
	bool		is_logged;
	bool		uses_buffer;
	int			piece_count;	/* of pieces[], used in turn */
	uint32	   *sums;			/* checksums of the pages of the runs; NULL: they get none */
	uint64		done_pages;
} Putting;

/*
 * Take the next pages of the runs, as many as one request can have, as a piece.  Extents of a run
 * stay where they are until the put has ended.
 */
static void
take_piece(Putting *putting, BlobWritePiece *piece)
{
	const BlobPut *put = putting->put;
	uint64		left_bytes = put->total_bytes - putting->done_bytes;
	uint64		left_pages = Min(blob_pages_for(left_bytes), PIECE_PAGES);
	uint32		bytes = (uint32) Min(left_bytes, left_pages * BLOB_PAGE_SIZE);

	blob_piece_begin(piece, put->store, putting->is_logged);
	while (piece->content_bytes < bytes)
	{
		const BlobWriteRun *run = &put->runs[putting->run_no];
		uint32		pages = blob_piece_add(piece, &run->extent,
										   run->page_in_extent + putting->page_in_run,
										   Min(left_pages, run->pages - putting->page_in_run),
										   bytes - piece->content_bytes);

		if (pages == 0)
			return;
		left_pages -= pages;
		putting->page_in_run += pages;
		if (putting->page_in_run == run->pages)
		{
			putting->run_no++;
			putting->page_in_run = 0;
		}
	}
}

/* ---- the way of a piece ---- */

typedef enum Way
{
	LEFT_DIRTY,					/* others write the pages, from their slabs */
	WRITTEN_HERE,				/* the put waits for the write */
	WRITTEN_TRAILING			/* the caller of the put does, later */
} Way;

/*
 * The rule.  Pages are left dirty in the buffer if all of them have slabs, the list of dirty pages
 * has room, and their content is logged or a few; otherwise they are written here, from whichever
 * memory they have.  Such a write trails if the caller allows it and all of the memory is the
 * caller's: a piece that waits for a client must not keep slabs.
 *
 * A piece has slabs if its value is to have a share of the buffer, and the buffer some to spare.
 */
static Way
choose_way(const Putting *putting, const BlobWritePiece *piece)
{
	const BlobPut *put = putting->put;

	if ((piece->is_logged || put->total_bytes <= MAX_UNLOGGED_BYTES) &&
		blob_piece_has_slabs(piece) &&
		blob_buffer_may_defer(piece->request.length, piece->is_logged))
		return LEFT_DIRTY;
	if (put->may_trail && blob_piece_is_in_place(piece) && blob_io_is_asynchronous())
		return WRITTEN_TRAILING;
	return WRITTEN_HERE;
}

/* ---- the end of a piece ---- */

static void
end_use(void)
{
	if (blob_io_is_used())
		blob_io_end();
}

static void
log_piece(const Putting *putting, BlobWritePiece *piece, bool more_comes)
{
	BlobWalContentPart parts[BLOB_PIECE_MAX_PARTS];

	for (int i = 0; i < piece->part_count; i++)
	{
		parts[i].data = piece->parts[i].memory;
		parts[i].length_bytes = piece->parts[i].content_bytes;
	}
	blob_content_log(&piece->store, piece->first_page, parts, piece->part_count, more_comes,
					 putting->put->is_whole, putting->hashing == HASHED_BY_THREAD);
	blob_piece_set_state(piece, BLOB_PIECE_LOGGED);
}

/*
 * See a piece to its end: it is written or dirty, logged where content is, and has no slabs.
 * more_comes: the put is about to log more.
 */
static void
finish_piece(const Putting *putting, BlobWritePiece *piece, bool more_comes)
{
	if (piece->state == BLOB_PIECE_FREE)
		return;
	if (piece->state == BLOB_PIECE_WRITING)
		blob_piece_await_write(piece);
	if (piece->is_logged)
		log_piece(putting, piece, more_comes);
	blob_piece_release(piece);
}

/* Give up all pieces, once the kernel has; cannot fail. */
static void
abandon_pieces(void)
{
	for (int i = 0; i < MAX_PIECES; i++)
	{
		if (pieces[i].state != BLOB_PIECE_WRITING)
			continue;
		if (!blob_io_is_used())
			blob_io_begin_vectors();
		blob_io_wait(&pieces[i].request);
	}
	end_use();
	blob_buffer_abandon();
	for (int i = 0; i < MAX_PIECES; i++)
		pieces[i].state = BLOB_PIECE_FREE;
	trailing = NULL;
}

/* ---- the call ---- */

/* Compute the checksums of a filled part, whose first page is the page_no-th of the put. */
static void
sum_part(const Putting *putting, const BlobPiecePart *part, uint64 page_no)
{
	BlobSummedPages pages = {
		part->extent->generation,
		part->extent->first_page + part->extent_offset / BLOB_PAGE_SIZE,
		part->memory,
		part->length / BLOB_PAGE_SIZE
	};

	if (putting->sums != NULL && part->extent->has_sums)
		blob_page_sums(&pages, 1, putting->sums + page_no);
}

/* Copy the content of a piece to its memory, and hash it there, if it is to be hashed now. */
static void
fill_piece(const Putting *putting, BlobWritePiece *piece, bool is_hashed_now)
{
	uint64		offset = putting->done_bytes;
	uint64		page_no = putting->done_pages;

	if (putting->hashing == HASHED_BY_THREAD)
		blob_put_hash(putting->put, offset, piece->content_bytes, true);
	for (int i = 0; i < piece->part_count; i++)
	{
		const BlobPiecePart *part = &piece->parts[i];
		uint32		bytes = part->content_bytes;

		if (part->is_in_place && is_hashed_now)
			blob_put_hash(putting->put, offset, bytes, false);
		else if (is_hashed_now)
			blob_put_copy_and_hash(putting->put, offset, bytes, part->memory);
		else if (!part->is_in_place)
			blob_put_copy(putting->put, offset, bytes, part->memory);
		memset(part->memory + bytes, 0, part->length - bytes);
		sum_part(putting, part, page_no);
		offset += bytes;
		page_no += part->length / BLOB_PAGE_SIZE;
	}
	blob_piece_set_state(piece, BLOB_PIECE_FILLED);
}

/* Take the next piece of the put, and send it its way.  True if it is being written. */
static bool
send_piece(Putting *putting, int piece_no)
{
	const BlobPut *put = putting->put;
	BlobWritePiece *piece = &pieces[piece_no];
	bool		is_last;
	bool		is_hashed_late;
	Way			way;

	take_piece(putting, piece);
	is_last = putting->done_bytes + piece->content_bytes == put->total_bytes;
	blob_disk_room_take_for_wal(piece->is_logged ? piece->content_bytes : 0);
	blob_durability_note(put->store, blob_segment_of(piece->first_page), piece->is_logged);
	blob_piece_place(piece, piece_no, put, putting->done_bytes, putting->uses_buffer);
	way = choose_way(putting, piece);
	/* The device works meanwhile. */
	is_hashed_late = putting->hashing == HASHED_HERE && is_last && way != LEFT_DIRTY;
	fill_piece(putting, piece, putting->hashing == HASHED_HERE && !is_hashed_late);
	putting->done_pages += piece->request.length / BLOB_PAGE_SIZE;
	if (blob_piece_enter(piece) && way == LEFT_DIRTY && blob_piece_leave_dirty(piece))
	{
		finish_piece(putting, piece, !is_last);
		putting->done_bytes += piece->content_bytes;
		return false;
	}
	piece->trails = way == WRITTEN_TRAILING;
	if (piece->trails)
		blob_stat_count(trailing_write_bytes, piece->request.length);
	blob_piece_start_write(piece);
	if (is_hashed_late)
		blob_put_hash(put, putting->done_bytes, piece->content_bytes, false);
	putting->done_bytes += piece->content_bytes;
	return true;
}

/*
 * Log the pieces whose writes have completed meanwhile, from the oldest on.  So the WAL is written
 * while later pieces are hashed and written.  Returns the oldest piece in use.
 */
static int
finish_completed(const Putting *putting, int oldest)
{
	bool		more_comes = putting->done_bytes < putting->put->total_bytes;

	while (pieces[oldest].state == BLOB_PIECE_WRITING && blob_io_poll(&pieces[oldest].request))
	{
		finish_piece(putting, &pieces[oldest], more_comes);
		oldest = (oldest + 1) % putting->piece_count;
	}
	return oldest;
}

/* Send all pieces of the put, and see them to their end, but those that trail. */
static void
send_pieces(BlobPipeline *pipeline, Putting *putting)
{
	int			piece_no = 0;
	int			oldest = 0;

	while (putting->done_bytes < putting->put->total_bytes)
	{
		CHECK_FOR_INTERRUPTS();
		if (pieces[piece_no].state != BLOB_PIECE_FREE)
		{
			finish_piece(putting, &pieces[piece_no], true);
			oldest = (piece_no + 1) % putting->piece_count;
		}
		if (send_piece(putting, piece_no))
			piece_no = (piece_no + 1) % putting->piece_count;
		if (putting->is_logged)
			oldest = finish_completed(putting, oldest);
	}
	for (int i = 0; i < putting->piece_count; i++)
	{
		BlobWritePiece *piece = &pieces[(piece_no + i) % putting->piece_count];

		if (piece->state == BLOB_PIECE_WRITING && piece->trails)
			trailing = pipeline;
		else
			finish_piece(putting, piece, false);
	}
	end_use();
}

/* Room for the checksums of all pages of a put, if an extent of it has any. */
static uint32 *
make_sums(const BlobPut *put)
{
	uint64		pages = 0;
	bool		has_sums = false;

	for (int i = 0; i < put->run_count; i++)
	{
		pages += put->runs[i].pages;
		has_sums |= put->runs[i].extent.has_sums;
	}
	return has_sums ? MemoryContextAllocHuge(CurrentMemoryContext, pages * sizeof(uint32)) : NULL;
}

/* Set and log the checksums of the pages of a put: nothing refers to them yet. */
static void
log_sums(const Putting *putting)
{
	const BlobPut *put = putting->put;
	BlobSumRun *runs = palloc(put->run_count * sizeof(BlobSumRun));
	int			count = 0;
	uint64		done = 0;

	for (int i = 0; i < put->run_count; i++)
	{
		const BlobWriteRun *run = &put->runs[i];

		if (run->extent.has_sums)
			runs[count++] = (BlobSumRun) {
				.extent = run->extent,
				.page_no = run->page_in_extent,
				.count = run->pages,
				.sums = putting->sums + done
			};
		done += run->pages;
	}
	Assert(done == putting->done_pages);
	blob_map_set_sums(put->map, runs, count);
	pfree(runs);
	pfree(putting->sums);
}

/* Wait for the thread; make segments crash-safe meanwhile, if the commit would have to. */
static void
finish_digest(const Putting *putting)
{
	BlobDigest *digest = putting->put->digest;

	if (putting->hashing != HASHED_BY_THREAD)
		return;
	if (putting->put->is_whole && !putting->is_logged && blob_hasher_is_busy(digest))
		blob_durability_use_wait();
	blob_hasher_wait(digest);
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

/* Pieces of a digest are hashed in their order: if some are under way, so are the next ones. */
static Hashing
choose_hashing(const BlobPut *put)
{
	if (put->digest == NULL)
		return HASHED_BY_OWNER;
	if (blob_hasher_has(put->digest) ||
		(put->total_bytes >= MIN_THREAD_BYTES && blob_hasher_call()))
		return HASHED_BY_THREAD;
	return HASHED_HERE;
}

/* Between two puts nothing is under way but what trails. */
static void
assert_none_is_left(void)
{
#ifdef USE_ASSERT_CHECKING
	for (int i = 0; i < MAX_PIECES; i++)
		Assert(pieces[i].state == BLOB_PIECE_FREE ||
			   (trailing != NULL && pieces[i].state == BLOB_PIECE_WRITING && pieces[i].trails));
#endif
}

void
blob_pipeline_put(BlobPipeline *pipeline, const BlobPut *put)
{
	Putting		putting = {.put = put};

	Assert(trailing == NULL);
	assert_none_is_left();
	/* A transaction, or failed ones in a row, may put any number of values. */
	if (blob_omissions_are_many())
		blob_durability_make_crash_safe();
	blob_durability_prepare(count_segments(put->runs, put->run_count));
	blob_omissions_prepare(put->run_count);
	putting.is_logged = blob_durability_wants_log(put->total_bytes);
	putting.piece_count = putting.is_logged ? MAX_LOGGED_PIECES : MAX_PIECES;
	putting.uses_buffer =
		blob_buffer_use_for(pipeline->put_bytes + put->total_bytes) == BLOB_BUFFER_KEEP;
	putting.hashing = choose_hashing(put);
	putting.sums = make_sums(put);
	if (putting.is_logged)
		blob_disk_room_require_for_wal(put->total_bytes);
	PG_TRY();
	{
		send_pieces(pipeline, &putting);
		if (putting.sums != NULL)
			log_sums(&putting);
		if (trailing == NULL)
			finish_digest(&putting);
	}
	PG_CATCH();
	{
		abandon_pieces();
		if (put->digest != NULL)
			blob_hasher_cancel(put->digest);
		PG_RE_THROW();
	}
	PG_END_TRY();
	assert_none_is_left();
	pipeline->put_bytes += put->total_bytes;
	if (!putting.is_logged)
		blob_omissions_note(put->store, put->runs, put->run_count);
}

bool
blob_pipeline_trails(const BlobPipeline *pipeline)
{
	return trailing == pipeline;
}

/* All requests have ended before one of them is an error. */
void
blob_pipeline_wait(BlobPipeline *pipeline)
{
	static const BlobPut stream = {.is_whole = false};
	Putting		putting = {.put = &stream};

	if (!blob_pipeline_trails(pipeline))
		return;
	blob_io_begin_vectors();
	for (int i = 0; i < MAX_PIECES; i++)
	{
		if (pieces[i].state == BLOB_PIECE_WRITING)
			blob_io_wait(&pieces[i].request);
	}
	for (int i = 0; i < MAX_PIECES; i++)
		finish_piece(&putting, &pieces[i], false);
	blob_io_end();
	trailing = NULL;
}

void
blob_pipeline_abandon(BlobPipeline *pipeline)
{
	if (blob_pipeline_trails(pipeline))
		abandon_pieces();
}
