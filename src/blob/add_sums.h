/*
 * blob/add_sums.h
 *	  Checksums for the pages of values that were stored without.
 */
#ifndef BLOB_ADD_SUMS_H
#define BLOB_ADD_SUMS_H

#include "core/descriptor.h"

/*
 * Whether pages of a value lack checksums.  Looks into the map, reads no content.  XB001 if the
 * value is stale.
 */
extern bool blob_add_sums_is_due(const BlobValue *value);

/*
 * Whether each page that has bytes of a value has a checksum.  A tree may use a part of a page of
 * which the rest cannot be proven: so this may be false while nothing is due.
 */
extern bool blob_add_sums_has_all(const BlobValue *value);

/*
 * Whether the last stored page of a value that is no tree has a checksum, or the store has none.
 * Costs little for a value of any size.
 */
extern bool blob_add_sums_has_last(const BlobValue *value);

/*
 * Read the content of a value in extents from its files, compare it with its digest, and set the
 * checksums of the pages that it proves.  Returns their number.  XX001, with no checksum set, if
 * the digest is another one; the errors of blob/reader.h.  The map has format 3.  Leaves memory in
 * the current context: 4 bytes for each page.
 */
extern uint64 blob_add_sums(const BlobValue *value);

#endif							/* BLOB_ADD_SUMS_H */
