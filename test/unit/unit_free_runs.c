/*
 * unit_free_runs.c
 *	  Random operations on the free runs of src/store, compared with a bitmap.
 */
#include "unit.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "core/compat.h"
#include "store/free_runs.h"
#include "storage/lwlock.h"
#include "utils/dsa.h"

#define PAGES 4000

/* The model: one byte per page, and the plainest search. */
static bool is_free[PAGES];

static int64
first_fit(uint64 pages)
{
	uint64		length = 0;

	for (uint64 page = 0; page < PAGES; page++)
	{
		length = is_free[page] ? length + 1 : 0;
		if (length == pages)
			return (int64) (page + 1 - pages);
	}
	return -1;
}

static void
measure(uint64 *runs, uint64 *pages, uint64 *longest)
{
	uint64		length = 0;

	*runs = *pages = *longest = 0;
	for (int page = 0; page < PAGES; page++)
	{
		length = is_free[page] ? length + 1 : 0;
		*pages += is_free[page];
		*runs += length == 1;
		*longest = Max(*longest, length);
	}
}

static void
take(dsa_area *area, BlobFreeRuns *runs, uint64 pages)
{
	int64		expected = first_fit(pages);
	BlobPageNo	first_page = 0;
	bool		taken = blob_free_runs_take(area, runs, pages, &first_page);

	CHECK(taken == (expected >= 0), "taking " UINT64_FORMAT " pages", pages);
	if (!taken)
		return;
	CHECK(first_page == (uint64) expected, "took " UINT64_FORMAT ", leftmost is " INT64_FORMAT,
		  first_page, expected);
	memset(is_free + first_page, false, pages);
}

/* Give back a random part of a random stretch that is not free. */
static void
give(dsa_area *area, BlobFreeRuns *runs, pg_prng_state *random)
{
	uint64		first_page = pg_prng_uint64_range(random, 0, PAGES - 1);
	uint64		wanted = pg_prng_uint64_range(random, 1, 60);
	uint64		pages = 0;

	while (pages < wanted && first_page + pages < PAGES && !is_free[first_page + pages])
		pages++;
	if (pages == 0)
		return;
	blob_free_runs_give(area, runs, first_page, pages);
	memset(is_free + first_page, true, pages);
}

/* The list of all runs: ascending, and each page that is free in one of them. */
static void
compare_list(dsa_area *area, const BlobFreeRuns *runs, int64 step)
{
	static BlobPageRun list[PAGES];
	int			count = blob_free_runs_list(area, runs, list);
	BlobPageNo	page = 0;

	CHECK((uint64) count == runs->run_count, "step " INT64_FORMAT ": %d runs are listed", step,
		  count);
	for (int i = 0; i < count; i++)
	{
		BlobPageNo	end_page = list[i].first_page + list[i].pages;

		CHECK(list[i].first_page >= page && list[i].pages > 0 && end_page <= PAGES,
			  "step " INT64_FORMAT ": run %d of the list", step, i);
		for (; page < list[i].first_page; page++)
			CHECK(!is_free[page], "step " INT64_FORMAT ": page " UINT64_FORMAT " is not listed",
				  step, page);
		for (; page < end_page; page++)
			CHECK(is_free[page], "step " INT64_FORMAT ": page " UINT64_FORMAT " is listed", step,
				  page);
	}
	for (; page < PAGES; page++)
		CHECK(!is_free[page], "step " INT64_FORMAT ": page " UINT64_FORMAT " is not listed", step,
			  page);
}

/* Count and cut a random range, which may begin and end inside of runs. */
static void
cut(dsa_area *area, BlobFreeRuns *runs, pg_prng_state *random)
{
	BlobPageNo	first_page = pg_prng_uint64_range(random, 0, PAGES - 1);
	BlobPageNo	wanted_end = first_page + pg_prng_uint64_range(random, 1, 40);
	BlobPageNo	end_page = Min(PAGES, wanted_end);
	dsa_pointer nodes = blob_free_runs_reserve(area, 1);
	uint64		expected = 0;
	uint64		expected_runs = 0;
	uint64		run_count = 0;
	bool		in_run = first_page > 0 && is_free[first_page - 1];

	for (BlobPageNo page = first_page; page < end_page; page++)
	{
		expected += is_free[page];
		expected_runs += is_free[page] && !in_run;
		in_run = is_free[page];
		is_free[page] = false;
	}
	CHECK(blob_free_runs_count(area, runs, first_page, end_page, &run_count) == expected,
		  "pages from " UINT64_FORMAT " to " UINT64_FORMAT, first_page, end_page);
	CHECK(run_count == expected_runs, "runs that begin from " UINT64_FORMAT " to " UINT64_FORMAT,
		  first_page, end_page);
	CHECK(blob_free_runs_cut(area, runs, &nodes, first_page, end_page) == expected,
		  "cut from " UINT64_FORMAT " to " UINT64_FORMAT, first_page, end_page);
	blob_free_runs_release(area, nodes);
}

static void
compare(dsa_area *area, const BlobFreeRuns *runs, int64 step)
{
	uint64		run_count;
	uint64		page_count;
	uint64		longest;

	measure(&run_count, &page_count, &longest);
	CHECK(runs->run_count == run_count, "step " INT64_FORMAT ": " UINT64_FORMAT " runs, not "
		  UINT64_FORMAT, step, run_count, runs->run_count);
	CHECK(runs->page_count == page_count, "step " INT64_FORMAT ": " UINT64_FORMAT " pages, not "
		  UINT64_FORMAT, step, page_count, runs->page_count);
	CHECK(blob_free_runs_longest(area, runs) == longest, "step " INT64_FORMAT ": longest is "
		  UINT64_FORMAT, step, longest);
	compare_list(area, runs, step);
}

/* Arguments: seed, operations. */
UNIT_TEST(unit_free_runs)
{
	int64		steps = PG_GETARG_INT64(1);
	dsa_area   *area = dsa_create(blob_new_tranche());
	pg_prng_state random;
	BlobFreeRuns runs;
	BlobPageNo	ignored;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	memset(is_free, 0, sizeof(is_free));
	blob_free_runs_init(&runs);
	compare(area, &runs, -1);
	CHECK(!blob_free_runs_take(area, &runs, 1, &ignored), "nothing to take");

	blob_free_runs_give(area, &runs, 0, PAGES);
	memset(is_free, true, PAGES);
	CHECK(!blob_free_runs_take(area, &runs, 0, &ignored), "no run of no page");
	CHECK(!blob_free_runs_take(area, &runs, PAGES + 1, &ignored), "no run that is too long");

	for (int64 step = 0; step < steps; step++)
	{
		/* Now mostly taking, now mostly giving. */
		bool		takes = pg_prng_uint64_range(&random, 0, 99) < (step / 200 % 2 ? 75 : 35);

		CHECK_FOR_INTERRUPTS();
		if (takes)
			take(area, &runs, pg_prng_uint64_range(&random, 1, step % 7 == 0 ? 300 : 12));
		else
			give(area, &runs, &random);
		if (step % 10 == 0)
			cut(area, &runs, &random);
		compare(area, &runs, step);
	}

	blob_free_runs_clear(area, &runs);
	CHECK(runs.run_count == 0 && runs.page_count == 0, "cleared");
	CHECK(blob_free_runs_longest(area, &runs) == 0, "cleared");
	dsa_detach(area);
}

/* Many runs: page numbers above 32 bits, given in an order that would unbalance a plain tree. */
UNIT_TEST(unit_free_runs_large)
{
	const BlobPageNo base = UINT64CONST(1) << 40;
	const uint64 count = 100000;
	dsa_area   *area = dsa_create(blob_new_tranche());
	BlobFreeRuns runs;
	BlobPageNo	first_page;

	blob_free_runs_init(&runs);
	for (uint64 i = 0; i < count; i++)
		blob_free_runs_give(area, &runs, base + 3 * i, 2);
	CHECK(runs.run_count == count && runs.page_count == 2 * count, "all runs");
	CHECK(!blob_free_runs_take(area, &runs, 3, &first_page), "none of three");
	/* fill the gaps from above: all runs become one */
	for (uint64 i = count - 1; i-- > 0;)
		blob_free_runs_give(area, &runs, base + 3 * i + 2, 1);
	CHECK(runs.run_count == 1 && runs.page_count == 3 * count - 1, "one run");
	for (uint64 i = 0; i < count / 2; i++)
	{
		bool		taken = blob_free_runs_take(area, &runs, 5, &first_page);

		CHECK(taken && first_page == base + 5 * i, "in order");
	}
	blob_free_runs_clear(area, &runs);
	dsa_detach(area);
}
