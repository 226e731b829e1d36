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
 *
 * stays is the value that a row will have.  Its bytes are those of its files, whatever the buffer
 * has, so that a damaged value takes no other's place.  Bytes of the value that goes may come from
 * the buffer: they are those that its readers get.
 */
extern bool blob_share_is_same(const BlobValue *stays, const BlobValue *goes);

/*
 * The same in two steps, for a value that takes the place of several: its content, from its files,
 * in memory of the current context, and the comparison with that.  NULL for more than a megabyte,
 * and for an inline value.
 */
extern char *blob_share_read(const BlobValue *stays);
extern bool blob_share_is_content(const char *content, const BlobValue *goes);

/* Whether the content has the digest of the descriptor, by reading it; true for an inline value. */
extern bool blob_share_is_sound(const BlobValue *value);

/*
 * The space of the extents that value has and other has not, in bytes: what a row that goes over
 * from the one to the other does not need any more.  other NULL: of all extents.  0 for an inline
 * value.
 */
extern uint64 blob_share_spares(const BlobValue *value, const BlobValue *other);

#endif							/* BLOB_SHARE_H */
