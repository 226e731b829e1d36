/*
 * blob/recompress.h
 *	  Values that exist, stored anew by another method of compression.
 */
#ifndef BLOB_RECOMPRESS_H
#define BLOB_RECOMPRESS_H

#include "core/descriptor.h"

/*
 * Whether blob_recompress() would store the value in another way: it has another method; it is
 * compressed, and changes have left stored bytes without use, or content that was not compressed
 * since; it is not compressed, and parts of it can be; or it is inline and should not be, or the
 * reverse.
 * Reads the directory of a compressed value, and parts of one that is not.
 */
extern bool blob_recompress_is_due(const BlobValue *value, BlobMethod method);

/*
 * The value stored anew, by a method: a new datum in the current context, of equal content.  It is
 * inline if it has at most blobext.inline_limit bytes.  Reads all of the value, in pieces; ERROR
 * XX001 if it does not have its digest.  Serves interrupts.
 */
extern struct varlena *blob_recompress(const BlobValue *value, BlobMethod method);

#endif							/* BLOB_RECOMPRESS_H */
