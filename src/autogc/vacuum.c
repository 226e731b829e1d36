/*
 * autogc/vacuum.c
 *	  Vacuums tables whose dead index keys hold values: what VACUUM leaves alone by default when few
 *	  pages have dead rows.
 *
 * VACUUM runs as the table's owner, in a security-restricted operation, and in transactions of its
 * own: PostgreSQL sees to that.  See README.md, "VACUUM by workers".
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/process.h"
#include "autogc/schedule.h"
#include "autogc/vacuum.h"
#include "commands/dbcommands.h"
#include "commands/vacuum.h"
#include "core/settings.h"
#include "gc/gc.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_node.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_rusage.h"
#include "utils/timestamp.h"

#define COMMAND "VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF)"

static MemoryContext vacuum_context;	/* of one table, across its transactions */

/*
 * Be taken for autovacuum: a session that waits for a lock that we hold cancels us, and a command
 * that wants the database for itself ends us.  Nothing else depends on this flag.
 */
static void
pass_for_autovacuum(bool on)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	if (on)
		MyProc->statusFlags |= PROC_IS_AUTOVACUUM;
	else
		MyProc->statusFlags &= ~PROC_IS_AUTOVACUUM;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/* At autovacuum's pace; -1 there means VACUUM's own, which is what we have anyway. */
static void
take_autovacuum_pace(void)
{
	if (autovacuum_vac_cost_delay >= 0)
		blob_settings_fix("vacuum_cost_delay", psprintf("%g", autovacuum_vac_cost_delay));
	if (autovacuum_vac_cost_limit > 0)
		blob_settings_fix("vacuum_cost_limit", psprintf("%d", autovacuum_vac_cost_limit));
}

/* The table's name; NULL if it was dropped, or if a lock keeps VACUUM away from it. */
static char *
find_table(Oid relid, char **database)
{
	char	   *name = NULL;

	StartTransactionCommand();
	if (!blob_gc_database_is_wanted(MyDatabaseId) &&
		ConditionalLockRelationOid(relid, ShareUpdateExclusiveLock))
	{
		char	   *relation = get_rel_name(relid);
		char	   *schema = get_namespace_name(get_rel_namespace(relid));

		if (relation != NULL && schema != NULL)
			name = MemoryContextStrdup(vacuum_context,
									   quote_qualified_identifier(schema, relation));
		*database = MemoryContextStrdup(vacuum_context, get_database_name(MyDatabaseId));
	}
	CommitTransactionCommand();
	return name;
}

static VacuumStmt *
make_statement(Oid relid)
{
	VacuumStmt *statement = makeNode(VacuumStmt);

	statement->is_vacuumcmd = true;
	statement->rels = list_make1(makeVacuumRelation(NULL, relid, NIL));
	statement->options =
		list_make5(makeDefElem("index_cleanup", (Node *) makeString("on"), -1),
				   makeDefElem("truncate", (Node *) makeString("off"), -1),
				   makeDefElem("process_toast", (Node *) makeString("off"), -1),
				   makeDefElem("skip_locked", (Node *) makeString("on"), -1),
				   makeDefElem("parallel", (Node *) makeInteger(0), -1));
	return statement;
}

static void
log_vacuum(const char *name, const char *database, uint64 bytes, const PGRUsage *usage,
		   TimestampTz started_at)
{
	if (blob_log_autogc_min_duration_ms < 0 ||
		!TimestampDifferenceExceeds(started_at, GetCurrentTimestamp(),
									blob_log_autogc_min_duration_ms))
		return;
	ereport(LOG,
			(errmsg("automatic vacuum of \"%s\" in database \"%s\" for " UINT64_FORMAT
					" bytes that only keys of its indexes hold: system usage: %s",
					name, database, bytes, pg_rusage_show(usage))));
}

/* As autovacuum does: an error is logged, the next table is not affected. */
static bool
run_statement(VacuumStmt *statement, const char *name)
{
	volatile bool is_done = false;

	PG_TRY();
	{
		StartTransactionCommand();
		ExecVacuum(make_parsestate(NULL), statement, true);
		CommitTransactionCommand();
		is_done = true;
	}
	PG_CATCH();
	{
		errcontext("automatic vacuum of \"%s\"", name);
		blob_autogc_process_recover();
	}
	PG_END_TRY();
	return is_done;
}

/*
 * VACUUM of one table.  It is noted as one that did not help before it begins, so that one which
 * kills the process is not repeated at once.  True if it was done.
 */
static bool
vacuum_table(const BlobGcDeadKeys *keys)
{
	TimestampTz started_at = GetCurrentTimestamp();
	PGRUsage	usage;
	char	   *database;
	char	   *name = find_table(keys->table, &database);
	bool		is_done;

	if (name == NULL)
		return false;			/* the next look will try again */
	pg_rusage_init(&usage);
	MemoryContextSwitchTo(vacuum_context);
	pgstat_report_activity(STATE_RUNNING, psprintf("blobext: " COMMAND " %s", name));
	blob_autogc_schedule_vacuum_begins(keys->table);
	is_done = run_statement(make_statement(keys->table), name);
	if (is_done)
	{
		blob_autogc_schedule_vacuum_done(keys->table);
		log_vacuum(name, database, keys->bytes, &usage, started_at);
	}
	MemoryContextReset(vacuum_context);
	return is_done;
}

static void
leave_at_exit(int code, Datum arg)
{
	blob_autogc_schedule_vacuum_leave();
}

/* Whether the process may vacuum now; it leaves at its end at the latest. */
static bool
enter(void)
{
	static bool is_registered = false;

	if (!is_registered)
		before_shmem_exit(leave_at_exit, (Datum) 0);
	is_registered = true;
	return blob_autogc_schedule_vacuum_enter();
}

bool
blob_autogc_vacuum_tables(void)
{
	BlobGcDeadKeys tables[BLOB_GC_DEAD_KEY_TABLES];
	int			count = blob_autogc_schedule_vacuums(tables);
	bool		is_any_done = false;

	if (count == 0 || !enter())
		return false;
	blob_autogc_schedule_take_no_more();
	vacuum_context = AllocSetContextCreate(TopMemoryContext, "blobext vacuum",
										   ALLOCSET_DEFAULT_SIZES);
	PortalContext = vacuum_context; /* VACUUM keeps there what it needs across transactions */
	take_autovacuum_pace();
	pass_for_autovacuum(true);
	for (int i = 0; i < count; i++)
	{
		if (vacuum_table(&tables[i]))
			is_any_done = true;
	}
	pass_for_autovacuum(false);
	blob_autogc_schedule_vacuum_leave();
	if (is_any_done)
		blob_autogc_schedule_hurry();
	return true;
}
