/*
 * extents/ahead.h
 *	  Requests ahead: fills of the buffer for which no process waits.
 *
 * A request ends when a read comes to its pages; at the end of the resource owner that was current
 * when it was started (the end of the query, the cursor or the transaction), which waits for it;
 * at the end of the process; or by a timer, some ms after it has arrived.  No request raises an
 * error: a chunk that cannot be read ahead is left to the read.
 */
#ifndef BLOB_AHEAD_H
#define BLOB_AHEAD_H

#include "io/buffer.h"
#include "store/store.h"

/* A request that is being filled, or in flight. */
typedef struct BlobAheadRead BlobAheadRead;

/* Like blob_io_process_begins(), and called after it: registers callbacks of this process. */
extern void blob_ahead_process_begins(void);

/*
 * Add the chunk of an extent that begins at an offset to a request, whose chunks follow each other
 * in one file; valid_bytes of the chunk belong to values.  NULL, or a request that the chunk does
 * not continue, is started first, and another one begun.  Returns the request that is being filled,
 * or NULL if there is none.  is_neighbour: see blob_buffer_begin_ahead().  Within a use of the
 * I/O engine, as the following two.
 */
extern BlobAheadRead *blob_ahead_add(BlobAheadRead *read, const BlobStore *store,
									 const BlobExtent *extent, uint64 offset, uint32 valid_bytes,
									 bool is_neighbour, BlobBufferUse use);

/* Start a request, unless it is NULL or empty. */
extern void blob_ahead_start(BlobAheadRead *read);

/* Wait for requests in turn until one is not in use. */
extern void blob_ahead_make_room(void);

/* Finish the requests that have arrived. */
extern void blob_ahead_finish_arrived(void);

/* Bytes of requests that are not finished. */
extern uint64 blob_ahead_unfinished_bytes(void);

/* Whether such a request has a page. */
extern bool blob_ahead_covers(const BlobStoreId *store, BlobPageNo page);

/*
 * Wait for the request that has a page.  Returns false if there is none, or if it had arrived
 * before.  Never throws.
 */
extern bool blob_ahead_await(const BlobStoreId *store, BlobPageNo page);

#endif							/* BLOB_AHEAD_H */
