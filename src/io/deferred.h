/*
 * io/deferred.h
 *	  Deferred writes: pages that a small write leaves to the syncer; see "Deferred writes" in the
 *	  README of this folder.
 *
 * For every process a page in the table is a page of its file whose write has completed.  So a
 * process that reads pages from the device has to look here first.
 */
#ifndef BLOB_DEFERRED_H
#define BLOB_DEFERRED_H

#include "core/page.h"

/* Limits of one put. */
#define BLOB_DEFERRED_MAX_BYTES (32 * 1024)
#define BLOB_DEFERRED_MAX_PAGES (BLOB_DEFERRED_MAX_BYTES / BLOB_PAGE_SIZE)

extern Size blob_deferred_shmem_size(void);
extern void blob_deferred_shmem_init(void);

/*
 * Leave the write of these pages to the syncer; content has them one after the other.  Either all
 * are put, or none: if the table is closed or full, the result is false, and the caller has to
 * write them.
 *
 * To be called before the content is logged, which the caller does in either case.
 * blob_segment_sync() and blob_syncer_hand_over() include the pages.  ERROR for a page that is in
 * the table already.
 */
extern bool blob_deferred_put(const BlobStoreId *store, const BlobPageNo *pages, int page_count,
							  const char *content);

/*
 * How many of these pages, from the first on, are not in the table.  A request that is started
 * after this call may read these from the device, or write them to it.  Never throws.
 */
extern uint32 blob_deferred_count_written(const BlobStoreId *store, BlobPageNo first_page,
										  uint32 page_count);

/* Copy a part of a deferred page; false if the page has been written meanwhile.  Never throws. */
extern bool blob_deferred_read(const BlobStoreId *store, BlobPageNo page, uint32 offset_bytes,
							   uint32 length_bytes, char *target);

/*
 * Write all pages that the table has of a segment, and wait for that; ERROR if it fails.  If the
 * file is missing, the result is false, and the table keeps the pages.
 */
extern bool blob_deferred_write_segment(const BlobStoreId *store, uint32 segment_no);

/*
 * Bracket around the removal of a segment's file, or with BLOB_ALL_SEGMENTS of any file of a store.
 * The write lock (an LWLock) is held in between, so that no process carries out deferred writes
 * meanwhile.  At the end the table forgets the pages of the segment or store; with NULL it keeps
 * all.
 */
extern PGDLLEXPORT void blob_deferred_begin_removal(void);
extern PGDLLEXPORT void blob_deferred_end_removal(const BlobStoreId *store, uint32 segment_no);

/*
 * Forget the deferred writes of these pages: runs in ascending order, which do not overlap.
 * The extents that the pages belonged to have been freed, durably, and no process but the caller
 * may give the pages out.  On return no write that was put before is in the table or under way, so
 * that none can come after the writes of the next life of the pages.  Never throws.  Waits for the
 * process that carries out deferred writes, if there is one (the write lock is held in between).
 */
extern void blob_deferred_drop(const BlobStoreId *store, const BlobPageRun *runs, int run_count);

/*
 * For the syncer.  The table may be open only while checkpoints wait for the syncer.  It must be
 * closed, and all of its pages written, before they go on.
 *
 * A failed write is an ERROR, so call blob_deferred_write_all() in a critical section.  If a file
 * is missing, the result is false, the file is named, and the table keeps its pages.
 */
extern void blob_deferred_open(void);
extern void blob_deferred_close(void);
extern bool blob_deferred_write_all(BlobStoreId *missing_store, uint32 *missing_no);

/* Pages that are in the table. */
extern uint32 blob_deferred_count(void);

/* Whether half of the table is in use, so that it should be written soon. */
extern bool blob_deferred_is_filling(void);

#endif							/* BLOB_DEFERRED_H */
