/*
 * store/checkpoint.c
 *	  Which checkpoint is complete, and asking for one.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/controldata_utils.h"
#include "core/clock.h"
#include "core/compat.h"
#include "core/settings.h"
#include "miscadmin.h"
#include "postmaster/bgwriter.h"
#include "store/store_internal.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

/*
 * The time from one request for a checkpoint to the next, as a multiple of the time that the
 * checkpoint took, and its bounds.
 */
#define CHECKPOINT_PAUSE_TIMES 3
#define MIN_CHECKPOINT_PAUSE_MS 100
#define MAX_CHECKPOINT_PAUSE_MS (60 * 1000)

/* The checkpoint, or restartpoint, from which recovery would start after a crash now. */
static CheckPoint
read_checkpoint(void)
{
	ControlFileData *control_file;
	CheckPoint	checkpoint;
	bool		crc_ok;

	LWLockAcquire(ControlFileLock, LW_SHARED);
	control_file = get_controlfile(DataDir, &crc_ok);
	LWLockRelease(ControlFileLock);
	if (!crc_ok)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("calculated CRC checksum does not match value stored in file")));
	checkpoint = control_file->checkPointCopy;
	pfree(control_file);
	return checkpoint;
}

/* Not GetRedoRecPtr(), which moves when a checkpoint begins. */
XLogRecPtr
blob_store_completed_redo(void)
{
	return read_checkpoint().redo;
}

/*
 * Promotion begins a timeline.  So a checkpoint on the timeline on which this server writes was
 * made by this server after its promotion, and its redo pointer is past the end of recovery.
 */
bool
blob_store_replays_predecessor(void)
{
	static bool has_checkpoint = false;

	if (!has_checkpoint)
		has_checkpoint = read_checkpoint().ThisTimeLineID == GetWALInsertionTimeLine();
	return !has_checkpoint;
}

/*
 * The setting holds for the life of the server, so it holds for all that is ever written to these
 * pages before the next start, which comes after a checkpoint: by the allocation that gets them, by
 * claims in its extents, and in pages that TRIM gives back.  Content that is logged for another
 * reason does not count: because it is small, or because the server was promoted.
 */
bool
blob_store_frees_after_flush(void)
{
	return blob_wal_logs_content();
}

XLogRecPtr
blob_store_covered(void)
{
	if (RecoveryInProgress())
		return InvalidXLogRecPtr;	/* no store is loaded */
	return blob_store_frees_after_flush() ? GetFlushRecPtr(NULL) : blob_store_completed_redo();
}

/*
 * A checkpoint is asked for at full speed.  It has a price for all other sessions.  So those asked
 * for by one store take a third of the time at most.  If a checkpoint is running, but spread over
 * time, the request hurries it; the one that was asked for comes after it.
 */
bool
blob_store_may_ask(BlobStoreShared *shared)
{
	TimestampTz time;
	XLogRecPtr	lsn;
	bool		wants;

	/* A time from before the lock may be earlier than that of another request. */
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	time = GetCurrentTimestamp();
	lsn = GetXLogInsertRecPtr();
	wants = blob_clock_has_passed(shared->checkpoint_request, time,
								  shared->checkpoint_awaited ? MAX_CHECKPOINT_PAUSE_MS :
								  shared->checkpoint_pause_ms);
	if (wants)
	{
		shared->checkpoint_request = time;
		shared->checkpoint_lsn = lsn;
		shared->checkpoint_awaited = true;
	}
	LWLockRelease(&shared->lock);
	return wants;
}

void
blob_store_ask_for_checkpoint_now(BlobStoreShared *shared)
{
	if (blob_store_may_ask(shared))
		RequestCheckpoint(CHECKPOINT_FAST);
}

void
blob_store_checkpoint_was_seen(BlobStoreShared *shared, XLogRecPtr completed_redo)
{
	long		took_ms;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	if (shared->checkpoint_awaited && shared->checkpoint_lsn <= completed_redo)
	{
		took_ms = TimestampDifferenceMilliseconds(shared->checkpoint_request,
												  GetCurrentTimestamp());
		shared->checkpoint_awaited = false;
		shared->checkpoint_pause_ms =
			(int) Min(Max(took_ms * CHECKPOINT_PAUSE_TIMES, MIN_CHECKPOINT_PAUSE_MS),
					  MAX_CHECKPOINT_PAUSE_MS);
	}
	LWLockRelease(&shared->lock);
}

