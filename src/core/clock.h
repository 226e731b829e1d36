/*
 * core/clock.h
 *	  Times of the day that are compared across processes; pauses.
 */
#ifndef BLOB_CLOCK_H
#define BLOB_CLOCK_H

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/*
 * Whether a number of milliseconds has passed since a time.  If the clock was set back behind that
 * time, it has: nothing shall wait until the clock is there again.
 */
static inline bool
blob_clock_has_passed(TimestampTz since, TimestampTz now, int64 milliseconds)
{
	return now < since || now - since >= milliseconds * 1000;
}

/*
 * Whether a time is still to come that was set at most this number of milliseconds ahead.  If the
 * clock was set back since, it is not.
 */
static inline bool
blob_clock_is_before(TimestampTz now, TimestampTz end, int64 milliseconds)
{
	return now < end && end - now <= milliseconds * 1000;
}

/* Sleep so long, or until the latch of this process is set.  Serves interrupts. */
static inline void
blob_clock_sleep(long milliseconds)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

#endif							/* BLOB_CLOCK_H */
