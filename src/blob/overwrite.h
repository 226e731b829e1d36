/*
 * blob/overwrite.h
 *	  Overwrites bytes inside of a plain value in extents.
 */
#ifndef BLOB_OVERWRITE_H
#define BLOB_OVERWRITE_H

#include "core/descriptor.h"

/* Bytes that replace those of a value from an offset on. */
typedef struct BlobPatchPiece
{
	uint64		offset;
	uint64		bytes;
	const char *data;
} BlobPatchPiece;

/*
 * Overwrite by pieces that lie inside of a value in extents.  Locks the map in RowExclusive mode
 * while content is copied.
 */
extern struct varlena *blob_overwrite(const BlobValue *value, const BlobPatchPiece *pieces,
									  int count);

#endif							/* BLOB_OVERWRITE_H */
