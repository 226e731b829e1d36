/*
 * store/sets.c
 *	  That each page of a store is in one place, proved at each move; in builds with assertions.
 *
 * The states of a page, and which may follow, are in the README of this folder, "States of a page".
 * Pages that are in no set are counted: those in extents, those in the hands of processes, those
 * that are lost until the next start, and those that are not loaded yet.  So the sum of all states
 * is reserved_pages, after each move, and a page that comes twice, or never, changes it.
 */
#include "postgres.h"

#include "store/store_internal.h"

#ifdef USE_ASSERT_CHECKING

#define BIT(state) (1 << (state))

/* Which states may follow a state, for pages that no process has in its hands. */
static const uint32 may_follow[BLOB_PAGE_STATES] = {
	[BLOB_PAGE_FREE] = BIT(BLOB_PAGE_RESTING) | BIT(BLOB_PAGE_HELD),
	[BLOB_PAGE_RESTING] = BIT(BLOB_PAGE_FREE) | BIT(BLOB_PAGE_HELD),
	[BLOB_PAGE_PENDING] = BIT(BLOB_PAGE_HELD),
	[BLOB_PAGE_HOLLOW_PENDING] = BIT(BLOB_PAGE_HOLLOW),
	[BLOB_PAGE_HOLLOW] = BIT(BLOB_PAGE_HELD),
	[BLOB_PAGE_SEGMENT] = BIT(BLOB_PAGE_HELD),
	[BLOB_PAGE_EXTENT] = BIT(BLOB_PAGE_FREE) | BIT(BLOB_PAGE_PENDING),
	[BLOB_PAGE_NEW] = BIT(BLOB_PAGE_FREE) | BIT(BLOB_PAGE_HOLLOW_PENDING),
	[BLOB_PAGE_LOST] = BIT(BLOB_PAGE_FREE),
	[BLOB_PAGE_UNLOADED] = BIT(BLOB_PAGE_FREE) | BIT(BLOB_PAGE_PENDING) | BIT(BLOB_PAGE_HOLLOW) |
		BIT(BLOB_PAGE_HOLLOW_PENDING) | BIT(BLOB_PAGE_EXTENT) | BIT(BLOB_PAGE_LOST),
};

/* The same for pages in the hands of a process, by the state in which it took them. */
static const uint32 may_follow_held[BLOB_PAGE_STATES] = {
	[BLOB_PAGE_FREE] = BIT(BLOB_PAGE_EXTENT) | BIT(BLOB_PAGE_LOST),
	[BLOB_PAGE_RESTING] = BIT(BLOB_PAGE_RESTING) | BIT(BLOB_PAGE_FREE) |
		BIT(BLOB_PAGE_HOLLOW_PENDING),
	[BLOB_PAGE_PENDING] = BIT(BLOB_PAGE_FREE),
	[BLOB_PAGE_HOLLOW] = BIT(BLOB_PAGE_HOLLOW) | BIT(BLOB_PAGE_FREE),
	[BLOB_PAGE_SEGMENT] = BIT(BLOB_PAGE_RESTING) | BIT(BLOB_PAGE_PENDING) |
		BIT(BLOB_PAGE_HOLLOW_PENDING),
};

/* The pages in the hands of this process, and the state that it took all of them from. */
static uint64 own_pages;
static BlobPageState own_origin;

/* The trees of all sets: those of a pending set are its batches. */
#define TREE_COUNT (3 + 2 * BLOB_PENDING_BATCHES)

typedef struct Tree
{
	const BlobFreeRuns *runs;
	BlobPageState state;
} Tree;

static int
add_pending(Tree *trees, int count, const BlobPending *pending, BlobPageState state)
{
	for (int i = 0; i < BLOB_PENDING_BATCHES; i++)
		trees[count++] = (Tree) {&pending->batches[i].runs, state};
	return count;
}

static void
list_trees(const BlobStoreShared *shared, Tree *trees)
{
	int			count = 0;

	trees[count++] = (Tree) {&shared->free_runs, BLOB_PAGE_FREE};
	trees[count++] = (Tree) {&shared->resting, BLOB_PAGE_RESTING};
	trees[count++] = (Tree) {&shared->hollow, BLOB_PAGE_HOLLOW};
	count = add_pending(trees, count, &shared->pending, BLOB_PAGE_PENDING);
	count = add_pending(trees, count, &shared->hollow_pending, BLOB_PAGE_HOLLOW_PENDING);
	Assert(count == TREE_COUNT);
}

/* No page is in two states, or in none. */
static void
check_sum(const BlobStoreShared *shared, const Tree *trees)
{
	uint64		pages = shared->extent_pages + shared->held_pages + shared->lost_pages +
		shared->unloaded_pages;

	for (int i = 0; i < TREE_COUNT; i++)
		pages += trees[i].runs->page_count;
	Assert(pages == shared->reserved_pages);
}

/* The counter of a state whose pages are in no set; NULL for others. */
static uint64 *
counter_of(BlobStoreShared *shared, BlobPageState state)
{
	switch (state)
	{
		case BLOB_PAGE_EXTENT:
			return &shared->extent_pages;
		case BLOB_PAGE_HELD:
			return &shared->held_pages;
		case BLOB_PAGE_LOST:
			return &shared->lost_pages;
		case BLOB_PAGE_UNLOADED:
			return &shared->unloaded_pages;
		default:
			return NULL;
	}
}

/*
 * Processes that do I/O between two sets, or that change the store's size, keep others out: they
 * hold the growth lock.  So all that is hollow or resting stays as they have seen it.
 */
static bool
needs_growth_lock(BlobPageState from, BlobPageState to)
{
	BlobPageState origin = from == BLOB_PAGE_HELD ? own_origin : from;

	if (from == BLOB_PAGE_NEW || from == BLOB_PAGE_UNLOADED)
		return true;
	return (from == BLOB_PAGE_HELD || to == BLOB_PAGE_HELD) && origin != BLOB_PAGE_FREE &&
		origin != BLOB_PAGE_PENDING;
}

void
blob_sets_count_move(BlobStoreShared *shared, BlobPageState from, BlobPageState to, uint64 pages)
{
	uint64	   *left = counter_of(shared, from);
	uint64	   *entered = counter_of(shared, to);

	Assert(LWLockHeldByMeInMode(&shared->lock, LW_EXCLUSIVE));
	Assert(!needs_growth_lock(from, to) ||
		   LWLockHeldByMeInMode(&shared->growth_lock, LW_EXCLUSIVE));
	Assert(pages > 0);
	if (from == BLOB_PAGE_HELD)
	{
		Assert(own_pages >= pages);
		Assert((may_follow_held[own_origin] & BIT(to)) != 0);
		own_pages -= pages;
	}
	else
		Assert((may_follow[from] & BIT(to)) != 0);
	if (to == BLOB_PAGE_HELD)
	{
		Assert(own_pages == 0 || own_origin == from);
		own_origin = from;
		own_pages += pages;
	}
	if (left != NULL)
	{
		Assert(*left >= pages);
		*left -= pages;
	}
	if (entered != NULL)
		*entered += pages;
}

/* No page of the range is unloaded: no process touches such a page, nor has it in its hands. */
static void
assert_is_loaded(const BlobStoreShared *shared, BlobPageNo first_page, BlobPageNo end_page)
{
	Assert(shared->begun);
	Assert(end_page <= shared->load.next_page || first_page >= shared->load.end_page ||
		   shared->load.next_page == shared->load.end_page);
}

void
blob_sets_check_move(BlobStoreShared *shared, BlobPageState from, BlobPageState to,
					 BlobPageNo first_page, uint64 pages)
{
	Tree		trees[TREE_COUNT];
	uint64		found = 0;

	blob_sets_count_move(shared, from, to, pages);
	Assert(first_page + pages <= shared->reserved_pages);
	assert_is_loaded(shared, first_page, first_page + pages);
	list_trees(shared, trees);
	for (int i = 0; i < TREE_COUNT; i++)
	{
		uint64		count = blob_free_runs_count(blob_store_area, trees[i].runs, first_page,
												 first_page + pages, NULL);

		Assert(count == 0 || trees[i].state == to);
		found += count;
	}
	Assert(found == (counter_of(shared, to) == NULL ? pages : 0));
	check_sum(shared, trees);
}

static int
compare_runs(const void *a, const void *b)
{
	BlobPageNo	left = ((const BlobPageRun *) a)->first_page;
	BlobPageNo	right = ((const BlobPageRun *) b)->first_page;

	return left < right ? -1 : left > right;
}

void
blob_sets_check(const BlobStoreShared *shared)
{
	Tree		trees[TREE_COUNT];
	BlobPageRun *runs;
	uint64		run_count = 0;
	int			count = 0;

	Assert(LWLockHeldByMe(unconstify(LWLock *, &shared->lock)));
	Assert(shared->unloaded_pages == shared->load.end_page - shared->load.next_page);
	Assert(shared->loaded == (shared->unloaded_pages == 0));
	Assert(shared->next_generation <= shared->generation_limit);
	Assert(shared->used_pages >= shared->extent_pages && shared->used_pages <=
		   shared->extent_pages + shared->held_pages + shared->lost_pages);
	list_trees(shared, trees);
	for (int i = 0; i < TREE_COUNT; i++)
		run_count += trees[i].runs->run_count;
	runs = palloc_extended((run_count + 1) * sizeof(BlobPageRun), MCXT_ALLOC_HUGE);
	for (int i = 0; i < TREE_COUNT; i++)
	{
		blob_free_runs_check(blob_store_area, trees[i].runs);
		count += blob_free_runs_list(blob_store_area, trees[i].runs, runs + count);
	}
	qsort(runs, count, sizeof(BlobPageRun), compare_runs);
	for (int i = 0; i < count; i++)
	{
		BlobPageNo	end_page = runs[i].first_page + runs[i].pages;

		assert_is_loaded(shared, runs[i].first_page, end_page);
		Assert(end_page <= (i + 1 < count ? runs[i + 1].first_page : shared->reserved_pages));
	}
	pfree(runs);
	check_sum(shared, trees);
}

void
blob_sets_begin(BlobStoreShared *shared)
{
	Assert(!shared->begun);
	Assert(shared->extent_pages == 0 && shared->held_pages == 0 && shared->lost_pages == 0);
	shared->unloaded_pages = shared->reserved_pages;
}

void
blob_sets_check_empty_hands(void)
{
	Assert(own_pages == 0);
}

#endif							/* USE_ASSERT_CHECKING */
