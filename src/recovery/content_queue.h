/*
 * recovery/content_queue.h
 *	  The content queue: writes of replayed content in flight, and the segments to sync.  See
 *	  "Content in flight" in the README of this folder.
 *
 * Used by the startup process only.  A write or a sync that fails is a PANIC.
 */
#ifndef BLOB_CONTENT_QUEUE_H
#define BLOB_CONTENT_QUEUE_H

#include "core/page.h"

/*
 * Start to write bytes to the pages of one segment, with zeros up to the end of the last page; at
 * most BLOB_IO_BUFFER_BYTES.  The bytes are copied.  The file is long enough, or
 * ignore_invalid_pages is on, and it is made.  Waits for earlier writes of the same pages, and if
 * all buffers are in use.
 */
extern void blob_content_queue_write(const BlobStoreId *store, BlobPageNo first_page,
									 const char *data, uint32 length_bytes);

/* Wait until all writes are complete, and end the claim of the I/O engine. */
extern void blob_content_queue_wait(void);

/*
 * Wait, and make all content durable that was written.  FATAL if a file has disappeared, see
 * blob_invalid_segments_disappeared().
 */
extern void blob_content_queue_sync(void);

/* A segment, or with BLOB_ALL_SEGMENTS the store, was removed: it needs no sync any more. */
extern void blob_content_queue_forget(const BlobStoreId *store, uint32 segment_no);

/* Assert that no write is in flight; and that all content that was replayed is durable. */
#ifdef USE_ASSERT_CHECKING
extern void blob_content_queue_check_complete(void);
extern void blob_content_queue_check_durable(void);
#else
#define blob_content_queue_check_complete() ((void) 0)
#define blob_content_queue_check_durable() ((void) 0)
#endif

#endif							/* BLOB_CONTENT_QUEUE_H */
