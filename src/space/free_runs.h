/*
 * space/free_runs.h
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

/* Length of the longest run, in pages. */
extern uint64 blob_free_runs_longest(dsa_area *area, const BlobFreeRuns *runs);

#endif							/* BLOB_FREE_RUNS_H */
