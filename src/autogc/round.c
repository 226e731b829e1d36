/*
 * autogc/round.c
 *	  Rounds that count for the schedule, see autogc/round.h.
 */
#include "postgres.h"

#include "autogc/churn.h"
#include "autogc/round.h"
#include "autogc/schedule.h"

/* Before marking, because a change that comes later may have been missed by the scan. */
static void
note_churn(const BlobGcRoots *roots, uint64 allocated_pages, void *context)
{
	blob_autogc_measure_churn(roots, allocated_pages, context);
}

void
blob_autogc_run(BlobGcOptions *options, BlobGcResult *result)
{
	BlobAutogcChurn churn;

	options->before_marking = note_churn;
	options->context = &churn;
	blob_gc_run(options, result);
	if (result->skipped_reason == NULL && !options->dry_run)
		blob_autogc_schedule_round_done(&churn, result);
}
