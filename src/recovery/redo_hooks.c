/*
 * recovery/redo_hooks.c
 *	  Looks at the records of all resource managers, see recovery/redo_hooks.h.
 *
 * The redo function of each resource manager is replaced in RmgrTable, in the memory of this
 * process.  The function that was there, PostgreSQL's or that of another extension, is called
 * behind ours.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog_internal.h"
#include "access/xlogutils.h"
#include "catalog/pg_control.h"
#include "core/compat.h"
#include "extents/damaged_pages.h"
#include "io/stat.h"
#include "pgstat.h"
#include "recovery/content_queue.h"
#include "recovery/redo_hooks.h"
#include "wal/records.h"

typedef void (*RedoFunction) (XLogReaderState *record);

static RedoFunction original_redo[RM_MAX_ID + 1];

/*
 * Without hot standby no query runs in recovery: then the records of other resource managers need
 * no content.  ALLOC and SUMS change entries of the map that no descriptor names yet.
 */
static bool
needs_complete_content(XLogReaderState *record)
{
	uint8		op = XLogRecGetInfo(record) & BLOB_WAL_OP_MASK;

	if (XLogRecGetRmid(record) == BLOB_RMGR_ID)
		return op != BLOB_WAL_CONTENT && op != BLOB_WAL_ALLOC && op != BLOB_WAL_SUMS;
	return standbyState != STANDBY_DISABLED;
}

/* A redo pointer may move past all records before this one as soon as it has been replayed. */
static bool
moves_redo_pointer(XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & ~XLR_INFO_MASK;

	return XLogRecGetRmid(record) == RM_XLOG_ID &&
		(info == XLOG_CHECKPOINT_SHUTDOWN || info == XLOG_CHECKPOINT_ONLINE ||
		 info == XLOG_END_OF_RECOVERY);
}

/*
 * The commit of DROP DATABASE, which names the statistics that go with it: so do our counters and
 * damaged pages of the database.  Its sessions have ended by the replay of the record before, and
 * one with the same OID is made by a later record.  (The record of the removal of its files comes
 * also with ALTER DATABASE SET TABLESPACE.)
 */
static void
forget_dropped_databases(XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record);
	xl_xact_parsed_commit commit;

	if (XLogRecGetRmid(record) != RM_XACT_ID ||
		(info & XLOG_XACT_OPMASK) != XLOG_XACT_COMMIT || (info & XLOG_XACT_HAS_INFO) == 0)
		return;
	ParseCommitRecord(info, (xl_xact_commit *) XLogRecGetData(record), &commit);
	for (int i = 0; i < commit.nstats; i++)
	{
		if (commit.stats[i].kind != PGSTAT_KIND_DATABASE)
			continue;
		blob_stat_forget_database(commit.stats[i].dboid);
		blob_damaged_pages_forget_database(commit.stats[i].dboid);
	}
}

/* PostgreSQL calls the redo function of the resource manager that the record names. */
static void
redo_any(XLogReaderState *record)
{
	if (moves_redo_pointer(record))
		blob_content_queue_sync();
	else if (needs_complete_content(record))
		blob_content_queue_wait();
	if (moves_redo_pointer(record))
		blob_content_queue_check_durable();
	original_redo[XLogRecGetRmid(record)] (record);
	forget_dropped_databases(record);
}

bool
blob_redo_hooks_install(void)
{
	if (!BLOB_CAN_REPLACE_REDO)
		return false;
	for (int rmid = 0; rmid <= RM_MAX_ID; rmid++)
	{
		if (!RmgrIdExists(rmid))
			continue;
		original_redo[rmid] = RmgrTable[rmid].rm_redo;
		blob_replace_redo(rmid, redo_any);
	}
	return true;
}
