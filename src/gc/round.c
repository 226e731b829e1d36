/*
 * gc/round.c
 *	  Rounds that count for the schedule, see gc/round.h.
 */
#include "postgres.h"

#include "gc/churn.h"
#include "gc/round.h"
#include "gc/schedule.h"

/* Before marking, because a change that comes later may have been missed by the scan. */
static void
note_churn(const BlobGcRoots *roots, uint64 allocated_pages, void *context)
{
	blob_gc_measure_churn(roots, allocated_pages, context);
}

void
blob_gc_run_and_note(BlobGcOptions *options, BlobGcResult *result)
{
	BlobGcChurn churn;

	options->before_marking = note_churn;
	options->context = &churn;
	blob_gc_run(options, result);
	if (result->skipped_reason == NULL && !options->dry_run)
		blob_gc_schedule_round_done(&churn, result);
}
