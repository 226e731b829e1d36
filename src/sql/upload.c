/*
 * sql/upload.c
 *	  Functions that write one value by several statements of a transaction (blob/upload.h).
 */
#include "postgres.h"

#include "blob/upload.h"
#include "fmgr.h"
#include "store/store.h"
#include "sql/value.h"

PG_FUNCTION_INFO_V1(blob_upload_begin_sql);
PG_FUNCTION_INFO_V1(blob_upload_resume_sql);
PG_FUNCTION_INFO_V1(blob_upload_write_sql);
PG_FUNCTION_INFO_V1(blob_upload_end_sql);
PG_FUNCTION_INFO_V1(blob_upload_abort_sql);

static uint64
get_expected_bytes(int64 number)
{
	if (number < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of expected bytes must not be negative")));
	return (uint64) number;
}

/* blob_upload_begin(expected_bytes) */
Datum
blob_upload_begin_sql(PG_FUNCTION_ARGS)
{
	uint64		expected_bytes = get_expected_bytes(PG_GETARG_INT64(0));

	blob_store_require_preload();
	PG_RETURN_INT64(blob_upload_begin(NULL, expected_bytes));
}

/* blob_upload_resume(content, expected_bytes) */
Datum
blob_upload_resume_sql(PG_FUNCTION_ARGS)
{
	uint64		expected_bytes = get_expected_bytes(PG_GETARG_INT64(1));
	BlobValue	base;

	blob_store_require_preload();
	base = blob_sql_unpack(PG_GETARG_DATUM(0));
	PG_RETURN_INT64(blob_upload_begin(&base, expected_bytes));
}

/* blob_upload_write(upload, data): not strict, for a NULL that is left out would be missed late. */
Datum
blob_upload_write_sql(PG_FUNCTION_ARGS)
{
	bytea	   *data;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("upload and data must not be null")));
	data = PG_GETARG_BYTEA_PP(1);
	PG_RETURN_INT64((int64) blob_upload_write(PG_GETARG_INT64(0), VARDATA_ANY(data),
											  VARSIZE_ANY_EXHDR(data)));
}

/* blob_upload_end(upload) */
Datum
blob_upload_end_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(blob_upload_end(PG_GETARG_INT64(0)));
}

/* blob_upload_abort(upload) */
Datum
blob_upload_abort_sql(PG_FUNCTION_ARGS)
{
	blob_upload_abort(PG_GETARG_INT64(0));
	PG_RETURN_VOID();
}
