/*
 * gc/round.c
 *	  One round of the collector: the steps of README.md in their order.
 *
 * A step that finds a reason not to free anything notes it (blob_gc_skip) and returns false; the
 * round ends then.  Errors end it as well.  Until the sweep nothing has been changed, and each
 * batch of the sweep is complete in itself, so a round can be interrupted anywhere.
 */
#include "postgres.h"

#include "access/xact.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "core/settings.h"
#include "extents/damage_look.h"
#include "gc/gc_internal.h"
#include "gc/notes.h"
#include "gc/temporary.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "store/map.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#ifdef USE_ASSERT_CHECKING

/* What holds from the end of step 7 on: nothing can have a value that the scan will not see. */
static void
assert_quiet(BlobGcRound *round)
{
	int			pid;

	Assert(round->roots != NULL && round->roots->obstacle == NULL);
	Assert(!blob_gc_older_snapshot_exists(round, &pid));
	blob_gc_temporary_assert_answered(round);
}

/*
 * A step of README.md begins: the one before it has ended, and what it has found holds still.  4
 * follows 6 when tables have changed; 8 follows 11 for the next range of the store.
 */
static void
assert_step(BlobGcRound *round, int step)
{
	Assert(step == round->step + 1 || (step == 4 && round->step == 6) ||
		   (step == 8 && round->step == 11));
	Assert(blob_gc_round_is_locked(round));
	Assert(round->store.lock_mode == RowExclusiveLock &&
		   CheckRelationLockedByMe(round->store.map, RowExclusiveLock, true));
	if (step > 1)
		Assert(round->cutoff <= blob_store_cutoff(&round->store));
	if (step > 2)
		Assert(round->snapshot != NULL);
	if (step > 7)
		assert_quiet(round);
	Assert((round->marks.bits != NULL) == (step > 8));
	round->step = step;
}

#else
#define assert_step(round, step) ((void) 0)
#endif							/* USE_ASSERT_CHECKING */

static void
announce_marking(BlobGcRound *round)
{
	if (round->options.before_marking != NULL)
		round->options.before_marking(round->roots, round->allocated_pages,
									  round->options.context);
}

/*
 * Steps 4 to 6, and before them steps 5 and 3 once more, for constants and for snapshots that were
 * being imported.  Owners of temporary tables are asked when all others have nothing in memory.
 */
static bool
settle_roots(BlobGcRound *round)
{
	BlobGcWait	wait;
	BlobGcRoots *again;

	if (!blob_gc_wait_for_transactions(round, false) || !blob_gc_wait_for_snapshots(round))
		return false;
	blob_gc_wait_begin(&wait);
	for (;;)
	{
		assert_step(round, 4);
		round->roots = blob_gc_list_roots(round->context);
		if (round->roots->obstacle != NULL)
			return blob_gc_skip(round, "%s", round->roots->obstacle);
		assert_step(round, 5);
		if (!blob_gc_wait_for_transactions(round, true) || !blob_gc_wait_for_snapshots(round))
			return false;
		announce_marking(round);
		if (!blob_gc_ask_owners(round))
			return false;
		assert_step(round, 6);
		again = blob_gc_list_roots(round->context);
		if (again->obstacle != NULL)
			return blob_gc_skip(round, "%s", again->obstacle);
		if (blob_gc_roots_equal(round->roots, again) &&
			!blob_gc_columns_were_made(round->roots) && blob_gc_owners_have_answered(round, again))
			return true;
		if (!blob_gc_wait_more(round, &wait, "tables are created or changed all the time"))
			return false;
	}
}

/* Steps 1 to 7, and what rules a round out from the beginning. */
static bool
prepare(BlobGcRound *round)
{
	if (!blob_gc_lock_round(round))
		return false;
	if (blob_snapshots_expire())
		return blob_gc_skip(round, "old_snapshot_threshold is set");
	/* A damaged page would pass for one without references. */
	if (zero_damaged_pages)
		return blob_gc_skip(round, "zero_damaged_pages is on");
	blob_gc_status_phase(BLOB_GC_WAITING);
	blob_gc_status_show("blobext: waiting for transactions");

	assert_step(round, 1);
	round->allocated_pages = blob_store_allocated_pages(&round->store.id);
	round->cutoff = blob_store_cutoff(&round->store);

	assert_step(round, 2);
	round->snapshot = RegisterSnapshot(GetLatestSnapshot());
	if (!blob_gc_no_slot_begins(round))
		return false;
	assert_step(round, 3);
	if (!blob_gc_wait_for_snapshots(round) || !settle_roots(round))
		return false;
	assert_step(round, 7);
	return blob_gc_note_slots(round);
}

/* Steps 8 and 9. */
static bool
mark(BlobGcRound *round, BlobPageNo first_page, BlobPageNo end_page)
{
	assert_step(round, 8);
	blob_gc_marks_begin(round, first_page, end_page);
	if (!blob_gc_mark_roots(round))
		return false;

	assert_step(round, 9);
	blob_gc_status_phase(BLOB_GC_CHECKING);
	blob_gc_status_show("blobext: checking tables and slots");
	if (!blob_gc_roots_equal(round->roots, blob_gc_list_roots(round->context)))
		return blob_gc_skip_now(round, "a table was created or changed meanwhile");
	return true;
}

/* Steps 8 to 11 for the pages of one range. */
static bool
collect_range(BlobGcRound *round, BlobPageNo first_page, BlobPageNo end_page)
{
	bool		is_marked;

	/* In the first range: the notes are the same in all. */
	blob_gc_notes_open(round, first_page == 0);
	is_marked = mark(round, first_page, end_page);
	blob_gc_notes_close(round, is_marked);
	if (!is_marked)
		return false;

	assert_step(round, 10);
	if (!blob_gc_wait_for_slots(round))
		return false;

	assert_step(round, 11);
	blob_gc_status_phase(BLOB_GC_SWEEPING);
	blob_gc_status_show("blobext: sweeping");
	if (!blob_gc_sweep(round))
		return false;
	blob_gc_marks_end(round);
	return true;
}

/*
 * The steps of README.md.  If the mark set of the whole store does not fit into
 * blobext.gc_work_mem, steps 8 to 11 are repeated for one range of its pages after the other.
 *
 * A database in which nothing was ever stored has nothing to free.  Its store is not opened
 * further: that would take one of the places of blobext.max_databases.
 */
static bool
collect(BlobGcRound *round)
{
	BlobMapMeta meta;
	int			memory_kb = blob_gc_work_mem_kb < 0 ? maintenance_work_mem : blob_gc_work_mem_kb;
	uint64		range_pages = (uint64) memory_kb * 1024 * 8 / 2;	/* two bits for each */

	blob_map_read_meta(round->store.map, &meta);
	round->is_empty = meta.reserved_pages == 0;
	if (round->is_empty)
	{
		round->roots = blob_gc_list_roots(round->context);
		announce_marking(round);
	}
	else if (!prepare(round))
		return false;
	/* Pages that are reserved later are allocated after the cutoff. */
	blob_map_read_meta(round->store.map, &meta);
	for (BlobPageNo page = 0; !round->is_empty && page < meta.reserved_pages; page += range_pages)
	{
		if (!collect_range(round, page, Min(page + range_pages, meta.reserved_pages)))
			return false;
	}
	round->result->counted = true;
	return true;
}

static void
begin_round(BlobGcRound *round, const BlobGcOptions *options, BlobGcResult *result)
{
	memset(result, 0, sizeof(*result));
	memset(round, 0, sizeof(*round));
	round->options = *options;
	round->result = result;
	round->context = AllocSetContextCreate(CurrentMemoryContext, "blobext collector",
										   ALLOCSET_DEFAULT_SIZES);
	round->row_context = AllocSetContextCreate(round->context, "blobext collector row",
											   ALLOCSET_DEFAULT_SIZES);
	blob_store_open(&round->store, RowExclusiveLock);
	round->blob_type = blob_catalog_type();
	blob_catalog_require(round->blob_type, "type blobstate");
	round->strategy = GetAccessStrategy(BAS_BULKREAD);
}

/*
 * A BlobStoreMayGoOn.  The round is complete by now; a later call makes the holes that are left.
 */
static bool
may_make_holes(void *context)
{
	BlobGcRound *round = context;

	round->next_yield_check = 0;	/* a batch of holes takes long enough */
	if (blob_gc_may_go_on(round))
		return true;
	round->result->skipped_reason = NULL;
	return false;
}

/*
 * After a complete round that was no dry one.  After an automatic round the worker makes the holes,
 * slowly, and with nothing locked in the pauses (autogc/give_back.c).
 */
static void
round_done(BlobGcRound *round)
{
	BlobGcResult *result = round->result;
	BlobStoreMayGoOn may_go_on = round->options.automatic ? NULL : may_make_holes;

	result->dead_key_table_count = blob_gc_keys_tables(round, result->dead_key_tables);
	result->removed_segments = blob_store_reclaim(&round->store, may_go_on, round);
	blob_stat_count(gc_cycles, 1);
}

/* From the first step to the last one that could be done; the reason is in the result. */
static void
run_round(BlobGcRound *round)
{
	BlobGcResult *result = round->result;

	if (collect(round))
	{
		blob_gc_keys_report(round);
		blob_gc_kept_report(round);
		if (!round->options.dry_run && !round->is_empty)
			round_done(round);
	}
	if (!round->options.dry_run)
		blob_damage_forget_freed(&round->store);
	blob_gc_told_end(round);
	if (round->snapshot != NULL)
		UnregisterSnapshot(round->snapshot);
	blob_store_close(&round->store);
	blob_gc_status_end(result->skipped_reason, result->counted, result->freed_blobs,
					   result->freed_bytes, result->live_blobs, result->live_bytes);
}

void
blob_gc_run(const BlobGcOptions *options, BlobGcResult *result)
{
	MemoryContext old_context = CurrentMemoryContext;
	int			old_lock_timeout = LockTimeout;
	BlobGcRound round;

	Assert(!TransactionIdIsValid(GetTopTransactionIdIfAny()));
	begin_round(&round, options, result);
	MemoryContextSwitchTo(round.context);
	/* Row types and catalogs are locked without asking us: no such wait without bound, either. */
	if (LockTimeout == 0 || LockTimeout > blob_gc_wait_timeout_ms)
		LockTimeout = Max(blob_gc_wait_timeout_ms, 1);
	PG_TRY();
	{
		blob_gc_status_begin(options->dry_run, options->automatic);
		run_round(&round);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		LockTimeout = old_lock_timeout;
		MemoryContextSwitchTo(old_context);
		error = CopyErrorData();
		blob_gc_status_end(error->message, false, result->freed_blobs, result->freed_bytes, 0, 0);
		PG_RE_THROW();
	}
	PG_END_TRY();
	LockTimeout = old_lock_timeout;
	MemoryContextSwitchTo(old_context);
	if (result->skipped_reason != NULL)
		result->skipped_reason = pstrdup(result->skipped_reason);
	MemoryContextDelete(round.context);
}
