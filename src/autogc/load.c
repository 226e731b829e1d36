/*
 * autogc/load.c
 *	  Loading the free space after a start, see autogc/load.h; the argument is in
 *	  src/store/README.md, "Loading".
 *
 * Each part is a transaction of its own, so that no lock and no snapshot is held for long.
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/load.h"
#include "autogc/process.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "store/store.h"

/* How often this process sees whether it is in the way of a command. */
#define GIVE_WAY_MS 1000

/* Load a part; *is_left: there is more.  False if the map is locked. */
static bool
load_part(bool *is_left)
{
	BlobStore	store;
	bool		exists;
	bool		is_open;

	*is_left = false;
	StartTransactionCommand();
	is_open = blob_store_try_open(&store, AccessShareLock, &exists);
	if (is_open)
	{
		*is_left = blob_store_load_step(&store);
		blob_store_close(&store);
	}
	CommitTransactionCommand();
	return is_open || !exists;
}

bool
blob_autogc_load_store(void)
{
	instr_time	looked_at;
	bool		is_left;

	INSTR_TIME_SET_CURRENT(looked_at);
	pgstat_report_activity(STATE_RUNNING, "blobext: loading free space");
	for (;;)
	{
		if (!load_part(&is_left))
			return false;
		if (!is_left)
			return true;
		(void) blob_autogc_process_pause(0, 0);
		if (blob_autogc_milliseconds_since(looked_at) < GIVE_WAY_MS)
			continue;
		if (blob_autogc_database_is_wanted())
			return false;
		INSTR_TIME_SET_CURRENT(looked_at);
	}
}
