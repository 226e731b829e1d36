/*
 * sql/values/type.c
 *	  Input, output, casts and store functions of type blobstate.
 *
 * Input and receive take content, never a descriptor: a forged one would read other people's
 * bytes.  Output gives content, as bytea's does.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "core/settings.h"
#include "fmgr.h"
#include "libpq/pqformat.h"
#include "sql/value.h"
#include "sql/values/error_detail.h"
#include "sql/values/language.h"
#include "store/store.h"
#include "assign/assign.h"
#include "assign/column_storage.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(blobstate_in);
PG_FUNCTION_INFO_V1(blobstate_out);
PG_FUNCTION_INFO_V1(blobstate_recv);
PG_FUNCTION_INFO_V1(blobstate_send);
PG_FUNCTION_INFO_V1(blobstate_typmod_in);
PG_FUNCTION_INFO_V1(blobstate_typmod_out);
PG_FUNCTION_INFO_V1(blobstate_assign);
PG_FUNCTION_INFO_V1(blobstate_coerce);
PG_FUNCTION_INFO_V1(blobstate_from_bytea);
PG_FUNCTION_INFO_V1(blobstate_to_bytea);
PG_FUNCTION_INFO_V1(blob_store);
PG_FUNCTION_INFO_V1(blob_store_in_column);
PG_FUNCTION_INFO_V1(blob_store_bytea);
PG_FUNCTION_INFO_V1(blob_store_bytea_in_column);
PG_FUNCTION_INFO_V1(blob_store_contained);

/* bytea_output = hex writes two characters for a byte, and two before them. */
#define MAX_TEXT_BYTES ((MaxAllocSize - 3) / 2)

/* Error messages show longer values in short form. */
#define MAX_ERROR_DETAIL_BYTES 4096

Datum
blobstate_in(PG_FUNCTION_ARGS)
{
	bytea	   *content;

	blob_store_require_preload();
	blob_language_check_input(PG_GETARG_CSTRING(0));
	content = DatumGetByteaPP(DirectFunctionCall1(byteain, PG_GETARG_DATUM(0)));
	return blob_from_bytes(VARDATA_ANY(content), VARSIZE_ANY_EXHDR(content),
						   blob_assign_input_may_externalize(), blob_assign_input_storage());
}

Datum
blobstate_recv(PG_FUNCTION_ARGS)
{
	StringInfo	message = (StringInfo) PG_GETARG_POINTER(0);
	int			length = message->len - message->cursor;

	blob_store_require_preload();
	return blob_from_bytes(pq_getmsgbytes(message, length), length,
						   blob_assign_input_may_externalize(), blob_assign_input_storage());
}

/* Where the text form is too long for PostgreSQL, name the way that works. */
static void
check_text_size(uint64 size_bytes)
{
	if (size_bytes > MAX_TEXT_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("value of " UINT64_FORMAT " bytes is too large for text output",
						size_bytes),
				 errdetail("The text form of at most %zu bytes fits into one message.",
						   (size_t) MAX_TEXT_BYTES),
				 errhint("Use binary transfer, or read the value in ranges with blob_read().")));
}

Datum
blobstate_out(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));

	if (value.size_bytes > MAX_ERROR_DETAIL_BYTES && blob_error_detail_wanted())
		PG_RETURN_CSTRING(blob_error_detail_text(&value));
	check_text_size(value.size_bytes);
	return DirectFunctionCall1(byteaout, PointerGetDatum(blob_sql_read(&value, 0,
																	   value.size_bytes)));
}

Datum
blobstate_send(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));

	PG_RETURN_BYTEA_P(blob_sql_read(&value, 0, value.size_bytes));
}

/* Users cannot give a modifier; the hidden one is set by assign/columns.c. */
Datum
blobstate_typmod_in(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR),
			 errmsg("type modifier is not allowed for type \"blobstate\"")));
	PG_RETURN_INT32(-1);
}

Datum
blobstate_typmod_out(PG_FUNCTION_ARGS)
{
	PG_RETURN_CSTRING(pstrdup(""));
}

/* Store a value that is assigned to a column, unless it may end up in a catalog or a plan. */
static Datum
store_assigned(Datum blobstate, BlobStorage storage)
{
	return blob_assign_suppressed() ? blobstate : blob_assign_store(blobstate, storage);
}

/* How the column stores values that is the second and third argument of blob_store(). */
static BlobStorage
get_column_storage(FunctionCallInfo fcinfo)
{
	return blob_column_storage(PG_GETARG_OID(1), PG_GETARG_INT16(2));
}

/* blobstate(blobstate, integer, boolean): runs wherever a value is assigned to a column. */
Datum
blobstate_assign(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(store_assigned(PG_GETARG_DATUM(0), blob_storage_default()));
}

/* The same by the name that version 0.1.0 of the SQL objects has for it. */
Datum
blobstate_coerce(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(store_assigned(PG_GETARG_DATUM(0), blob_storage_default()));
}

/* blob_store(blobstate): put on the targets of INSERT, UPDATE and MERGE by assign/planner.c. */
Datum
blob_store(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(store_assigned(PG_GETARG_DATUM(0), blob_storage_default()));
}

/* blob_store(blobstate, regclass, smallint): the same for a column. */
Datum
blob_store_in_column(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(store_assigned(PG_GETARG_DATUM(0), get_column_storage(fcinfo)));
}

/* blob_store_contained(anyelement): the same for an array, a row or a range with values inside. */
Datum
blob_store_contained(PG_FUNCTION_ARGS)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 0);

	if (!OidIsValid(type))
		elog(ERROR, "could not determine the type of a value that is stored");
	if (blob_assign_suppressed())
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));
	PG_RETURN_DATUM(blob_assign_store_contained(PG_GETARG_DATUM(0), type));
}

/* Store content; where values are not stored now, it becomes an inline value. */
static Datum
store_bytes(bytea *content, BlobStorage storage)
{
	if (blob_assign_suppressed())
		return blob_from_bytes(VARDATA_ANY(content), VARSIZE_ANY_EXHDR(content), false, storage);
	return blob_assign_store_bytes(VARDATA_ANY(content), VARSIZE_ANY_EXHDR(content), storage);
}

/* blob_store(bytea): the same for content, see assign/support.c. */
Datum
blob_store_bytea(PG_FUNCTION_ARGS)
{
	blob_store_require_preload();
	PG_RETURN_DATUM(store_bytes(PG_GETARG_BYTEA_PP(0), blob_storage_default()));
}

/* blob_store(bytea, regclass, smallint) */
Datum
blob_store_bytea_in_column(PG_FUNCTION_ARGS)
{
	blob_store_require_preload();
	PG_RETURN_DATUM(store_bytes(PG_GETARG_BYTEA_PP(0), get_column_storage(fcinfo)));
}

Datum
blobstate_from_bytea(PG_FUNCTION_ARGS)
{
	bytea	   *content = PG_GETARG_BYTEA_PP(0);

	blob_store_require_preload();
	return blob_from_bytes(VARDATA_ANY(content), VARSIZE_ANY_EXHDR(content), false,
						   blob_storage_default());
}

/* Inline values are many and small: they are taken without unpacking. */
Datum
blobstate_to_bytea(PG_FUNCTION_ARGS)
{
	struct varlena *datum = PG_DETOAST_DATUM_PACKED(PG_GETARG_DATUM(0));
	BlobKey		key;
	BlobValue	value;

	blob_key_load(datum, &key);
	if (key.kind == BLOB_KEY_INLINE)
		PG_RETURN_BYTEA_P(blob_sql_make_bytea(key.data, key.size_bytes));
	blob_value_unpack(datum, &value);
	PG_RETURN_BYTEA_P(blob_sql_read(&value, 0, value.size_bytes));
}
