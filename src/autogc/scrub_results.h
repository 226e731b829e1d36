/*
 * autogc/scrub_results.h
 *	  What the scrubber has found in each segment of a store, and when: a file for each store.
 *
 * The file lies in pg_stat_tmp.  So it is there after a restart, and is in no base backup, nor in
 * what pg_rewind copies: it says nothing of the files of another server.  It need not be durable.
 */
#ifndef BLOB_SCRUB_RESULTS_H
#define BLOB_SCRUB_RESULTS_H

#include "postgres.h"

#include "core/page.h"
#include "datatype/timestamp.h"
#include "io/store_file.h"

extern const BlobStoreFileKind blob_scrub_results_kind;

/* The last whole pass over a segment. */
typedef struct BlobScrubResult
{
	TimestampTz ended_at;		/* 0: there was none */
	uint64		verified_pages;
	uint64		plain_pages;	/* with content, without checksums */
	uint64		damaged_pages;
} BlobScrubResult;

/*
 * Read the results of a store, in palloc'd memory, by segment; returns their number.  Segments that
 * were not looked at may be missing at the end.  ERROR if the file cannot be read.
 */
extern uint32 blob_scrub_results_read(const BlobStoreId *store, BlobScrubResult **results);

/* Keep the result of a segment; one process at a time does so for a store. */
extern void blob_scrub_results_write(const BlobStoreId *store, uint32 segment_no,
									 const BlobScrubResult *result);

#endif							/* BLOB_SCRUB_RESULTS_H */
