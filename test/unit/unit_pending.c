/*
 * unit_pending.c
 *	  Random frees and checkpoints on the pending runs of src/store: nothing comes out before a
 *	  checkpoint covers it, and everything comes out some time.
 */
#include "unit.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "core/compat.h"
#include "store/pending.h"
#include "storage/lwlock.h"
#include "utils/dsa.h"

#define PAGES 3000

/* The model: the LSN that each page waits for; 0: it does not wait. */
static XLogRecPtr waits_for[PAGES];
static bool is_free[PAGES];

/* Free some pages that are neither free nor waiting; returns how many, perhaps none. */
static uint64
give(dsa_area *area, BlobPending *pending, pg_prng_state *random, XLogRecPtr lsn,
	 XLogRecPtr started_redo)
{
	BlobPageNo	first_page = pg_prng_uint64_range(random, 0, PAGES - 1);
	dsa_pointer nodes = blob_free_runs_reserve(area, 1);
	uint64		pages = 0;

	while (pages < 20 && first_page + pages < PAGES && !is_free[first_page + pages] &&
		   waits_for[first_page + pages] == 0)
		waits_for[first_page + pages++] = lsn;
	if (pages > 0)
		blob_pending_give(area, pending, &nodes, lsn, started_redo, first_page, pages);
	blob_free_runs_release(area, nodes);
	return pages;
}

/*
 * Move the runs that a completed checkpoint covers, and compare: no page moved too early, and the
 * count of waiting pages is right.
 */
static void
move(dsa_area *area, BlobPending *pending, XLogRecPtr completed_redo, BlobFreeRuns *free_runs)
{
	uint64		waiting = 0;
	XLogRecPtr	newest = InvalidXLogRecPtr;

	while (blob_pending_move(area, pending, completed_redo, free_runs, 3) == 3)
		;
	for (BlobPageNo page = 0; page < PAGES; page++)
	{
		bool		is_free_now = blob_free_runs_count(area, free_runs, page, page + 1, NULL) == 1;
		bool		waits_now = blob_pending_count(area, pending, page, page + 1, NULL) == 1;

		if (is_free_now && !is_free[page])
		{
			CHECK(waits_for[page] != 0 && waits_for[page] <= completed_redo,
				  "page " UINT64_FORMAT " waits for more than %X", page, (uint32) completed_redo);
			waits_for[page] = 0;
			is_free[page] = true;
		}
		CHECK(is_free_now == is_free[page], "page " UINT64_FORMAT " is free", page);
		CHECK(waits_now == (waits_for[page] != 0), "page " UINT64_FORMAT " waits", page);
		waiting += waits_now;
		newest = Max(newest, waits_for[page]);
	}
	CHECK(blob_pending_pages(pending) == waiting, UINT64_FORMAT " pages wait", waiting);
	CHECK((blob_pending_oldest(pending) == InvalidXLogRecPtr) == (waiting == 0), "the oldest");
	/* A batch whose last run was cut keeps its position. */
	CHECK(blob_pending_newest(pending) >= newest, "the newest");
	CHECK((blob_pending_newest(pending) == InvalidXLogRecPtr) == (waiting == 0), "no newest");
}

/* Use the free pages, so that there is something to free; cut a range from the pages that wait. */
static void
use(dsa_area *area, BlobPending *pending, BlobFreeRuns *free_runs, pg_prng_state *random)
{
	BlobPageNo	first_page = pg_prng_uint64_range(random, 0, PAGES - 1);
	BlobPageNo	end_page = Min(PAGES, first_page + 30);
	dsa_pointer nodes = blob_free_runs_reserve(area, BLOB_PENDING_BATCHES);

	(void) blob_pending_cut(area, pending, &nodes, first_page, end_page);
	for (BlobPageNo page = first_page; page < end_page; page++)
		waits_for[page] = 0;
	blob_free_runs_release(area, nodes);
	blob_free_runs_clear(area, free_runs);
	memset(is_free, 0, sizeof(is_free));
}

/* Arguments: seed, rounds. */
UNIT_TEST(unit_pending)
{
	int64		rounds = PG_GETARG_INT64(1);
	dsa_area   *area = dsa_create(blob_new_tranche());
	pg_prng_state random;
	BlobPending pending;
	BlobFreeRuns free_runs;
	XLogRecPtr	insert_lsn = 1000;
	XLogRecPtr	started_redo = 10;
	XLogRecPtr	completed_redo = 10;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	memset(waits_for, 0, sizeof(waits_for));
	memset(is_free, 0, sizeof(is_free));
	blob_pending_init(&pending);
	blob_free_runs_init(&free_runs);

	for (int64 round = 0; round < rounds; round++)
	{
		CHECK_FOR_INTERRUPTS();
		for (uint64 i = pg_prng_uint64_range(&random, 0, 20); i > 0; i--)
			(void) give(area, &pending, &random, insert_lsn += 50, started_redo);
		switch (pg_prng_uint64_range(&random, 0, 3))
		{
			case 0:				/* a checkpoint begins; the last one has ended, seen or not */
				completed_redo = started_redo;
				started_redo = insert_lsn;
				break;
			case 1:				/* it ends */
				completed_redo = started_redo;
				break;
			default:
				break;
		}
		if (round % 3 == 0)
			move(area, &pending, completed_redo, &free_runs);
		if (round % 7 == 0)
			use(area, &pending, &free_runs, &random);
	}

	/*
	 * However many checkpoints went by without a move, one checkpoint that covers all lets all go.
	 */
	move(area, &pending, insert_lsn, &free_runs);
	CHECK(blob_pending_pages(&pending) == 0, "all are free");

	/*
	 * Pages that were freed before a checkpoint began do not wait for pages that are freed after
	 * that.
	 */
	use(area, &pending, &free_runs, &random);
	while (give(area, &pending, &random, insert_lsn + 50, started_redo) == 0)
		;
	while (give(area, &pending, &random, insert_lsn + 200, insert_lsn + 100) == 0)
		;
	move(area, &pending, insert_lsn + 100, &free_runs);
	CHECK(free_runs.page_count > 0 && blob_pending_pages(&pending) > 0, "the first is free");
	blob_pending_clear(area, &pending);
	blob_free_runs_clear(area, &free_runs);
	dsa_detach(area);
}
