/*
 * blob/edit.h
 *	  Changes of a value.  Each makes a new value, which shares extents with the old one; the README
 *	  of this folder has the costs.
 *
 * The old value stays as it is.  Results are new datums in the current context: inline if they have
 * at most blobext.inline_limit bytes, else descriptors with all writes completed.  ERROR 25006
 * where extents cannot be allocated, XB001 if the old value is stale.  Memory is bounded,
 * interrupts are served.
 */
#ifndef BLOB_EDIT_H
#define BLOB_EDIT_H

#include "core/descriptor.h"

/* Bytes that replace those of a value from an offset on. */
typedef struct BlobPatchPiece
{
	uint64		offset;
	uint64		bytes;
	const char *data;
} BlobPatchPiece;

/* The value with bytes behind it. */
extern struct varlena *blob_edit_append(const BlobValue *value, const void *data,
										uint64 length_bytes);

/* The content of one value behind that of another. */
extern struct varlena *blob_edit_concat(const BlobValue *value, const BlobValue *second);

/*
 * The value with its bytes [offset, offset + deleted_bytes) replaced by others.  The range lies
 * inside of the value.
 */
extern struct varlena *blob_edit_splice(const BlobValue *value, uint64 offset,
										uint64 deleted_bytes, const void *data,
										uint64 length_bytes);

/*
 * The first kept_bytes of the value, data, and the bytes [behind, end) of the value.  These may lie
 * before kept_bytes, too.
 */
extern struct varlena *blob_edit_replace(const BlobValue *value, uint64 kept_bytes,
										 const void *data, uint64 length_bytes, uint64 behind,
										 uint64 end);

/*
 * The value with data at offset in place of the bytes that were there.  It may become longer.
 * Between its end and an offset behind the end there are zeros.
 */
extern struct varlena *blob_edit_overwrite(const BlobValue *value, uint64 offset, const void *data,
										   uint64 length_bytes);

/*
 * The value with each piece in place of the bytes that were there, as several calls of
 * blob_edit_overwrite() would make it, but hashed once.  Each piece has bytes, and begins where the
 * one before it ends or later.
 */
extern struct varlena *blob_edit_patch(const BlobValue *value, const BlobPatchPiece *pieces,
									   int count);

/* The first size_bytes of the value, or the value with zeros behind it. */
extern struct varlena *blob_edit_resize(const BlobValue *value, uint64 size_bytes);

#endif							/* BLOB_EDIT_H */
