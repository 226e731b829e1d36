/*
 * api_probe.c
 *	  Each function of the C interface as an SQL function, and a table of a foreign version.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "extension/blobext/blobext.h"
#include "fmgr.h"
#include "utils/builtins.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(probe_size);
PG_FUNCTION_INFO_V1(probe_sha256);
PG_FUNCTION_INFO_V1(probe_read);
PG_FUNCTION_INFO_V1(probe_type_oid);
PG_FUNCTION_INFO_V1(probe_make);
PG_FUNCTION_INFO_V1(probe_two);
PG_FUNCTION_INFO_V1(probe_in_worker);
PG_FUNCTION_INFO_V1(probe_pretend);

/* Bytes behind a buffer, which a read must leave alone. */
#define GUARD_BYTES 64
#define GUARD 0x5a

/* probe_size(blobstate) returns bigint */
Datum
probe_size(PG_FUNCTION_ARGS)
{
	BlobextBlob *blob = blobext_open(PG_GETARG_DATUM(0));
	int64		size = (int64) blobext_size(blob);

	blobext_close(blob);
	PG_RETURN_INT64(size);
}

/* probe_sha256(blobstate) returns bytea */
Datum
probe_sha256(PG_FUNCTION_ARGS)
{
	BlobextBlob *blob = blobext_open(PG_GETARG_DATUM(0));
	bytea	   *result = palloc(VARHDRSZ + BLOBEXT_SHA256_BYTES);

	SET_VARSIZE(result, VARHDRSZ + BLOBEXT_SHA256_BYTES);
	blobext_sha256(blob, (uint8 *) VARDATA(result));
	blobext_close(blob);
	PG_RETURN_BYTEA_P(result);
}

/* probe_read(blobstate, offset bigint, length bigint) returns bytea */
Datum
probe_read(PG_FUNCTION_ARGS)
{
	BlobextBlob *blob = blobext_open(PG_GETARG_DATUM(0));
	size_t		length = (size_t) PG_GETARG_INT64(2);
	bytea	   *result = palloc(VARHDRSZ + length + GUARD_BYTES);
	size_t		got;

	memset(VARDATA(result), GUARD, length + GUARD_BYTES);
	got = blobext_read(blob, (uint64) PG_GETARG_INT64(1), VARDATA(result), length);
	for (size_t i = got; i < length + GUARD_BYTES; i++)
		if (VARDATA(result)[i] != GUARD)
			elog(ERROR, "byte %zu behind the content was overwritten", i - got);
	blobext_close(blob);
	SET_VARSIZE(result, VARHDRSZ + got);
	PG_RETURN_BYTEA_P(result);
}

/* probe_type_oid() returns oid */
Datum
probe_type_oid(PG_FUNCTION_ARGS)
{
	PG_RETURN_OID(blobext_type_oid());
}

/* probe_make(bytea) returns blobstate */
Datum
probe_make(PG_FUNCTION_ARGS)
{
	bytea	   *content = PG_GETARG_BYTEA_PP(0);

	PG_RETURN_DATUM(blobext_make(VARDATA_ANY(content), VARSIZE_ANY_EXHDR(content)));
}

/* probe_two(blobstate, blobstate) returns bigint: offset of the first difference, or -1 */
Datum
probe_two(PG_FUNCTION_ARGS)
{
	BlobextBlob *blobs[] = {blobext_open(PG_GETARG_DATUM(0)), blobext_open(PG_GETARG_DATUM(1))};
	char		pieces[2][1000];
	uint64		offset = 0;
	size_t		got;

	do
	{
		size_t		other = blobext_read(blobs[1], offset, pieces[1], sizeof(pieces[1]));

		got = blobext_read(blobs[0], offset, pieces[0], sizeof(pieces[0]));
		for (size_t i = 0; i < Min(got, other); i++)
			if (pieces[0][i] != pieces[1][i])
				PG_RETURN_INT64((int64) (offset + i));
		if (got != other)
			PG_RETURN_INT64((int64) (offset + Min(got, other)));
		offset += got;
	} while (got > 0);
	blobext_close(blobs[0]);
	blobext_close(blobs[1]);
	PG_RETURN_INT64(-1);
}

/* probe_in_worker() returns boolean */
Datum
probe_in_worker(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(IsParallelWorker());
}

/*
 * probe_pretend(version integer, missing_bytes integer) returns void: put another table into the
 * variable, as another blobext would.  Matters until a call has succeeded in this process.
 */
Datum
probe_pretend(PG_FUNCTION_ARGS)
{
	static const BlobextApi *original = NULL;
	static BlobextApi pretended;
	void	  **variable = find_rendezvous_variable(BLOBEXT_API_VARIABLE);

	if (original == NULL)
		original = *variable;
	pretended = *original;
	pretended.version = PG_GETARG_INT32(0);
	pretended.size_bytes -= PG_GETARG_INT32(1);
	*variable = &pretended;
	PG_RETURN_VOID();
}
