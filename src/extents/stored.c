/*
 * extents/stored.c
 *	  Parts of stored bytes, see extents/stored.h.
 */
#include "postgres.h"

#include "extents/stored.h"

static int
compare_parts(const void *a, const void *b)
{
	uint64		first = ((const BlobStoredPart *) a)->offset;
	uint64		second = ((const BlobStoredPart *) b)->offset;

	return first < second ? -1 : first > second;
}

void
blob_stored_sort_parts(BlobStoredPart *parts, int count)
{
	qsort(parts, count, sizeof(BlobStoredPart), compare_parts);
}
