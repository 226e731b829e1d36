/*
 * autogc/repair.c
 *	  Starts the worker that repairs damaged pages, see autogc/repair.h.
 *
 * The worker itself needs what finds values in tables, which is above this folder.
 */
#include "postgres.h"

#include "autogc/repair.h"
#include "common/hashfn.h"
#include "core/background.h"
#include "core/settings.h"
#include "extents/damaged_pages.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#define NAME "blobext repair"

static BackgroundWorkerHandle *worker;	/* NULL: none is under way */

uint64
blob_autogc_repair_source(const char *conninfo)
{
	return hash_bytes_extended((const unsigned char *) conninfo, (int) strlen(conninfo), 0);
}

/* The database whose damage is due and was found first; InvalidOid: there is none. */
static Oid
choose_database(bool (*may_repair) (Oid database))
{
	uint64		source = blob_autogc_repair_source(blob_heal_conninfo);
	TimestampTz now = GetCurrentTimestamp();
	BlobDamagedPage *pages;
	int			count = blob_damaged_pages_get(InvalidOid, &pages);
	const BlobDamagedPage *first = NULL;
	Oid			database;

	for (int i = 0; i < count; i++)
	{
		if (blob_damaged_page_is_due(&pages[i], source, now) &&
			(first == NULL || pages[i].first_found < first->first_found) &&
			may_repair(pages[i].store.dboid))
			first = &pages[i];
	}
	database = first == NULL ? InvalidOid : first->store.dboid;
	pfree(pages);
	return database;
}

/* The postmaster wakes the launcher up when a worker ends. */
static bool
is_under_way(void)
{
	pid_t		pid;

	if (worker == NULL)
		return false;
	if (GetBackgroundWorkerPid(worker, &pid) != BGWH_STOPPED)
		return true;
	pfree(worker);
	worker = NULL;
	return false;
}

void
blob_autogc_repair_start(bool (*may_repair) (Oid database))
{
	BackgroundWorker description;
	MemoryContext old_context;
	Oid			database;

	if (is_under_way() || blob_heal_conninfo[0] == '\0')
		return;
	database = choose_database(may_repair);
	if (!OidIsValid(database))
		return;
	blob_background_describe(&description, NAME, "blob_repair_worker_main", BGW_NEVER_RESTART);
	description.bgw_main_arg = ObjectIdGetDatum(database);
	description.bgw_notify_pid = MyProcPid;
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	/* Without a free slot the next tick tries again. */
	if (!RegisterDynamicBackgroundWorker(&description, &worker))
		worker = NULL;
	MemoryContextSwitchTo(old_context);
}
