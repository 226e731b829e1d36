/*
 * unit_rmgr.c
 *	  Another extension that takes part in replay: for t/replay.pl, which preloads this library
 *	  behind blobext.
 *
 * It has a resource manager of its own.  It replaces the redo function of logical messages twice:
 * when it is loaded, and in its rm_startup, which runs behind that of blobext because its id is
 * larger.  Each replacement writes a line to the log, and calls the function that it found.
 */
#include "unit.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "miscadmin.h"

#define UNIT_RMGR_ID 200

PGDLLEXPORT void _PG_init(void);

PG_FUNCTION_INFO_V1(unit_rmgr_log);

static void (*redo_before_early) (XLogReaderState *record);
static void (*redo_before_late) (XLogReaderState *record);

static void
redo_early(XLogReaderState *record)
{
	ereport(LOG, (errmsg_internal("unit_rmgr: the early redo function")));
	redo_before_early(record);
}

static void
redo_late(XLogReaderState *record)
{
	ereport(LOG, (errmsg_internal("unit_rmgr: the late redo function")));
	redo_before_late(record);
}

static void
redo_own(XLogReaderState *record)
{
	ereport(LOG, (errmsg_internal("unit_rmgr: a record of its own")));
}

static void
start_up(void)
{
	redo_before_late = RmgrTable[RM_LOGICALMSG_ID].rm_redo;
	RmgrTable[RM_LOGICALMSG_ID].rm_redo = redo_late;
}

static void
describe(StringInfo text, XLogReaderState *record)
{
}

static const char *
identify(uint8 info)
{
	return "UNIT";
}

static const RmgrData resource_manager = {
	.rm_name = "blobext_unit",
	.rm_redo = redo_own,
	.rm_desc = describe,
	.rm_identify = identify,
	.rm_startup = start_up
};

/* Nothing is done if the library is loaded for its functions only. */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	RegisterCustomRmgr(UNIT_RMGR_ID, (RmgrData *) &resource_manager);
	redo_before_early = RmgrTable[RM_LOGICALMSG_ID].rm_redo;
	RmgrTable[RM_LOGICALMSG_ID].rm_redo = redo_early;
}

/* Insert and flush a record of that resource manager. */
Datum
unit_rmgr_log(PG_FUNCTION_ARGS)
{
	XLogBeginInsert();
	XLogRegisterData((char *) "unit", 4);
	XLogFlush(XLogInsert(UNIT_RMGR_ID, 0));
	PG_RETURN_VOID();
}
