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
#include "core/catalog.h"
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
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_rusage.h"
#include "utils/timestamp.h"

#define COMMAND "VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF)"

static MemoryContext vacuum_context;	/* of one table, across its transactions */

/* The table's name; NULL if it was dropped, or if a lock keeps VACUUM away from it. */
static char *
find_table(Oid relid, char **database)
{
	char	   *name = NULL;

	StartTransactionCommand();
	if (!blob_gc_database_is_wanted(MyDatabaseId) &&
		ConditionalLockRelationOid(relid, ShareUpdateExclusiveLock))
	{
		char	   *relation = blob_catalog_relation_name(relid);

		if (relation != NULL)
			name = MemoryContextStrdup(vacuum_context, relation);
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
 * kills the process is not repeated at once.
 */
static void
vacuum_table(const BlobGcDeadKeys *keys)
{
	TimestampTz started_at = GetCurrentTimestamp();
	PGRUsage	usage;
	char	   *database;
	char	   *name = find_table(keys->table, &database);

	if (name == NULL)
		return;					/* the next look will try again */
	pg_rusage_init(&usage);
	MemoryContextSwitchTo(vacuum_context);
	pgstat_report_activity(STATE_RUNNING, psprintf("blobext: " COMMAND " %s", name));
	blob_autogc_schedule_vacuum_begins(keys->table);
	if (run_statement(make_statement(keys->table), name))
	{
		blob_autogc_schedule_vacuum_done(keys->table);
		log_vacuum(name, database, keys->bytes, &usage, started_at);
	}
	MemoryContextReset(vacuum_context);
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

	if (count == 0 || !enter())
		return false;
	vacuum_context = AllocSetContextCreate(TopMemoryContext, "blobext vacuum",
										   ALLOCSET_DEFAULT_SIZES);
	PortalContext = vacuum_context; /* VACUUM keeps there what it needs across transactions */
	blob_autogc_process_take_autovacuum_pace();
	blob_autogc_process_pass_for_autovacuum(true);
	for (int i = 0; i < count; i++)
		vacuum_table(&tables[i]);
	blob_autogc_process_pass_for_autovacuum(false);
	return true;				/* and leaves at its end */
}
