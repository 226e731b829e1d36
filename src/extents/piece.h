/*
 * extents/piece.h
 *	  A piece of a put: pages that are adjacent in one segment file, and their content.  Part of the
 *	  write pipeline; see "The write pipeline" in the README of this folder.
 */
#ifndef BLOB_PIECE_H
#define BLOB_PIECE_H

#include "extents/put.h"
#include "io/engine.h"
#include "wal/insert.h"

/* Parts of a piece: each lies in one chunk of the buffer. */
#define BLOB_PIECE_MAX_PARTS BLOB_WAL_CONTENT_MAX_PARTS

/* See blob_piece_set_state() for what holds in each, and which may follow. */
typedef enum BlobPieceState
{
	BLOB_PIECE_FREE,
	BLOB_PIECE_FILLED,			/* its memory has the content */
	BLOB_PIECE_DIRTY,			/* its pages are, in the buffer: others write them */
	BLOB_PIECE_WRITING,			/* a request has its memory */
	BLOB_PIECE_WRITTEN,
	BLOB_PIECE_LOGGED
} BlobPieceState;

typedef struct BlobPiecePart
{
	const BlobExtent *extent;
	uint64		extent_offset;	/* bytes, a multiple of the page */
	uint32		length;			/* bytes, a multiple of the page */
	uint32		content_bytes;
	char	   *memory;
	int			write_no;		/* of the buffer, or -1 */
	bool		is_in_place;	/* the memory is the put's */
} BlobPiecePart;

/* Static, like the I/O buffers: the kernel may still look at the request after an error. */
typedef struct BlobWritePiece
{
	BlobPieceState state;
	bool		is_logged;
	bool		trails;			/* its write goes on when the put has returned */
	BlobStoreId store;
	BlobIoRequest request;
	BlobPageNo	first_page;
	uint32		content_bytes;
	int			part_count;
	BlobPiecePart parts[BLOB_PIECE_MAX_PARTS];
} BlobWritePiece;

/* Enter a state; asserts that it may follow, and what must hold. */
extern void blob_piece_set_state(BlobWritePiece *piece, BlobPieceState next);

/* Begin a piece without parts; it is free. */
extern void blob_piece_begin(BlobWritePiece *piece, const BlobStoreId *store, bool is_logged);

/*
 * Add pages of an extent, from page_in_extent on, at most max_pages, with at most max_bytes of
 * content: as many as lie in one chunk of the buffer and in one segment.  Returns how many; 0 if
 * they do not continue the piece, or it is full.
 */
extern uint32 blob_piece_add(BlobWritePiece *piece, const BlobExtent *extent,
							 uint64 page_in_extent, uint64 max_pages, uint32 max_bytes);

/*
 * Find memory for the parts: slabs of the buffer, if it is to be used; or the put's, from this
 * offset on; or the engine's buffer of this number.  Takes the engine unless all are slabs.
 */
extern void blob_piece_place(BlobWritePiece *piece, int buffer_no, const BlobPut *put,
							 uint64 offset, bool uses_buffer);

/* Whether all of its memory are slabs; is the put's. */
extern bool blob_piece_has_slabs(const BlobWritePiece *piece);
extern bool blob_piece_is_in_place(const BlobWritePiece *piece);

/* Enter the slabs of a piece in the table of the buffer; false if not all parts are there. */
extern bool blob_piece_enter(const BlobWritePiece *piece);

/* Leave the write of a piece that was entered to others; false if that is not possible now. */
extern bool blob_piece_leave_dirty(BlobWritePiece *piece);

/*
 * Hand a piece to the kernel; if it trails, as a request ahead.  Takes the engine.  ERROR if its
 * file cannot be opened.
 */
extern void blob_piece_start_write(BlobWritePiece *piece);

/* Wait for the write of a piece.  ERROR if it has failed. */
extern void blob_piece_await_write(BlobWritePiece *piece);

/* Give its slabs back; it is free. */
extern void blob_piece_release(BlobWritePiece *piece);

#endif							/* BLOB_PIECE_H */
