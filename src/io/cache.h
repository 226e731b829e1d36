/*
 * io/cache.h
 *	  Shared read cache of extent content.
 *
 * Direct I/O bypasses the kernel's page cache, so hot values would be read from the device every
 * time.  The cache keeps chunks of extents.  The size of a chunk depends on that of its extent
 * (blob_cache_chunk_bytes): small extents shall not waste memory.
 *
 * The key of a chunk is the store, the extent's *generation* and the chunk's number inside the
 * extent.  A generation is never drawn twice, and bytes of an extent that belong to a returned
 * value never change.  So an entry can be useless but never wrong, and needs no invalidation.
 *
 * A chunk may be cached in part: reads of ranges need not read all of it.  Bytes that belong to no
 * value yet must not be offered, because the extent may grow there.
 *
 * blobext.cache_size = 0 turns the cache off.
 */
#ifndef BLOB_CACHE_H
#define BLOB_CACHE_H

#include "core/page.h"

#define BLOB_CACHE_CHUNK_BYTES (64 * 1024)
#define BLOB_CACHE_SMALL_CHUNK_BYTES (8 * 1024)

/* Extents up to this size are cached in small chunks. */
#define BLOB_CACHE_SMALL_EXTENT_PAGES (BLOB_CACHE_CHUNK_BYTES / 2 / BLOB_PAGE_SIZE)

/* Chunk size of an extent.  All functions below expect it for content of that extent. */
static inline uint32
blob_cache_chunk_bytes(uint64 extent_pages)
{
	return extent_pages <= BLOB_CACHE_SMALL_EXTENT_PAGES ? BLOB_CACHE_SMALL_CHUNK_BYTES :
		BLOB_CACHE_CHUNK_BYTES;
}

extern Size blob_cache_shmem_size(void);
extern void blob_cache_shmem_init(void);
extern void blob_cache_process_begins(void);	/* see blob_io_process_begins() */

/*
 * Copy length_bytes at offset_bytes (inside the extent; the range must lie inside one chunk) to
 * dst, if the cache holds all of them.  Returns false on a miss.  Never throws, never does I/O.
 */
extern bool blob_cache_get(const BlobStoreId *store, BlobGeneration generation,
						   uint32 chunk_bytes, uint64 offset_bytes, uint32 length_bytes,
						   char *dst);

/*
 * Offer bytes of an extent that will not change: those of a returned value, or those that this
 * process has just written.  data holds length_bytes from offset_bytes on (inside the extent; the
 * range must lie inside one chunk).  A chunk keeps one contiguous range, and bytes that touch it
 * lengthen it.  The cache may ignore the offer (memory in use, cache off).  Never throws.
 */
extern void blob_cache_put(const BlobStoreId *store, BlobGeneration generation,
						   uint32 chunk_bytes, uint64 offset_bytes, const char *data,
						   uint32 length_bytes);

/*
 * Filling a chunk by the device itself, without a copy.
 *
 * blob_cache_begin_fill() claims a frame for the chunk that offset_bytes lies in, and returns the
 * number of the fill.  It returns -1 if the chunk is cached already, if no frame can be had, or if
 * the cache is off; then the caller reads elsewhere and may offer the bytes.
 *
 * Until blob_cache_end_fill() the chunk's memory, from blob_cache_fill_memory() on, belongs to the
 * caller.  The caller must not end the fill while a request for that memory is in flight.
 * blob_cache_end_fill() says which bytes of the chunk were read and belong to a returned value;
 * length 0 gives the frame back unused.
 *
 * blob_cache_abandon_fills() ends the fills that an error left behind, except those ahead.  All
 * requests for them must have ended before.  None of these functions throws.
 */
#define BLOB_CACHE_MAX_FILLS 64
#define BLOB_CACHE_MAX_AHEAD_FILLS 128

extern int	blob_cache_begin_fill(const BlobStoreId *store, BlobGeneration generation,
								  uint32 chunk_bytes, uint64 offset_bytes);

/*
 * A fill ahead: the same for content that no caller has asked for yet.  blob_cache_abandon_fills()
 * leaves such fills alone, and their chunks count as used only when they are read.  Meanwhile no
 * other process begins a fill of the same chunk.  A signal handler may end such fills, if it has
 * not interrupted another of these functions.
 */
extern int	blob_cache_begin_ahead(const BlobStoreId *store, BlobGeneration generation,
								   uint32 chunk_bytes, uint64 offset_bytes);
extern char *blob_cache_fill_memory(int fill_no);
extern void blob_cache_end_fill(int fill_no, uint32 start_bytes, uint32 length_bytes);
extern void blob_cache_abandon_fills(void);

/* Cluster-wide counters. */
extern void blob_cache_stats(uint64 *hits, uint64 *misses, uint64 *used_bytes,
							 uint64 *total_bytes);

#endif							/* BLOB_CACHE_H */
