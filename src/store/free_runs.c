/*
 * store/free_runs.c
 *	  Treap of free runs in dynamic shared memory, see store/free_runs.h.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "store/free_runs.h"

typedef struct Run
{
	BlobPageNo	first_page;
	uint64		pages;
	uint64		longest;		/* longest run in this subtree, in pages */
	uint32		priority;		/* heap order: no child has a larger one */
	dsa_pointer child[2];		/* by side */
} Run;

/* Sides: runs at lower and at higher addresses.  The other one is !side. */
enum
{
	BELOW = 0,
	ABOVE = 1
};

static inline Run *
run_at(dsa_area *area, dsa_pointer pointer)
{
	return (Run *) dsa_get_address(area, pointer);
}

static inline uint64
longest_at(dsa_area *area, dsa_pointer pointer)
{
	return DsaPointerIsValid(pointer) ? run_at(area, pointer)->longest : 0;
}

static void
update_longest(dsa_area *area, Run *run)
{
	uint64		of_children = Max(longest_at(area, run->child[BELOW]),
								  longest_at(area, run->child[ABOVE]));

	run->longest = Max(run->pages, of_children);
}

void
blob_free_runs_init(BlobFreeRuns *runs)
{
	runs->root = InvalidDsaPointer;
	runs->run_count = 0;
	runs->page_count = 0;
}

static void
free_subtree(dsa_area *area, dsa_pointer pointer)
{
	Run		   *run;

	if (!DsaPointerIsValid(pointer))
		return;
	run = run_at(area, pointer);
	free_subtree(area, run->child[BELOW]);
	free_subtree(area, run->child[ABOVE]);
	dsa_free(area, pointer);
}

void
blob_free_runs_clear(dsa_area *area, BlobFreeRuns *runs)
{
	free_subtree(area, runs->root);
	blob_free_runs_init(runs);
}

/* Join two trees; all runs of left lie below all runs of right.  Returns the root. */
static dsa_pointer
join(dsa_area *area, dsa_pointer left, dsa_pointer right)
{
	Run		   *left_run;
	Run		   *right_run;

	if (!DsaPointerIsValid(left))
		return right;
	if (!DsaPointerIsValid(right))
		return left;

	left_run = run_at(area, left);
	right_run = run_at(area, right);
	if (left_run->priority >= right_run->priority)
	{
		left_run->child[ABOVE] = join(area, left_run->child[ABOVE], right);
		update_longest(area, left_run);
		return left;
	}
	right_run->child[BELOW] = join(area, left, right_run->child[BELOW]);
	update_longest(area, right_run);
	return right;
}

/* Divide a tree by address: *left gets the runs that begin below first_page, *right the others. */
static void
split(dsa_area *area, dsa_pointer pointer, BlobPageNo first_page, dsa_pointer *left,
	  dsa_pointer *right)
{
	Run		   *run;

	if (!DsaPointerIsValid(pointer))
	{
		*left = *right = InvalidDsaPointer;
		return;
	}
	run = run_at(area, pointer);
	if (run->first_page < first_page)
	{
		*left = pointer;
		split(area, run->child[ABOVE], first_page, &run->child[ABOVE], right);
	}
	else
	{
		*right = pointer;
		split(area, run->child[BELOW], first_page, left, &run->child[BELOW]);
	}
	update_longest(area, run);
}

/*
 * Take from the outermost run of this side of the subtree that has at least *pages: all of it, but
 * at most max_pages, from its outer end.  The subtree has such a run.  *pages becomes the number
 * taken.  Returns the new root of the subtree.  If the run is used up, *empty is its node, which
 * the caller frees.
 */
static dsa_pointer
take_outermost(dsa_area *area, dsa_pointer pointer, int side, uint64 *pages, uint64 max_pages,
			   BlobPageNo *first_page, dsa_pointer *empty)
{
	Run		   *run = run_at(area, pointer);
	dsa_pointer *outer = &run->child[side];
	dsa_pointer *inner = &run->child[!side];

	Assert(run->longest >= *pages);

	if (longest_at(area, *outer) >= *pages)
		*outer = take_outermost(area, *outer, side, pages, max_pages, first_page, empty);
	else if (run->pages >= *pages)
	{
		*pages = Min(run->pages, max_pages);
		run->pages -= *pages;
		*first_page = run->first_page + (side == BELOW ? 0 : run->pages);
		if (side == BELOW)
			run->first_page += *pages;
		if (run->pages == 0)
		{
			*empty = pointer;
			return join(area, run->child[BELOW], run->child[ABOVE]);
		}
	}
	else
		*inner = take_outermost(area, *inner, side, pages, max_pages, first_page, empty);
	update_longest(area, run);
	return pointer;
}

/* The number of pages taken on this side; 0 if no run has min_pages. */
static uint64
take(dsa_area *area, BlobFreeRuns *runs, int side, uint64 min_pages, uint64 max_pages,
	 BlobPageNo *first_page)
{
	dsa_pointer empty = InvalidDsaPointer;
	uint64		pages = min_pages;

	if (min_pages == 0 || longest_at(area, runs->root) < min_pages)
		return 0;

	runs->root = take_outermost(area, runs->root, side, &pages, max_pages, first_page, &empty);
	runs->page_count -= pages;
	if (DsaPointerIsValid(empty))
	{
		dsa_free(area, empty);
		runs->run_count--;
	}
	return pages;
}

uint64
blob_free_runs_take_some(dsa_area *area, BlobFreeRuns *runs, uint64 min_pages, uint64 max_pages,
						 BlobPageNo *first_page)
{
	Assert(min_pages <= max_pages);
	return take(area, runs, BELOW, min_pages, max_pages, first_page);
}

uint64
blob_free_runs_take_last(dsa_area *area, BlobFreeRuns *runs, uint64 min_pages, uint64 max_pages,
						 BlobPageNo *first_page)
{
	return min_pages > max_pages ? 0 :
		take(area, runs, ABOVE, min_pages, max_pages, first_page);
}

bool
blob_free_runs_take(dsa_area *area, BlobFreeRuns *runs, uint64 pages, BlobPageNo *first_page)
{
	return blob_free_runs_take_some(area, runs, pages, pages, first_page) > 0;
}

/* Detach the outermost run of this side of a non-empty subtree.  Returns the new root. */
static dsa_pointer
detach(dsa_area *area, dsa_pointer pointer, int side, dsa_pointer *outermost)
{
	Run		   *run = run_at(area, pointer);

	if (!DsaPointerIsValid(run->child[side]))
	{
		*outermost = pointer;
		return run->child[!side];
	}
	run->child[side] = detach(area, run->child[side], side, outermost);
	update_longest(area, run);
	return pointer;
}

/*
 * Look at the run next to a new one: the last of the runs below it, or the first of those above.
 * If the two touch, the old run is merged into *first_page and *pages, and its node freed.  Returns
 * the new root of the subtree.
 */
static dsa_pointer
absorb_neighbour(dsa_area *area, BlobFreeRuns *runs, dsa_pointer subtree, bool is_below,
				 BlobPageNo *first_page, uint64 *pages)
{
	dsa_pointer pointer;
	Run		   *run;

	if (!DsaPointerIsValid(subtree))
		return subtree;
	subtree = detach(area, subtree, is_below ? ABOVE : BELOW, &pointer);
	run = run_at(area, pointer);

	if (is_below ? run->first_page + run->pages == *first_page :
		*first_page + *pages == run->first_page)
	{
		*first_page = Min(*first_page, run->first_page);
		*pages += run->pages;
		dsa_free(area, pointer);
		runs->run_count--;
		return subtree;
	}

	Assert(is_below ? run->first_page + run->pages < *first_page :
		   *first_page + *pages < run->first_page);
	run->child[BELOW] = run->child[ABOVE] = InvalidDsaPointer;
	update_longest(area, run);
	return is_below ? join(area, subtree, pointer) : join(area, pointer, subtree);
}

/* Make a node the only run of a tree. */
static void
set_run(dsa_area *area, dsa_pointer pointer, BlobPageNo first_page, uint64 pages)
{
	Run		   *run = run_at(area, pointer);

	run->first_page = first_page;
	run->pages = pages;
	run->child[BELOW] = run->child[ABOVE] = InvalidDsaPointer;
	run->priority = murmurhash32((uint32) first_page ^ (uint32) (first_page >> 32));
	update_longest(area, run);
}

/* Add a run in an unused node. */
static void
insert_run(dsa_area *area, BlobFreeRuns *runs, dsa_pointer pointer, BlobPageNo first_page,
		   uint64 pages)
{
	dsa_pointer below;
	dsa_pointer above;

	Assert(pages > 0);
	runs->page_count += pages;
	runs->run_count++;
	split(area, runs->root, first_page, &below, &above);
	below = absorb_neighbour(area, runs, below, true, &first_page, &pages);
	above = absorb_neighbour(area, runs, above, false, &first_page, &pages);
	set_run(area, pointer, first_page, pages);
	runs->root = join(area, join(area, below, pointer), above);
}

void
blob_free_runs_give(dsa_area *area, BlobFreeRuns *runs, BlobPageNo first_page, uint64 pages)
{
	dsa_pointer pointer = dsa_allocate(area, sizeof(Run));	/* may throw: nothing is changed yet */

	insert_run(area, runs, pointer, first_page, pages);
}

dsa_pointer
blob_free_runs_reserve(dsa_area *area, int node_count)
{
	dsa_pointer nodes = InvalidDsaPointer;

	for (int i = 0; i < node_count; i++)
	{
		dsa_pointer pointer = dsa_allocate_extended(area, sizeof(Run), DSA_ALLOC_NO_OOM);

		if (!DsaPointerIsValid(pointer))
		{
			blob_free_runs_release(area, nodes);
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("out of shared memory for the free space of blobs")));
		}
		run_at(area, pointer)->child[ABOVE] = nodes;
		nodes = pointer;
	}
	return nodes;
}

void
blob_free_runs_release(dsa_area *area, dsa_pointer nodes)
{
	while (DsaPointerIsValid(nodes))
	{
		dsa_pointer next = run_at(area, nodes)->child[ABOVE];

		dsa_free(area, nodes);
		nodes = next;
	}
}

static dsa_pointer
use_reserved(dsa_area *area, dsa_pointer *nodes)
{
	dsa_pointer pointer = *nodes;

	Assert(DsaPointerIsValid(pointer));
	*nodes = run_at(area, pointer)->child[ABOVE];
	return pointer;
}

void
blob_free_runs_give_reserved(dsa_area *area, BlobFreeRuns *runs, dsa_pointer *nodes,
							 BlobPageNo first_page, uint64 pages)
{
	insert_run(area, runs, use_reserved(area, nodes), first_page, pages);
}

bool
blob_free_runs_move_one(dsa_area *area, BlobFreeRuns *from, BlobFreeRuns *to)
{
	dsa_pointer pointer = from->root;
	Run		   *run;

	if (!DsaPointerIsValid(pointer))
		return false;
	run = run_at(area, pointer);
	from->root = join(area, run->child[BELOW], run->child[ABOVE]);
	from->run_count--;
	from->page_count -= run->pages;
	insert_run(area, to, pointer, run->first_page, run->pages);
	return true;
}

static int
list_subtree(dsa_area *area, dsa_pointer pointer, BlobPageRun *list)
{
	int			count;
	Run		   *run;

	if (!DsaPointerIsValid(pointer))
		return 0;
	run = run_at(area, pointer);
	count = list_subtree(area, run->child[BELOW], list);
	list[count].first_page = run->first_page;
	list[count++].pages = run->pages;
	return count + list_subtree(area, run->child[ABOVE], list + count);
}

int
blob_free_runs_list(dsa_area *area, const BlobFreeRuns *runs, BlobPageRun *list)
{
	return list_subtree(area, runs->root, list);
}

/* Count the pages of [first_page, end_page) in the subtree, see blob_free_runs_count(). */
static uint64
count_in_subtree(dsa_area *area, dsa_pointer pointer, BlobPageNo first_page, BlobPageNo end_page,
				 uint64 *run_count)
{
	uint64		count = 0;
	Run		   *run;
	BlobPageNo	run_end;

	if (!DsaPointerIsValid(pointer))
		return 0;
	run = run_at(area, pointer);
	run_end = run->first_page + run->pages;
	if (run->first_page > first_page)
		count += count_in_subtree(area, run->child[BELOW], first_page, end_page, run_count);
	if (run_end < end_page)
		count += count_in_subtree(area, run->child[ABOVE], first_page, end_page, run_count);
	if (run->first_page < end_page && run_end > first_page)
		count += Min(run_end, end_page) - Max(run->first_page, first_page);
	if (run_count != NULL && run->first_page >= first_page && run->first_page < end_page)
		(*run_count)++;
	return count;
}

uint64
blob_free_runs_count(dsa_area *area, const BlobFreeRuns *runs, BlobPageNo first_page,
					 BlobPageNo end_page, uint64 *run_count)
{
	return count_in_subtree(area, runs->root, first_page, end_page, run_count);
}

/*
 * Cut [first_page, end_page) out of the last run that begins below first_page.  If the run reaches
 * beyond end_page, its end becomes a run of its own, in a node of the chain.  Returns the pages
 * cut.
 */
static uint64
cut_last_below(dsa_area *area, BlobFreeRuns *runs, dsa_pointer *nodes, dsa_pointer *below,
			   dsa_pointer *above, BlobPageNo first_page, BlobPageNo end_page)
{
	dsa_pointer last;
	Run		   *run;
	BlobPageNo	run_end;
	uint64		cut = 0;

	if (!DsaPointerIsValid(*below))
		return 0;
	*below = detach(area, *below, ABOVE, &last);
	run = run_at(area, last);
	run_end = run->first_page + run->pages;
	if (run_end > first_page)
	{
		cut = Min(run_end, end_page) - first_page;
		run->pages = first_page - run->first_page;
	}
	run->child[BELOW] = run->child[ABOVE] = InvalidDsaPointer;
	update_longest(area, run);
	*below = join(area, *below, last);

	if (run_end > end_page)
	{
		dsa_pointer rest = use_reserved(area, nodes);

		set_run(area, rest, end_page, run_end - end_page);
		runs->run_count++;
		*above = join(area, rest, *above);
	}
	return cut;
}

/*
 * Free the runs of a subtree, all of which begin in the range.  The part of a run beyond end_page
 * stays in the set.  Returns the pages cut.
 */
static uint64
cut_inside(dsa_area *area, BlobFreeRuns *runs, dsa_pointer inside, dsa_pointer *above,
		   BlobPageNo end_page)
{
	uint64		cut = 0;

	while (DsaPointerIsValid(inside))
	{
		dsa_pointer last;
		Run		   *run;
		BlobPageNo	run_end;

		inside = detach(area, inside, ABOVE, &last);
		run = run_at(area, last);
		run_end = run->first_page + run->pages;
		cut += Min(run_end, end_page) - run->first_page;
		if (run_end > end_page)
		{
			set_run(area, last, end_page, run_end - end_page);
			*above = join(area, last, *above);
		}
		else
		{
			dsa_free(area, last);
			runs->run_count--;
		}
	}
	return cut;
}

uint64
blob_free_runs_cut(dsa_area *area, BlobFreeRuns *runs, dsa_pointer *nodes, BlobPageNo first_page,
				   BlobPageNo end_page)
{
	dsa_pointer below;
	dsa_pointer inside;
	dsa_pointer above;
	uint64		cut;

	split(area, runs->root, first_page, &below, &inside);
	split(area, inside, end_page, &inside, &above);
	cut = cut_last_below(area, runs, nodes, &below, &above, first_page, end_page);
	cut += cut_inside(area, runs, inside, &above, end_page);
	runs->root = join(area, below, above);
	runs->page_count -= cut;
	return cut;
}

uint64
blob_free_runs_longest(dsa_area *area, const BlobFreeRuns *runs)
{
	return longest_at(area, runs->root);
}

#ifdef USE_ASSERT_CHECKING

/* *seen is the set of the runs before a subtree, *end_page the end of the last of them. */
static void
check_subtree(dsa_area *area, dsa_pointer pointer, BlobFreeRuns *seen, BlobPageNo *end_page)
{
	Run		   *run;

	if (!DsaPointerIsValid(pointer))
		return;
	run = run_at(area, pointer);
	for (int side = BELOW; side <= ABOVE; side++)
		Assert(!DsaPointerIsValid(run->child[side]) ||
			   run_at(area, run->child[side])->priority <= run->priority);
	check_subtree(area, run->child[BELOW], seen, end_page);
	Assert(run->pages > 0);
	Assert(seen->run_count == 0 || run->first_page > *end_page);
	Assert(run->longest == Max(run->pages, Max(longest_at(area, run->child[BELOW]),
											   longest_at(area, run->child[ABOVE]))));
	seen->run_count++;
	seen->page_count += run->pages;
	*end_page = run->first_page + run->pages;
	check_subtree(area, run->child[ABOVE], seen, end_page);
}

void
blob_free_runs_check(dsa_area *area, const BlobFreeRuns *runs)
{
	BlobFreeRuns seen;
	BlobPageNo	end_page = 0;

	blob_free_runs_init(&seen);
	check_subtree(area, runs->root, &seen, &end_page);
	Assert(seen.run_count == runs->run_count && seen.page_count == runs->page_count);
}

#endif							/* USE_ASSERT_CHECKING */
