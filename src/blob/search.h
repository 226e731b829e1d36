/*
 * blob/search.h
 *	  Searching in the content of a value, with bounded memory.
 */
#ifndef BLOB_SEARCH_H
#define BLOB_SEARCH_H

#include "core/descriptor.h"

/* Bytes to be found; where is_any[] is true, any byte will do. */
typedef struct BlobNeedle
{
	const char *bytes;
	const bool *is_any;			/* NULL: none */
	uint64		length_bytes;
} BlobNeedle;

#define BLOB_NOT_FOUND PG_UINT64_MAX

/*
 * The first offset, not before from and not behind last, at which the needle lies as a whole in the
 * content; BLOB_NOT_FOUND if there is none.  An empty needle lies everywhere.
 *
 * Reads in pieces of 256 kB, wherever the needle ends, and serves interrupts.  Errors are those of
 * blob/reader.h.
 */
extern uint64 blob_search(const BlobValue *value, uint64 from, uint64 last,
						  const BlobNeedle *needle);

#endif							/* BLOB_SEARCH_H */
