/*
 * sql/values/edit.c
 *	  Functions and operators that make a changed value of another.
 *
 * Offsets count from 0, as for blob_read().  A write may begin behind the end, as lo_put()'s may:
 * zeros come in between.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/edit.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "store/store.h"
#include "sql/value.h"
#include "utils/array.h"

PG_FUNCTION_INFO_V1(blob_append);
PG_FUNCTION_INFO_V1(blob_concat);
PG_FUNCTION_INFO_V1(blob_prepend);
PG_FUNCTION_INFO_V1(blob_write);
PG_FUNCTION_INFO_V1(blob_patch);
PG_FUNCTION_INFO_V1(blob_insert);
PG_FUNCTION_INFO_V1(blob_delete);
PG_FUNCTION_INFO_V1(blob_truncate);

/* SQLSTATE as for substring() and overlay() of bytea. */
static void
require_not_negative(int64 number, const char *name)
{
	if (number < 0)
		ereport(ERROR,
				(errcode(ERRCODE_SUBSTRING_ERROR),
				 errmsg("%s must not be negative", name)));
}

/* blob_append(blobstate, bytea), blobstate || bytea */
Datum
blob_append(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));
	bytea	   *data = PG_GETARG_BYTEA_PP(1);

	PG_RETURN_POINTER(blob_edit_append(&value, VARDATA_ANY(data), VARSIZE_ANY_EXHDR(data)));
}

/* blobstate || blobstate */
Datum
blob_concat(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));
	BlobValue	second = blob_sql_unpack(PG_GETARG_DATUM(1));

	PG_RETURN_POINTER(blob_edit_concat(&value, &second));
}

/* bytea || blobstate */
Datum
blob_prepend(PG_FUNCTION_ARGS)
{
	bytea	   *data = PG_GETARG_BYTEA_PP(0);
	BlobValue	second = blob_sql_unpack_preloaded(PG_GETARG_DATUM(1));

	PG_RETURN_POINTER(blob_edit_splice(&second, 0, 0, VARDATA_ANY(data),
									   VARSIZE_ANY_EXHDR(data)));
}

/* blob_write(blobstate, offset, bytea) */
Datum
blob_write(PG_FUNCTION_ARGS)
{
	int64		offset = PG_GETARG_INT64(1);
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));
	bytea	   *data = PG_GETARG_BYTEA_PP(2);

	require_not_negative(offset, "offset");
	(void) blob_sql_add(offset, VARSIZE_ANY_EXHDR(data));
	if (VARSIZE_ANY_EXHDR(data) == 0)
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));
	PG_RETURN_POINTER(blob_edit_overwrite(&value, offset, VARDATA_ANY(data),
										  VARSIZE_ANY_EXHDR(data)));
}

/* The elements of an array of one dimension, or of an empty one, none of them NULL. */
static Datum *
get_elements(ArrayType *array, const char *name, Oid type, int *count)
{
	bool		is_bytea = type == BYTEAOID;
	Datum	   *elements;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must be an array of one dimension", name)));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not contain NULL", name)));
	deconstruct_array(array, type, is_bytea ? -1 : (int) sizeof(int64),
					  is_bytea ? false : FLOAT8PASSBYVAL,
					  is_bytea ? TYPALIGN_INT : TYPALIGN_DOUBLE, &elements, NULL, count);
	return elements;
}

/*
 * Pieces without bytes are left out, since they change nothing.  ERROR 22023 if a piece begins
 * before the end of the one before it: which of two pieces is the later one would be a guess.
 */
static int
get_pieces(const Datum *offsets, const Datum *data, int count, BlobPatchPiece *pieces)
{
	int64		end = 0;
	int			used = 0;

	for (int i = 0; i < count; i++)
	{
		int64		offset = DatumGetInt64(offsets[i]);
		bytea	   *piece = DatumGetByteaPP(data[i]);
		int64		piece_end;

		require_not_negative(offset, "offset");
		piece_end = blob_sql_add(offset, VARSIZE_ANY_EXHDR(piece));
		if (offset < end)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("piece %d begins at offset " INT64_FORMAT ", before the end of the "
							"piece before it", i + 1, offset),
					 errhint("Sort the pieces by their offsets, and join those that overlap.")));
		end = piece_end;
		if (end > offset)
			pieces[used++] = (BlobPatchPiece) {offset, end - offset, VARDATA_ANY(piece)};
	}
	return used;
}

/* blob_patch(blobstate, offsets, pieces) */
Datum
blob_patch(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));
	int			offset_count;
	int			piece_count;
	Datum	   *offsets = get_elements(PG_GETARG_ARRAYTYPE_P(1), "offsets", INT8OID,
									   &offset_count);
	Datum	   *data = get_elements(PG_GETARG_ARRAYTYPE_P(2), "pieces", BYTEAOID, &piece_count);
	BlobPatchPiece *pieces;
	int			count;

	if (offset_count != piece_count)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("there must be as many offsets as pieces"),
				 errdetail("There are %d offsets and %d pieces.", offset_count, piece_count)));
	pieces = palloc(sizeof(BlobPatchPiece) * Max(piece_count, 1));
	count = get_pieces(offsets, data, piece_count, pieces);
	if (count == 0)
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));
	PG_RETURN_POINTER(blob_edit_patch(&value, pieces, count));
}

/* blob_insert(blobstate, offset, bytea) */
Datum
blob_insert(PG_FUNCTION_ARGS)
{
	int64		offset = PG_GETARG_INT64(1);
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));
	bytea	   *data = PG_GETARG_BYTEA_PP(2);

	require_not_negative(offset, "offset");
	if ((uint64) offset > value.size_bytes)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("offset " INT64_FORMAT " is behind the end of the value", offset),
				 errdetail("The value has " UINT64_FORMAT " bytes.", value.size_bytes)));
	(void) blob_sql_add(value.size_bytes, VARSIZE_ANY_EXHDR(data));
	if (VARSIZE_ANY_EXHDR(data) == 0)
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));
	PG_RETURN_POINTER(blob_edit_splice(&value, offset, 0, VARDATA_ANY(data),
									   VARSIZE_ANY_EXHDR(data)));
}

/* blob_delete(blobstate, offset, length): bytes behind the end do not count. */
Datum
blob_delete(PG_FUNCTION_ARGS)
{
	int64		offset = PG_GETARG_INT64(1);
	int64		length = PG_GETARG_INT64(2);
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));

	require_not_negative(offset, "offset");
	require_not_negative(length, "length");
	offset = Min((uint64) offset, value.size_bytes);
	length = Min((uint64) length, value.size_bytes - offset);
	if (length == 0)
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));
	PG_RETURN_POINTER(blob_edit_splice(&value, offset, length, NULL, 0));
}

/* blob_truncate(blobstate, length): longer, with zeros, if need be, as lo_truncate() does. */
Datum
blob_truncate(PG_FUNCTION_ARGS)
{
	int64		length = PG_GETARG_INT64(1);
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));

	require_not_negative(length, "length");
	if ((uint64) length == value.size_bytes)
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));
	PG_RETURN_POINTER(blob_edit_resize(&value, length));
}
