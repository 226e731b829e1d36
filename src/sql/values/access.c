/*
 * sql/values/access.c
 *	  Functions on values: size, digest, prefix, layout, ranges.
 *
 * Size, digest, prefix and layout come from the descriptor: they read no content, unless the digest
 * is open.
 *
 * Ranges are read by a reader that lives as long as the call's place in its query (fn_extra), from
 * the second call on: so calls that read a value piece by piece are a sequence, and each extent is
 * verified for the first time once.  Many clients read a value by a statement for each piece.  For
 * them the window of the last read is parked in the process: one, which goes on only with the same
 * value, at the offset where it ended.
 */
#include "postgres.h"

#include "blob/reader.h"
#include "blob/seal.h"
#include "common/int.h"
#include "fmgr.h"
#include "funcapi.h"
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

	blob_seal_digest(&value, sha256);
	PG_RETURN_BYTEA_P(blob_sql_make_bytea(sha256, sizeof(sha256)));
}

Datum
blob_prefix(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));

	PG_RETURN_BYTEA_P(blob_sql_make_bytea(blob_value_prefix(&value),
								 Min(value.size_bytes, BLOB_PREFIX_BYTES)));
}

Datum
blob_storage(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));

	PG_RETURN_TEXT_P(cstring_to_text(value.is_inline ? "inline" : "extents"));
}

/* A remainder in the datum: a row without pages, so that the bytes add up. */
static void
put_remainder(ReturnSetInfo *result, const BlobDescriptor *descriptor)
{
	Datum		values[5] = {0};
	bool		nulls[5] = {false, true};

	if (blob_mapping_datum_bytes(descriptor) == 0)
		return;
	values[0] = Int32GetDatum(blob_descriptor_extent_count(descriptor));
	values[2] = Int64GetDatum(0);
	values[3] = Int64GetDatum(blob_mapping_datum_bytes(descriptor));
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
		BlobStoredExtent stored;
		Datum		values[5];
		bool		nulls[5] = {false};

		blob_mapping_extent(&value.descriptor, i, start, &stored);
		values[0] = Int32GetDatum(i);
		values[1] = Int64GetDatum((int64) stored.extent.first_page);
		values[2] = Int64GetDatum((int64) stored.extent.pages);
		values[3] = Int64GetDatum((int64) stored.bytes);
		values[4] = BoolGetDatum(stored.extent.is_tail);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		start += stored.bytes;
	}
	put_remainder(result, &value.descriptor);
	return (Datum) 0;
}

/* ---- ranges ---- */

/* The reader of one place in a query, with a copy of the datum that it reads. */
typedef struct RangeReader
{
	bool		is_begun;
	BlobReader	reader;
	BlobValue	value;			/* in datum */
	struct varlena *datum;		/* NULL: none yet */
	Size		capacity_bytes; /* of datum */
} RangeReader;

/*
 * The last window of the process, and the value that it belongs to.  A window has no generations,
 * and the reader that takes it verifies all that it reads.  So a mistaken identity would cost
 * requests, and nothing else.
 */
typedef struct ParkedWindow
{
	BlobAheadWindow window;
	BlobGeneration generation;
	BlobPageNo	first_page;
	uint64		size_bytes;
	uint8		identity[BLOB_DIGEST_BYTES];
} ParkedWindow;

static ParkedWindow parked;

/* Of a value's first extent; 0 if all of its content is the remainder in a (damaged) datum. */
static BlobPageNo
get_first_page(const BlobDescriptor *descriptor)
{
	return blob_descriptor_extent_count(descriptor) == 0 ? 0 :
		blob_descriptor_extent(descriptor, 0).first_page;
}

static void
park_window(const BlobReader *reader)
{
	const BlobDescriptor *descriptor = &reader->value->descriptor;

	parked.window = reader->window;
	parked.generation = descriptor->generation;
	parked.first_page = get_first_page(descriptor);
	parked.size_bytes = descriptor->size_bytes;
	blob_descriptor_identity(descriptor, parked.identity);
}

/* A reader that was begun goes on where the last statement's ended. */
static void
take_parked_window(BlobReader *reader, uint64 offset_bytes)
{
	const BlobDescriptor *descriptor = &reader->value->descriptor;
	uint8		identity[BLOB_DIGEST_BYTES];

	blob_descriptor_identity(descriptor, identity);
	if (offset_bytes > 0 && parked.window.next_offset == offset_bytes &&
		parked.generation == descriptor->generation &&
		parked.first_page == get_first_page(descriptor) &&
		parked.size_bytes == descriptor->size_bytes &&
		memcmp(parked.identity, identity, BLOB_DIGEST_BYTES) == 0)
		reader->window = parked.window;
}

/* Make the reader that of a descriptor, of which it keeps a copy. */
static void
begin_range_reader(RangeReader *range, const struct varlena *datum, MemoryContext context)
{
	Size		bytes = VARSIZE_ANY(datum);
	MemoryContext caller_context = MemoryContextSwitchTo(context);

	if (range->is_begun)
		blob_reader_end(&range->reader);
	range->is_begun = false;
	if (bytes > range->capacity_bytes)
	{
		if (range->datum != NULL)
			pfree(range->datum);
		range->datum = NULL;
		range->capacity_bytes = 0;
		range->datum = palloc(bytes);
		range->capacity_bytes = bytes;
	}
	memcpy(range->datum, datum, bytes);
	blob_value_unpack(range->datum, &range->value);
	blob_reader_begin(&range->reader, &range->value, 0);
	range->is_begun = true;
	MemoryContextSwitchTo(caller_context);
}

/* The reader of a place in a query, for a descriptor. */
static BlobReader *
get_range_reader(RangeReader *range, MemoryContext context, const struct varlena *datum,
				 uint64 offset_bytes)
{
	if (!range->is_begun || VARSIZE_ANY(datum) != VARSIZE_ANY(range->datum) ||
		memcmp(datum, range->datum, VARSIZE_ANY(datum)) != 0)
	{
		begin_range_reader(range, datum, context);
		take_parked_window(&range->reader, offset_bytes);
	}
	return &range->reader;
}

static bytea *
read_and_park(BlobReader *reader, uint64 offset_bytes, uint64 length_bytes)
{
	bytea	   *result = blob_sql_make_result(length_bytes);

	blob_reader_seek(reader, offset_bytes);
	(void) blob_reader_read(reader, VARDATA(result), length_bytes);
	park_window(reader);
	return result;
}

/* As blob_sql_read(), for calls of which several may read one value. */
static bytea *
read_range(FmgrInfo *flinfo, const struct varlena *datum, const BlobKey *key, uint64 offset_bytes,
		   uint64 length_bytes)
{
	/* In fn_extra: there was one call.  Most queries make no other. */
	static char called_once;
	bool		is_first = flinfo != NULL && flinfo->fn_extra == NULL;
	BlobReader	reader;
	BlobValue	value;
	bytea	   *result;

	if (is_first)
		flinfo->fn_extra = &called_once;
	else if (flinfo != NULL && key->kind != BLOB_KEY_INLINE && length_bytes < key->size_bytes)
	{
		if (flinfo->fn_extra == &called_once)
			flinfo->fn_extra = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(RangeReader));
		return read_and_park(get_range_reader(flinfo->fn_extra, flinfo->fn_mcxt, datum,
											  offset_bytes), offset_bytes, length_bytes);
	}
	blob_value_unpack(datum, &value);
	if (value.is_inline || length_bytes == value.size_bytes)
		return blob_sql_read(&value, offset_bytes, length_bytes);
	blob_reader_begin(&reader, &value, 0);
	take_parked_window(&reader, offset_bytes);
	result = read_and_park(&reader, offset_bytes, length_bytes);
	blob_reader_end(&reader);
	return result;
}

/* blob_read(blobstate, offset, length): from 0; short at the end. */
Datum
blob_read_sql(PG_FUNCTION_ARGS)
{
	int64		offset = PG_GETARG_INT64(1);
	int64		length = PG_GETARG_INT64(2);
	struct varlena *datum;
	BlobKey		key;

	if (offset < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("offset must not be negative")));
	if (length < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("length must not be negative")));

	datum = PG_DETOAST_DATUM_PACKED(PG_GETARG_DATUM(0));
	blob_key_load(datum, &key);
	offset = Min((uint64) offset, key.size_bytes);
	length = Min((uint64) length, key.size_bytes - offset);
	PG_RETURN_BYTEA_P(read_range(fcinfo->flinfo, datum, &key, offset, length));
}

/*
 * substring(blobstate, start [, length]): positions count from 1, as for bytea.  Positions before
 * the first byte count for the length.  A negative length is an error only in this function.
 */
Datum
blob_substring(PG_FUNCTION_ARGS)
{
	int64		start = PG_GETARG_INT64(1);
	struct varlena *datum = PG_DETOAST_DATUM_PACKED(PG_GETARG_DATUM(0));
	BlobKey		key;
	int64		end;			/* first position not wanted */

	blob_key_load(datum, &key);
	end = (int64) key.size_bytes + 1;
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
		PG_RETURN_BYTEA_P(blob_sql_make_bytea("", 0));
	PG_RETURN_BYTEA_P(read_range(fcinfo->flinfo, datum, &key, start - 1, end - start));
}
