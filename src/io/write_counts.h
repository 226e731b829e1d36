/*
 * io/write_counts.h
 *	  Counts of writes of content, by the region of the store in which they lie.
 *
 * A process that fills a slab with pages of which it knows no value notes the count of their
 * region before the fill.  A process that has written pages of content, other than from slabs that
 * are in the table of the buffer, raises the counts before the pages belong to a complete value.
 * So a reader of a value, which finds the count unchanged, knows that the value's pages had been
 * written when the fill began.  See "Neighbours" in the README of this folder.
 *
 * Regions share counts; that outdates more slabs than necessary.
 */
#ifndef BLOB_WRITE_COUNTS_H
#define BLOB_WRITE_COUNTS_H

#include "core/page.h"

/* A fill of neighbours lies in one region. */
#define BLOB_WRITE_REGION_PAGES 512

/* The number of the count of a page's region. */
extern uint32 blob_write_count_no(const BlobStoreId *store, BlobPageNo page);
extern uint64 blob_write_count(uint32 count_no);

/* Note that pages were written.  A full barrier. */
extern void blob_write_counts_add(const BlobStoreId *store, BlobPageNo first_page, uint64 pages);

extern Size blob_write_counts_shmem_size(void);
extern void blob_write_counts_shmem_init(void);

#endif							/* BLOB_WRITE_COUNTS_H */
