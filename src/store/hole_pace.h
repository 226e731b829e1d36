/*
 * store/hole_pace.h
 *	  How fast holes are made; see README.md, "Pace".
 */
#ifndef BLOB_STORE_HOLE_PACE_H
#define BLOB_STORE_HOLE_PACE_H

#include "core/page.h"

/*
 * The pause after holes whose making took busy_us, for a caller that waits for their end: as long
 * as the file system was free from them for most of the time.
 */
extern int64 blob_hole_pace_short_pause_us(int64 busy_us);

/* A number of pages that a worker punches, spread evenly over a time. */
typedef struct BlobHolePace
{
	uint64		pages;
	int64		length_us;
} BlobHolePace;

/*
 * The pace of this number of pages.  If *pace is that of an earlier number, of which these are the
 * rest, and others perhaps, they go at least as fast.
 */
extern void blob_hole_pace_begin(BlobHolePace *pace, uint64 pages);

/* How many of them are punched at a time, about. */
extern uint64 blob_hole_pace_batch(const BlobHolePace *pace);

/*
 * The pause when done_pages are punched, elapsed_us after the beginning; the last of them took
 * busy_us.
 */
extern int64 blob_hole_pace_pause_us(const BlobHolePace *pace, uint64 done_pages, int64 elapsed_us,
									 int64 busy_us);

#endif							/* BLOB_STORE_HOLE_PACE_H */
