/*
 * io/cache.h
 *	  Shared read cache of extent content.
 *
 * Direct I/O bypasses the kernel's page cache, so hot values would be read from the device every
 * time.  The cache keeps chunks of extents, of a size that depends on the extent's
 * (blob_cache_chunk_bytes): small extents shall not waste memory.  Its key is the store, the
 * extent's *generation* and the chunk's number inside the extent: a generation is never given
 * twice, and registered bytes of an extent never change, so an entry can be useless but never
 * wrong, and needs no invalidation.  A chunk may be cached in part: reads of ranges need not read
 * all of it, and bytes that are not registered yet must not be offered (an extent may grow there).
 *
 * blobext.cache_size = 0 turns it off.
 */
#ifndef BLOB_CACHE_H
#define BLOB_CACHE_H

#include "core/page.h"

#define BLOB_CACHE_CHUNK_BYTES (64 * 1024)
#define BLOB_CACHE_SMALL_CHUNK_BYTES (8 * 1024)

/* Extents up to this size are cached in small chunks. */
#define BLOB_CACHE_SMALL_EXTENT_PAGES (BLOB_CACHE_CHUNK_BYTES / 2 / BLOB_PAGE_SIZE)

/* The chunks of an extent; all functions below want this size for its content. */
static inline uint32
blob_cache_chunk_bytes(uint64 extent_pages)
{
	return extent_pages <= BLOB_CACHE_SMALL_EXTENT_PAGES ? BLOB_CACHE_SMALL_CHUNK_BYTES :
		BLOB_CACHE_CHUNK_BYTES;
}

extern Size blob_cache_shmem_size(void);
extern void blob_cache_shmem_init(void);
extern void blob_cache_process_begins(void);	/* see io.h */

/*
 * Copy length bytes at offset (bytes inside the extent; the range must lie inside one chunk) to
 * dst, if the cache holds all of them.  Returns false on a miss.  Never throws, never does I/O.
 */
extern bool blob_cache_get(const BlobStoreId *store, BlobGeneration generation,
						   uint32 chunk_bytes, uint64 offset_bytes, uint32 length_bytes,
						   char *dst);

/*
 * Offer registered bytes of an extent, just read from the device: data holds length_bytes from
 * offset_bytes on (bytes inside the extent; the range must lie inside one chunk).  A chunk keeps
 * one contiguous range; what touches it lengthens it.  May be ignored (memory in use, cache off).
 * Never throws.
 */
extern void blob_cache_put(const BlobStoreId *store, BlobGeneration generation,
						   uint32 chunk_bytes, uint64 offset_bytes, const char *data,
						   uint32 length_bytes);

/*
 * Filling a chunk by the device itself, without a copy.  blob_cache_begin_fill() claims a frame for
 * the chunk that offset_bytes lies in, and returns a number, or -1 (already cached, no memory to be
 * had, cache off; then the caller reads elsewhere and may offer the bytes).  Until
 * blob_cache_end_fill() the chunk's memory, from blob_cache_fill_memory() on, is the caller's; it
 * may not give the frame back while a request for it is in flight.
 * The end of a fill says which bytes of the chunk were read and are registered content; length 0
 * gives the frame back unused.  Reads must be over, too, before blob_cache_abandon_fills() gives up
 * what an error left behind.  None of these throws.
 */
#define BLOB_CACHE_MAX_FILLS 64
#define BLOB_CACHE_MAX_AHEAD_FILLS 128

extern int	blob_cache_begin_fill(const BlobStoreId *store, BlobGeneration generation,
								  uint32 chunk_bytes, uint64 offset_bytes);

/*
 * The same for content that nobody has asked for yet.  These fills are not abandoned with the
 * others, and their chunks count as used only when somebody reads them.  Nobody else begins a fill
 * of the same chunk meanwhile.  They may be ended in a signal handler, if it has not interrupted
 * another of these functions.
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
