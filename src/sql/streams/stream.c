/*
 * sql/streams/stream.c
 *	  Values in pieces: the aggregates blob_agg() and string_agg(), and what blob_chunks() is made
 *	  of.
 *
 * blob_chunks() itself is in SQL, so that the planner replaces a call in FROM by its query: a
 * set-returning C function would be run to its end there, and all content would be written to a
 * temporary file, before the first row is seen.
 */
#include "postgres.h"

#include "blob/builder.h"
#include "fmgr.h"
#include "store/store.h"
#include "sql/value.h"
#include "utils/datum.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(blob_chunk_count);
PG_FUNCTION_INFO_V1(blob_agg_bytea_transfn);
PG_FUNCTION_INFO_V1(blob_agg_blobstate_transfn);
PG_FUNCTION_INFO_V1(blob_string_agg_transfn);
PG_FUNCTION_INFO_V1(blob_agg_finalfn);

/* blob_chunk_count(blobstate, chunk_size): how many pieces; checks the size of one. */
Datum
blob_chunk_count(PG_FUNCTION_ARGS)
{
	int32		chunk_bytes = PG_GETARG_INT32(1);
	BlobValue	value;

	if (chunk_bytes < 1 || (Size) chunk_bytes > MaxAllocSize - VARHDRSZ)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("chunk size must be between 1 and %zu", MaxAllocSize - VARHDRSZ)));

	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	PG_RETURN_INT64((int64) ((value.size_bytes + chunk_bytes - 1) / chunk_bytes));
}

/*
 * The state of an aggregate, or NULL as long as there was no input.  It is memory of the
 * aggregate's context: when a group ends, or a query fails, it goes with it.
 */
static BlobBuilder *
get_state(FunctionCallInfo fcinfo, bool is_needed)
{
	MemoryContext aggregate_context;
	MemoryContext old;
	BlobBuilder *state;

	if (!AggCheckCallContext(fcinfo, &aggregate_context))
		elog(ERROR, "aggregate function called in non-aggregate context");
	if (!PG_ARGISNULL(0))
		return (BlobBuilder *) PG_GETARG_POINTER(0);
	if (!is_needed)
		return NULL;

	blob_store_require_preload();
	old = MemoryContextSwitchTo(aggregate_context);
	state = blob_builder_begin(0);
	MemoryContextSwitchTo(old);
	return state;
}

static Datum
return_state(FunctionCallInfo fcinfo, BlobBuilder *state)
{
	if (state == NULL)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(state);
}

Datum
blob_agg_bytea_transfn(PG_FUNCTION_ARGS)
{
	BlobBuilder *state = get_state(fcinfo, !PG_ARGISNULL(1));

	if (!PG_ARGISNULL(1))
	{
		bytea	   *piece = PG_GETARG_BYTEA_PP(1);

		blob_builder_add(state, VARDATA_ANY(piece), VARSIZE_ANY_EXHDR(piece));
	}
	return return_state(fcinfo, state);
}

Datum
blob_agg_blobstate_transfn(PG_FUNCTION_ARGS)
{
	BlobBuilder *state = get_state(fcinfo, !PG_ARGISNULL(1));

	if (!PG_ARGISNULL(1))
	{
		BlobValue	piece = blob_sql_unpack(PG_GETARG_DATUM(1));

		blob_builder_add_value(state, &piece);
	}
	return return_state(fcinfo, state);
}

/* string_agg(blobstate, bytea): the delimiter comes before each value but the first. */
Datum
blob_string_agg_transfn(PG_FUNCTION_ARGS)
{
	bool		is_first = PG_ARGISNULL(0);
	BlobBuilder *state = get_state(fcinfo, !PG_ARGISNULL(1));

	if (!PG_ARGISNULL(1))
	{
		BlobValue	piece = blob_sql_unpack(PG_GETARG_DATUM(1));

		if (!is_first && !PG_ARGISNULL(2))
		{
			bytea	   *delimiter = PG_GETARG_BYTEA_PP(2);

			blob_builder_add(state, VARDATA_ANY(delimiter), VARSIZE_ANY_EXHDR(delimiter));
		}
		blob_builder_add_value(state, &piece);
	}
	return return_state(fcinfo, state);
}

/*
 * Runs again on the same state where a hash table of groups is scanned again.  A window function
 * adds to the state afterwards, where a frame only gets longer: so it gets a copy.
 */
Datum
blob_agg_finalfn(PG_FUNCTION_ARGS)
{
	BlobBuilder *state = get_state(fcinfo, false);
	struct varlena *result;

	if (state == NULL)
		PG_RETURN_NULL();
	result = blob_builder_finish(state);
	if (AggCheckCallContext(fcinfo, NULL) == AGG_CONTEXT_WINDOW)
		PG_RETURN_DATUM(datumCopy(PointerGetDatum(result), false, -1));
	PG_RETURN_POINTER(result);
}
