/*
 * store/free_runs.h
 *	  The free runs of a store: an ordered tree in dynamic shared memory.
 *
 * A treap (Seidel and Aragon, "Randomized search trees", 1996) ordered by first page.  Every node
 * knows the longest run below it, so that the leftmost run that is long enough is found in O(log
 * n): address-ordered first fit.  Neighbouring runs are always merged.
 *
 * The caller holds the store's lock exclusively around every function (shared for those that only
 * look), except while it loads the store, or if the function says otherwise.  None of them does
 * I/O.
 */
#ifndef BLOB_FREE_RUNS_H
#define BLOB_FREE_RUNS_H

#include "core/page.h"
#include "utils/dsa.h"

typedef struct BlobFreeRuns
{
	dsa_pointer root;
	uint64		run_count;
	uint64		page_count;
} BlobFreeRuns;

extern void blob_free_runs_init(BlobFreeRuns *runs);

/* Free all nodes. */
extern void blob_free_runs_clear(dsa_area *area, BlobFreeRuns *runs);

/* Take pages from the start of the leftmost run that is long enough; false if none is. */
extern bool blob_free_runs_take(dsa_area *area, BlobFreeRuns *runs, uint64 pages,
								BlobPageNo *first_page);

/*
 * Give a run back, merging it with its neighbours.  Needs one node of memory: ERROR (out of memory)
 * before anything is changed.
 */
extern void blob_free_runs_give(dsa_area *area, BlobFreeRuns *runs, BlobPageNo first_page,
								uint64 pages);

/*
 * Take pages from the start of the leftmost run that has at least min_pages: all of the run, but at
 * most max_pages.  Returns the number of pages taken; 0 if there is no such run.
 */
extern uint64 blob_free_runs_take_some(dsa_area *area, BlobFreeRuns *runs, uint64 min_pages,
									   uint64 max_pages, BlobPageNo *first_page);

/*
 * The same from the end of the rightmost run that has at least min_pages; 0 also if max_pages is
 * less than that.
 */
extern uint64 blob_free_runs_take_last(dsa_area *area, BlobFreeRuns *runs, uint64 min_pages,
									   uint64 max_pages, BlobPageNo *first_page);

/*
 * A chain of nodes for later use, so that nothing can fail where a failure would lose pages.
 * blob_free_runs_reserve() throws if there is no memory.  The functions that take a node from the
 * chain (give_reserved, cut) do not throw.  Reserve and release need no lock.
 */
extern dsa_pointer blob_free_runs_reserve(dsa_area *area, int node_count);
extern void blob_free_runs_release(dsa_area *area, dsa_pointer nodes);
extern void blob_free_runs_give_reserved(dsa_area *area, BlobFreeRuns *runs, dsa_pointer *nodes,
										 BlobPageNo first_page, uint64 pages);

/* Move any one run to another set; false if there is none.  Needs no memory. */
extern bool blob_free_runs_move_one(dsa_area *area, BlobFreeRuns *from, BlobFreeRuns *to);

/* List all runs of the set, in ascending order; returns their number.  There is room for them. */
extern int	blob_free_runs_list(dsa_area *area, const BlobFreeRuns *runs, BlobPageRun *list);

/*
 * Number of pages of [first_page, end_page) in the set.  If run_count is not NULL, *run_count grows
 * by the number of runs that begin there.
 */
extern uint64 blob_free_runs_count(dsa_area *area, const BlobFreeRuns *runs, BlobPageNo first_page,
								   BlobPageNo end_page, uint64 *run_count);

/*
 * Take all pages of [first_page, end_page) that are in the set; returns their number.  May take one
 * node from the chain.
 */
extern uint64 blob_free_runs_cut(dsa_area *area, BlobFreeRuns *runs, dsa_pointer *nodes,
								 BlobPageNo first_page, BlobPageNo end_page);

/* Length of the longest run, in pages. */
extern uint64 blob_free_runs_longest(dsa_area *area, const BlobFreeRuns *runs);

/* Assert that the tree is in order, neighbours are merged, and lengths and counts are right. */
#ifdef USE_ASSERT_CHECKING
extern void blob_free_runs_check(dsa_area *area, const BlobFreeRuns *runs);
#else
#define blob_free_runs_check(area, runs) ((void) 0)
#endif

#endif							/* BLOB_FREE_RUNS_H */
