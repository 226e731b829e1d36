/*
 * autogc/dropped.c
 *	  What goes with a store, and with a database, see autogc/dropped.h and "Dropped databases" in
 *	  README.md.
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/dropped.h"
#include "autogc/schedule.h"
#include "autogc/scrub_results.h"
#include "blob/known_digests.h"
#include "extents/damaged_pages.h"
#include "gc/status.h"
#include "io/stat.h"
#include "store/store.h"

/* The database that this transaction drops, or InvalidOid. */
static Oid	dropped_database;

bool
blob_autogc_drop_store(const BlobStoreId *store)
{
	bool		is_gone;

	/* Before the directory: behind that, the same store may be made again. */
	blob_store_file_remove(&blob_scrub_results_kind, store);
	is_gone = blob_store_drop(store);
	blob_known_digests_forget_store(store);
	blob_damaged_pages_forget_store(store);
	return is_gone;
}

/*
 * DROP DATABASE has ended the processes of the database, and keeps its OID locked until behind this
 * event: so no process uses the entries, and none makes new ones.  Locks of memory only, which
 * cannot fail.
 */
static void
at_transaction_event(XactEvent event, void *arg)
{
	Oid			database = dropped_database;

	if (!OidIsValid(database) || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT))
		return;
	dropped_database = InvalidOid;
	if (event == XACT_EVENT_ABORT)
		return;
	blob_stat_forget_database(database);
	blob_damaged_pages_forget_database(database);
	blob_gc_status_forget(database);
	blob_autogc_schedule_forget(database);
}

void
blob_autogc_database_drops(Oid database)
{
	static bool is_registered = false;

	if (!is_registered)
		RegisterXactCallback(at_transaction_event, NULL);
	is_registered = true;
	dropped_database = database;
}
