/*
 * extents/layout.h
 *	  Walks through the pages of a list of extents, in the order of the list, as long contiguous
 *	  pieces.
 */
#ifndef BLOB_LAYOUT_H
#define BLOB_LAYOUT_H

#include "core/page.h"

typedef struct BlobLayoutCursor
{
	const BlobExtent *extents;
	int			extent_count;
	int			extent_no;
	uint64		page_in_extent;
} BlobLayoutCursor;

/* Pages that are adjacent in one segment file. */
typedef struct BlobPiece
{
	BlobPageNo	first_page;
	uint32		pages;
} BlobPiece;

/*
 * The next piece of at most max_pages.  It goes on over the end of an extent if the list's next
 * extent begins with the next page of the same file.  The cursor must not be at the end.
 */
extern BlobPiece blob_layout_next(BlobLayoutCursor *cursor, uint32 max_pages);

/* Where a page lies in its segment file, in bytes. */
static inline uint64
blob_layout_file_offset(BlobPageNo page)
{
	return (page % BLOB_SEGMENT_PAGES) * BLOB_PAGE_SIZE;
}

/* Pages from this one to the end of its segment file. */
static inline uint64
blob_layout_pages_left_in_segment(BlobPageNo page)
{
	return BLOB_SEGMENT_PAGES - page % BLOB_SEGMENT_PAGES;
}

#endif							/* BLOB_LAYOUT_H */
