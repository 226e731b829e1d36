/*
 * extents/pipeline.h
 *	  The write pipeline: puts content into the buffer or writes it, while it hashes it.  The writer
 *	  uses it, and so does an overwrite in the middle of a value.
 */
#ifndef BLOB_PIPELINE_H
#define BLOB_PIPELINE_H

#include "core/digest.h"
#include "core/page.h"
#include "extents/layout.h"

/* The bytes to write: total_bytes from two places in memory, one after the other. */
typedef struct BlobSource
{
	const char *first;
	uint64		first_bytes;
	const char *second;
	uint64		total_bytes;
	uint64		before_bytes;	/* that were written for the same value before */
} BlobSource;

/*
 * Write a source to runs of pages.  The part of the last page behind the source becomes zero.
 * digest is updated with all bytes but the first skip_bytes; if it is NULL, nothing is hashed.
 *
 * On return all writes have completed, or their pages are dirty in the buffer (io/dirty.h).
 * CONTENT has been inserted; or OMITTED, or it will be before the commit (extents/durability.h).
 * Claims the I/O engine until it returns or throws; nothing is in flight then.  ERROR if a write
 * fails.  Serves interrupts.
 */
extern void blob_pipeline_write(const BlobStoreId *store, const BlobWriteRun *runs, int run_count,
								const BlobSource *source, BlobDigest *digest, uint64 skip_bytes);

#endif							/* BLOB_PIPELINE_H */
