/*
 * blob/blob.h
 *	  Values: create, read, make durable.  The datum's forms are in core/descriptor.h.
 */
#ifndef BLOB_BLOB_H
#define BLOB_BLOB_H

#include "core/descriptor.h"

/*
 * The value as it should be stored: an inline blobstate over blobext.inline_limit becomes a
 * descriptor of freshly written extents; everything else is returned as it is.  Where allocation
 * is not allowed (read-only transaction, recovery, parallel worker) the value is returned inline:
 * that costs size, never correctness.
 *
 * datum may be toasted, compressed or have a short header.  The result is either the same pointer
 * or palloc'ed in the current context.  Transaction: assigns an XID when it writes.
 */
extern Datum blob_externalize(Datum datum);

/* The same for raw content of any origin; always returns a new blobstate datum. */
extern Datum blob_from_bytes(const char *data, uint64 size_bytes, bool may_externalize);

#endif							/* BLOB_BLOB_H */
