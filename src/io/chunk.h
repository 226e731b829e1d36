/*
 * io/chunk.h
 *	  Chunks: the parts of extents that the buffer keeps.
 *
 * The size of a chunk depends on that of its extent: small extents shall not waste memory.
 */
#ifndef BLOB_CHUNK_H
#define BLOB_CHUNK_H

#include "core/page.h"

#define BLOB_BUFFER_CHUNK_BYTES (64 * 1024)
#define BLOB_BUFFER_SMALL_CHUNK_BYTES BLOB_PAGE_SIZE

/* Extents up to this size are kept in small chunks. */
#define BLOB_BUFFER_SMALL_EXTENT_PAGES (BLOB_BUFFER_CHUNK_BYTES / 2 / BLOB_PAGE_SIZE)

/* Chunk size of an extent.  All functions of io/buffer.h expect it for content of that extent. */
static inline uint32
blob_buffer_chunk_bytes(uint64 extent_pages)
{
	return extent_pages <= BLOB_BUFFER_SMALL_EXTENT_PAGES ? BLOB_BUFFER_SMALL_CHUNK_BYTES :
		BLOB_BUFFER_CHUNK_BYTES;
}

#endif							/* BLOB_CHUNK_H */
