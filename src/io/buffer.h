/*
 * io/buffer.h
 *	  The buffer: shared memory for content of extents, read and written.
 *
 * Direct I/O bypasses the kernel's page cache, so hot values would be read from the device every
 * time.  The buffer keeps chunks of extents (io/chunk.h).
 *
 * The key of a chunk is the store, the extent's *generation* and the chunk's number inside the
 * extent.  A generation is never drawn twice, and bytes of an extent that belong to a returned
 * value never change.  So an entry can be useless but never wrong, and needs no invalidation (but
 * for those of damaged pages that are written anew, see blob_buffer_outdate(), and for those of a
 * dropped database, see blob_buffer_forget_store()).
 *
 * A chunk may be there in part: reads of ranges need not read all of it.  Bytes that belong to no
 * value yet must not be offered, because the extent may grow there.
 *
 * A slab is clean, or dirty: then it has pages that have yet to be written to their file
 * (io/dirty.h).  For every process a dirty page is a page of its file whose write has completed.
 * So a process that reads pages from the device has to look here first.
 *
 * With blobext.cache_size = 0 there is no buffer, and no page is ever dirty.
 *
 * None of the functions throws, unless it is said.
 */
#ifndef BLOB_BUFFER_H
#define BLOB_BUFFER_H

#include "io/chunk.h"

/* One value gets at most one of this number of shares of the buffer. */
#define BLOB_BUFFER_SHARES 4

extern Size blob_buffer_shmem_size(void);
extern void blob_buffer_shmem_init(void);
extern void blob_buffer_process_begins(void);	/* see blob_io_process_begins() */

/* What a read means for the buffer. */
typedef enum BlobBufferUse
{
	BLOB_BUFFER_KEEP,			/* content is wanted there */
	BLOB_BUFFER_LOOK,			/* the same; if the buffer lacks it, the caller will ask again */
	BLOB_BUFFER_SCAN,			/* more content than the buffer should hold: it takes few slabs */
	BLOB_BUFFER_BYPASS			/* content is read from the device wherever that is possible */
} BlobBufferUse;

/* The use for a sequence of reads of a value of this size. */
extern BlobBufferUse blob_buffer_use_for(uint64 value_bytes);

/* Whether more content would mostly take the place of other content. */
extern bool blob_buffer_is_full(void);

/*
 * Copy bytes of an extent to dst, from offset_bytes on (inside the extent; the range must lie
 * inside one chunk), as far as the buffer has them.  Returns how many were copied, at most
 * length_bytes.
 *
 * If that is 0, *device_bytes is how many bytes, from the page of offset_bytes on, the device may
 * be asked for: a page behind them is dirty.  A request that is started after this call finds them.
 */
extern uint32 blob_buffer_get(const BlobStoreId *store, BlobGeneration generation,
							  uint32 chunk_bytes, uint64 offset_bytes, uint32 length_bytes,
							  BlobBufferUse use, char *dst, uint32 *device_bytes);

/*
 * The range that the buffer has of the chunk of offset_bytes: [*start_bytes, *end_bytes); of one
 * that is outdated, the range of its dirty pages.  False if it has nothing.  The range may change
 * at once, but as long as pages of a returned value are dirty, they are in it.
 */
extern bool blob_buffer_get_range(const BlobStoreId *store, BlobGeneration generation,
								  uint32 chunk_bytes, uint64 offset_bytes, uint32 *start_bytes,
								  uint32 *end_bytes);

/*
 * Offer bytes of an extent that will not change: those of a returned value.  data holds
 * length_bytes from offset_bytes on (inside the extent; the range must lie inside one chunk).
 * rewrites: blob_buffer_rewrites() from before they were read.  A chunk keeps one contiguous range,
 * and bytes that touch it lengthen it.  The buffer may ignore the offer (memory in use, no buffer).
 */
extern void blob_buffer_put(const BlobStoreId *store, BlobGeneration generation,
							uint32 chunk_bytes, uint64 offset_bytes, const char *data,
							uint32 length_bytes, uint32 rewrites);
extern uint32 blob_buffer_rewrites(void);

/*
 * Pages of an extent were written anew, in whole or in part: from now on no read gets what the
 * buffer has of them, but for dirty pages, nor what a process has read before and offers later.
 */
extern void blob_buffer_outdate(const BlobStoreId *store, BlobGeneration generation,
								uint32 chunk_bytes, uint64 offset_bytes, uint64 length_bytes);

/*
 * Keep nothing of a store that was dropped, whose files are gone, and whose map no session can open
 * any more: a copy of the same template, with the same OID, has the same keys.  Takes partition
 * locks.
 */
extern void blob_buffer_forget_store(const BlobStoreId *store);

/*
 * Filling a chunk by the device itself, without a copy.
 *
 * blob_buffer_begin_fill() takes a slab for the chunk that offset_bytes lies in, and returns the
 * number of the fill.  It returns -1 if the chunk has a slab already, or if no slab can be had;
 * then the caller reads elsewhere and may offer the bytes.
 *
 * Until blob_buffer_end_fill() the chunk's memory, from blob_buffer_fill_memory() on, belongs to
 * the caller.  The caller must not end the fill while a request for that memory is in flight.
 * blob_buffer_end_fill() says which bytes of the chunk were read and belong to a returned value;
 * length 0 gives the slab back unused.
 *
 * blob_buffer_abandon() ends the fills and writes that an error left behind, except those ahead.
 * All requests for them must have ended before.
 */
#define BLOB_BUFFER_MAX_HOLDS 64
#define BLOB_BUFFER_MAX_AHEAD_FILLS 128

extern int	blob_buffer_begin_fill(const BlobStoreId *store, BlobGeneration generation,
								   uint32 chunk_bytes, uint64 offset_bytes, BlobBufferUse use);

/*
 * A fill ahead: the same for content that no caller has asked for yet.  blob_buffer_abandon()
 * leaves such fills alone, and their chunks count as used only when they are read.  Meanwhile no
 * other process begins a fill of the same chunk.  A signal handler may end such fills, if it has
 * not interrupted another of these functions.
 *
 * is_neighbour: no value is known to which the pages belong, so they may have yet to be written.
 * Readers use such a slab until a write of content near it completes (io/write_counts.h); so the
 * fill may end with all bytes that the map says belong to values.
 */
extern int	blob_buffer_begin_ahead(const BlobStoreId *store, const BlobExtent *extent,
									uint64 offset_bytes, bool is_neighbour, BlobBufferUse use);
extern char *blob_buffer_fill_memory(int fill_no);
extern void blob_buffer_end_fill(int fill_no, uint32 start_bytes, uint32 length_bytes);
extern void blob_buffer_abandon(void);

/*
 * Writing pages that this process has allocated or claimed, and that were never written.
 *
 * blob_buffer_begin_write() takes a slab for pages of an extent, from offset_bytes on, a multiple
 * of the page; the range must lie inside one chunk.  It returns a number, or -1 if there is no
 * slab for them: then the caller writes them from other memory.  The caller fills
 * blob_buffer_write_memory() with the content, and with zeros up to the end of the page, and calls
 * blob_buffer_enter_write(): from then on the bytes are found under their key.  It returns false if
 * they are not; then the memory is the caller's until the end of the write, and no longer.
 *
 * blob_buffer_defer() leaves the write of the pages to others, for all of the numbers or for none.
 * All of them were entered.  If the result is false, the caller has to write the pages.  Call this
 * before CONTENT is inserted; is_logged says whether the caller will do so (io/dirty.h).
 *
 * blob_buffer_may_defer() says beforehand whether that is likely for a number of bytes.
 *
 * blob_buffer_end_write() gives up the number, when the pages were written or deferred, and no
 * request uses the memory any more.  blob_buffer_abandon() does so after an error.  Pages that were
 * entered and not written belong to no value then, and so are never read.
 */
extern int	blob_buffer_begin_write(const BlobStoreId *store, const BlobExtent *extent,
									uint64 offset_bytes, uint32 length_bytes);
extern char *blob_buffer_write_memory(int write_no);
extern bool blob_buffer_enter_write(int write_no, uint32 content_bytes);
extern bool blob_buffer_may_defer(uint64 bytes, bool is_logged);
extern bool blob_buffer_defer(const int *write_nos, int count, bool is_logged);
extern void blob_buffer_end_write(int write_no);

/*
 * Have no dirty pages of this extent from now on: write them, and wait for that.  To be called
 * before the extent's length changes so that blob_buffer_chunk_bytes() does: its chunks are not
 * found afterwards.  ERROR if the write fails.
 */
extern void blob_buffer_flush_extent(const BlobStoreId *store, const BlobExtent *extent);

/* Size of the buffer in bytes; 0 if there is none. */
extern uint64 blob_buffer_bytes(void);

/* Cluster-wide counters. */
extern void blob_buffer_stats(uint64 *hits, uint64 *misses, uint64 *used_bytes,
							  uint64 *total_bytes);

#endif							/* BLOB_BUFFER_H */
