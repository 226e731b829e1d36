/*
 * sql/access.c
 *	  Functions on values: size, digest, prefix, layout, ranges.
 *
 * Size, digest, prefix and layout come from the descriptor: they read no content.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "common/int.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/value.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(blob_length);
PG_FUNCTION_INFO_V1(blob_sha256);
PG_FUNCTION_INFO_V1(blob_prefix);
PG_FUNCTION_INFO_V1(blob_storage);
PG_FUNCTION_INFO_V1(blob_extents);
PG_FUNCTION_INFO_V1(blob_read_sql);
PG_FUNCTION_INFO_V1(blob_substring);

static bytea *
make_bytea(const void *data, size_t length_bytes)
{
	bytea	   *result = palloc(VARHDRSZ + length_bytes);

	SET_VARSIZE(result, VARHDRSZ + length_bytes);
	memcpy(VARDATA(result), data, length_bytes);
	return result;
}

Datum
blob_length(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));

	PG_RETURN_INT64((int64) value.size_bytes);
}

Datum
blob_sha256(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	uint8		sha256[BLOB_DIGEST_BYTES];

	if (value.is_inline)
		blob_digest_bytes(value.inline_data, value.size_bytes, sha256);
	else
		memcpy(sha256, value.descriptor.sha256, sizeof(sha256));
	PG_RETURN_BYTEA_P(make_bytea(sha256, sizeof(sha256)));
}

Datum
blob_prefix(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	const void *prefix = value.is_inline ? (const void *) value.inline_data :
		value.descriptor.prefix;

	PG_RETURN_BYTEA_P(make_bytea(prefix, Min(value.size_bytes, BLOB_PREFIX_BYTES)));
}

Datum
blob_storage(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));

	PG_RETURN_TEXT_P(cstring_to_text(value.is_inline ? "inline" : "extents"));
}

/* A rest in the datum: a row without pages, so that the bytes add up. */
static void
put_rest(ReturnSetInfo *result, const BlobDescriptor *descriptor)
{
	Datum		values[5] = {0};
	bool		nulls[5] = {false, true};

	if (blob_descriptor_inline_bytes(descriptor) == 0)
		return;
	values[0] = Int32GetDatum(blob_descriptor_extent_count(descriptor));
	values[2] = Int64GetDatum(0);
	values[3] = Int64GetDatum(blob_descriptor_inline_bytes(descriptor));
	values[4] = BoolGetDatum(false);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Rows (extent, first_page, pages, bytes, is_tail); reads the descriptor, not the map. */
Datum
blob_extents(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	uint64		start = 0;

	InitMaterializedSRF(fcinfo, 0);
	if (value.is_inline)
		return (Datum) 0;

	for (int i = 0; i < blob_descriptor_extent_count(&value.descriptor); i++)
	{
		BlobExtent	extent = blob_descriptor_extent(&value.descriptor, i);
		uint64		bytes = blob_descriptor_extent_bytes(&value.descriptor, i, start);
		Datum		values[5];
		bool		nulls[5] = {false};

		values[0] = Int32GetDatum(i);
		values[1] = Int64GetDatum((int64) extent.first_page);
		values[2] = Int64GetDatum((int64) extent.pages);
		values[3] = Int64GetDatum((int64) bytes);
		values[4] = BoolGetDatum(extent.is_tail);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		start += bytes;
	}
	put_rest(result, &value.descriptor);
	return (Datum) 0;
}

/* blob_read(blobstate, offset, length): from 0; short at the end. */
Datum
blob_read_sql(PG_FUNCTION_ARGS)
{
	int64		offset = PG_GETARG_INT64(1);
	int64		length = PG_GETARG_INT64(2);
	BlobValue	value;

	if (offset < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("offset must not be negative")));
	if (length < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("length must not be negative")));

	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	offset = Min((uint64) offset, value.size_bytes);
	length = Min((uint64) length, value.size_bytes - offset);
	PG_RETURN_BYTEA_P(blob_sql_read(&value, offset, length));
}

/*
 * substring(blobstate, start [, length]): from 1, as for bytea: what lies before the first byte
 * counts for the length, and a negative length is an error only there.
 */
Datum
blob_substring(PG_FUNCTION_ARGS)
{
	int64		start = PG_GETARG_INT64(1);
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	int64		end = (int64) value.size_bytes + 1; /* first position not wanted */

	if (PG_NARGS() > 2)
	{
		int64		length = PG_GETARG_INT64(2);
		int64		asked_end;

		if (length < 0)
			ereport(ERROR,
					(errcode(ERRCODE_SUBSTRING_ERROR),
					 errmsg("negative substring length not allowed")));
		if (!pg_add_s64_overflow(start, length, &asked_end))
			end = Min(end, asked_end);
	}
	start = Max(start, 1);
	if (end <= start)
		PG_RETURN_BYTEA_P(make_bytea("", 0));
	PG_RETURN_BYTEA_P(blob_sql_read(&value, start - 1, end - start));
}
