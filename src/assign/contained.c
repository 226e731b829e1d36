/*
 * assign/contained.c
 *	  Values inside of arrays, rows and ranges that are assigned: their digests are not open.
 *
 * The coercion reaches elements and fields only where an expression makes them without the hidden
 * modifier.  ARRAY[column] and ROW(column) carry it already.  Inline values stay as they are: they
 * are legal anywhere, and the paths that store them know a method of compression.
 */
#include "postgres.h"

#include "assign/assign.h"
#include "blob/blob.h"
#include "containers/rebuild.h"

/* A BlobReplacer. */
static Datum
store_descriptor(Datum blobstate, void *context)
{
	return blob_datum_is_inline(blobstate) ? blobstate :
		blob_externalize(blobstate, blob_storage_default());
}

Datum
blob_assign_store_contained(Datum datum, Oid type)
{
	return blob_rebuild(datum, type, store_descriptor, NULL);
}
