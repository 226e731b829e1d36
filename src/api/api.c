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
#include "blob/reader.h"
#include "blob/seal.h"
#include "core/catalog.h"
#include "utils/memutils.h"

/* Neither the reader nor the value it reads may move. */
struct BlobextBlob
{
	BlobReader	reader;
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
	blob_reader_begin(&blob->reader, &blob->value, 0);
	blob->copy = datum == given ? NULL : datum;
	return blob;
}

static void
close_blob(BlobextBlob *blob)
{
	blob_reader_end(&blob->reader);
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
	blob_seal_digest(&blob->value, digest);
}

/* The interface calls the value constant: what its reader remembers is not to be seen. */
static size_t
read_blob(const BlobextBlob *blob, uint64 offset, void *buffer, size_t length)
{
	BlobReader *reader = &unconstify(BlobextBlob *, blob)->reader;

	blob_reader_seek(reader, Min(offset, blob->value.size_bytes));
	return (size_t) blob_reader_next(reader, buffer, length);
}

/* Content alone makes the value: a caller cannot give a descriptor. */
static Datum
make_blob(const void *content, size_t length)
{
	const size_t max_bytes = MaxAllocSize - VARHDRSZ - BLOB_FORM_BYTES;

	if (length > max_bytes)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("content of %zu bytes is too large for one datum", length),
				 errdetail("A datum holds at most %zu bytes of content.", max_bytes),
				 errhint("Build the value from pieces, with blob_append() or an upload.")));
	return blob_from_bytes(content, length, false, blob_storage_default());
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
	.make = make_blob,
};

void
blob_api_register(void)
{
	*find_rendezvous_variable(BLOBEXT_API_VARIABLE) = (void *) &api;
}
