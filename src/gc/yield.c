/*
 * gc/yield.c
 *	  Bounded waiting, locks that are taken without queueing, and giving way to other processes.
 *
 * Every step of a round that waits, or takes long, comes here.  A step that finds a reason not to
 * free anything notes it (blob_gc_skip) and returns false: that ends the round.
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "core/clock.h"
#include "core/compat.h"
#include "core/settings.h"
#include "gc/gc_internal.h"
#include "gc/holders.h"
#include "gc/temporary.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define YIELD_CHECK_INTERVAL_MS 1000
#define MAX_PAUSE_MS 100

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

void
blob_gc_wait_begin(BlobGcWait *wait)
{
	wait->end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), blob_gc_wait_timeout_ms);
	wait->sleep_ms = 1;
}

/*
 * The reason is made before each pause, because the process that is waited for may change; it stays
 * in the result when time is over.
 */
bool
blob_gc_wait_more(BlobGcRound *round, BlobGcWait *wait, const char *format,...)
{
	va_list		arguments;
	char	   *what;

	va_start(arguments, format);
	what = format_reason(round, format, arguments);
	va_end(arguments);
	blob_gc_status_waiting(what);
	if (!blob_gc_may_go_on(round))
		return false;
	if (!blob_clock_is_before(GetCurrentTimestamp(), wait->end, blob_gc_wait_timeout_ms))
	{
		round->result->skipped_reason = what;
		return false;
	}
	pfree(what);
	blob_clock_sleep(wait->sleep_ms);
	/* A fifth of the whole wait or so: rounds shall not last much longer than transactions do. */
	wait->sleep_ms = Min(wait->sleep_ms + Max(wait->sleep_ms / 4, 1), MAX_PAUSE_MS);
	return true;
}

/* ---- giving way ---- */

/* Does this entry of the lock table show a process that waits for a lock that we hold? */
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

void
blob_gc_options_take_pace(BlobGcOptions *options)
{
	options->cost_delay_ms = blob_gc_cost_delay_ms;
	options->cost_limit_pages = blob_gc_cost_limit_pages;
	if (options->automatic && blob_autogc_cost_delay_ms >= 0)
		options->cost_delay_ms = blob_autogc_cost_delay_ms;
	if (options->automatic && blob_autogc_cost_limit_pages > 0)
		options->cost_limit_pages = blob_autogc_cost_limit_pages;
}

bool
blob_gc_database_is_wanted(Oid database)
{
	LOCKTAG		tag;

	/* The lock of a new session: a conflicting one keeps sessions out. */
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	if (LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, RowExclusiveLock, false);
	return false;
}

/* A worker follows the configuration; other processes have read it before their statement. */
static bool
follow_settings(BlobGcRound *round)
{
	if (!round->options.automatic || !ConfigReloadPending)
		return true;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	blob_gc_options_take_pace(&round->options);
	return blob_autogc || blob_gc_skip(round, "blobext.autogc was turned off");
}

/*
 * A process that waits for a lock that this round holds, or 0.  *for_transaction: a process waits
 * for the end of our transaction, so the end of the round does not help it.
 */
static int
find_waiting(const BlobGcRound *round, bool *for_transaction)
{
	LockData   *locks = GetLockStatusData();
	int			waiting_pid = 0;

	*for_transaction = false;
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (!waits_for_us(round, lock))
			continue;
		waiting_pid = lock->pid;
		if (lock->locktag.locktag_type == LOCKTAG_VIRTUALTRANSACTION)
			*for_transaction = true;
	}
	pfree(locks->locks);
	pfree(locks);
	return waiting_pid;
}

bool
blob_gc_store_is_wanted(const BlobStore *store)
{
	BlobGcRound round = {.store = *store};
	bool		for_transaction;

	return blob_gc_database_is_wanted(MyDatabaseId) || find_waiting(&round, &for_transaction) != 0;
}

bool
blob_gc_may_go_on(BlobGcRound *round)
{
	TimestampTz now = GetCurrentTimestamp();
	int			waiting_pid;
	bool		for_transaction;

	if (!follow_settings(round))
		return false;
	if (blob_clock_is_before(now, round->next_yield_check, YIELD_CHECK_INTERVAL_MS))
		return true;
	round->next_yield_check = TimestampTzPlusMilliseconds(now, YIELD_CHECK_INTERVAL_MS);
	if (round->options.automatic && blob_gc_database_is_wanted(MyDatabaseId))
		return blob_gc_skip(round, "gave way to a command that needs the database for itself");
	waiting_pid = find_waiting(round, &for_transaction);
	if (waiting_pid == 0)
		return true;
	round->result->is_passing = !for_transaction;
	return blob_gc_skip(round, "gave way to process %d, which waits for a lock", waiting_pid);
}

bool
blob_gc_page_done(BlobGcRound *round)
{
	const BlobGcOptions *options = &round->options;

	CHECK_FOR_INTERRUPTS();
	if (round->asked != NULL)
		return ++round->answer_pages <= BLOB_GC_ANSWER_PAGES &&
			*round->asked == round->question;
	blob_gc_status_page_done();
	if (options->cost_delay_ms > 0 && ++round->delay_balance >= options->cost_limit_pages)
	{
		round->delay_balance = 0;
		blob_clock_sleep(Max(1, (long) options->cost_delay_ms));
	}
	return blob_gc_may_go_on(round);
}

/* ---- locks ---- */

/* A holder of a lock that conflicts with a mode, to be named in a reason. */
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

bool
blob_gc_lock_relation(BlobGcRound *round, Oid relid, LOCKMODE mode)
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

/* One collector per database: only rounds lock this object. */
static void
round_tag(LOCKTAG *tag, const BlobGcRound *round)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, RelationRelationId, RelationGetRelid(round->store.map),
					   BLOB_STORE_ROUND_LOCK);
}

#ifdef USE_ASSERT_CHECKING
bool
blob_gc_round_is_locked(const BlobGcRound *round)
{
	LOCKTAG		tag;

	round_tag(&tag, round);
	return blob_lock_is_held(&tag, ExclusiveLock);
}
#endif

bool
blob_gc_lock_round(BlobGcRound *round)
{
	LOCKTAG		tag;

	round_tag(&tag, round);
	if (LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL)
		return true;
	return blob_gc_skip(round, "%s collects in this database already",
						find_holder(&tag, ExclusiveLock));
}
