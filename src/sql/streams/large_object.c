/*
 * sql/streams/large_object.c
 *	  Values from and to PostgreSQL's large objects.
 *
 * The functions of PostgreSQL are called that SQL would call, piece by piece: they check privileges
 * (and lo_compat_privileges), and see to it that the relations that they open are closed at the
 * end of the transaction, which only they can.
 */
#include "postgres.h"

#include <limits.h>

#include "blob/blob.h"
#include "blob/builder.h"
#include "blob/reader.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "store/store.h"
#include "sql/value.h"
#include "storage/large_object.h"
#include "utils/fmgrprotos.h"

PG_FUNCTION_INFO_V1(blob_from_lo);
PG_FUNCTION_INFO_V1(blob_to_lo);

/* A multiple of the pages of a large object, so that no page is written twice. */
#define PIECE_BYTES (512 * LOBLKSIZE)

/* blob_from_lo(oid): privileges and errors as lo_get()'s. */
Datum
blob_from_lo(PG_FUNCTION_ARGS)
{
	Datum		object = PG_GETARG_DATUM(0);
	BlobBuilder *builder;
	bool		has_more = true;

	blob_store_require_preload();
	builder = blob_builder_begin(0);
	for (int64 offset = 0; has_more; offset += PIECE_BYTES)
	{
		bytea	   *piece = DatumGetByteaPP(DirectFunctionCall3(be_lo_get_fragment, object,
																Int64GetDatum(offset),
																Int32GetDatum(PIECE_BYTES)));

		CHECK_FOR_INTERRUPTS();
		has_more = VARSIZE_ANY_EXHDR(piece) == PIECE_BYTES && offset + PIECE_BYTES <
			MAX_LARGE_OBJECT_SIZE;
		blob_builder_add(builder, VARDATA_ANY(piece), VARSIZE_ANY_EXHDR(piece));
		pfree(piece);
	}
	PG_RETURN_POINTER(blob_builder_finish(builder));
}

/* blob_to_lo(blobstate): a new large object, which belongs to the current user. */
Datum
blob_to_lo(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	BlobReader	reader;
	uint64		offset = 0;
	uint64		bytes;
	bytea	   *piece;
	Datum		object;

	PreventCommandIfReadOnly("blob_to_lo()");
	if (value.size_bytes > MAX_LARGE_OBJECT_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("value of " UINT64_FORMAT " bytes is too large for a large object",
						value.size_bytes),
				 errdetail("A large object has at most " INT64_FORMAT " bytes.",
						   (int64) MAX_LARGE_OBJECT_SIZE)));

	object = DirectFunctionCall1(be_lo_create, ObjectIdGetDatum(InvalidOid));
	piece = palloc(VARHDRSZ + Min(value.size_bytes, PIECE_BYTES));
	blob_reader_begin(&reader, &value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, VARDATA(piece), PIECE_BYTES)) > 0)
	{
		SET_VARSIZE(piece, VARHDRSZ + bytes);
		DirectFunctionCall3(be_lo_put, object, Int64GetDatum((int64) offset),
							PointerGetDatum(piece));
		offset += bytes;
	}
	blob_reader_end(&reader);
	pfree(piece);
	PG_RETURN_DATUM(object);
}
