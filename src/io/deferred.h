/*
 * io/deferred.h
 *	  Deferred writes: pages that a small write leaves to the syncer; see the README of this
 *	  folder, "Deferred writes".
 *
 * A page of the table is, for everybody, a page of its file, whose write has completed: whoever
 * reads pages from the device asks here first.
 */
#ifndef BLOB_DEFERRED_H
#define BLOB_DEFERRED_H

#include "core/page.h"

/* What one put can have. */
#define BLOB_DEFERRED_MAX_BYTES (32 * 1024)
#define BLOB_DEFERRED_MAX_PAGES (BLOB_DEFERRED_MAX_BYTES / BLOB_PAGE_SIZE)

extern Size blob_deferred_shmem_size(void);
extern void blob_deferred_shmem_init(void);

/*
 * Leave the write of these pages to the syncer; content has them one after the other.  All are put,
 * or none (false: the table is closed or full); then the caller writes them.  To be called before
 * the content is logged, which the caller does in any case; blob_segment_sync() and
 * blob_syncer_hand_over() include them.  ERROR for a page that is there already.
 */
extern bool blob_deferred_put(const BlobStoreId *store, const BlobPageNo *pages, int page_count,
							  const char *content);

/*
 * How many of these pages, from the first on, can be read from, or written to, the device by a
 * request that is started after this call.  Never throws.
 */
extern uint32 blob_deferred_count_written(const BlobStoreId *store, BlobPageNo first_page,
										  uint32 page_count);

/* Copy a part of an deferred page; false if it has been written meanwhile.  Never throws. */
extern bool blob_deferred_read(const BlobStoreId *store, BlobPageNo page, uint32 offset_bytes,
							   uint32 length_bytes, char *target);

/*
 * Write what the table has of a segment, and wait for that; ERROR if it fails.  False if the file
 * is not there: then the table keeps the pages.
 */
extern bool blob_deferred_write_segment(const BlobStoreId *store, uint32 segment_no);

/*
 * Around the removal of a segment's file, or with BLOB_ALL_SEGMENTS of any file of a store: nobody
 * writes pages to files meanwhile.  In the end the table forgets what it has of them; with NULL
 * it keeps everything.  An LWLock is held in between.
 */
extern void blob_deferred_begin_removal(void);
extern void blob_deferred_end_removal(const BlobStoreId *store, uint32 segment_no);

/*
 * For the syncer.  The table may be open only while checkpoints wait for it, and must be closed,
 * and written, before they go on.  A failed write is an ERROR, to be called in a critical section.
 * False if a file is not there, and which it is: then the table keeps its pages.
 */
extern void blob_deferred_open(void);
extern void blob_deferred_close(void);
extern bool blob_deferred_write_all(BlobStoreId *missing_store, uint32 *missing_no);

/* Pages that are in the table. */
extern uint32 blob_deferred_count(void);

/* It should be written soon: half of it is in use. */
extern bool blob_deferred_is_filling(void);

#endif							/* BLOB_DEFERRED_H */
