/*
 * autogc/round.c
 *	  Rounds that count for the schedule, see autogc/round.h.
 */
#include "postgres.h"

#include "autogc/churn.h"
#include "autogc/round.h"
#include "autogc/schedule.h"

/* Noted when marking begins. */
typedef struct Before
{
	MemoryContext context;		/* outlives the round */
	BlobAutogcCounters *counters;
	uint64		allocated_pages;
} Before;

/*
 * Before marking, and before owners of temporary tables tell what these hold, because a change that
 * comes later may have been missed.  Which tables count is known after it.
 */
static void
note_counters(const BlobGcRoots *roots, uint64 allocated_pages, void *context)
{
	Before	   *before = context;
	MemoryContext old_context = MemoryContextSwitchTo(before->context);

	if (before->counters != NULL)
		pfree(before->counters);
	before->counters = blob_autogc_read_counters(roots);
	before->allocated_pages = allocated_pages;
	MemoryContextSwitchTo(old_context);
}

void
blob_autogc_run(BlobGcOptions *options, BlobGcResult *result)
{
	Before		before = {.context = CurrentMemoryContext};
	BlobAutogcChurn churn;

	options->before_marking = note_counters;
	options->context = &before;
	blob_gc_run(options, result);
	if (result->skipped_reason == NULL && !options->dry_run)
	{
		blob_autogc_measure_churn(before.counters, &result->referring, before.allocated_pages,
								  &churn);
		blob_autogc_schedule_round_done(&churn, result);
	}
	if (before.counters != NULL)
		pfree(before.counters);
}
