/*
 * api/blobext.h
 *	  Reading and making blobstate values in C functions of other extensions.
 *
 * "make install" puts this file where PGXS finds it: #include "extension/blobext/blobext.h", after
 * postgres.h.  Nothing is linked: blobext registers a table of functions in a rendezvous variable
 * when the server preloads it, and the wrappers below look it up at the first use in a process.
 *
 *		BlobextBlob *blob = blobext_open(PG_GETARG_DATUM(0));
 *		char	   *piece = palloc(65536);
 *		uint64		offset = 0;
 *		size_t		got;
 *
 *		while ((got = blobext_read(blob, offset, piece, 65536)) > 0)
 *		{
 *			... look at piece[0 .. got - 1] ...
 *			offset += got;
 *		}
 *		blobext_close(blob);
 *
 * The calls work wherever SQL functions that read a value do: in parallel workers, on standbys, in
 * index builds.  They need a transaction, and raise the errors that blob_read() raises: XB001 for
 * a stale value, XX001 and 58P01 for damaged files, and so on.  Between two calls nothing is held
 * but memory of the context in which the value was opened; after an error there is nothing to do.
 * Several values may be open at once.
 *
 * The content of a value never changes: an UPDATE stores another value.  So a function whose result
 * depends on nothing but the content may be IMMUTABLE and be used in index expressions.
 */
#ifndef BLOBEXT_H
#define BLOBEXT_H

#include "fmgr.h"

/*
 * The version changes when the meaning of a member changes; new members are added at the end, and
 * size_bytes tells that they are there.  So a library that was compiled with an old header works
 * with every later blobext of the same version.
 */
#define BLOBEXT_API_VERSION 1
#define BLOBEXT_API_VARIABLE "blobext_api"

#define BLOBEXT_SHA256_BYTES 32

/* An open value. */
typedef struct BlobextBlob BlobextBlob;

/* What the wrappers call; see them for the meaning. */
typedef struct BlobextApi
{
	uint32		version;
	uint32		size_bytes;		/* of this struct in the library */
	BlobextBlob *(*open) (Datum blobstate);
	void		(*close) (BlobextBlob *blob);
	uint64		(*size) (const BlobextBlob *blob);
	void		(*sha256) (const BlobextBlob *blob, uint8 *digest);
	size_t		(*read) (const BlobextBlob *blob, uint64 offset, void *buffer, size_t length);
	Oid			(*type_oid) (void);
	Datum		(*make) (const void *content, size_t length);
} BlobextApi;

/* The table; ERROR 55000 where the server did not preload blobext, or one that does not fit. */
static inline const BlobextApi *
blobext_api(void)
{
	static const BlobextApi *known = NULL;
	const BlobextApi *api = known;

	if (likely(api != NULL))
		return api;
	api = *(const BlobextApi **) find_rendezvous_variable(BLOBEXT_API_VARIABLE);
	if (api == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("blobext must be loaded via shared_preload_libraries"),
				 errhint("Add blobext to shared_preload_libraries and restart the server.")));
	if (api->version != BLOBEXT_API_VERSION || api->size_bytes < sizeof(BlobextApi))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the C interface of the loaded blobext does not fit"),
				 errdetail("It has version %u and %u bytes, version %u and %u bytes are needed.",
						   api->version, api->size_bytes,
						   (uint32) BLOBEXT_API_VERSION, (uint32) sizeof(BlobextApi)),
				 errhint("Compile the calling library with the header of that blobext.")));
	known = api;
	return api;
}

/*
 * Open an argument of type blobstate, which must not be NULL.  The content of a value in extents is
 * not read, only its descriptor of some hundred bytes.  An inline value is detoasted, whole.
 *
 * The result is allocated in the current memory context.  It may point into the datum, so the datum
 * must live as long: a set-returning function copies it with datumCopy() first.
 */
static inline BlobextBlob *
blobext_open(Datum blobstate)
{
	return blobext_api()->open(blobstate);
}

/* Free the memory; not needed where the memory context ends soon. */
static inline void
blobext_close(BlobextBlob *blob)
{
	blobext_api()->close(blob);
}

/* Size of the content in bytes. */
static inline uint64
blobext_size(const BlobextBlob *blob)
{
	return blobext_api()->size(blob);
}

/*
 * SHA-256 of the content, BLOBEXT_SHA256_BYTES of it.  Reads no content in extents, unless the
 * digest is open.
 */
static inline void
blobext_sha256(const BlobextBlob *blob, uint8 *digest)
{
	blobext_api()->sha256(blob, digest);
}

/*
 * Copy up to length bytes from offset (the first byte has offset 0) on to buffer.  Returns how many
 * bytes there were: fewer than length at the end of the content, and 0 behind it.
 *
 * Reads the pages of 4 kB that cover the range, through the shared cache, and needs no memory that
 * grows with the range.  Pieces of 64 kB to 1 MB are good ones; each call looks the extents up in
 * the extent map.
 */
static inline size_t
blobext_read(const BlobextBlob *blob, uint64 offset, void *buffer, size_t length)
{
	return blobext_api()->read(blob, offset, buffer, length);
}

/* OID of type blobstate in this database, InvalidOid where the extension is not installed. */
static inline Oid
blobext_type_oid(void)
{
	return blobext_api()->type_oid();
}

/*
 * A new value with this content, in the current memory context; ERROR 54000 if no datum can be
 * that large.  The datum holds the content itself, whatever its size.  A large one moves to extents
 * where it is assigned to a column.
 */
static inline Datum
blobext_make(const void *content, size_t length)
{
	return blobext_api()->make(content, length);
}

#endif							/* BLOBEXT_H */
