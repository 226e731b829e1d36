/*
 * blob/footprint.h
 *	  What the extents of a value hold of it, and how they lie.
 */
#ifndef BLOB_FOOTPRINT_H
#define BLOB_FOOTPRINT_H

#include "core/descriptor.h"

typedef struct BlobFootprint
{
	uint64		pages;			/* of its extents */
	uint64		live_pages;		/* those that the value would have, were it stored at once */
	uint64		runs;			/* of adjacent pages in one segment file, in stored order; of a
								 * tree in that of its content */
	uint64		natural_runs;	/* one for each started megabyte of live pages */
} BlobFootprint;

/*
 * The footprint of a value; all zeros for an inline one.  Reads the directory of a compressed value
 * if that has one, with the errors of blob/reader.h and blob/frames.h.  Reads no content.
 */
extern PGDLLEXPORT void blob_footprint(const BlobValue *value, BlobFootprint *footprint);

/* Pages that nothing of the value is in, or would not need to be. */
static inline uint64
blob_footprint_dead_pages(const BlobFootprint *footprint)
{
	return footprint->pages - footprint->live_pages;
}

/* Nodes that a directory of a number of frames has, if each is full. */
extern uint64 blob_footprint_nodes(uint64 frame_count);

#endif							/* BLOB_FOOTPRINT_H */
