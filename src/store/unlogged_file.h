/*
 * store/unlogged_file.h
 *	  The file "missing" of a store: a header, and slots, each a BlobGenerationRange (unlogged.c).
 *	  Shared with tools/verify.
 */
#ifndef BLOB_UNLOGGED_FILE_H
#define BLOB_UNLOGGED_FILE_H

#include "core/page.h"

#define BLOB_UNLOGGED_FILE "missing"
#define BLOB_UNLOGGED_MAGIC UINT64CONST(0x31676e697373696d) /* "missing1" */

typedef struct BlobUnloggedHeader
{
	uint64		magic;
	uint64		unused;
} BlobUnloggedHeader;

StaticAssertDecl(sizeof(BlobUnloggedHeader) == sizeof(BlobGenerationRange), "slots are aligned");

#endif							/* BLOB_UNLOGGED_FILE_H */
