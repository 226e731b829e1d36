/*
 * extents/layout.h
 *	  Where the pages of extents lie in segment files.
 */
#ifndef BLOB_LAYOUT_H
#define BLOB_LAYOUT_H

#include "core/page.h"

/* Pages of an extent, which the caller has allocated or claimed, and which were never written. */
typedef struct BlobWriteRun
{
	BlobExtent	extent;			/* as long as its readers will know it, or longer */
	uint64		page_in_extent; /* the first one */
	uint64		pages;
} BlobWriteRun;

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
