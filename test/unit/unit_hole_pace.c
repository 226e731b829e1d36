/*
 * unit_hole_pace.c
 *	  A worker's holes, played with a clock of numbers: how long all of them take, and how evenly.
 */
#include "unit.h"

#include "common/pg_prng.h"
#include "core/compat.h"
#include "store/hole_pace.h"
#include "utils/timestamp.h"

#define MB_PAGES (1024 * 1024 / BLOB_PAGE_SIZE)
#define MAX_PAUSE_US 500000

typedef struct Played
{
	int64		us;				/* in all */
	int64		busy_us;		/* in holes */
	int64		longest_pause_us;
	uint64		most_pages;		/* punched within a second */
} Played;

/*
 * Batches of as many pages as the pace says, or fewer by the factor `part`, as if short runs had
 * filled a record.  A page takes page_ns.
 */
static Played
play(uint64 pages, double part, int64 page_ns)
{
	BlobHolePace pace = {0};
	Played		played = {0};
	int64		second_at = 0;
	uint64		second_pages = 0;

	blob_hole_pace_begin(&pace, pages);
	for (uint64 done = 0; done < pages;)
	{
		uint64		batch = Min(pages - done, Max(1, blob_hole_pace_batch(&pace) * part));
		int64		busy = batch * page_ns / 1000;
		int64		pause;

		done += batch;
		pause = blob_hole_pace_pause_us(&pace, done, played.us + busy, busy);
		CHECK(pause >= Min(busy * 15, MAX_PAUSE_US - 15), "after " INT64_FORMAT " us", busy);
		second_pages += batch;
		played.most_pages = Max(played.most_pages, second_pages);
		played.us += busy + pause;
		played.busy_us += busy;
		played.longest_pause_us = Max(played.longest_pause_us, pause);
		if (played.us - second_at >= USECS_PER_SEC)
		{
			second_at = played.us;
			second_pages = 0;
		}
	}
	return played;
}

/* From 640 MB on all takes 20 s, evenly, unless the holes take more than a 16th of it. */
static void
check_long(uint64 pages, double part, int64 page_ns)
{
	Played		played = play(pages, part, page_ns);

	if (played.busy_us * 16 < 20 * USECS_PER_SEC)
		CHECK(played.us >= 20 * USECS_PER_SEC - 1000 && played.us <= 20 * USECS_PER_SEC + 1000,
			  UINT64_FORMAT " pages took " INT64_FORMAT " us", pages, played.us);
	else
		CHECK(played.us <= played.busy_us * 16 + 20 * USECS_PER_SEC, "took " INT64_FORMAT " us",
			  played.us);
	CHECK(played.most_pages <= pages / 12, UINT64_FORMAT " pages a second", played.most_pages);
	CHECK(played.longest_pause_us <= MAX_PAUSE_US, INT64_FORMAT " us", played.longest_pause_us);
}

/* Fewer pages go at 32 MB per second. */
static void
check_short(uint64 pages, double part)
{
	int64		expected_us = pages * USECS_PER_SEC / (32 * MB_PAGES);
	Played		played = play(pages, part, 100);

	CHECK(played.us >= Min(expected_us, MAX_PAUSE_US) - 1000 && played.us <= expected_us + 1000,
		  UINT64_FORMAT " pages took " INT64_FORMAT " us", pages, played.us);
	CHECK(played.longest_pause_us <= MAX_PAUSE_US, INT64_FORMAT " us", played.longest_pause_us);
}

/* A clock that is set makes no pause long, and none negative. */
static void
check_clock(void)
{
	BlobHolePace pace = {0};

	blob_hole_pace_begin(&pace, 1000 * MB_PAGES);
	for (int64 jump = 1; jump < PG_INT64_MAX / 4; jump *= 3)
	{
		int64		back = blob_hole_pace_pause_us(&pace, 500 * MB_PAGES, -jump, -jump);
		int64		forward = blob_hole_pace_pause_us(&pace, 500 * MB_PAGES, jump, jump);

		CHECK(back >= 0 && back <= MAX_PAUSE_US, INT64_FORMAT " us", back);
		CHECK(forward >= 0 && forward <= MAX_PAUSE_US, INT64_FORMAT " us", forward);
	}
	CHECK(blob_hole_pace_pause_us(&pace, 2000 * MB_PAGES, 30 * USECS_PER_SEC, 0) == 0,
		  "more pages than expected");
}

/*
 * A process that goes on with the pages of another one does so at that pace, also with more of
 * them.
 */
static void
check_going_on(void)
{
	BlobHolePace pace = {0};

	blob_hole_pace_begin(&pace, 1000 * MB_PAGES);
	blob_hole_pace_begin(&pace, 350 * MB_PAGES);
	CHECK(pace.length_us == 7 * USECS_PER_SEC, INT64_FORMAT " us", pace.length_us);
	blob_hole_pace_begin(&pace, 50 * MB_PAGES);
	CHECK(pace.length_us == USECS_PER_SEC, "few pages: " INT64_FORMAT " us", pace.length_us);
	blob_hole_pace_begin(&pace, 800 * MB_PAGES);
	CHECK(pace.length_us == 16 * USECS_PER_SEC, "others: " INT64_FORMAT " us", pace.length_us);
	blob_hole_pace_begin(&pace, 4000 * MB_PAGES);
	CHECK(pace.length_us == 20 * USECS_PER_SEC, "many others: " INT64_FORMAT " us",
		  pace.length_us);
	pace.pages = 0;
	blob_hole_pace_begin(&pace, 320 * MB_PAGES);
	CHECK(pace.length_us == 10 * USECS_PER_SEC, "none is left: " INT64_FORMAT " us",
		  pace.length_us);
}

UNIT_TEST(unit_hole_pace)
{
	pg_prng_state random;

	pg_prng_seed(&random, PG_GETARG_INT64(0));
	for (int i = 0; i < 300; i++)
	{
		double		part = 0.02 + 0.98 * pg_prng_double(&random);

		check_long(pg_prng_uint64_range(&random, 640, 4000) * MB_PAGES, part, 100);
		check_long(pg_prng_uint64_range(&random, 640, 1000000) * MB_PAGES, part,
				   pg_prng_uint64_range(&random, 100, 3000));
		check_short(pg_prng_uint64_range(&random, 4 * MB_PAGES, 640 * MB_PAGES), part);
	}
	check_long(UINT64CONST(1) << 40, 1, 1);
	check_clock();
	check_going_on();
}
