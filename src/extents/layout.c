/*
 * extents/layout.c
 *	  Contiguous pieces of a list of extents, see extents/layout.h.
 */
#include "postgres.h"

#include "extents/layout.h"

BlobPiece
blob_layout_next(BlobLayoutCursor *cursor, uint32 max_pages)
{
	BlobPiece	piece = {0};

	while (cursor->extent_no < cursor->extent_count && piece.pages < max_pages)
	{
		const BlobExtent *extent = &cursor->extents[cursor->extent_no];
		BlobPageNo	page = extent->first_page + cursor->page_in_extent;
		uint64		pages = extent->pages - cursor->page_in_extent;

		if (piece.pages == 0)
			piece.first_page = page;
		else if (piece.first_page + piece.pages != page || page % BLOB_SEGMENT_PAGES == 0)
			break;

		pages = Min(pages, max_pages - piece.pages);
		pages = Min(pages, blob_layout_pages_left_in_segment(page));
		piece.pages += (uint32) pages;
		cursor->page_in_extent += pages;
		if (cursor->page_in_extent == extent->pages)
		{
			cursor->extent_no++;
			cursor->page_in_extent = 0;
		}
		if ((page + pages) % BLOB_SEGMENT_PAGES == 0)
			break;
	}
	Assert(piece.pages > 0);
	return piece;
}
