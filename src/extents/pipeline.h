/*
 * extents/pipeline.h
 *	  Writing pages while hashing: what the writer and changes in the middle have in common.
 */
#ifndef BLOB_PIPELINE_H
#define BLOB_PIPELINE_H

#include "core/digest.h"
#include "core/page.h"

/* What is to be written: total_bytes of two places, one after the other. */
typedef struct BlobSource
{
	const char *first;
	uint64		first_bytes;
	const char *second;
	uint64		total_bytes;
} BlobSource;

/*
 * Write a source to runs of pages (first_page, pages, and the generation of their extent), which
 * are ours in the map; the rest of the last page becomes zero.  digest is brought up to date with
 * all but the first skip_bytes; NULL: with none.  Claims the I/O engine meanwhile.  All writes
 * have completed on return, or are left to the syncer (io/deferred.h); and content is logged,
 * or that it is not; nothing is in flight when this returns or throws.
 */
extern void blob_pipeline_write(const BlobStoreId *store, const BlobExtent *runs, int run_count,
								const BlobSource *source, BlobDigest *digest, uint64 skip_bytes);

#endif							/* BLOB_PIPELINE_H */
