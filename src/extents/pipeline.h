/*
 * extents/pipeline.h
 *	  The write pipeline: the way of content to the device, to the WAL and into a digest.
 *
 * A BlobPipeline writes the stored bytes of one value.  Its owner, a writer or an overwrite in the
 * middle of a value, puts bytes into it any number of times.  It is memory of its owner and nothing
 * else; but while a put is under way, or has left writes in flight, the process has one such
 * pipeline, and its pieces are static.
 */
#ifndef BLOB_PIPELINE_H
#define BLOB_PIPELINE_H

#include "extents/put.h"

/* All zero: nothing was put. */
typedef struct BlobPipeline
{
	uint64		put_bytes;		/* so far; set by pipeline.c */
} BlobPipeline;

/*
 * Write bytes.  On return each of their pages was written, or is dirty in the buffer (io/dirty.h);
 * CONTENT was inserted where content is logged, and OMITTED is noted otherwise
 * (extents/omissions.h).  The digest includes them.
 *
 * With may_trail, writes from memory that is `first` alone may be in flight on return, and the
 * digest may have pieces under way (extents/hasher.h).  Then the memory must stay as it is, and no
 * code but the caller's may run, before blob_pipeline_wait() or blob_pipeline_abandon().
 *
 * Takes the I/O engine until it returns or throws.  ERROR if a write fails; nothing of this
 * pipeline is in flight then.  Serves interrupts.
 */
extern void blob_pipeline_put(BlobPipeline *pipeline, const BlobPut *put);

/* Whether writes are in flight between two calls. */
extern bool blob_pipeline_trails(const BlobPipeline *pipeline);

/* Wait for them, and log their content where it is logged.  ERROR if one has failed. */
extern void blob_pipeline_wait(BlobPipeline *pipeline);

/* Wait for the kernel, since the value will never become complete.  Cannot fail. */
extern void blob_pipeline_abandon(BlobPipeline *pipeline);

#endif							/* BLOB_PIPELINE_H */
