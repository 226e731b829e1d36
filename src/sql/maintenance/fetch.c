/*
 * sql/maintenance/fetch.c
 *	  blobext_fetch(): content from another server; and what this server gives to others.
 *
 * README.md of heal/ says what may be trusted, and who may call these functions.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "core/digest.h"
#include "fmgr.h"
#include "funcapi.h"
#include "heal/fork.h"
#include "heal/source.h"
#include "sql/maintenance/check.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"

PG_FUNCTION_INFO_V1(blobext_fetch);
PG_FUNCTION_INFO_V1(blobext_source);
PG_FUNCTION_INFO_V1(blobext_source_read);

/*
 * blobext_fetch(conninfo, table or NULL, damaged): rows (relation, row, column, problem), for
 * values that were fetched (problem NULL) and those that could not be.  damaged: read all content,
 * to find what is damaged; otherwise only missing content is fetched.
 */
Datum
blobext_fetch(PG_FUNCTION_ARGS)
{
	BlobCheck	options = {.shows_repaired = true};

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("the connection string must not be null")));
	options.skips_content = PG_ARGISNULL(2) || !PG_GETARG_BOOL(2);
	blob_check_run(fcinfo, PG_ARGISNULL(1) ? InvalidOid : PG_GETARG_OID(1),
				   text_to_cstring(PG_GETARG_TEXT_PP(0)), &options);
	return (Datum) 0;
}

/*
 * blobext_source(fork): (system_identifier, store, timelines, common_below).  With fork 0/0, which
 * is before all generations, the last one is 0.
 */
Datum
blobext_source(PG_FUNCTION_ARGS)
{
	XLogRecPtr	fork = PG_GETARG_LSN(0);
	char		store_name[BLOB_SOURCE_STORE_BYTES];
	TupleDesc	row_type;
	Datum		values[4];
	bool		nulls[4] = {0};
	BlobStore	store;
	BlobGeneration below = BLOB_INVALID_GENERATION;

	blob_store_require_preload();
	if (get_call_result_type(fcinfo, NULL, &row_type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	blob_store_open(&store, AccessShareLock);
	blob_source_store_name(&store.id, store_name);
	if (fork != InvalidXLogRecPtr)
		below = blob_fork_common_below(&store, fork);
	blob_store_close(&store);
	values[0] = CStringGetTextDatum(psprintf(UINT64_FORMAT, GetSystemIdentifier()));
	values[1] = CStringGetTextDatum(store_name);
	values[2] = CStringGetTextDatum(blob_fork_history());
	values[3] = Int64GetDatum((int64) below);
	return HeapTupleGetDatum(heap_form_tuple(row_type, values, nulls));
}

/* A non-negative bigint argument. */
static uint64
get_number(FunctionCallInfo fcinfo, int argument)
{
	int64		number = PG_GETARG_INT64(argument);

	if (number < 0)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("invalid request for content"),
				 errdetail("Argument %d is negative.", argument + 1)));
	return (uint64) number;
}

/* The arguments of blobext_source_read(); ERROR for a request that makes no sense. */
static BlobSourceRequest
get_request(FunctionCallInfo fcinfo)
{
	BlobSourceRequest request = {
		.extent = {
			.first_page = get_number(fcinfo, 1),
			.pages = get_number(fcinfo, 2),
			.generation = get_number(fcinfo, 3),
			.is_tail = PG_GETARG_BOOL(8)
		},
		.common_below = get_number(fcinfo, 4),
		.start = get_number(fcinfo, 5),
		.unchanged_since = PG_GETARG_LSN(6),
		.replayed_to = PG_GETARG_LSN(10)
	};
	int32		bytes = PG_GETARG_INT32(7);

	if (bytes <= 0 || bytes > BLOB_SOURCE_MAX_BYTES ||
		request.start % BLOB_PAGE_SIZE != 0 || request.extent.first_page > BLOB_MAX_PAGE_NO)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid request for content"),
				 errdetail("A request is for whole pages from the start on, and for at most %d "
						   "bytes.", BLOB_SOURCE_MAX_BYTES)));
	request.length_bytes = (uint32) bytes;
	return request;
}

/*
 * blobext_source_read(store, first_page, pages, generation, common_below, start, unchanged_since,
 * bytes, is_tail, digest, replayed_to): stored bytes of an extent, or their SHA-256.
 */
Datum
blobext_source_read(PG_FUNCTION_ARGS)
{
	BlobSourceRequest request;
	bytea	   *result;
	uint32		length;

	blob_store_require_preload();
	request = get_request(fcinfo);
	result = palloc(VARHDRSZ + Max(request.length_bytes, BLOB_DIGEST_BYTES));
	length = blob_source_read(text_to_cstring(PG_GETARG_TEXT_PP(0)), &request, VARDATA(result));
	if (PG_GETARG_BOOL(9))
	{
		uint8		sha256[BLOB_DIGEST_BYTES];

		blob_digest_bytes(VARDATA(result), length, sha256);
		memcpy(VARDATA(result), sha256, sizeof(sha256));
		length = sizeof(sha256);
	}
	SET_VARSIZE(result, VARHDRSZ + length);
	PG_RETURN_BYTEA_P(result);
}
