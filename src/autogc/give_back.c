/*
 * autogc/give_back.c
 *	  A worker gives space of its database back to the file system, see autogc/give_back.h.
 *
 * Surplus space rests until a checkpoint is complete (src/store/README.md, "Holes").  A checkpoint
 * has a price for all other sessions, and space that is needed again soon is not worth it.  So the
 * worker looks for some seconds how fast the store takes space before it asks for one.
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/give_back.h"
#include "autogc/orphans.h"
#include "autogc/schedule.h"
#include "core/settings.h"
#include "gc/gc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "store/store.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/* How long the demand is measured, and for how long a demand of that rate is provided for. */
#define DEMAND_MS 3000
#define PROVIDED_MS (60 * 1000)

/* How long a checkpoint is waited for. */
#define CHECKPOINT_TIMEOUT_MS (60 * 1000)

#define PAUSE_MS 100

/* A BlobStoreMayGoOn, in a transaction: no round is due that cannot wait, and no process waits. */
static bool
may_make_holes(void *store)
{
	return !blob_autogc_schedule_is_hurried() && !blob_gc_store_is_wanted(store);
}

/* One step; false if the map cannot be locked at once. */
static bool
reclaim(void)
{
	BlobStore	store;
	bool		exists;
	bool		is_open;

	StartTransactionCommand();
	is_open = blob_store_try_open(&store, RowExclusiveLock, &exists);
	if (is_open)
	{
		(void) blob_store_reclaim(&store, may_make_holes, &store);
		blob_store_close(&store);
	}
	CommitTransactionCommand();
	return is_open;
}

/* Does a command need the database, or is a round due that cannot wait? */
static bool
must_give_way(void)
{
	bool		is_wanted;

	if (blob_autogc_schedule_is_hurried())
		return true;
	StartTransactionCommand();
	is_wanted = blob_gc_database_is_wanted(MyDatabaseId);
	CommitTransactionCommand();
	return is_wanted;
}

/*
 * Sleep until the time is over, or the checkpoint is complete, if that is waited for.  False if the
 * worker must give way.
 */
static bool
wait_for(const BlobStoreId *id, bool for_checkpoint, int timeout_ms)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms);

	while (GetCurrentTimestamp() < end)
	{
		if (for_checkpoint && blob_store_waiting_is_over(id))
			return true;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (must_give_way())
			return false;
	}
	return true;
}

/* The store of this database, if it was used since the start: no other is read for this. */
static bool
find_loaded_store(BlobStoreId *id)
{
	bool		exists;
	bool		is_found;

	StartTransactionCommand();
	is_found = blob_autogc_find_store(id, &exists) && exists && blob_store_is_loaded(id);
	CommitTransactionCommand();
	return is_found;
}

/* Pages allocated since the number was `before`; the number falls where failed stores are freed. */
static uint64
demand_since(const BlobStoreId *id, uint64 before)
{
	uint64		now = blob_store_allocated_pages(id);

	return now > before ? now - before : 0;
}

void
blob_autogc_give_back(void)
{
	BlobStoreId id;
	uint64		before;

	if (!blob_autogc || !find_loaded_store(&id) || !reclaim() ||
		blob_store_waiting_pages(&id) == 0)
		return;

	pgstat_report_activity(STATE_RUNNING, "blobext: giving space back");
	before = blob_store_allocated_pages(&id);
	if (!wait_for(&id, false, DEMAND_MS))
		return;
	blob_store_wake_pages(&id, demand_since(&id, before) * (PROVIDED_MS / DEMAND_MS));
	if (blob_store_waiting_pages(&id) == 0)
		return;
	blob_store_ask_for_waiting(&id);
	if (wait_for(&id, true, CHECKPOINT_TIMEOUT_MS))
		(void) reclaim();
}
