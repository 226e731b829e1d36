/*
 * autogc/scrub_pass.h
 *	  The scrubber: compares all pages of one segment with their checksums.
 */
#ifndef BLOB_SCRUB_PASS_H
#define BLOB_SCRUB_PASS_H

#include "postgres.h"

#include "autogc/scrub_results.h"
#include "core/page.h"

/* How a pass over a segment ended. */
typedef enum BlobScrubEnd
{
	BLOB_SCRUB_WHOLE,			/* *result is that of the segment */
	BLOB_SCRUB_UNDECIDED,		/* it is not known what suspect pages are: come again later */
	BLOB_SCRUB_STOPPED			/* blobext.scrub_rate is 0, or the store is gone */
} BlobScrubEnd;

/*
 * Read all pages of a segment that extents with checksums have, at blobext.scrub_rate.  Outside of
 * a transaction; nothing is locked in the pauses, nor is a transaction open.
 */
extern BlobScrubEnd blob_scrub_segment(const BlobStoreId *store, uint32 segment_no,
									   BlobScrubResult *result);

#endif							/* BLOB_SCRUB_PASS_H */
