/*
 * store/hole_pace.c
 *	  How fast holes are made; see README.md, "Pace".  Arithmetic only.
 */
#include "postgres.h"

#include "store/hole_pace.h"
#include "utils/timestamp.h"

/*
 * A file system lets reads and writes of a file wait while it makes a hole in it, and sessions that
 * need the growth lock wait, too.  So a pause is this multiple of the time that the holes took, and
 * at most this long.
 */
#define PAUSE_TIMES 15
#define MAX_PAUSE_US INT64CONST(500000)

/*
 * A device that is told of each hole works on that later, when the journal commits, and the time
 * that holes take does not show it.  So a worker spreads them over this time, or at this rate if
 * that is sooner: little enough for the device, and for "a minute later" with the default naptime.
 */
#define LENGTH_US INT64CONST(20000000)
#define MIN_PAGES_PER_SECOND (32 * 1024 * 1024 / BLOB_PAGE_SIZE)

/* As many batches, so that the pauses between them are short.  A batch is 4 MB or more. */
#define BATCHES 80
#define MIN_BATCH_PAGES UINT64CONST(1024)

int64
blob_hole_pace_short_pause_us(int64 busy_us)
{
	/* The clock may have been set back, or forward. */
	return Min(Max(busy_us, 0), MAX_PAUSE_US / PAUSE_TIMES) * PAUSE_TIMES;
}

void
blob_hole_pace_begin(BlobHolePace *pace, uint64 pages)
{
	int64		length_us = LENGTH_US;

	if (pages < MIN_PAGES_PER_SECOND * (LENGTH_US / USECS_PER_SEC))
		length_us = (int64) (pages * USECS_PER_SEC / MIN_PAGES_PER_SECOND);

	if (pace->pages > 0)
		length_us = (int64) Min((double) length_us,
								(double) pace->length_us * pages / pace->pages);
	pace->pages = pages;
	pace->length_us = length_us;
}

uint64
blob_hole_pace_batch(const BlobHolePace *pace)
{
	return Max(MIN_BATCH_PAGES, pace->pages / BATCHES);
}

int64
blob_hole_pace_pause_us(const BlobHolePace *pace, uint64 done_pages, int64 elapsed_us,
						int64 busy_us)
{
	int64		due_us = pace->length_us;

	if (done_pages < pace->pages)
		due_us = (int64) ((double) due_us * done_pages / pace->pages);
	return Max(blob_hole_pace_short_pause_us(busy_us),
			   Min(due_us - Max(elapsed_us, 0), MAX_PAUSE_US));
}
