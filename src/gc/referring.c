/*
 * gc/referring.c
 *	  Which tables refer to extents, see gc/referring.h.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "gc/referring.h"

/* The number of the first or the second bit of a table. */
static uint32
bit_of(Oid table, int which)
{
	uint64		hash = hash_bytes_uint32_extended(table, 0);

	return (uint32) (hash >> (which * 32)) % BLOB_GC_REFERRING_BITS;
}

void
blob_gc_referring_add(BlobGcReferring *referring, Oid table)
{
	for (int which = 0; which < 2; which++)
		referring->bits[bit_of(table, which) / 8] |= 1 << (bit_of(table, which) % 8);
}

void
blob_gc_referring_add_all(BlobGcReferring *referring, const BlobGcReferring *others)
{
	for (int i = 0; i < (int) sizeof(referring->bits); i++)
		referring->bits[i] |= others->bits[i];
}

bool
blob_gc_referring_has(const BlobGcReferring *referring, Oid table)
{
	for (int which = 0; which < 2; which++)
	{
		if ((referring->bits[bit_of(table, which) / 8] >> (bit_of(table, which) % 8) & 1) == 0)
			return false;
	}
	return true;
}
