/*
 * sql/streams/upload.c
 *	  Functions that write one value by several statements of a transaction (blob/upload.h).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "blob/upload.h"
#include "commands/trigger.h"
#include "core/catalog.h"
#include "fmgr.h"
#include "store/store.h"
#include "sql/value.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(blob_upload_begin_sql);
PG_FUNCTION_INFO_V1(blob_upload_resume_sql);
PG_FUNCTION_INFO_V1(blob_upload_write_sql);
PG_FUNCTION_INFO_V1(blob_upload_piece_sql);
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
	BlobValue	base = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));

	PG_RETURN_INT64(blob_upload_begin(&base, expected_bytes));
}

/* blob_upload_write(upload, data): not strict, see blob_upload_refuse_null(). */
Datum
blob_upload_write_sql(PG_FUNCTION_ARGS)
{
	bytea	   *data;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		blob_upload_refuse_null();
	data = PG_GETARG_BYTEA_PP(1);
	PG_RETURN_INT64((int64) blob_upload_write(PG_GETARG_INT64(0), VARDATA_ANY(data),
											  VARSIZE_ANY_EXHDR(data)));
}

/*
 * Trigger of the view blob_upload_pieces: a row is a piece.  COPY in binary from a client does not
 * come here (client/upload_copy.h).
 */
Datum
blob_upload_piece_sql(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	TupleDesc	columns;
	Datum		upload_no;
	Datum		data;
	bool		is_null[2];
	bytea	   *piece;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BY_INSERT(trigger->tg_event) ||
		!TRIGGER_FIRED_INSTEAD(trigger->tg_event) ||
		RelationGetRelid(trigger->tg_relation) != blob_catalog_upload_pieces())
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("this function is the trigger of view %s alone", BLOB_UPLOAD_PIECES)));
	columns = RelationGetDescr(trigger->tg_relation);
	upload_no = heap_getattr(trigger->tg_trigtuple, 1, columns, &is_null[0]);
	data = heap_getattr(trigger->tg_trigtuple, 2, columns, &is_null[1]);
	if (is_null[0] || is_null[1])
		blob_upload_refuse_null();
	piece = DatumGetByteaPP(data);
	blob_upload_write(DatumGetInt64(upload_no), VARDATA_ANY(piece), VARSIZE_ANY_EXHDR(piece));
	return PointerGetDatum(trigger->tg_trigtuple);
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
