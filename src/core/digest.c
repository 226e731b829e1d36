/*
 * core/digest.c
 *	  Resumable SHA-256, see core/digest.h.
 */
#include "postgres.h"

#include "core/digest.h"
#include "port/pg_bswap.h"

/*
 * Step of blob_digest_update_copy().  The copy of one step runs while the rounds of the step before
 * are being finished, out of order.  Measured for 10 MB, copy included, with steps of 256, 512,
 * 1024 and 4096 bytes: 1.04, 1.04, 1.12 and 1.18 times the digest alone; copy and digest one after
 * the other take 1.24 times.
 */
#define COPY_STEP_BYTES 512

StaticAssertDecl(BLOB_DIGEST_BYTES == SHA256_DIGEST_LENGTH, "digest length");

void
blob_digest_report_failure(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compute a SHA-256 digest")));
}

static void
check(int success)
{
	if (success != 1)
		blob_digest_report_failure();
}

void
blob_digest_begin(BlobDigest *digest)
{
	check(SHA256_Init(&digest->context));
	digest->last_job_no = 0;
	digest->has_failed = false;
}

void
blob_digest_update(BlobDigest *digest, const void *data, size_t length_bytes)
{
	Assert(digest->last_job_no == 0);

	if (length_bytes > 0)
		check(SHA256_Update(&digest->context, data, length_bytes));
}

void
blob_digest_update_copy(BlobDigest *digest, const char *data, size_t length_bytes, char *target)
{
	/* The first step ends with a block, so that the later steps consist of whole blocks. */
	size_t		step = COPY_STEP_BYTES - digest->context.num;

	for (size_t done = 0; done < length_bytes; done += step, step = COPY_STEP_BYTES)
	{
		step = Min(step, length_bytes - done);
		memcpy(target + done, data + done, step);
		blob_digest_update(digest, target + done, step);
	}
}

void
blob_digest_finish(BlobDigest *digest, uint8 *sha256, uint8 *state)
{
	Assert(digest->last_job_no == 0);

	if (state != NULL)
	{
		for (int i = 0; i < 8; i++)
		{
			uint32		word = pg_hton32(digest->context.h[i]);

			memcpy(state + 4 * i, &word, sizeof(word));
		}
	}
	check(SHA256_Final(sha256, &digest->context));
}

void
blob_digest_resume(BlobDigest *digest, const uint8 *state, uint64 size_bytes,
				   const void *open_block)
{
	uint64		full_bits = size_bytes / BLOB_DIGEST_BLOCK_BYTES * BLOB_DIGEST_BLOCK_BYTES * 8;

	blob_digest_begin(digest);
	for (int i = 0; i < 8; i++)
	{
		uint32		word;

		memcpy(&word, state + 4 * i, sizeof(word));
		digest->context.h[i] = pg_ntoh32(word);
	}
	digest->context.Nl = (uint32) full_bits;
	digest->context.Nh = (uint32) (full_bits >> 32);
	blob_digest_update(digest, open_block, size_bytes % BLOB_DIGEST_BLOCK_BYTES);
}

void
blob_digest_bytes(const void *data, size_t length_bytes, uint8 *sha256)
{
	BlobDigest	digest;

	blob_digest_begin(&digest);
	blob_digest_update(&digest, data, length_bytes);
	blob_digest_finish(&digest, sha256, NULL);
}
