/*
 * blob/compare_content.h
 *	  Order of contents, read step by step; the part of blob/compare.h that reads extents.
 */
#ifndef BLOB_COMPARE_CONTENT_H
#define BLOB_COMPARE_CONTENT_H

#include "core/descriptor.h"

/* Beginnings of values, kept by a sort. */
typedef struct BlobSortMemory BlobSortMemory;

/* Order of two contents that agree in the first compared_bytes and go on. */
extern int	blob_compare_contents(const BlobKey *a, const BlobKey *b, uint64 compared_bytes,
								  BlobSortMemory *memory);

/* The memory of a sort, allocated when it is first needed: prefixes decide most sorts. */
extern BlobSortMemory *blob_compare_sort_memory(BlobSortMemory **memory, MemoryContext context);

/*
 * A value is going to be compared in a sort with another one of the same prefix.  If the buffer
 * has the first bytes behind the prefix, they are kept; else they are requested.  For values in
 * extents only.  Not to be called under a buffer lock.
 */
extern void blob_compare_expect(const BlobKey *key, BlobSortMemory **memory,
								MemoryContext context);

#endif							/* BLOB_COMPARE_CONTENT_H */
