/*
 * extents/piece.c
 *	  A piece of a put, see extents/piece.h.
 */
#include "postgres.h"

#include "extents/layout.h"
#include "extents/piece.h"
#include "io/buffer.h"
#include "io/segment.h"
#include "io/write_counts.h"

StaticAssertDecl(BLOB_IO_BUFFER_BYTES <= BLOB_WAL_CONTENT_MAX_BYTES, "a piece fits one record");
StaticAssertDecl(BLOB_PIECE_MAX_PARTS <= BLOB_IO_MAX_VECTORS, "its parts fit one request");

/* ---- states ---- */

#ifdef USE_ASSERT_CHECKING
/* Which state a piece has before another one, and what must hold on the way. */
static void
assert_piece(const BlobWritePiece *piece, BlobPieceState next)
{
	BlobPieceState state = piece->state;

	switch (next)
	{
		case BLOB_PIECE_FREE:
			Assert(state == (piece->is_logged ? BLOB_PIECE_LOGGED : BLOB_PIECE_WRITTEN) ||
				   (state == BLOB_PIECE_DIRTY && !piece->is_logged));
			break;
		case BLOB_PIECE_FILLED:
			Assert(state == BLOB_PIECE_FREE);
			Assert(piece->content_bytes > 0 && piece->content_bytes <= piece->request.length);
			break;
		case BLOB_PIECE_DIRTY:
			Assert(state == BLOB_PIECE_FILLED && blob_piece_has_slabs(piece));
			break;
		case BLOB_PIECE_WRITING:
			Assert(state == BLOB_PIECE_FILLED || state == BLOB_PIECE_WRITING);
			Assert(blob_io_is_used());
			break;
		case BLOB_PIECE_WRITTEN:
			Assert(state == BLOB_PIECE_WRITING);
			Assert(!piece->request.in_flight && piece->request.error == 0);
			break;
		case BLOB_PIECE_LOGGED:
			Assert(piece->is_logged && (state == BLOB_PIECE_DIRTY || state == BLOB_PIECE_WRITTEN));
			break;
	}
}
#endif

void
blob_piece_set_state(BlobWritePiece *piece, BlobPieceState next)
{
#ifdef USE_ASSERT_CHECKING
	assert_piece(piece, next);
#endif
	piece->state = next;
}

/* ---- its place ---- */

void
blob_piece_begin(BlobWritePiece *piece, const BlobStoreId *store, bool is_logged)
{
	Assert(piece->state == BLOB_PIECE_FREE);
	piece->is_logged = is_logged;
	piece->trails = false;
	piece->store = *store;
	piece->request.length = 0;
	piece->content_bytes = 0;
	piece->part_count = 0;
}

uint32
blob_piece_add(BlobWritePiece *piece, const BlobExtent *extent, uint64 page_in_extent,
			   uint64 max_pages, uint32 max_bytes)
{
	BlobPageNo	page = extent->first_page + page_in_extent;
	uint32		chunk_pages = blob_buffer_chunk_bytes(extent->pages) / BLOB_PAGE_SIZE;
	uint64		pages = Min(max_pages, chunk_pages - page_in_extent % chunk_pages);
	BlobPiecePart *part = &piece->parts[piece->part_count];

	if (piece->part_count == BLOB_PIECE_MAX_PARTS ||
		(piece->part_count > 0 && (page % BLOB_SEGMENT_PAGES == 0 ||
								   page != piece->first_page +
								   piece->request.length / BLOB_PAGE_SIZE)))
		return 0;
	pages = Min(pages, blob_layout_pages_left_in_segment(page));
	if (piece->part_count++ == 0)
		piece->first_page = page;
	part->extent = extent;
	part->extent_offset = page_in_extent * BLOB_PAGE_SIZE;
	part->length = (uint32) pages * BLOB_PAGE_SIZE;
	part->content_bytes = Min(part->length, max_bytes);
	piece->content_bytes += part->content_bytes;
	piece->request.length += part->length;
	return (uint32) pages;
}

/* Have a slab of the buffer for a part; false if there is none for it. */
static bool
take_slab(const BlobWritePiece *piece, BlobPiecePart *part)
{
	part->write_no = blob_buffer_begin_write(&piece->store, part->extent, part->extent_offset,
											 part->length);
	if (part->write_no >= 0)
		part->memory = blob_buffer_write_memory(part->write_no);
	return part->write_no >= 0;
}

/*
 * Where the put has the content of a part, if it can be written from there: whole pages in one
 * place, which begin at a multiple of a page, as direct I/O wants it.  Otherwise NULL.
 */
static char *
find_in_place(const BlobPut *put, uint64 offset, const BlobPiecePart *part)
{
	const char *address = part->content_bytes < part->length ? NULL :
		blob_put_address(put, offset, part->length);

	return (uintptr_t) address % BLOB_PAGE_SIZE == 0 ? (char *) address : NULL;
}

static void
take_engine(void)
{
	if (!blob_io_is_used())
		blob_io_begin();
}

void
blob_piece_place(BlobWritePiece *piece, int buffer_no, const BlobPut *put, uint64 offset,
				 bool uses_buffer)
{
	uint32		length = 0;

	for (int i = 0; i < piece->part_count; i++)
	{
		BlobPiecePart *part = &piece->parts[i];

		part->is_in_place = false;
		part->write_no = -1;
		if (!uses_buffer || !take_slab(piece, part))
		{
			take_engine();
			part->memory = find_in_place(put, offset, part);
			part->is_in_place = part->memory != NULL;
			if (!part->is_in_place)
				part->memory = blob_io_buffer(buffer_no) + length;
		}
		offset += part->content_bytes;
		length += part->length;
	}
}

bool
blob_piece_has_slabs(const BlobWritePiece *piece)
{
	for (int i = 0; i < piece->part_count; i++)
	{
		if (piece->parts[i].write_no < 0)
			return false;
	}
	return true;
}

bool
blob_piece_is_in_place(const BlobWritePiece *piece)
{
	for (int i = 0; i < piece->part_count; i++)
	{
		if (!piece->parts[i].is_in_place)
			return false;
	}
	return true;
}

/* ---- its pages ---- */

bool
blob_piece_enter(const BlobWritePiece *piece)
{
	bool		are_entered = true;

	for (int i = 0; i < piece->part_count; i++)
	{
		const BlobPiecePart *part = &piece->parts[i];

		are_entered &= part->write_no >= 0 &&
			blob_buffer_enter_write(part->write_no, part->content_bytes);
	}
	return are_entered;
}

bool
blob_piece_leave_dirty(BlobWritePiece *piece)
{
	int			write_nos[BLOB_PIECE_MAX_PARTS];

	for (int i = 0; i < piece->part_count; i++)
		write_nos[i] = piece->parts[i].write_no;
	if (!blob_buffer_defer(write_nos, piece->part_count, piece->is_logged))
		return false;
	blob_piece_set_state(piece, BLOB_PIECE_DIRTY);
	return true;
}

void
blob_piece_start_write(BlobWritePiece *piece)
{
	BlobIoRequest *request = &piece->request;

	take_engine();
	request->is_write = true;
	request->fd = blob_segment_open(&piece->store, blob_segment_of(piece->first_page),
									BLOB_SEGMENT_MUST_EXIST);
	request->file_offset = blob_layout_file_offset(piece->first_page);
	request->buffer_no = 0;
	request->vector_count = piece->part_count;
	for (int i = 0; i < piece->part_count; i++)
	{
		request->vectors[i].iov_base = piece->parts[i].memory;
		request->vectors[i].iov_len = piece->parts[i].length;
	}
	if (piece->trails)
		blob_io_start_ahead(request);
	else
		blob_io_start(request);
	blob_piece_set_state(piece, BLOB_PIECE_WRITING);
	blob_io_submit();
}

/*
 * The engine does not go on with a request ahead that was cut short, because it does not know
 * whether its file is still open: such a piece is written again.  The write is counted, since
 * slabs of neighbours may have older bytes.
 */
void
blob_piece_await_write(BlobWritePiece *piece)
{
	blob_io_wait(&piece->request);
	if (piece->request.error == EAGAIN)
	{
		piece->trails = false;
		blob_piece_start_write(piece);
		blob_io_wait(&piece->request);
	}
	blob_write_counts_add(&piece->store, piece->first_page,
						  piece->request.length / BLOB_PAGE_SIZE);
	if (piece->request.error != 0)
	{
		char		path[MAXPGPATH];

		blob_segment_path(path, sizeof(path), &piece->store, blob_segment_of(piece->first_page));
		errno = piece->request.error;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write content to file \"%s\": %m", path)));
	}
	blob_piece_set_state(piece, BLOB_PIECE_WRITTEN);
}

void
blob_piece_release(BlobWritePiece *piece)
{
	for (int i = 0; i < piece->part_count; i++)
	{
		if (piece->parts[i].write_no >= 0)
			blob_buffer_end_write(piece->parts[i].write_no);
	}
	blob_piece_set_state(piece, BLOB_PIECE_FREE);
}
