/*
 * blob/blob.h
 *	  Values: create and read.  The datum's forms are in core/descriptor.h.
 */
#ifndef BLOB_BLOB_H
#define BLOB_BLOB_H

#include "core/descriptor.h"

/*
 * The value as it should be stored: an inline blobstate over blobext.inline_limit becomes a
 * descriptor of freshly written extents; everything else is returned as it is.  Where allocation
 * is not allowed (read-only transaction, recovery, parallel worker) the value is returned inline:
 * that costs size, never correctness.  ERROR XB001 if it is a descriptor whose extents are not its
 * own any more: what is stored is read by others later.
 *
 * datum may be toasted, compressed or have a short header.  The result is either the same pointer
 * or palloc'ed in the current context.  Assigns an XID when it writes.
 */
extern Datum blob_externalize(Datum datum);

/*
 * The other way: a descriptor becomes an inline value of any size, in the current context; an
 * inline value is returned as it is.  ERROR 54000 if the content is too large for a datum, else
 * what blob_read() throws.
 */
extern Datum blob_internalize(Datum datum);

/* As blob_externalize() for raw content; always returns a new blobstate datum. */
extern Datum blob_from_bytes(const char *data, uint64 size_bytes, bool may_externalize);

/* Whether this backend may allocate extents now. */
extern bool blob_may_allocate(void);

/*
 * Copy the bytes [offset, offset + length) of a value to target; the caller has checked that they
 * exist.  Errors are those of blob/reader.h, which is better for more than one read of a value.
 */
extern void blob_read(const BlobValue *value, uint64 offset_bytes, uint64 length_bytes,
					  char *target);

/*
 * ERROR XB001 unless the extent_no-th extent of the descriptor is allocated, by a generation no
 * later than the descriptor's.
 */
extern void blob_require_extent(const BlobDescriptor *descriptor, int extent_no);

/* The same for those of the first count extents whose is_wanted[] is true. */
extern void blob_require_extents(const BlobDescriptor *descriptor, const bool *is_wanted,
								 int count);

/* The same for all extents. */
extern void blob_require_valid(const BlobDescriptor *descriptor);

/*
 * Check that all extents of a descriptor are allocated, none by a later generation.  Gives the
 * number of the first extent that is not, or -1.
 */
extern int	blob_find_stale_extent(const BlobDescriptor *descriptor);

/*
 * Check that the map's high-water mark of each extent covers the value's content there: what is
 * behind a mark may be claimed and written by others.  The first extent of which it does not, or
 * -1.
 */
extern int	blob_find_unclaimed_extent(const BlobDescriptor *descriptor);

#endif							/* BLOB_BLOB_H */
