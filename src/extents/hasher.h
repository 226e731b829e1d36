/*
 * extents/hasher.h
 *	  A thread of this process that computes digests, while the process receives, copies and writes
 *	  content.
 *
 * Content is handed over in jobs.  The thread hashes them in the order in which they came.  If
 * the processors have other work, so that the thread does not come to it, the process hashes them
 * itself when it waits for them.
 *
 * A job that was handed over must stay where it is, unchanged, until blob_hasher_wait() or
 * blob_hasher_cancel() of its digest has returned, or blob_hasher_wait_for_job() for it or a
 * later one; the digest until one of the first two has, and nothing else may use it.
 */
#ifndef BLOB_HASHER_H
#define BLOB_HASHER_H

#include "core/digest.h"

/* The smallest job of a stream for which the thread is worth it. */
#define BLOB_HASHER_JOB_BYTES (256 * 1024)

/*
 * Wake the thread up, because jobs are about to come; start it if need be.  False if there is
 * none: blobext.digest_thread is off, or the process can have no thread.
 */
extern bool blob_hasher_call(void);

/* Whether jobs of a digest are under way: then the next ones must be handed over, too. */
static inline bool
blob_hasher_has(const BlobDigest *digest)
{
	return digest->last_job_no != 0;
}

/* Hand over the next bytes of a digest.  Does not throw. */
extern void blob_hasher_add(BlobDigest *digest, const void *data, size_t length_bytes);

/* Whether content of a digest is under way, so that blob_hasher_wait() would wait. */
extern bool blob_hasher_is_busy(const BlobDigest *digest);

/*
 * Wait until all that was handed over for a digest is hashed.  The wait is not interrupted: at most
 * BLOB_HASHER_MAX_JOBS jobs are under way.  ERROR if a job could not be hashed.
 */
extern void blob_hasher_wait(BlobDigest *digest);

/*
 * The same for the jobs up to one of them, which was the last one when digest->last_job_no had
 * this value: later ones may stay under way.  A job that could not be hashed is reported by
 * blob_hasher_wait().
 */
extern void blob_hasher_wait_for_job(uint64 job_no);

/*
 * Forget all that was handed over for a digest, which is of no use then.  Returns when none of its
 * bytes are looked at any more.  Cannot fail: for the end of transactions and of memory.
 */
extern void blob_hasher_cancel(BlobDigest *digest);

#define BLOB_HASHER_MAX_JOBS 32

#endif							/* BLOB_HASHER_H */
