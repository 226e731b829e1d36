/*
 * extents/range.h
 *	  Which extents a range of a value touches, and whether they are still the value's.
 */
#ifndef BLOB_RANGE_H
#define BLOB_RANGE_H

#include "core/descriptor.h"
#include "utils/relcache.h"

typedef struct BlobRange
{
	int			first_no;
	int			count;
	uint64		first_start;	/* content offset of the first of them, in bytes */
	BlobExtent *extents;
	uint64	   *content_bytes;	/* of each of them */
} BlobRange;

/* The extents that hold [offset, offset + length) of the content; palloc'ed. */
extern BlobRange blob_range_find(const BlobDescriptor *descriptor, uint64 offset_bytes,
								 uint64 length_bytes);
extern void blob_range_free(BlobRange *range);

/*
 * Whether the map says that the extent is allocated, in the form that the descriptor expects, by a
 * generation no later than the descriptor's.  Sets extent->generation to the map's.
 */
extern bool blob_extent_is_valid(Relation map, const BlobDescriptor *descriptor,
								 BlobExtent *extent);

#endif							/* BLOB_RANGE_H */
