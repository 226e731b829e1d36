/*
 * autogc/process.c
 *	  What the processes of this folder have in common, see autogc/process.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/process.h"
#include "core/settings.h"
#include "gc/gc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

/* How long a worker waits for a lock; others have to get along with it meanwhile. */
#define LOCK_TIMEOUT "5s"

/*
 * What ALTER DATABASE ... SET or the configuration say must not make the collector see less than
 * there is, or stop it.
 */
static void
fix_settings(const char *application_name)
{
	static const char *const fixed[][2] = {
		{"search_path", ""},
		{"zero_damaged_pages", "false"},
		{"ignore_checksum_failure", "false"},
		{"statement_timeout", "0"},
		{"transaction_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"lock_timeout", LOCK_TIMEOUT},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "false"},
		{"stats_fetch_consistency", "none"}
	};

	for (size_t i = 0; i < lengthof(fixed); i++)
		blob_settings_fix(fixed[i][0], fixed[i][1]);
	blob_settings_fix("application_name", application_name);
}

void
blob_autogc_process_begin(const char *name, Oid database)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid,
											  OidIsValid(database) ? BGWORKER_BYPASS_ALLOWCONN : 0);
	fix_settings(name);
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext, "blobext process",
												ALLOCSET_DEFAULT_SIZES));
}

bool
blob_autogc_process_pause(long timeout_ms, int exit_code)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	if (ProcDiePending)
		proc_exit(exit_code);	/* without the line that CHECK_FOR_INTERRUPTS would log */
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	return true;
}

void
blob_autogc_process_pass_for_autovacuum(bool on)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	if (on)
		MyProc->statusFlags |= PROC_IS_AUTOVACUUM;
	else
		MyProc->statusFlags &= ~PROC_IS_AUTOVACUUM;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/* -1 there means VACUUM's own, which is what we have anyway. */
void
blob_autogc_process_take_autovacuum_pace(void)
{
	if (autovacuum_vac_cost_delay >= 0)
		blob_settings_fix("vacuum_cost_delay", psprintf("%g", autovacuum_vac_cost_delay));
	if (autovacuum_vac_cost_limit > 0)
		blob_settings_fix("vacuum_cost_limit", psprintf("%d", autovacuum_vac_cost_limit));
}

long
blob_autogc_milliseconds_since(instr_time started_at)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, started_at);
	return (long) INSTR_TIME_GET_MILLISEC(now);
}

bool
blob_autogc_database_is_wanted(void)
{
	bool		is_wanted;

	StartTransactionCommand();
	is_wanted = blob_gc_database_is_wanted(MyDatabaseId);
	CommitTransactionCommand();
	return is_wanted;
}

void
blob_autogc_process_recover(void)
{
	HOLD_INTERRUPTS();
	EmitErrorReport();
	AbortOutOfAnyTransaction();
	FlushErrorState();
	QueryCancelPending = false;
	RESUME_INTERRUPTS();
}
