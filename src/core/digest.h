/*
 * core/digest.h
 *	  SHA-256 whose intermediate state can be kept: growth resumes hashing from that state.
 *
 * OpenSSL's low-level functions are used on purpose, because the EVP interface does not give the
 * chaining words.
 */
#ifndef BLOB_DIGEST_H
#define BLOB_DIGEST_H

#include "postgres.h"

#include "core/compat.h"

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define BLOB_DIGEST_BYTES 32
#define BLOB_DIGEST_BLOCK_BYTES 64

typedef struct BlobDigest
{
	SHA256_CTX	context;
	/* of extents/hasher.h: */
	uint64		last_job_no;	/* that was handed over; 0: none is under way */
	bool		has_failed;		/* on a job */
} BlobDigest;

extern void blob_digest_begin(BlobDigest *digest);
extern void blob_digest_update(BlobDigest *digest, const void *data, size_t length_bytes);

/*
 * The same, and copy the data to target, which must not overlap with them.  Takes little longer
 * than the digest alone, because the processor copies while it waits for results of the rounds.
 */
extern void blob_digest_update_copy(BlobDigest *digest, const char *data, size_t length_bytes,
									char *target);

/*
 * Return the digest and, if state is not NULL, the 8 chaining words (big endian) after the last
 * full 64-byte block.
 */
extern void blob_digest_finish(BlobDigest *digest, uint8 *sha256, uint8 *state);

/*
 * Resume a digest from the state that blob_digest_finish() returned after size_bytes. open_block
 * holds the size_bytes % 64 bytes after the last full block.
 */
extern void blob_digest_resume(BlobDigest *digest, const uint8 *state, uint64 size_bytes,
							   const void *open_block);

/* ERROR for a failure of OpenSSL. */
pg_noreturn extern void blob_digest_report_failure(void);

/* Digest of data that are in memory as a whole. */
extern void blob_digest_bytes(const void *data, size_t length_bytes, uint8 *sha256);

#endif							/* BLOB_DIGEST_H */
