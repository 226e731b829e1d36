/*
 * gc/gc.c
 *	  One round of the collector: the steps of README.md in their order, waiting, giving way.
 *
 * A step that finds a reason not to free anything notes it (blob_gc_skip) and returns false; the
 * round ends then.  Errors end it as well.  Until the sweep nothing has been changed, and each
 * batch of the sweep is complete in itself, so a round can be interrupted anywhere.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "blob/walk.h"
#include "catalog/pg_class.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "core/settings.h"
#include "gc/holders.h"
#include "gc/gc_internal.h"
#include "gc/launcher.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "store/map.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define YIELD_CHECK_INTERVAL_MS 1000
#define MAX_PAUSE_MS 100

void
blob_gc_shmem_request(void)
{
	RequestAddinShmemSpace(blob_gc_holders_shmem_size());
	blob_gc_status_shmem_request();
	blob_gc_schedule_shmem_request();
}

void
blob_gc_shmem_init(void)
{
	blob_gc_holders_shmem_init();
	blob_gc_status_shmem_init();
	blob_gc_schedule_shmem_init();
}

void
blob_gc_install_hooks(void)
{
	blob_gc_holders_install();
	blob_gc_constants_install();
	blob_gc_launcher_register();
	blob_store_allocation_hook = blob_gc_schedule_allocated;
}

static char *format_reason(BlobGcRound *round, const char *format, va_list arguments)
			pg_attribute_printf(2, 0);

static char *
format_reason(BlobGcRound *round, const char *format, va_list arguments)
{
	char	   *text = MemoryContextAlloc(round->context, BLOB_GC_REASON_BYTES);

	vsnprintf(text, BLOB_GC_REASON_BYTES, format, arguments);
	return text;
}

bool
blob_gc_skip(BlobGcRound *round, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	round->result->skipped_reason = format_reason(round, format, arguments);
	va_end(arguments);
	return false;
}

/* ---- waiting ---- */

static void
sleep_ms(long milliseconds)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

void
blob_gc_wait_begin(BlobGcWait *wait)
{
	wait->end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), blob_gc_wait_timeout_ms);
	wait->sleep_ms = 1;
}

bool
blob_gc_wait_more(BlobGcRound *round, BlobGcWait *wait, const char *format,...)
{
	va_list		arguments;
	char	   *what;

	va_start(arguments, format);
	what = format_reason(round, format, arguments);
	va_end(arguments);
	blob_gc_status_waiting(what);
	if (!blob_gc_nobody_waits(round))
		return false;
	if (GetCurrentTimestamp() >= wait->end)
	{
		round->result->skipped_reason = what;
		return false;
	}
	pfree(what);
	sleep_ms(wait->sleep_ms);
	wait->sleep_ms = Min(wait->sleep_ms * 2, MAX_PAUSE_MS);
	return true;
}

/* ---- what a worker shows in pg_stat_activity ---- */

static void show(const BlobGcRound *round, const char *format,...) pg_attribute_printf(2, 3);

static void
show(const BlobGcRound *round, const char *format,...)
{
	char		text[NAMEDATALEN * 2 + 64];
	va_list		arguments;

	if (!round->options.automatic)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	pgstat_report_activity(STATE_RUNNING, text);
}

/* ---- giving way ---- */

/* Does this entry of the lock table show somebody who waits for a lock that we hold? */
static bool
waits_for_us(const BlobGcRound *round, const LockInstanceData *lock)
{
	const LOCKTAG *tag = &lock->locktag;

	if (lock->waitLockMode == NoLock)
		return false;
	switch ((LockTagType) tag->locktag_type)
	{
		case LOCKTAG_RELATION:
			if (tag->locktag_field1 != MyDatabaseId)
				return false;
			if (tag->locktag_field2 == RelationGetRelid(round->store.map))
				return DoLockModesConflict(lock->waitLockMode, round->store.lock_mode);
			return round->relation != NULL &&
				tag->locktag_field2 == RelationGetRelid(round->relation) &&
				DoLockModesConflict(lock->waitLockMode, round->lock_mode);
		case LOCKTAG_VIRTUALTRANSACTION:
			return blob_backend_of_tag(tag) == blob_own_backend() &&
				tag->locktag_field2 == blob_local_transaction(MyProc);
		default:
			return false;
	}
}

/* A worker follows the configuration; other processes have read it before their statement. */
static bool
follow_settings(BlobGcRound *round)
{
	if (!round->options.automatic || !ConfigReloadPending)
		return true;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	blob_gc_worker_options(&round->options);
	return blob_autogc || blob_gc_skip(round, "blobext.autogc was turned off");
}

bool
blob_gc_nobody_waits(BlobGcRound *round)
{
	TimestampTz now = GetCurrentTimestamp();
	LockData   *locks;
	int			waiting_pid = 0;

	if (!follow_settings(round))
		return false;
	if (now < round->next_yield_check)
		return true;
	round->next_yield_check = TimestampTzPlusMilliseconds(now, YIELD_CHECK_INTERVAL_MS);
	if (round->options.automatic && blob_gc_database_is_wanted(MyDatabaseId))
		return blob_gc_skip(round, "gave way to a command that needs the database for itself");
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		if (waits_for_us(round, &locks->locks[i]))
			waiting_pid = locks->locks[i].pid;
	}
	pfree(locks->locks);
	pfree(locks);
	if (waiting_pid == 0)
		return true;
	return blob_gc_skip(round, "gave way to process %d, which waits for a lock", waiting_pid);
}

bool
blob_gc_page_done(BlobGcRound *round)
{
	const BlobGcOptions *options = &round->options;

	CHECK_FOR_INTERRUPTS();
	blob_gc_status_page_done();
	if (options->cost_delay_ms > 0 && ++round->delay_balance >= options->cost_limit_pages)
	{
		round->delay_balance = 0;
		sleep_ms(Max(1, (long) options->cost_delay_ms));
	}
	return blob_gc_nobody_waits(round);
}

/* ---- relations ---- */

/* Who holds a lock which conflicts with a mode. */
static const char *
find_holder(const LOCKTAG *tag, LOCKMODE mode)
{
	int			count;
	VirtualTransactionId *holders = GetLockConflicts(tag, mode, &count);
	int			pid;

	if (count == 0)
		return "somebody";		/* not any more */
	if (!blob_gc_transaction_runs(holders[0], &pid))
		return "another transaction";	/* prepared, for instance */
	return psprintf("process %d", pid);
}

static bool
lock_relation(BlobGcRound *round, Oid relid, LOCKMODE mode)
{
	BlobGcWait	wait;

	blob_gc_wait_begin(&wait);
	while (!ConditionalLockRelationOid(relid, mode))
	{
		LOCKTAG		tag;

		char	   *name = get_rel_name(relid);

		SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
		if (!blob_gc_wait_more(round, &wait, "%s keeps relation \"%s\" locked",
							   find_holder(&tag, mode), name == NULL ? "" : name))
			return false;
	}
	blob_gc_status_waiting(NULL);
	return true;
}

/* Whether the relation is still what the list says; lists its columns. */
static bool
matches_root(BlobGcRound *round, const BlobGcRoot *root)
{
	TupleDesc	row_type = RelationGetDescr(round->relation);
	uint64		hash = 0;

	round->columns = MemoryContextAlloc(round->context, sizeof(BlobGcColumn) * row_type->natts);
	round->column_count = 0;
	for (int i = 0; i < row_type->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		hash += blob_gc_hash_column(column->attnum, column->atttypid, column->attisdropped);
		if (column->attisdropped || !blob_walk_type_holds(column->atttypid))
			continue;
		round->columns[round->column_count].number = column->attnum;
		round->columns[round->column_count].type = column->atttypid;
		round->column_count++;
	}
	return hash == root->columns && round->relation->rd_rel->relfilenode == root->file &&
		round->relation->rd_rel->reltablespace == root->tablespace &&
		(round->relation->rd_index == NULL || round->relation->rd_index->indisready);
}

/*
 * The list says which file and columns there were; other ones mean that somebody has changed the
 * relation since, and values may have moved past the scan.
 */
static bool
mark_root(BlobGcRound *round, BlobGcRoot *root)
{
	LOCKMODE	mode = root->kind == RELKIND_INDEX ? AccessShareLock : RowExclusiveLock;
	bool		done;

	if (!lock_relation(round, root->relid, mode))
		return false;
	round->lock_mode = mode;
	round->root = root;
	round->relation = try_relation_open(root->relid, NoLock);
	if (round->relation == NULL)
	{
		UnlockRelationOid(root->relid, mode);
		return blob_gc_skip(round, "relation %u was dropped meanwhile", root->relid);
	}
	show(round, "blobext: marking %s.%s",
		 get_namespace_name(RelationGetNamespace(round->relation)),
		 RelationGetRelationName(round->relation));
	if (!matches_root(round, root))
		done = blob_gc_skip(round, "relation \"%s\" was changed meanwhile",
							RelationGetRelationName(round->relation));
	else
	{
		blob_gc_keys_note(round);
		done = root->kind == RELKIND_INDEX ? blob_gc_mark_btree(round) :
			blob_gc_mark_heap(round);
	}
	relation_close(round->relation, mode);
	round->relation = NULL;
	pfree(round->columns);
	blob_gc_status_relation_done();
	return done;
}

/* Indexes, or all the others. */
static bool
mark_kind(BlobGcRound *round, bool indexes)
{
	for (int i = 0; i < round->roots->count; i++)
	{
		BlobGcRoot *root = &round->roots->items[i];

		if (root->is_scanned && (root->kind == RELKIND_INDEX) == indexes &&
			!mark_root(round, root))
			return false;
	}
	return true;
}

/* Indexes last: what they mark first is held by keys alone. */
static bool
mark_roots(BlobGcRound *round)
{
	blob_gc_status_phase(BLOB_GC_MARKING);
	for (int i = 0; i < round->roots->count; i++)
	{
		if (round->roots->items[i].is_scanned)
			blob_gc_status_totals(1, round->roots->items[i].pages);
	}
	return mark_kind(round, false) && blob_gc_mark_catalogs(round) && mark_kind(round, true);
}

/* ---- the round ---- */

/* One collector per database: nobody else locks this object. */
static bool
lock_round(BlobGcRound *round)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, RelationGetRelid(round->store.map),
					   BLOB_STORE_ROUND_LOCK);
	if (LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL)
		return true;
	return blob_gc_skip(round, "%s collects in this database already",
						find_holder(&tag, ExclusiveLock));
}

/* Steps 4 to 6. */
static bool
settle_roots(BlobGcRound *round)
{
	BlobGcWait	wait;
	BlobGcRoots *again;

	/* Once more, for temporary tables and for snapshots that were being imported. */
	if (!blob_gc_wait_for_transactions(round, false) || !blob_gc_wait_for_snapshots(round))
		return false;
	blob_gc_wait_begin(&wait);
	for (;;)
	{
		round->roots = blob_gc_list_roots(round);
		if (round->roots->obstacle != NULL)
			return blob_gc_skip(round, "%s", round->roots->obstacle);
		if (!blob_gc_wait_for_transactions(round, true))
			return false;
		again = blob_gc_list_roots(round);
		if (again->obstacle != NULL)
			return blob_gc_skip(round, "%s", again->obstacle);
		if (blob_gc_roots_equal(round->roots, again))
			return true;
		if (!blob_gc_wait_more(round, &wait, "tables are created or changed all the time"))
			return false;
	}
}

/* Steps 1 to 7. */
static bool
prepare(BlobGcRound *round)
{
	if (!lock_round(round))
		return false;
	if (blob_snapshots_expire())
		return blob_gc_skip(round, "old_snapshot_threshold is set");
	/* A damaged page would pass for one without references. */
	if (zero_damaged_pages)
		return blob_gc_skip(round, "zero_damaged_pages is on");
	blob_gc_status_phase(BLOB_GC_WAITING);
	show(round, "blobext: waiting for transactions");
	round->allocated_pages = blob_store_allocated_pages(&round->store.id);
	round->cutoff = blob_store_cutoff(&round->store);
	round->snapshot = RegisterSnapshot(GetLatestSnapshot());
	return blob_gc_no_slot_begins(round) && blob_gc_wait_for_snapshots(round) &&
		settle_roots(round) && blob_gc_note_slots(round);
}

/* Steps 8 to 11 for the pages of one range. */
static bool
collect_range(BlobGcRound *round, BlobPageNo first_page, BlobPageNo end_page)
{
	blob_gc_marks_begin(round, first_page, end_page);
	if (!mark_roots(round))
		return false;
	blob_gc_status_phase(BLOB_GC_CHECKING);
	show(round, "blobext: checking tables and slots");
	if (!blob_gc_roots_equal(round->roots, blob_gc_list_roots(round)))
		return blob_gc_skip(round, "a table was created or changed meanwhile");
	if (!blob_gc_wait_for_slots(round))
		return false;
	blob_gc_status_phase(BLOB_GC_SWEEPING);
	show(round, "blobext: sweeping");
	if (!blob_gc_sweep(round))
		return false;
	blob_gc_marks_end(round);
	return true;
}

static bool
collect(BlobGcRound *round)
{
	BlobMapMeta meta;
	int			memory_kb = blob_gc_work_mem_kb < 0 ? maintenance_work_mem : blob_gc_work_mem_kb;
	uint64		range_pages = (uint64) memory_kb * 1024 * 8;

	if (!prepare(round))
		return false;
	blob_gc_measure_churn(round->roots, round->allocated_pages, &round->churn);

	/* What lies behind was allocated after the cutoff. */
	blob_map_read_meta(round->store.map, &meta);
	for (BlobPageNo page = 0; page < meta.reserved_pages; page += range_pages)
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
	round->strategy = GetAccessStrategy(BAS_BULKREAD);
}

static void
round_done(BlobGcRound *round)
{
	BlobGcResult *result = round->result;
	BlobGcDeadKeys tables[BLOB_GC_DEAD_KEY_TABLES];
	int			table_count = blob_gc_keys_tables(round, tables);

	result->removed_segments = blob_store_reclaim(&round->store);
	blob_stat_count(gc_cycles, 1);
	blob_gc_schedule_round_done(&round->churn, result->freed_bytes, result->live_blobs,
								result->live_bytes, tables, table_count);
}

static void
run_round(BlobGcRound *round)
{
	BlobGcResult *result = round->result;

	if (collect(round))
	{
		blob_gc_keys_report(round);
		if (!round->options.dry_run)
			round_done(round);
	}
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
