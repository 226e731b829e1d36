/*
 * unit_stale.c
 *	  SQL functions for tests of stale values: a value that outlives its extents, and a stop in the
 *	  middle of an allocation.  SQL has no way to keep a descriptor, nor to make one.
 */
#include "unit.h"

#include "core/descriptor.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

PG_FUNCTION_INFO_V1(unit_datum_bytes);
PG_FUNCTION_INFO_V1(unit_datum);
PG_FUNCTION_INFO_V1(unit_stop_at_allocation);

/* The bytes of a blobstate as it is in the row, behind the header. */
Datum
unit_datum_bytes(PG_FUNCTION_ARGS)
{
	PG_RETURN_BYTEA_P(PG_GETARG_BYTEA_P_COPY(0));
}

/* A blobstate of such bytes. */
Datum
unit_datum(PG_FUNCTION_ARGS)
{
	PG_RETURN_BYTEA_P(PG_GETARG_BYTEA_P_COPY(0));
}

static int64 stop_key;

static void
stop(const BlobStoreId *id, uint64 allocated_pages)
{
	Datum		key = Int64GetDatum(stop_key);

	if (stop_key == 0)
		return;
	stop_key = 0;
	DirectFunctionCall1(pg_advisory_lock_int8, key);
	DirectFunctionCall1(pg_advisory_unlock_int8, key);
}

/*
 * Argument: key of an advisory lock.  The next time that this backend has allocated 16 MiB, it
 * waits for the lock there: generations have been drawn, nothing has been written.
 */
Datum
unit_stop_at_allocation(PG_FUNCTION_ARGS)
{
	BlobStoreAllocationHook *hook = (BlobStoreAllocationHook *)
		load_external_function("$libdir/blobext", "blob_store_allocation_hook", true, NULL);

	stop_key = PG_GETARG_INT64(0);
	*hook = stop;
	PG_RETURN_VOID();
}
