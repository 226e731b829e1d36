/*
 * autogc/launcher.c
 *	  The launcher: starts workers for databases where something changed, and removes what dropped
 *	  databases leave behind.
 *
 * It is connected to no database, so no command has to wait for it.  Directories of stores tell
 * which databases there are to look at, pg_database which of them still exist.
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/dropped.h"
#include "autogc/launcher.h"
#include "autogc/process.h"
#include "autogc/repair.h"
#include "autogc/schedule.h"
#include "autogc/scrub_results.h"
#include "autogc/scrub_worker.h"
#include "autogc/worker.h"
#include "catalog/pg_database.h"
#include "core/background.h"
#include "core/catalog_scan.h"
#include "core/compat.h"
#include "core/settings.h"
#include "extents/damaged_pages.h"
#include "gc/gc.h"
#include "gc/notes_file.h"
#include "gc/status.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/lock.h"
#include "storage/procsignal.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define NAME "blobext launcher"
#define RESTART_S 10

/* A database with a store. */
typedef struct Database
{
	Oid			oid;			/* first, for oid_cmp() */
	bool		can_connect;	/* false: DROP DATABASE was interrupted */
	BlobAutogcWish wish;
	bool		has_waiting;	/* space waits to be given back */
	uint64		allocated_pages;
	int64		changed_rows;
	TimestampTz looked_at;
} Database;

typedef struct Worker
{
	Oid			database;
	BackgroundWorkerHandle *handle; /* NULL: free */
} Worker;

/* As many may vacuum as may collect. */
static Worker workers[2 * BLOB_AUTOGC_WORKER_LIMIT];

/* What the last tick found, in tick_context. */
static MemoryContext tick_context;
static Database *databases;
static int	database_count;
static TimestampTz tick_at;

/* The scrubber: one at a time, of one database after the other. */
static BackgroundWorkerHandle *scrubber;	/* NULL: none */
static Oid	scrubbed_database;	/* the last one that had it */
static TimestampTz scrubber_started_at; /* the tick */

static bool is_out_of_workers;	/* and the log says so */
static int	warned_of;			/* a number of databases that are too many, as the log says */

void
blob_autogc_launcher_register(void)
{
	blob_background_register(NAME, "blob_autogc_launcher_main", RESTART_S);
}

/* ---- what there is ---- */

static Database *
find_database(Oid oid)
{
	return bsearch(&oid, databases, database_count, sizeof(Database), oid_cmp);
}

/* All of the cluster, with a fresh snapshot; ordered. */
static void
read_databases(void)
{
	int			room = 64;
	BlobCatalogScan scan;
	Snapshot	snapshot;
	HeapTuple	tuple;

	databases = MemoryContextAllocZero(tick_context, sizeof(Database) * room);
	database_count = 0;
	StartTransactionCommand();
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = blob_catalog_scan(DatabaseRelationId, snapshot);
	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_database row = (Form_pg_database) GETSTRUCT(tuple);

		if (database_count == room)
		{
			room *= 2;
			databases = repalloc(databases, sizeof(Database) * room);
		}
		memset(&databases[database_count], 0, sizeof(Database));
		databases[database_count].oid = row->oid;
		databases[database_count].can_connect = !database_is_invalid_form(row);
		database_count++;
	}
	UnregisterSnapshot(snapshot);
	CommitTransactionCommand();
	MemoryContextSwitchTo(tick_context);
	qsort(databases, database_count, sizeof(Database), oid_cmp);
}

/* Only those that have a store; sums up the pages that were allocated there. */
static void
keep_stores(const BlobStoreId *stores, int store_count)
{
	bool	   *has_store = palloc0(sizeof(bool) * Max(database_count, 1));
	int			kept = 0;

	for (int i = 0; i < store_count; i++)
	{
		Database   *database = find_database(stores[i].dboid);

		if (database == NULL)
			continue;
		has_store[database - databases] = true;
		database->allocated_pages += blob_store_allocated_pages(&stores[i]);
		if (blob_autogc && blob_store_waiting_pages(&stores[i]) > 0)
			database->has_waiting = true;
	}
	for (int i = 0; i < database_count; i++)
	{
		if (has_store[i])
			databases[kept++] = databases[i];
	}
	database_count = kept;
}

/*
 * Remove the store of a database that is not there: its directory, if it has one.  The OID is
 * locked meanwhile, so that no session can connect to a new database of that OID.
 */
static void
remove_store(const BlobStoreId *store)
{
	LOCKTAG		tag;

	StartTransactionCommand();
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, store->dboid, 0);
	if (LockAcquire(&tag, AccessExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL)
	{
		AcceptInvalidationMessages();
		if (!SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(store->dboid)))
		{
			if (blob_segment_dir_exists(store))
				ereport(LOG,
						(errmsg("blobext: removing directory " BLOB_STORE_DIR "/%u.%016llx of a "
								"dropped database", store->dboid,
								(unsigned long long) store->incarnation)));
			(void) blob_autogc_drop_store(store);
		}
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(tick_context);
}

/*
 * A directory is made by sessions of its database only, so the database was there, committed,
 * before the directory was listed; and pg_database was read after that.  If it is not there now,
 * it was dropped, and that has committed.
 */
static void
remove_dropped(const BlobStoreId *stores, int store_count)
{
	for (int i = 0; i < store_count; i++)
	{
		if (find_database(stores[i].dboid) == NULL)
			remove_store(&stores[i]);
	}
}

/* Of stores that have no directory, because a value of theirs could not be stored. */
static void
remove_dropped_entries(const BlobStoreId *entries, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (find_database(entries[i].dboid) == NULL && blob_store_has_entry(&entries[i]))
			remove_store(&entries[i]);
	}
}

static void
forget_dropped(void)
{
	Oid		   *oids = palloc(sizeof(Oid) * Max(database_count, 1));

	for (int i = 0; i < database_count; i++)
		oids[i] = databases[i].oid;
	blob_autogc_schedule_keep(oids, database_count);
	blob_gc_status_keep(oids, database_count);
}

/*
 * More databases have a store than blobext.max_databases says: it was lowered, or stores came by
 * replay.  Said once, and when their number has changed.
 */
static void
warn_of_limit(void)
{
	int			room = blob_segment_database_room();

	if (database_count <= blob_max_databases || database_count == warned_of)
	{
		warned_of = database_count;
		return;
	}
	warned_of = database_count;
	ereport(WARNING,
			(errmsg("blobext: %d databases have an extent store, and blobext.max_databases is %d",
					database_count, blob_max_databases),
			 database_count > room ?
			 errdetail("Only %d of them are collected, until the server is restarted.", room) :
			 errdetail("They are used and collected, and others cannot store."),
			 errhint("Increase blobext.max_databases and restart the server.")));
}

static void
judge_databases(void)
{
	for (int i = 0; i < database_count; i++)
	{
		Database   *database = &databases[i];
		PgStat_StatDBEntry *statistics = pgstat_fetch_stat_dbentry(database->oid);

		if (statistics != NULL)
			database->changed_rows = blob_stat_changed_rows(statistics);
		if (database->can_connect)
			database->wish = blob_autogc_schedule_wish(database->oid, database->allocated_pages,
													   database->changed_rows,
													   database->has_waiting, tick_at,
													   &database->looked_at);
	}
}

/*
 * One pass over all databases.  Directories and entries are listed first: only processes of a
 * database make these, see remove_dropped().
 */
static void
tick(void)
{
	BlobStoreId *stores;
	BlobStoreId *entries;
	int			store_count;
	int			entry_count;
	bool		is_full;

	MemoryContextReset(tick_context);
	MemoryContextSwitchTo(tick_context);
	pgstat_report_activity(STATE_RUNNING, "blobext: looking for databases");

	store_count = blob_segment_list_stores(&stores);
	entry_count = blob_store_list(&entries);
	blob_damaged_pages_forget_old();
	read_databases();
	remove_dropped(stores, store_count);
	remove_dropped_entries(entries, entry_count);
	/* Those without a store may have entries, as long as there are enough. */
	is_full = database_count > blob_segment_database_room();
	if (!is_full)
		forget_dropped();
	keep_stores(stores, store_count);
	if (is_full)
		forget_dropped();
	blob_store_files_keep(&blob_scrub_results_kind, stores, store_count);
	blob_store_files_keep(&blob_gc_notes_kind, stores, store_count);
	warn_of_limit();
	judge_databases();
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* ---- workers ---- */

/*
 * Does this worker look, or collect?  One that vacuums counts as none: VACUUM may take long, and
 * a function of a user that runs in it may never return.
 */
static bool
is_collecting(const Worker *worker)
{
	pid_t		pid;

	return worker->handle != NULL &&
		(GetBackgroundWorkerPid(worker->handle, &pid) != BGWH_STARTED ||
		 blob_autogc_schedule_vacuum_pid(worker->database) != pid);
}

static Worker *
free_worker(void)
{
	Worker	   *free = NULL;
	int			count = 0;

	for (size_t i = 0; i < lengthof(workers); i++)
	{
		if (workers[i].handle == NULL)
			free = &workers[i];
		else if (is_collecting(&workers[i]))
			count++;
	}
	return count < blob_autogc_max_workers ? free : NULL;
}

static bool
has_worker(Oid database)
{
	for (size_t i = 0; i < lengthof(workers); i++)
	{
		if (workers[i].database == database && is_collecting(&workers[i]))
			return true;
	}
	return false;
}

/* The postmaster wakes us up when one ends. */
static void
reap_workers(void)
{
	pid_t		pid;

	for (size_t i = 0; i < lengthof(workers); i++)
	{
		if (workers[i].handle == NULL ||
			GetBackgroundWorkerPid(workers[i].handle, &pid) != BGWH_STOPPED)
			continue;
		pfree(workers[i].handle);
		workers[i].handle = NULL;
		blob_autogc_schedule_worker_ended(workers[i].database, has_worker(workers[i].database));
	}
}

/* False if all slots for processes are in use, which is logged once. */
static bool
start_worker(Worker *slot, Oid database)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	slot->database = database;
	if (!blob_autogc_worker_start(database, &slot->handle))
		slot->handle = NULL;
	MemoryContextSwitchTo(old_context);

	if (slot->handle == NULL && !is_out_of_workers)
		ereport(LOG,
				(errmsg("blobext: could not start a process to collect blobs"),
				 errdetail("All background worker slots are in use."),
				 errhint("You might need to increase max_worker_processes.")));
	is_out_of_workers = slot->handle == NULL;
	return !is_out_of_workers;
}

/* Of the databases that want a look and have no worker, the one that waits longest; or NULL. */
static Database *
next_database(void)
{
	Database   *next = NULL;

	for (int i = 0; i < database_count; i++)
	{
		if (databases[i].wish != BLOB_AUTOGC_NO_LOOK && !has_worker(databases[i].oid) &&
			(next == NULL || databases[i].looked_at < next->looked_at))
			next = &databases[i];
	}
	return next;
}

static BlobAutogcWish
strongest_wish(void)
{
	BlobAutogcWish wish = BLOB_AUTOGC_NO_LOOK;

	for (int i = 0; i < database_count; i++)
	{
		if (databases[i].wish > wish && !has_worker(databases[i].oid))
			wish = databases[i].wish;
	}
	return wish;
}

/*
 * Start workers while there are free slots and databases that want a look; those that stay leave
 * for the others.  A database that a command wants for itself is left for the next tick.
 */
static void
start_workers(void)
{
	Worker	   *slot;
	Database   *database;

	while ((slot = free_worker()) != NULL && (database = next_database()) != NULL)
	{
		bool		is_wanted;

		/* A worker would have to wait until it can connect, or fail. */
		StartTransactionCommand();
		is_wanted = blob_gc_database_is_wanted(database->oid);
		CommitTransactionCommand();
		if (!is_wanted)
		{
			if (!start_worker(slot, database->oid))
				break;
			blob_autogc_schedule_look_begins(database->oid, database->allocated_pages,
											 database->changed_rows, tick_at);
		}
		database->wish = BLOB_AUTOGC_NO_LOOK;
	}
	blob_autogc_schedule_set_crowd(strongest_wish());
}

/* Whether a process can have a database to itself: it has a store, and no command wants it. */
static bool
may_have(Oid oid)
{
	Database   *database = find_database(oid);
	bool		is_wanted;

	if (database == NULL || !database->can_connect)
		return false;
	StartTransactionCommand();
	is_wanted = blob_gc_database_is_wanted(oid);
	CommitTransactionCommand();
	return !is_wanted;
}

/* ---- the scrubber ---- */

/* The next database in turn, in the order of their OIDs; or NULL. */
static Database *
next_to_scrub(void)
{
	Database   *first = NULL;

	for (int i = 0; i < database_count; i++)
	{
		if (!databases[i].can_connect)
			continue;
		if (databases[i].oid > scrubbed_database)
			return &databases[i];
		if (first == NULL)
			first = &databases[i];
	}
	return first;
}

/*
 * See whether the scrubber has ended, and start the one of the next database, once in a tick at
 * most.  A want of slots is logged when the collector has it.
 */
static void
look_after_scrubber(void)
{
	MemoryContext old_context;
	Database   *database;
	pid_t		pid;

	if (scrubber != NULL && GetBackgroundWorkerPid(scrubber, &pid) == BGWH_STOPPED)
	{
		pfree(scrubber);
		scrubber = NULL;
	}
	if (blob_scrub_rate_mb == 0 || scrubber != NULL || scrubber_started_at == tick_at)
		return;
	scrubber_started_at = tick_at;
	database = next_to_scrub();
	if (database == NULL)
		return;
	scrubbed_database = database->oid;
	if (!may_have(scrubbed_database))
		return;
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	if (!blob_scrub_worker_start(scrubbed_database, &scrubber))
		scrubber = NULL;
	MemoryContextSwitchTo(old_context);
}

/* ---- the process ---- */

/* Until the next tick, the end of a worker, an urgent look or a new configuration. */
static void
wait_for_tick(TimestampTz next_tick)
{
	long		timeout_ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next_tick);

	if (blob_autogc_process_pause(timeout_ms, 1))
		blob_autogc_schedule_wake();
}

void
blob_autogc_launcher_main(Datum argument)
{
	blob_autogc_process_begin(NAME, InvalidOid);
	tick_context = AllocSetContextCreate(TopMemoryContext, "blobext launcher",
										 ALLOCSET_DEFAULT_SIZES);
	blob_autogc_schedule_launcher_begins(MyLatch);
	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz next_tick = tick_at + blob_autogc_naptime_s * USECS_PER_SEC;

		reap_workers();
		if (now >= next_tick || now < tick_at ||	/* the clock may have been set back */
			blob_autogc_schedule_is_urgent())
		{
			tick_at = now;
			tick();
			blob_autogc_repair_start(may_have);
			continue;
		}
		start_workers();
		look_after_scrubber();
		wait_for_tick(next_tick);
	}
}
