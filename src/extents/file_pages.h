/*
 * extents/file_pages.h
 *	  Reads pages from their files, past the buffer, and compares them with their checksums.
 *
 * A page that has its checksum is right, whatever happens meanwhile: the checksum is that of one
 * page in one life.  A page that has not is suspect, no more: it may have been freed since the
 * caller looked, be dirty in the buffer, or belong to no value.
 */
#ifndef BLOB_FILE_PAGES_H
#define BLOB_FILE_PAGES_H

#include "core/page.h"
#include "store/page_sums.h"
#include "store/store.h"

/* Pages of one extent that has checksums, or hides them, all in one segment. */
typedef struct BlobFilePart
{
	BlobExtent	extent;			/* with its generation */
	uint64		page_no;		/* the first page, counted in the extent */
	uint32		pages;			/* at most BLOB_SUMS_MAX_PAGES */
	uint32		unknown_pages;	/* whose sum matches whatever they hold */
	bool		is_suspect;		/* a page differs, cannot be read, or has no checksum */
} BlobFilePart;

/*
 * Read the pages of these parts, which are in page order, and set the last two members of each.
 * No content gets into the buffer, and none is taken from it.  The store is open (AccessShareLock).
 * Takes the I/O engine; serves interrupts between requests.  ERROR if the map or a file cannot be
 * opened for other reasons than that the file is missing.
 */
extern void blob_file_pages_compare(BlobStore *store, BlobFilePart *parts, int part_count);

/*
 * Whether a reader of a value of this generation that has the page_no-th page of an extent would
 * get an error for it: the same looks into the map before and after, the same look into the buffer
 * for a dirty page, two tries.  False also if the extent is not the value's any more, or has
 * unlogged content.  Nothing is noted as damaged.  The store is open (AccessShareLock).
 */
extern bool blob_file_page_is_damaged(BlobStore *store, const BlobExtent *extent,
									  BlobGeneration max_generation, uint64 page_no);

#endif							/* BLOB_FILE_PAGES_H */
