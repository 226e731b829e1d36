/*
 * sql/values/bytes.c
 *	  Functions that PostgreSQL has for bytea, for blobstate: encoding, single bytes and bits,
 *	  overlay() and the trim functions.
 *
 * Results and errors are those of bytea; positions and sizes are bigint.  Functions that read all
 * content read it in pieces, and serve interrupts.  Functions that change content return a value
 * that shares extents with the old one.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/edit.h"
#include "blob/reader.h"
#include "common/int.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "sql/value.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(blob_encode);
PG_FUNCTION_INFO_V1(blob_convert_from);
PG_FUNCTION_INFO_V1(blob_bit_length);
PG_FUNCTION_INFO_V1(blob_bit_count);
PG_FUNCTION_INFO_V1(blob_get_byte);
PG_FUNCTION_INFO_V1(blob_get_bit);
PG_FUNCTION_INFO_V1(blob_set_byte);
PG_FUNCTION_INFO_V1(blob_set_bit);
PG_FUNCTION_INFO_V1(blob_overlay);
PG_FUNCTION_INFO_V1(blob_btrim);
PG_FUNCTION_INFO_V1(blob_ltrim);
PG_FUNCTION_INFO_V1(blob_rtrim);

/* Content is read in pieces of this size. */
#define STEP_BYTES (256 * 1024)

/*
 * Content is encoded in pieces of this size: whole lines of base64, which have 57 bytes each.  So
 * the texts of the pieces, one after the other, are the text of the content.
 */
#define ENCODED_STEP_BYTES (57 * 4096)

/* ---- encode ---- */

/* A text that grows. */
typedef struct GrowingText
{
	text	   *datum;
	Size		used_bytes;		/* without the header */
	Size		capacity_bytes;
} GrowingText;

static void
check_encoded_size(uint64 length_bytes)
{
	if (length_bytes > MaxAllocSize - VARHDRSZ)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("result of encoding conversion is too large")));
}

/* How long the text becomes at least; exact for hex and base64. */
static uint64
encoded_bytes(const char *encoding, uint64 size_bytes)
{
	if (pg_strcasecmp(encoding, "hex") == 0)
		return size_bytes * 2;
	if (pg_strcasecmp(encoding, "base64") == 0)
		return (size_bytes + 2) / 3 * 4 + size_bytes / 57;
	return size_bytes;
}

static void
add_text(GrowingText *result, const text *piece)
{
	Size		bytes = VARSIZE_ANY_EXHDR(piece);
	Size		needed = result->used_bytes + bytes;

	check_encoded_size(needed);
	if (needed > result->capacity_bytes)
	{
		result->capacity_bytes = Min(needed + needed / 2, MaxAllocSize - VARHDRSZ);
		result->datum = repalloc(result->datum, VARHDRSZ + result->capacity_bytes);
	}
	memcpy(VARDATA(result->datum) + result->used_bytes, VARDATA_ANY(piece), bytes);
	result->used_bytes = needed;
}

/* encode(blobstate, text): the server's function, piece by piece. */
Datum
blob_encode(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	char	   *name = blob_sql_get_name(fcinfo, 1, "encode");
	Datum		encoding = CStringGetTextDatum(name);
	bytea	   *step = palloc(VARHDRSZ + Min(value.size_bytes, ENCODED_STEP_BYTES));
	GrowingText result = {0};
	BlobReader	reader;
	uint64		bytes;

	result.capacity_bytes = encoded_bytes(name, value.size_bytes);
	check_encoded_size(result.capacity_bytes);
	result.datum = palloc(VARHDRSZ + result.capacity_bytes);
	blob_reader_begin(&reader, &value, BLOB_READER_ALL);
	do
	{
		text	   *piece;

		bytes = blob_reader_next(&reader, VARDATA(step), ENCODED_STEP_BYTES);
		SET_VARSIZE(step, VARHDRSZ + bytes);
		piece = DatumGetTextPP(DirectFunctionCall2(binary_encode, PointerGetDatum(step),
												   encoding));
		add_text(&result, piece);
		pfree(piece);
	} while (bytes == ENCODED_STEP_BYTES);
	blob_reader_end(&reader);
	pfree(step);
	SET_VARSIZE(result.datum, VARHDRSZ + result.used_bytes);
	PG_RETURN_TEXT_P(result.datum);
}

/* ---- convert_from ---- */

/* ERROR 22021 unless the text is valid in the encoding. */
static void
verify(int encoding, const char *data, uint64 length_bytes)
{
	uint64		done = 0;

	while (done < length_bytes)
	{
		int			step = Min(STEP_BYTES, length_bytes - done);
		int			valid = pg_encoding_verifymbstr(encoding, data + done, step);

		CHECK_FOR_INTERRUPTS();
		/* A piece may end within a character, which begins the next one. */
		if (valid == 0 || (valid < step && (uint64) step == length_bytes - done))
			report_invalid_encoding(encoding, data + done + valid,
									Min(STEP_BYTES, length_bytes - done - valid));
		done += valid;
	}
}

/*
 * convert_from(blobstate, cstring).  Where the content is text of the database's encoding, it is
 * read into the result, and verified there.  Elsewhere all of it is converted at once, as bytea is.
 */
Datum
blob_convert_from(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	char	   *name = PG_GETARG_CSTRING(1);
	int			source = pg_char_to_encoding(name);
	int			target = GetDatabaseEncoding();
	text	   *result;

	if (source < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid source encoding name \"%s\"", name)));
	blob_check_datum_size(value.size_bytes);
	result = palloc(VARHDRSZ + value.size_bytes);
	SET_VARSIZE(result, VARHDRSZ + value.size_bytes);
	blob_read(&value, 0, value.size_bytes, VARDATA(result));
	if (source != target && source != PG_SQL_ASCII && target != PG_SQL_ASCII)
	{
		Datum		target_name = CStringGetDatum(GetDatabaseEncodingName());

		return DirectFunctionCall3(pg_convert, PointerGetDatum(result),
								   DirectFunctionCall1(namein, CStringGetDatum(name)),
								   DirectFunctionCall1(namein, target_name));
	}
	verify(source, VARDATA(result), value.size_bytes);
	if (source != target && source == PG_SQL_ASCII)
		verify(target, VARDATA(result), value.size_bytes);
	PG_RETURN_TEXT_P(result);
}

/* ---- bytes and bits ---- */

Datum
blob_bit_length(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	int64		result;

	if (pg_mul_s64_overflow((int64) value.size_bytes, BITS_PER_BYTE, &result))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("bigint out of range")));
	PG_RETURN_INT64(result);
}

Datum
blob_bit_count(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	char	   *step = palloc(STEP_BYTES);
	int64		count = 0;
	BlobReader	reader;
	uint64		bytes;

	blob_reader_begin(&reader, &value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, step, STEP_BYTES)) > 0)
		count += pg_popcount(step, bytes);
	blob_reader_end(&reader);
	pfree(step);
	PG_RETURN_INT64(count);
}

/* SQLSTATE and message as for get_byte() and set_byte() of bytea. */
static void
require_index(int64 index, uint64 count)
{
	if (index < 0 || (uint64) index >= count)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("index %lld out of valid range, 0..%lld", (long long) index,
						(long long) count - 1)));
}

/*
 * The number of a bit is declared as numeric: with bigint, a literal of no type and a bigint would
 * not prefer PostgreSQL's functions.
 */
static int64
get_bit_no(FunctionCallInfo fcinfo, const BlobValue *value)
{
	Datum		number = PG_GETARG_DATUM(1);
	int64		result = DatumGetInt64(DirectFunctionCall1(numeric_int8, number));

	if (!DatumGetBool(DirectFunctionCall2(numeric_eq, number,
										  DirectFunctionCall1(int8_numeric,
															  Int64GetDatum(result)))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of a bit must be an integer")));
	require_index(result, value->size_bytes * BITS_PER_BYTE);
	return result;
}

static uint8
read_byte(const BlobValue *value, uint64 offset)
{
	char		byte;

	blob_read(value, offset, 1, &byte);
	return (uint8) byte;
}

Datum
blob_get_byte(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	int64		offset = PG_GETARG_INT64(1);

	require_index(offset, value.size_bytes);
	PG_RETURN_INT32(read_byte(&value, offset));
}

Datum
blob_get_bit(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	int64		bit_no = get_bit_no(fcinfo, &value);

	PG_RETURN_INT32((read_byte(&value, bit_no / BITS_PER_BYTE) >> (bit_no % BITS_PER_BYTE)) & 1);
}

/* set_byte(blobstate, bigint, bigint): the last eight bits of the number, as for bytea. */
Datum
blob_set_byte(PG_FUNCTION_ARGS)
{
	int64		offset = PG_GETARG_INT64(1);
	int64		number = PG_GETARG_INT64(2);
	uint8		byte = (uint8) (number & 0xFF);
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));

	if (number != (int32) number)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("integer out of range")));
	require_index(offset, value.size_bytes);
	PG_RETURN_POINTER(blob_edit_overwrite(&value, offset, &byte, 1));
}

/* set_bit(blobstate, numeric, bigint): checks as for bytea, and in their order. */
Datum
blob_set_bit(PG_FUNCTION_ARGS)
{
	int64		bit = PG_GETARG_INT64(2);
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));
	int64		bit_no = get_bit_no(fcinfo, &value);
	uint8		byte;

	if (bit != 0 && bit != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("new bit must be 0 or 1")));
	byte = read_byte(&value, bit_no / BITS_PER_BYTE);
	if (bit == 1)
		byte |= 1 << (bit_no % BITS_PER_BYTE);
	else
		byte &= ~(1 << (bit_no % BITS_PER_BYTE));
	PG_RETURN_POINTER(blob_edit_overwrite(&value, bit_no / BITS_PER_BYTE, &byte, 1));
}

/* ---- overlay ---- */

/*
 * overlay(blobstate, bytea, start [, length]): positions count from 1.  The number of replaced
 * bytes may be negative: then bytes before the start come again behind the new ones, as for bytea.
 */
Datum
blob_overlay(PG_FUNCTION_ARGS)
{
	bytea	   *data = PG_GETARG_BYTEA_PP(1);
	int64		data_bytes = VARSIZE_ANY_EXHDR(data);
	int64		start = PG_GETARG_INT64(2);
	int64		replaced = PG_NARGS() > 3 ? PG_GETARG_INT64(3) : data_bytes;
	int64		behind;
	uint64		kept;
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));

	if (start <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_SUBSTRING_ERROR),
				 errmsg("negative substring length not allowed")));
	behind = blob_sql_add(start, replaced);
	kept = Min((uint64) start - 1, value.size_bytes);
	behind = Min((uint64) Max(behind, 1) - 1, value.size_bytes);
	if (behind == (int64) kept + data_bytes)
	{
		if (data_bytes == 0)
			PG_RETURN_DATUM(PG_GETARG_DATUM(0));
		PG_RETURN_POINTER(blob_edit_overwrite(&value, kept, VARDATA_ANY(data), data_bytes));
	}
	PG_RETURN_POINTER(blob_edit_replace(&value, kept, VARDATA_ANY(data), data_bytes, behind,
										value.size_bytes));
}

/* ---- trimming ---- */

/* How many bytes at the beginning are in the set. */
static uint64
count_leading(const BlobValue *value, const bool *is_in_set)
{
	char	   *step = palloc(STEP_BYTES);
	uint64		count = 0;
	uint64		step_bytes = 512;	/* mostly, few bytes are trimmed */
	BlobReader	reader;
	uint64		bytes;

	blob_reader_begin(&reader, value, 0);
	while ((bytes = blob_reader_next(&reader, step, step_bytes)) > 0)
	{
		uint64		in_step = 0;

		while (in_step < bytes && is_in_set[(uint8) step[in_step]])
			in_step++;
		count += in_step;
		if (in_step < bytes)
			break;
		step_bytes = Min(step_bytes * 2, STEP_BYTES);
	}
	blob_reader_end(&reader);
	pfree(step);
	return count;
}

/* How many bytes at the end are in the set; does not look before the offset from. */
static uint64
count_trailing(const BlobValue *value, const bool *is_in_set, uint64 from)
{
	char	   *step = palloc(STEP_BYTES);
	uint64		end = value->size_bytes;
	uint64		step_bytes = 512;
	BlobReader	reader;

	blob_reader_begin(&reader, value, 0);
	while (end > from)
	{
		uint64		bytes = Min(step_bytes, end - from);
		uint64		left = bytes;

		blob_reader_seek(&reader, end - bytes);
		(void) blob_reader_next(&reader, step, bytes);
		while (left > 0 && is_in_set[(uint8) step[left - 1]])
			left--;
		end -= bytes - left;
		if (left > 0)
			break;
		step_bytes = Min(step_bytes * 2, STEP_BYTES);
	}
	blob_reader_end(&reader);
	pfree(step);
	return value->size_bytes - end;
}

/* The value without the bytes of a set at its ends; the same datum if there are none. */
static Datum
trim(FunctionCallInfo fcinfo, bool is_leading, bool is_trailing)
{
	bytea	   *set = PG_GETARG_BYTEA_PP(1);
	bool		is_in_set[256] = {false};
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));
	uint64		leading = 0;
	uint64		trailing = 0;

	for (Size i = 0; i < VARSIZE_ANY_EXHDR(set); i++)
		is_in_set[(uint8) VARDATA_ANY(set)[i]] = true;
	if (is_leading)
		leading = count_leading(&value, is_in_set);
	if (is_trailing)
		trailing = count_trailing(&value, is_in_set, leading);
	if (leading + trailing == 0)
		return PG_GETARG_DATUM(0);
	if (leading == 0)
		return PointerGetDatum(blob_edit_resize(&value, value.size_bytes - trailing));
	return PointerGetDatum(blob_edit_replace(&value, 0, NULL, 0, leading,
											 value.size_bytes - trailing));
}

Datum
blob_btrim(PG_FUNCTION_ARGS)
{
	return trim(fcinfo, true, true);
}

Datum
blob_ltrim(PG_FUNCTION_ARGS)
{
	return trim(fcinfo, true, false);
}

Datum
blob_rtrim(PG_FUNCTION_ARGS)
{
	return trim(fcinfo, false, true);
}
