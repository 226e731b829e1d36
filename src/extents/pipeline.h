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
	bool		is_whole;		/* all content of the value is in memory now */
	bool		is_last;		/* the value ends here */
	bool		may_trail;		/* the first place stays as it is while the writes trail */
} BlobSource;

/*
 * Write a source to runs of pages.  The part of the last page behind the source becomes zero.
 * digest is updated with all bytes but the first skip_bytes; if it is NULL, nothing is hashed.
 *
 * On return all writes have completed, or their pages are dirty in the buffer (io/dirty.h).
 * CONTENT has been inserted; or OMITTED, or it will be before the commit (extents/durability.h), or
 * when the writes that trail have been waited for.
 * Claims the I/O engine until it returns or throws; nothing is in flight then, unless writes trail.
 * ERROR if a write fails, or one that has trailed.  Serves interrupts.
 */
extern void blob_pipeline_write(const BlobStoreId *store, const BlobWriteRun *runs, int run_count,
								const BlobSource *source, BlobDigest *digest, uint64 skip_bytes);

/*
 * Writes *trail* if the call that started them has returned.  They do so only between these two
 * functions, only if the source says that they may, and only until the next call of the pipeline,
 * which waits for them.  While they trail, the digest may have pieces under way, too
 * (core/hasher.h).
 *
 * Between the two nothing runs but uploads (blob/upload.h), so that no transaction ends, and no
 * memory is freed, while writes trail.  blob_pipeline_end_trailing() waits for them.  ERROR if a
 * write has failed.  An error in between must not pass it by: it does not throw after one.
 */
extern void blob_pipeline_begin_trailing(void);
extern void blob_pipeline_end_trailing(bool is_after_error);

/*
 * Wait for the writes that trail, and insert OMITTED for them.  ERROR if one has failed.  Other
 * code that must not meet them calls this; while they trail, their process has no lock for them.
 */
extern void blob_pipeline_finish_trailing(void);

/* Whether writes may trail now; whether those of the last call do. */
extern bool blob_pipeline_may_trail(void);
extern bool blob_pipeline_trails(void);

#endif							/* BLOB_PIPELINE_H */
