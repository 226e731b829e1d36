/*
 * api/api.c
 *	  The functions behind the wrappers of api/blobext.h, and the table of them.
 *
 * A rendezvous variable is PostgreSQL's meeting point of libraries that do not know each other at
 * link time.  It is set only where the library is preloaded, so a caller that finds it finds a
 * library that works.
 */
#include "postgres.h"

#include "api/blobext.h"
#include "api/api.h"
#include "blob/blob.h"
#include "core/catalog.h"
#include "miscadmin.h"

struct BlobextBlob
{
	BlobValue	value;
	struct varlena *copy;		/* detoasted for us, or NULL */
};

StaticAssertDecl(BLOBEXT_SHA256_BYTES == BLOB_DIGEST_BYTES, "digest of another size");

static BlobextBlob *
open_blob(Datum blobstate)
{
	struct varlena *given = (struct varlena *) DatumGetPointer(blobstate);
	struct varlena *datum = PG_DETOAST_DATUM_PACKED(blobstate);
	BlobextBlob *blob = palloc(sizeof(BlobextBlob));

	blob_value_unpack(datum, &blob->value);
	blob->copy = datum == given ? NULL : datum;
	return blob;
}

static void
close_blob(BlobextBlob *blob)
{
	if (blob->copy != NULL)
		pfree(blob->copy);
	pfree(blob);
}

static uint64
get_size(const BlobextBlob *blob)
{
	return blob->value.size_bytes;
}

static void
get_sha256(const BlobextBlob *blob, uint8 *digest)
{
	if (blob->value.is_inline)
		blob_digest_bytes(blob->value.inline_data, blob->value.size_bytes, digest);
	else
		memcpy(digest, blob->value.descriptor.sha256, BLOB_DIGEST_BYTES);
}

/* Callers loop over pieces, and a read from the cache alone does not look for interrupts. */
static size_t
read_blob(const BlobextBlob *blob, uint64 offset, void *buffer, size_t length)
{
	CHECK_FOR_INTERRUPTS();
	offset = Min(offset, blob->value.size_bytes);
	length = (size_t) Min((uint64) length, blob->value.size_bytes - offset);
	blob_read(&blob->value, offset, length, buffer);
	return length;
}

static const BlobextApi api = {
	.version = BLOBEXT_API_VERSION,
	.size_bytes = sizeof(BlobextApi),
	.open = open_blob,
	.close = close_blob,
	.size = get_size,
	.sha256 = get_sha256,
	.read = read_blob,
	.type_oid = blob_catalog_type,
};

void
blob_api_register(void)
{
	*find_rendezvous_variable(BLOBEXT_API_VARIABLE) = (void *) &api;
}
