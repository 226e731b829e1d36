/*
 * sql/value.c
 *	  Arguments and results of SQL functions, see sql/value.h.
 */
#include "postgres.h"

#include "access/relation.h"
#include "blob/blob.h"
#include "catalog/pg_type.h"
#include "client/row_message.h"
#include "common/int.h"
#include "sql/value.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

BlobValue
blob_sql_unpack(Datum datum)
{
	BlobValue	value;

	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), &value);
	return value;
}

BlobValue
blob_sql_unpack_preloaded(Datum datum)
{
	blob_store_require_preload();
	return blob_sql_unpack(datum);
}

bytea *
blob_sql_make_bytea(const void *data, size_t length_bytes)
{
	bytea	   *result = palloc(VARHDRSZ + length_bytes);

	SET_VARSIZE(result, VARHDRSZ + length_bytes);
	memcpy(VARDATA(result), data, length_bytes);
	return result;
}

bytea *
blob_sql_make_result(uint64 length_bytes)
{
	bytea	   *result;

	blob_check_datum_size(length_bytes);
	result = palloc(VARHDRSZ + length_bytes);
	SET_VARSIZE(result, VARHDRSZ + length_bytes);
	blob_row_message_note_result(result);
	return result;
}

bytea *
blob_sql_read(const BlobValue *value, uint64 offset_bytes, uint64 length_bytes)
{
	bytea	   *result = blob_sql_make_result(length_bytes);

	blob_read(value, offset_bytes, length_bytes, VARDATA(result));
	return result;
}

/*
 * Names of encodings and algorithms are declared as anycompatible, because a literal of no type
 * then prefers PostgreSQL's function, see "Functions of bytea" in sql/README.md.
 */
char *
blob_sql_get_name(FunctionCallInfo fcinfo, int argument_no, const char *function)
{
	Oid			type = getBaseType(get_fn_expr_argtype(fcinfo->flinfo, argument_no));

	switch (type)
	{
		case TEXTOID:
		case VARCHAROID:
			return text_to_cstring(PG_GETARG_TEXT_PP(argument_no));
		case BPCHAROID:
			return TextDatumGetCString(DirectFunctionCall1(rtrim1,
														   PG_GETARG_DATUM(argument_no)));
		case NAMEOID:
			return pstrdup(NameStr(*PG_GETARG_NAME(argument_no)));
		default:
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_FUNCTION),
					 errmsg("function %s(blobstate, %s) does not exist", function,
							OidIsValid(type) ? format_type_be(type) : "unknown"),
					 errhint("The second argument is a name, of type text.")));
	}
	return NULL;
}

int64
blob_sql_add(int64 a, int64 b)
{
	int64		sum;

	if (pg_add_s64_overflow(a, b, &sum))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("bigint out of range")));
	return sum;
}

Relation
blob_sql_open_relation(Oid relid)
{
	Relation	relation = try_relation_open(relid, AccessShareLock);

	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	return relation;
}
