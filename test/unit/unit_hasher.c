/*
 * unit_hasher.c
 *	  Tests of extents/hasher.c: digests that the thread computes, against digests of the same bytes
 *	  in one go.
 */
#include "unit.h"

#include "common/pg_prng.h"
#include "core/settings.h"
#include "extents/hasher.h"

#define DIGESTS 5
#define MAX_PIECE_BYTES (96 * 1024)
#define MAX_PIECES_OF_ONE 40		/* more than the queue has */

typedef struct Hashed
{
	BlobDigest	digest;			/* by the thread, and by the process between waits */
	BlobDigest	expected;
	char	   *data;			/* of the pieces under way */
	int			piece_count;
	int			made;			/* digests that were finished or given up */
} Hashed;

static void
begin(Hashed *hashed)
{
	blob_digest_begin(&hashed->digest);
	blob_digest_begin(&hashed->expected);
	hashed->piece_count = 0;
	hashed->made++;
}

/* The thread does not look at the pieces any more: spoil them. */
static void
spoil(Hashed *hashed)
{
	memset(hashed->data, hashed->made, (Size) MAX_PIECE_BYTES * MAX_PIECES_OF_ONE);
	hashed->piece_count = 0;
}

static void
add(Hashed *hashed, pg_prng_state *random)
{
	char	   *data = hashed->data + (Size) hashed->piece_count * MAX_PIECE_BYTES;
	uint32		length = pg_prng_uint64(random) % MAX_PIECE_BYTES;

	if (hashed->piece_count == MAX_PIECES_OF_ONE)
		return;
	for (uint32 i = 0; i + 8 <= length; i += 509)
	{
		uint64		bits = pg_prng_uint64(random);

		memcpy(data + i, &bits, 8);
	}
	hashed->piece_count++;
	blob_hasher_add(&hashed->digest, data, length);
	blob_digest_update(&hashed->expected, data, length);
}

/* Wait, and compare a digest of all so far; the digest itself goes on. */
static void
wait_and_compare(Hashed *hashed)
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		expected[BLOB_DIGEST_BYTES];
	BlobDigest	copy;

	blob_hasher_wait(&hashed->digest);
	spoil(hashed);
	copy = hashed->digest;
	blob_digest_finish(&copy, sha256, NULL);
	copy = hashed->expected;
	blob_digest_finish(&copy, expected, NULL);
	CHECK(memcmp(sha256, expected, sizeof(sha256)) == 0, "the thread's digest");
}

/* Several digests, whose pieces come in any order; some are given up. */
UNIT_TEST(unit_hasher)
{
	pg_prng_state random;
	Hashed	   *all = palloc0(sizeof(Hashed) * DIGESTS);
	int			rounds = PG_GETARG_INT32(1);

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	blob_digest_thread = 0;
	CHECK(!blob_hasher_call(), "no thread is wanted");
	blob_digest_thread = 1;
	CHECK(blob_hasher_call(), "a thread");
	for (int i = 0; i < DIGESTS; i++)
	{
		all[i].data = palloc((Size) MAX_PIECE_BYTES * MAX_PIECES_OF_ONE);
		begin(&all[i]);
	}
	for (int i = 0; i < rounds; i++)
	{
		Hashed	   *hashed = &all[pg_prng_uint64(&random) % DIGESTS];

		switch (pg_prng_uint64(&random) % 64)
		{
			case 0:
				blob_hasher_cancel(&hashed->digest);
				spoil(hashed);
				begin(hashed);
				break;
			case 1:
			case 2:
				wait_and_compare(hashed);
				break;
			case 3:
				(void) blob_hasher_call();
				break;
			case 4:				/* let the thread fall asleep */
				pg_usleep(pg_prng_uint64(&random) % 1000);
				break;
			default:
				add(hashed, &random);
		}
	}
	for (int i = 0; i < DIGESTS; i++)
	{
		wait_and_compare(&all[i]);
		pfree(all[i].data);
	}
	pfree(all);
}
