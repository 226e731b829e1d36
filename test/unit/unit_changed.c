/*
 * unit_changed.c
 *	  Random blocks in the set of src/gc/changed.h, and a model of it.
 */
#include "unit.h"

#include "common/pg_prng.h"
#include "gc/changed.h"

/* The set has bitmaps of 512 blocks. */
#define FILES 3
#define BLOCKS 3000

static bool is_there[FILES][BLOCKS];

/* The last of them are the last blocks that a file can have. */
static BlockNumber
block_of(int number)
{
	return number < BLOCKS - 600 ? (BlockNumber) number : MaxBlockNumber - (BLOCKS - 1 - number);
}

static void
compare(BlobGcChanged *changed, pg_prng_state *random)
{
	Oid			file = pg_prng_uint64_range(random, 0, FILES - 1);

	for (int i = 0; i < BLOCKS; i++)
	{
		CHECK(blob_gc_changed_has(changed, file, block_of(i)) == is_there[file][i],
			  "block %u of %u", block_of(i), file);
	}
}

/* Argument: seed.  Blocks are added while they are asked for. */
UNIT_TEST(unit_changed)
{
	Oid			files[] = {2, 0, 1};
	BlobGcChanged *changed = blob_gc_changed_make(files, FILES);
	pg_prng_state random;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	memset(is_there, 0, sizeof(is_there));
	for (int turn = 0; turn < 100; turn++)
	{
		for (int i = 0; i < 20; i++)
		{
			Oid			file = pg_prng_uint64_range(&random, 0, FILES - 1);
			int			block = pg_prng_uint64_range(&random, 0, BLOCKS - 1);

			(void) blob_gc_changed_has(changed, file, block_of(block));
			blob_gc_changed_add(changed, file, block_of(block));
			is_there[file][block] = true;
			CHECK(blob_gc_changed_has(changed, file, block_of(block)), "added");
			blob_gc_changed_add(changed, FILES, block_of(block));
			CHECK(!blob_gc_changed_has(changed, FILES, block_of(block)), "not of a wanted file");
		}
		compare(changed, &random);
	}
}
