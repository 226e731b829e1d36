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
#include "autogc/process.h"
#include "autogc/schedule.h"
#include "core/settings.h"
#include "gc/gc.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "store/store.h"
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

/* Surplus pages come to rest, and segments go; false if the map cannot be locked at once. */
static bool
rest(void)
{
	BlobStore	store;
	bool		exists;
	bool		is_open;

	StartTransactionCommand();
	is_open = blob_store_try_open(&store, RowExclusiveLock, &exists);
	if (is_open)
	{
		(void) blob_store_reclaim_at_rest(&store, may_make_holes, &store);
		blob_store_close(&store);
	}
	CommitTransactionCommand();
	return is_open;
}

/* Does a command need the database, or is a round due that cannot wait? */
static bool
must_give_way(void)
{
	return !blob_autogc || blob_autogc_schedule_is_hurried() || blob_autogc_database_is_wanted();
}

/*
 * Sleep until the time is over, or a checkpoint past this position is complete, if it is valid.
 * False if the worker must give way.
 */
static bool
wait_for(XLogRecPtr lsn, int timeout_ms)
{
	instr_time	started_at;
	long		left_ms;

	INSTR_TIME_SET_CURRENT(started_at);
	while ((left_ms = timeout_ms - blob_autogc_milliseconds_since(started_at)) > 0)
	{
		if (lsn != InvalidXLogRecPtr && blob_store_checkpoint_is_past(lsn))
			return true;
		(void) blob_autogc_process_pause(Min(left_ms, PAUSE_MS), 0);
		if (must_give_way())
			return false;
	}
	return true;
}

/*
 * Holes of about max_pages, in a transaction of their own: none is open in the pauses, and no lock
 * is held.  0 also if the map cannot be locked at once, or is that of another store by now.
 */
static uint64
punch_some(const BlobStoreId *id, uint64 max_pages)
{
	BlobStore	store;
	bool		exists;
	uint64		pages = 0;

	StartTransactionCommand();
	if (blob_store_try_open(&store, RowExclusiveLock, &exists))
	{
		/* The extension may have been dropped and created: another store has a pace of its own. */
		if (store.id.incarnation == id->incarnation)
			pages = blob_store_punch_some(&store, max_pages);
		blob_store_close(&store);
	}
	CommitTransactionCommand();
	return pages;
}

/*
 * Punch the pages that may be punched by now, spread over some time.  False if the worker must give
 * way; a few are punched before that.
 */
static bool
make_holes(const BlobStoreId *id)
{
	BlobHolePace pace;
	TimestampTz started_at = GetCurrentTimestamp();
	TimestampTz batch_at = started_at;
	TimestampTz now;
	uint64		done = 0;
	uint64		pages;

	if (!blob_store_begin_holes(id, &pace))
		return true;
	while ((pages = punch_some(id, blob_hole_pace_batch(&pace))) > 0)
	{
		done += pages;
		now = GetCurrentTimestamp();
		if (must_give_way() ||
			!wait_for(InvalidXLogRecPtr, blob_hole_pace_pause_us(&pace, done, now - started_at,
																 now - batch_at) / 1000))
			return false;
		batch_at = GetCurrentTimestamp();
	}
	return true;
}

/* The store of this database, if its free space is loaded. */
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

/*
 * Make the pages that wait due: see how many are needed, and wait for a checkpoint that covers the
 * others, for some time; then let those rest that it has set free.  False if none is left, the
 * worker must give way, or the map cannot be locked at once.
 */
static bool
await_checkpoint(const BlobStoreId *id)
{
	uint64		before = blob_store_allocated_pages(id);
	uint64		now;
	uint64		provided;
	XLogRecPtr	lsn;

	pgstat_report_activity(STATE_RUNNING, "blobext: giving space back");
	if (!wait_for(InvalidXLogRecPtr, DEMAND_MS))
		return false;
	now = blob_store_allocated_pages(id);
	provided = (now > before ? now - before : 0) * (PROVIDED_MS / DEMAND_MS);
	blob_store_wake_pages(id, provided);
	if (blob_store_waiting_pages(id) == 0)
		return false;

	lsn = blob_store_waiting_lsn(id);	/* pages that are freed from now on wait for another one */
	if (!blob_store_checkpoint_is_past(lsn))
	{
		blob_store_ask_for_waiting(id);
		if (!wait_for(lsn, CHECKPOINT_TIMEOUT_MS))
			return false;
	}
	if (!rest())
		return false;
	blob_store_wake_pages(id, provided);
	return true;
}

/*
 * If nothing waits, pages may be due still that an earlier look has left.  At the end segments may
 * be free, and others may rest, that had to wait for these.
 */
void
blob_autogc_give_back(void)
{
	BlobStoreId id;

	if (blob_autogc && find_loaded_store(&id) && rest() &&
		(blob_store_waiting_pages(&id) == 0 || await_checkpoint(&id)) && make_holes(&id))
		(void) rest();
}
