/*
 * blob/used_pages.h
 *	  Which stored pages a value uses.
 *
 * A value that is no tree uses all pages that its extents hold of it.  Of a tree these include
 * pages of older versions, pages that other versions have claimed, and pages that were never
 * written: their bytes say nothing about the value.
 */
#ifndef BLOB_USED_PAGES_H
#define BLOB_USED_PAGES_H

#include "blob/frames.h"

/* Stored bytes [start, end). */
typedef struct BlobUsedRange
{
	uint64		start;
	uint64		end;
} BlobUsedRange;

/* In ascending order, if sorted. */
typedef struct BlobUsedPages
{
	BlobUsedRange *ranges;
	int64		count;
	int64		room;
} BlobUsedPages;

/*
 * List the pages that a value uses, in memory of the current context.  Reads the directory of a
 * tree, with the errors of blob/frames.h and of the source.
 */
extern void blob_used_pages_list(const BlobDescriptor *descriptor,
								 const BlobMappingSource *source, BlobUsedPages *used);

/*
 * The same of a compressed value that is no tree, without what lies beside its frames, nodes and
 * remainder: zeros, or bytes that an append has left behind.
 */
extern void blob_used_pages_list_frames(const BlobDescriptor *descriptor,
										const BlobMappingSource *source, BlobUsedPages *used);

/* Whether the value has bytes in a stored page, which has its stored offset in pages as number. */
extern bool blob_used_pages_have(const BlobUsedPages *used, uint64 page_no);

/* Whether all bytes of a stored page are the value's. */
extern bool blob_used_pages_fill(const BlobUsedPages *used, uint64 page_no);

/* Copy the value's bytes in a stored page from one image of it to another one. */
extern void blob_used_pages_copy(const BlobUsedPages *used, uint64 page_no, const char *from,
								 char *to);

/* For a list that is made by steps: add stored bytes; sort, when all are there. */
extern void blob_used_pages_add(BlobUsedPages *used, uint64 stored_offset, uint64 length_bytes);
extern void blob_used_pages_sort(BlobUsedPages *used);

#endif							/* BLOB_USED_PAGES_H */
