/*
 * store/free_runs.h
 *	  The free runs of a store: an ordered tree in dynamic shared memory.
 *
 * A treap (Seidel and Aragon, "Randomized search trees", 1996) ordered by first page; every node
 * knows the longest run below it, so that the leftmost run that is long enough is found in
 * O(log n): address-ordered first fit.  Neighbouring runs are always merged.  The caller holds the
 * store's lock exclusively around every function; none of them does I/O.
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

/* Take pages from the leftmost run that has so many; false if none has. */
extern bool blob_free_runs_take(dsa_area *area, BlobFreeRuns *runs, uint64 pages,
								BlobPageNo *first_page);

/*
 * Give a run back, merging it with its neighbours.  Needs one node of memory: throws (out of
 * memory) before anything is changed.
 */
extern void blob_free_runs_give(dsa_area *area, BlobFreeRuns *runs, BlobPageNo first_page,
								uint64 pages);

/*
 * Take from the leftmost run that has at least min_pages: so many as it has, at most max_pages.
 * Returns the number taken; 0 if there is no such run.
 */
extern uint64 blob_free_runs_take_some(dsa_area *area, BlobFreeRuns *runs, uint64 min_pages,
									   uint64 max_pages, BlobPageNo *first_page);

/*
 * Nodes of memory for later, so that nothing can fail where a failure would lose pages: reserve
 * throws, give_reserved and cut take one from the chain and do not.  The caller needs no lock for
 * reserve and release.
 */
extern dsa_pointer blob_free_runs_reserve(dsa_area *area, int node_count);
extern void blob_free_runs_release(dsa_area *area, dsa_pointer nodes);
extern void blob_free_runs_give_reserved(dsa_area *area, BlobFreeRuns *runs, dsa_pointer *nodes,
										 BlobPageNo first_page, uint64 pages);

/* Move any one run to another set; false if there is none.  Needs no memory. */
extern bool blob_free_runs_move_one(dsa_area *area, BlobFreeRuns *from, BlobFreeRuns *to);

/*
 * How many pages of [first_page, end_page) are in the set.  *run_count, where wanted, grows by the
 * number of runs that begin there.
 */
extern uint64 blob_free_runs_count(dsa_area *area, const BlobFreeRuns *runs, BlobPageNo first_page,
								   BlobPageNo end_page, uint64 *run_count);

/* Take all pages of [first_page, end_page) that are in the set; returns how many these were. */
extern uint64 blob_free_runs_cut(dsa_area *area, BlobFreeRuns *runs, dsa_pointer *nodes,
								 BlobPageNo first_page, BlobPageNo end_page);

/* Length of the longest run, in pages. */
extern uint64 blob_free_runs_longest(dsa_area *area, const BlobFreeRuns *runs);

#endif							/* BLOB_FREE_RUNS_H */
