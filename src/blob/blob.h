/*
 * blob/blob.h
 *	  Values: create and read.  The datum's forms are in core/descriptor.h.
 */
#ifndef BLOB_BLOB_H
#define BLOB_BLOB_H

#include "core/descriptor.h"
#include "core/settings.h"

/* How a value is stored. */
typedef struct BlobStorage
{
	BlobMethod	method;			/* of compression, for content that becomes extents */
	bool		defers_digest;	/* changes may leave the digest open ("Open digests") */
} BlobStorage;

/* The one where nothing else is known. */
static inline BlobStorage
blob_storage_default(void)
{
	return (BlobStorage) {blob_default_method(), false};
}

/*
 * The value in the form in which it should be stored.  An inline blobstate over
 * blobext.inline_limit becomes a descriptor of freshly written extents.  A descriptor says as
 * storage does whether changes may leave the digest open; an open one is sealed, which reads its
 * content, unless they may.  Every other value is returned unchanged.  Where allocation is not
 * allowed (read-only transaction, recovery, parallel worker) an inline value stays inline, which
 * costs size, never correctness.  ERROR XB001 if the value is a stale descriptor, because others
 * will read the stored value later.
 *
 * datum may be toasted, compressed or have a short header.  The result is either the same pointer
 * or palloc'ed in the current context.  Assigns an XID when it writes.
 */
extern Datum blob_externalize(Datum datum, BlobStorage storage);

/* Would blob_externalize() move this inline value to extents? */
extern bool blob_is_to_be_moved(Datum datum);

/*
 * The reverse: a descriptor becomes an inline value of any size, in the current context; an inline
 * value is returned unchanged.  ERROR 54000 if the content is too large for a datum.  Also throws
 * the errors of blob_read().
 */
extern Datum blob_internalize(Datum datum);

/* Like blob_externalize(), for raw content.  Always returns a new blobstate datum. */
extern Datum blob_from_bytes(const char *data, uint64 size_bytes, bool may_externalize,
							 BlobStorage storage);

/* Whether this backend may allocate extents now; ERROR 25006 if not. */
extern bool blob_may_allocate(void);
extern void blob_require_allocation(void);

/*
 * Copy the bytes [offset, offset + length) of a value to target.  The caller has checked that they
 * exist.  Errors are those of blob/reader.h, which is better for more than one read of a value.
 */
extern void blob_read(const BlobValue *value, uint64 offset_bytes, uint64 length_bytes,
					  char *target);

/*
 * ERROR XB001 unless the extent_no-th extent of the descriptor is allocated, by a generation no
 * later than the descriptor's.
 */
extern void blob_require_extent(const BlobDescriptor *descriptor, int extent_no);

/* Like blob_require_extent(), for each of the first count extents whose is_wanted[] is true. */
extern void blob_require_extents(const BlobDescriptor *descriptor, const bool *is_wanted,
								 int count);

/* Like blob_require_extent(), for all extents. */
extern void blob_require_valid(const BlobDescriptor *descriptor);

/*
 * Check that all extents of a descriptor are allocated, none by a later generation.  Returns the
 * number of the first extent that is not, or -1.
 */
extern int	blob_find_stale_extent(const BlobDescriptor *descriptor);

/*
 * Check that the map's high-water mark of each extent covers the value's content there: other
 * values may claim and write the pages behind a mark.  Returns the number of the first extent that
 * it does not cover, or -1.
 */
extern int	blob_find_unclaimed_extent(const BlobDescriptor *descriptor);

#endif							/* BLOB_BLOB_H */
