/*
 * blob/share.h
 *	  Two values of the same content, of which one may take the other's place.
 */
#ifndef BLOB_SHARE_H
#define BLOB_SHARE_H

#include "core/descriptor.h"

/*
 * Whether the contents are the same, byte by byte.  Reads both, whatever their digests say, in
 * steps of a megabyte; serves interrupts.  Errors are those of blob/reader.h.
 */
extern bool blob_share_is_same(const BlobValue *a, const BlobValue *b);

/* Whether the content has the digest of the descriptor, by reading it; true for an inline value. */
extern bool blob_share_is_sound(const BlobValue *value);

/*
 * The space of the extents that value has and other has not, in bytes: what a row that goes over
 * from the one to the other does not need any more.  other NULL: of all extents.  0 for an inline
 * value.
 */
extern uint64 blob_share_spares(const BlobValue *value, const BlobValue *other);

#endif							/* BLOB_SHARE_H */
