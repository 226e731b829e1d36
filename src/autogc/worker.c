/*
 * autogc/worker.c
 *	  A worker: looks at one database, collects there if it should, vacuums.
 *
 * Where a store is written fast, looks follow each other within a fraction of a second.  So a
 * worker that has collected stays for a moment, to take the next one.  See README.md, "The
 * launcher".
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/churn.h"
#include "autogc/files.h"
#include "autogc/give_back.h"
#include "autogc/load.h"
#include "autogc/orphans.h"
#include "autogc/process.h"
#include "autogc/round.h"
#include "autogc/schedule.h"
#include "autogc/vacuum.h"
#include "autogc/worker.h"
#include "commands/dbcommands.h"
#include "core/background.h"
#include "core/settings.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "storage/ipc.h"
#include "store/store.h"
#include "utils/lsyscache.h"
#include "utils/pg_rusage.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define NAME "blobext collector"

/*
 * How long a worker stays after a round, and how often it sees whether a look cannot wait, or it is
 * in the way.  It takes no look after a minute: settings of the database are read by new processes
 * only.
 */
#define STAY_MS 1000
#define PAUSE_MS 20
#define MAX_AGE_MS (60 * 1000)

static instr_time begun_at;

bool
blob_autogc_worker_start(Oid database, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	blob_background_describe(&worker, NAME, "blob_autogc_worker_main", BGW_NEVER_RESTART);
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/* ---- the decision ---- */

static void
measure(const BlobStoreId *store, BlobAutogcChurn *churn)
{
	uint64		allocated_pages = blob_store_allocated_pages(store);
	BlobGcReferring referring;
	bool		is_known = blob_autogc_schedule_referring(&referring);

	blob_autogc_measure_churn(blob_autogc_read_counters(blob_gc_list_roots(CurrentMemoryContext)),
							  is_known ? &referring : NULL, allocated_pages, churn);
}

/* In a transaction of its own. */
static void
decide(BlobAutogcVerdict *verdict)
{
	BlobAutogcChurn churn;
	BlobStoreId store;
	bool		exists;

	memset(verdict, 0, sizeof(*verdict));
	if (!blob_autogc)
		return;
	StartTransactionCommand();
	if (!blob_autogc_find_store(&store, &exists))
		verdict->look_again = true;
	else if (exists)
	{
		measure(&store, &churn);
		blob_autogc_schedule_judge(&churn, verdict);
	}
	CommitTransactionCommand();
}

/* ---- the round ---- */

/* If the round took long enough.  The detail is for rounds that freed less than was deleted. */
static void
log_complete(const char *database, const BlobGcResult *result, const PGRUsage *usage,
			 TimestampTz started_at)
{
	const BlobGcKept *kept = &result->kept;

	if (blob_log_autogc_min_duration_ms < 0 ||
		!TimestampDifferenceExceeds(started_at, GetCurrentTimestamp(),
									blob_log_autogc_min_duration_ms))
		return;
	ereport(LOG,
			(errmsg("automatic collection of blobs of database \"%s\": freed: " UINT64_FORMAT
					" values, " UINT64_FORMAT " bytes; remain: " UINT64_FORMAT " values, "
					UINT64_FORMAT " bytes; segments removed: %d; system usage: %s",
					database, result->freed_blobs, result->freed_bytes, result->live_blobs,
					result->live_bytes, result->removed_segments, pg_rusage_show(usage)),
			 kept->bytes == 0 ? 0 :
			 errdetail("Deleted rows that may still be seen keep " UINT64_FORMAT " values, "
					   UINT64_FORMAT " bytes: %s.", kept->blobs, kept->bytes,
					   kept->by[0] == '\0' ? "what could see them has ended" : kept->by)));
}

static void
log_skipped(const char *database, const BlobGcResult *result)
{
	if (blob_log_autogc_min_duration_ms < 0 ||
		!blob_autogc_schedule_is_news(result->skipped_reason))
		return;
	if (result->freed_blobs > 0)
		ereport(LOG,
				(errmsg("automatic collection of blobs of database \"%s\" ended after "
						UINT64_FORMAT " values, " UINT64_FORMAT " bytes: %s", database,
						result->freed_blobs, result->freed_bytes, result->skipped_reason)));
	else
		ereport(LOG,
				(errmsg("automatic collection of blobs of database \"%s\" freed nothing: %s",
						database, result->skipped_reason)));
}

/* True if the round was complete. */
static bool
collect(void)
{
	BlobGcOptions options = {.automatic = true};
	BlobGcResult result;
	PGRUsage	usage;
	TimestampTz started_at = GetCurrentTimestamp();
	const char *database;

	blob_gc_options_take_pace(&options);
	pg_rusage_init(&usage);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	database = get_database_name(MyDatabaseId);
	blob_autogc_run(&options, &result);
	PopActiveSnapshot();
	if (result.skipped_reason == NULL)
		log_complete(database, &result, &usage, started_at);
	else
		log_skipped(database, &result);
	CommitTransactionCommand();
	return result.skipped_reason == NULL;
}

/* ---- the process ---- */

/*
 * One look, outside of a transaction: after a start, see whether files are missing, and load the
 * free space; collect if a round is due, remove orphaned directories, give space back, vacuum.  A
 * round that freed nothing ends the look, which then counts as failed.  Returns whether the worker
 * may take another one; *has_collected: there was a round.
 */
static bool
look(bool *has_collected)
{
	BlobAutogcVerdict verdict;
	bool		is_clean;
	bool		is_loaded;

	(void) blob_autogc_process_pause(0, 0);	/* settings that are new */
	SetCurrentStatementStartTimestamp();	/* the time of the transactions of this look */
	pgstat_report_activity(STATE_RUNNING, "blobext: looking for changes");
	if (blob_autogc_schedule_wants_file_check())
		blob_autogc_check_files();
	is_loaded = blob_autogc_load_store();
	pgstat_report_activity(STATE_RUNNING, "blobext: looking for changes");
	decide(&verdict);
	*has_collected = verdict.is_due;
	if (verdict.is_due)
	{
		if (!collect())
			return false;		/* counts as failed: come again, but not too often */

		/* Rows were deleted while it ran, and VACUUM has not removed others. */
		decide(&verdict);
	}
	is_clean = blob_autogc_remove_orphans();
	if (is_clean)
		blob_autogc_schedule_succeeded(verdict.look_again || !is_loaded);

	/* May wait, and takes new settings over, which VACUUM must follow. */
	blob_autogc_give_back();

	/* Last, because functions of users may run in it. */
	return !blob_autogc_vacuum_tables() && is_clean;
}

/*
 * Wait this long for another look that cannot wait, unless something else needs this process or the
 * database.  True if there is one, which has begun.
 */
static bool
stay(int milliseconds)
{
	instr_time	started_at;
	bool		is_crowded;

	pgstat_report_activity(STATE_IDLE, NULL);
	(void) pgstat_report_stat(true);	/* as at the end of the process */
	INSTR_TIME_SET_CURRENT(started_at);
	while (blob_autogc && blob_autogc_milliseconds_since(begun_at) < MAX_AGE_MS &&
		   !blob_autogc_database_is_wanted())
	{
		if (blob_autogc_schedule_take_look(&is_crowded))
			return true;
		if (is_crowded || blob_autogc_milliseconds_since(started_at) >= milliseconds)
			return false;
		(void) blob_autogc_process_pause(PAUSE_MS, 0);
	}
	return false;
}

void
blob_autogc_worker_main(Datum argument)
{
	bool		has_collected;

	INSTR_TIME_SET_CURRENT(begun_at);
	blob_autogc_process_begin(NAME, DatumGetObjectId(argument));
	PG_TRY();
	{
		while (look(&has_collected) && stay(has_collected ? STAY_MS : 0))
			;
	}
	PG_CATCH();
	{
		/* Not worth a line about a process that "exited with exit code 1". */
		blob_autogc_process_recover();
		proc_exit(0);
	}
	PG_END_TRY();
}
