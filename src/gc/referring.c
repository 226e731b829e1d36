/*
 * gc/referring.c
 *	  Which tables refer to extents, see gc/referring.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_statistic_ext.h"
#include "common/hashfn.h"
#include "gc/referring.h"
#include "utils/syscache.h"

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

Oid
blob_gc_table_of_statistics(Oid statistics)
{
	HeapTuple	tuple = SearchSysCache1(STATEXTOID, ObjectIdGetDatum(statistics));
	Oid			table;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	table = ((Form_pg_statistic_ext) GETSTRUCT(tuple))->stxrelid;
	ReleaseSysCache(tuple);
	return table;
}
