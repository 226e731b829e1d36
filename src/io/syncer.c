/*
 * io/syncer.c
 *	  The syncer: makes segments durable whose writes are in the WAL, so that commits need not.
 *
 * A page of a table need not be durable when its WAL is: a checkpoint that moves the redo pointer
 * past a record writes the page first.  An extension has no part in checkpoints, but it can delay
 * them.  While segments may be listed, the syncer holds DELAY_CHKPT_START.  A checkpoint fixes its
 * redo pointer, then collects the virtual transactions with that flag, and waits until each of them
 * has ended before it goes on.  The argument is in "Durable in the background" in the README of
 * this folder.  It rests on the order of steps in begin_holding(), end_holding() and
 * blob_syncer_hand_over().
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "core/background.h"
#include "core/clock.h"
#include "core/compat.h"
#include "core/settings.h"
#include "io/dirty.h"
#include "io/engine_internal.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "io/stat.h"
#include "io/syncer.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#define NAME "blobext syncer"
#define RESTART_S 1

/*
 * Room on the list.  A backend that finds the list full syncs the segment itself.  Of those that
 * the syncer has taken some may be left, when it takes as many as there can be once more.
 */
#define MAX_LISTED 256
#define MAX_TAKEN (2 * MAX_LISTED)

/* While the syncer holds up checkpoints: how often it looks whether one has begun, in ms. */
#define POLL_MS 10

/*
 * How long the syncer holds the same virtual transaction, in ms: if a checkpoint may be about to
 * wait for it that has begun before, and otherwise.
 */
#define SHORT_HOLD_MS 400
#define LONG_HOLD_MS 10000

/* The syncer goes to sleep when no backend has wanted it for so long, in ms. */
#define IDLE_MS 2000

/*
 * While a file is missing or cannot be written: how often the syncer tries again, and how often it
 * reports that, in ms.
 */
#define RETRY_MS 100
#define REPORT_MS 10000

/* How long it waits at most before it tries again to write many dirty pages, in ms. */
#define MAX_ATTEMPT_PAUSE_MS 10000

/* How often it writes and syncs before it stops accepting, and does so for the last time. */
#define OPEN_PASSES 2

typedef struct ListedSegment
{
	BlobStoreId store;
	uint32		segment_no;
	uint64		time;			/* of blob_dirty_time(), when it was handed over last */
} ListedSegment;

/* Segments, each of them once. */
typedef struct SegmentList
{
	int			count;
	ListedSegment segments[MAX_TAKEN];
} SegmentList;

typedef struct SyncerShared
{
	LWLock	   *lock;			/* protects the rest; never held over I/O */
	bool		accepts;		/* the syncer holds the flag, and segments may be listed */
	XLogRecPtr	held_redo;		/* redo pointer, read after the flag was set */
	bool		sleeps;			/* the syncer waits until a backend wakes it */
	Latch	   *latch;
	pg_atomic_uint64 wanted;	/* how often backends have wanted the syncer, since the start */
	SegmentList listed;			/* by backends */
	SegmentList taken;			/* from it by the syncer; not synced, nor removed since */
} SyncerShared;

static SyncerShared *shared;

/* In the syncer: why sync_listed() has returned false. */
static BlobDirtyFailure failure;

/*
 * In the syncer: when it tries again to write many dirty pages, because a write has failed, and how
 * long it waited for that, in ms.
 */
static TimestampTz next_attempt;
static int	attempt_pause_ms;

Size
blob_syncer_shmem_size(void)
{
	return MAXALIGN(sizeof(SyncerShared));
}

/* Called under AddinShmemInitLock. */
void
blob_syncer_shmem_init(void)
{
	bool		found;

	shared = ShmemInitStruct("blobext syncer", blob_syncer_shmem_size(), &found);
	if (found)
		return;
	memset(shared, 0, blob_syncer_shmem_size());
	pg_atomic_init_u64(&shared->wanted, 0);
	shared->lock = &GetNamedLWLockTranche(BLOB_SYNCER_TRANCHE)->lock;
}

void
blob_syncer_register(void)
{
	blob_background_register(NAME, "blob_syncer_main", RESTART_S);
}

/* ---- for backends that write ---- */

/*
 * Wake the syncer if it sleeps, so that it accepts from later backends.  The caller holds the lock.
 */
static void
wake(void)
{
	if (!shared->sleeps)
		return;
	shared->sleeps = false;
	SetLatch(shared->latch);
}

/* Whether the entry is this segment, or with BLOB_ALL_SEGMENTS any segment of this store. */
static bool
is_of(const ListedSegment *entry, const BlobStoreId *store, uint32 segment_no)
{
	return (entry->segment_no == segment_no || segment_no == BLOB_ALL_SEGMENTS) &&
		blob_store_id_equals(&entry->store, store);
}

/* The place of a segment on a list, or -1. */
static int
find(const SegmentList *list, const BlobStoreId *store, uint32 segment_no)
{
	for (int i = 0; i < list->count; i++)
	{
		if (is_of(&list->segments[i], store, segment_no))
			return i;
	}
	return -1;
}

/*
 * The states of the lists.  Backends add to theirs only while the syncer accepts, which it does
 * only while checkpoints wait for it; it sleeps only when it does not accept.  No segment is twice
 * on a list.  The caller holds the lock.
 */
static void
assert_lists(void)
{
#ifdef USE_ASSERT_CHECKING
	const SegmentList *lists[] = {&shared->listed, &shared->taken};

	Assert(LWLockHeldByMe(shared->lock));
	Assert(!(shared->accepts && shared->sleeps));
	Assert(shared->listed.count <= MAX_LISTED && shared->taken.count <= MAX_TAKEN);
	for (int no = 0; no < (int) lengthof(lists); no++)
	{
		for (int i = 0; i < lists[no]->count; i++)
			Assert(find(lists[no], &lists[no]->segments[i].store,
						lists[no]->segments[i].segment_no) == i);
	}
#endif
}

/* Add a segment to a list, or raise its time.  The caller holds the lock exclusively. */
static void
add(SegmentList *list, const ListedSegment *segment)
{
	int			place = find(list, &segment->store, segment->segment_no);

	if (place < 0)
		list->segments[list->count++] = *segment;
	else
		list->segments[place].time = segment->time;
}

/* List a segment that is handed over; false if there is no room.  As above. */
static bool
list(const BlobStoreId *store, uint32 segment_no)
{
	ListedSegment segment = {
		.store = *store,
		.segment_no = segment_no,
		.time = blob_dirty_time()
	};

	if (shared->listed.count == MAX_LISTED && find(&shared->listed, store, segment_no) < 0)
		return false;
	add(&shared->listed, &segment);
	assert_lists();
	return true;
}

/*
 * No segment is listed whose file has been removed: if the count is the same under the lock, a
 * removal that has begun has yet to come to blob_syncer_forget().
 */
bool
blob_syncer_hand_over(const BlobStoreId *store, uint32 segment_no, XLogRecPtr redo,
					  uint64 removals)
{
	bool		is_listed = false;

	if (!enableFsync || !blob_background_sync)
		return false;
	pg_atomic_fetch_add_u64(&shared->wanted, 1);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (!shared->accepts)
		wake();
	else if (shared->held_redo <= redo && blob_segment_removals() == removals)
		is_listed = list(store, segment_no);
	LWLockRelease(shared->lock);
	if (is_listed)
		blob_stat_count(syncs_handed_over, 1);
	return is_listed;
}

bool
blob_syncer_want(void)
{
	bool		accepts;

	if (!enableFsync || !blob_background_sync)
		return false;
	pg_atomic_fetch_add_u64(&shared->wanted, 1);
	LWLockAcquire(shared->lock, LW_SHARED);
	accepts = shared->accepts;
	if (!accepts)
		wake();
	LWLockRelease(shared->lock);
	return accepts;
}

void
blob_syncer_wake(void)
{
	LWLockAcquire(shared->lock, LW_SHARED);
	if (shared->latch != NULL)
		SetLatch(shared->latch);
	LWLockRelease(shared->lock);
}

/* ---- for the removal of files ---- */

/* Take segments off a list.  The caller holds the lock exclusively. */
static void
forget(SegmentList *list, const BlobStoreId *store, uint32 segment_no)
{
	int			kept = 0;

	for (int i = 0; i < list->count; i++)
	{
		if (!is_of(&list->segments[i], store, segment_no))
			list->segments[kept++] = list->segments[i];
	}
	list->count = kept;
}

void
blob_syncer_forget(const BlobStoreId *store, uint32 segment_no)
{
	blob_dirty_check_counted();
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	forget(&shared->listed, store, segment_no);
	forget(&shared->taken, store, segment_no);
	assert_lists();
	LWLockRelease(shared->lock);
}

/* ---- the process ---- */

/* Take all segments from the list. */
static void
take_listed(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->listed.count; i++)
		add(&shared->taken, &shared->listed.segments[i]);
	shared->listed.count = 0;
	assert_lists();
	LWLockRelease(shared->lock);
}

static int
count_taken(void)
{
	int			count;

	LWLockAcquire(shared->lock, LW_SHARED);
	count = shared->taken.count;
	LWLockRelease(shared->lock);
	return count;
}

/* The segment at this place of those that were taken; false if they are fewer by now. */
static bool
get_taken(int place, ListedSegment *segment)
{
	bool		is_there;

	LWLockAcquire(shared->lock, LW_SHARED);
	is_there = place < shared->taken.count;
	if (is_there)
		*segment = shared->taken.segments[place];
	LWLockRelease(shared->lock);
	return is_there;
}

/*
 * A segment that was taken has been synced, or its file was not there.  False if the file is
 * missing: then the segment stays.  It does not, if blob_syncer_forget() was called for it.
 */
static bool
finish_taken(const ListedSegment *segment, bool is_synced)
{
	bool		is_missing;

	if (!is_synced)
	{
		/* A process that has removed the file may not have come to that call yet: wait for it. */
		blob_dirty_begin_removal();
		blob_dirty_end_removal(NULL, 0);
	}
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	is_missing = !is_synced && find(&shared->taken, &segment->store, segment->segment_no) >= 0;
	if (!is_missing)
		forget(&shared->taken, &segment->store, segment->segment_no);
	LWLockRelease(shared->lock);
	return !is_missing;
}

/*
 * Sync a segment that was taken, whose pages were written up to this time.  False if its file is
 * missing.
 */
static bool
sync_taken(const ListedSegment *segment, uint64 written_until)
{
	bool		exists;

	/* A page that is written after the sync of its segment would not be durable. */
	Assert(segment->time <= written_until);
	/* A backend with fsync = on relies on the sync: so it comes also if that is off by now. */
	blob_stat_count(background_syncs, 1);
	START_CRIT_SECTION();
	exists = blob_segment_sync_written(&segment->store, segment->segment_no);
	END_CRIT_SECTION();
	if (finish_taken(segment, exists))
		return true;
	failure.store = segment->store;
	failure.segment_no = segment->segment_no;
	failure.error = ENOENT;
	return false;
}

/*
 * Take the segments from the list, write the dirty pages, and sync these segments, in this order: a
 * segment that is handed over again meanwhile, with other pages, is on the list again.  A failed
 * sync is a PANIC, and recovery writes from the WAL: the kernel reports the error only once.  False
 * if pages could not be written, or a file is missing, that is not there although no process has
 * removed it.  Then the pages are dirty still, and the segments are taken.
 */
static bool
sync_listed(void)
{
	ListedSegment segment;
	uint64		time;
	bool		is_done = true;

	take_listed();
	time = blob_dirty_time();
	if (!blob_dirty_write_all(&failure))
		return false;
	/* From the last one on: a removal moves those behind it. */
	for (int place = count_taken() - 1; place >= 0; place--)
	{
		if (get_taken(place, &segment))
			is_done &= sync_taken(&segment, time);
	}
	return is_done;
}

/* Whether the syncer waits after a write that has failed. */
static bool
waits_for_attempt(void)
{
	return blob_clock_is_before(GetCurrentTimestamp(), next_attempt, MAX_ATTEMPT_PAUSE_MS);
}

/*
 * Write dirty pages if there are many.  A failure is reported when a checkpoint has to wait; that
 * of pages which are not logged, by their transaction, if it commits.
 */
static void
write_if_due(void)
{
	bool		are_written;

	if (!blob_dirty_is_write_due() || waits_for_attempt())
		return;
	are_written = blob_dirty_is_filling() ? blob_dirty_write_all(&failure) :
		blob_dirty_write_unlogged(&failure);
	attempt_pause_ms = are_written ? 0 :
		Min(Max(2 * attempt_pause_ms, RETRY_MS), MAX_ATTEMPT_PAUSE_MS);
	next_attempt = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), attempt_pause_ms);
}

/*
 * How long the syncer may sleep, in ms; -1: until it is woken up.  Pages that are not logged have
 * all been tried if the buffer is filling, and may be there still.
 */
static int
sleep_ms(void)
{
	if (!blob_dirty_is_write_due())
		return -1;
	return blob_dirty_is_filling() || waits_for_attempt() ? RETRY_MS : 0;
}

static void
wait_for_latch(int timeout_ms)
{
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (timeout_ms >= 0 ? WL_TIMEOUT : 0);

	(void) WaitLatch(MyLatch, events, timeout_ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	if (ShutdownRequestPending)
		proc_exit(1);			/* 0 would mean: do not start it again */
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Report why sync_listed() has returned false. */
static void
report_failure(int level, const char *hint_missing, const char *hint_failed)
{
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), &failure.store, failure.segment_no);
	if (failure.error == ENOENT)
		ereport(level,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("blob segment file \"%s\" is missing", path),
				 errdetail("There is content in it that has yet to be made durable."),
				 errhint("%s", hint_missing)));
	errno = failure.error;
	ereport(level,
			(errcode_for_file_access(),
			 errmsg("could not write content to file \"%s\": %m", path),
			 errdetail("The content is in memory and in the WAL."),
			 errhint("%s", hint_failed)));
}

/*
 * A missing file may come back, for example when its volume is mounted, and a device may recover.
 * Nothing is lost until then: checkpoints wait, and backends that commit sync by themselves.
 */
static void
wait_for_files(void)
{
	TimestampTz reported = 0;

	pgstat_report_activity(STATE_RUNNING, failure.error == ENOENT ?
						   "blobext: waiting for a segment file that is missing" :
						   "blobext: waiting for a segment file that cannot be written");
	do
	{
		if (TimestampDifferenceExceeds(reported, GetCurrentTimestamp(), REPORT_MS))
		{
			reported = GetCurrentTimestamp();
			report_failure(WARNING, "Rename the file, or a whole copy, to that name; "
						   "checkpoints wait until then.",
						   "The write is tried again; checkpoints wait until it succeeds, and the "
						   "WAL is kept.");
		}
		wait_for_latch(RETRY_MS);
	} while (!sync_listed());
}

/* Checkpoints wait for this process. */
static void
assert_holding(void)
{
	Assert(IsTransactionState() && (MyProc->delayChkptFlags & DELAY_CHKPT_START) != 0);
}

static void
set_accepts(bool accepts)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	assert_holding();
	Assert(shared->accepts != accepts);
	Assert(!accepts || (shared->listed.count == 0 && shared->taken.count == 0));
	shared->accepts = accepts;
	assert_lists();
	shared->held_redo = GetRedoRecPtr();
	LWLockRelease(shared->lock);
}

/* Make checkpoints wait.  Only after that may segments be listed and pages be put. */
static void
begin_holding(void)
{
	StartTransactionCommand();
	MyProc->delayChkptFlags |= DELAY_CHKPT_START;
	set_accepts(true);			/* the lock is a barrier */
	blob_dirty_open();
}

/* Nothing that is logged is left to this process, and nothing can come: checkpoints may go on. */
static void
assert_all_is_durable(void)
{
#ifdef USE_ASSERT_CHECKING
	LWLockAcquire(shared->lock, LW_SHARED);
	assert_lists();
	assert_holding();
	Assert(!shared->accepts && shared->listed.count == 0 && shared->taken.count == 0);
	LWLockRelease(shared->lock);
	blob_dirty_check_written();
#endif
}

/*
 * Stop listing and putting, then write and sync all that was put and listed, and only then let
 * checkpoints go on.  The end of the transaction takes the flag off.  It also ends the virtual
 * transaction, so that a checkpoint that waits for it does not wait for the next one.
 */
static void
end_holding(void)
{
	bool		is_done = true;

	/* Most of it while backends may still list; each pass has less to do. */
	for (int i = 0; i < OPEN_PASSES && is_done; i++)
		is_done = sync_listed();
	set_accepts(false);
	blob_dirty_close();
	if (!is_done || !sync_listed())
		wait_for_files();
	assert_all_is_durable();
	CommitTransactionCommand();
}

/*
 * Exit, for any reason.  Virtual transaction and flag are still there.  The syncer cannot wait for
 * a file here, so that is a PANIC: recovery must write the content that the file lacks.
 */
static void
at_exit(int code, Datum argument)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->accepts = false;
	shared->sleeps = false;
	shared->latch = NULL;
	LWLockRelease(shared->lock);
	blob_dirty_close();
	START_CRIT_SECTION();
	if (!sync_listed())
		report_failure(PANIC, "Bring the file back before the server is started again.",
					   "Recovery writes the content from the WAL at the next start.");
	END_CRIT_SECTION();
}

/*
 * Sleep until a backend calls wake(), for as long as that takes.  Pages that are not logged may be
 * dirty meanwhile.  Only the process that makes them too many wakes the syncer for that.  So as
 * long as they are, the syncer tries again.
 */
static void
sleep_until_wanted(void)
{
	bool		sleeps = true;

	pgstat_report_activity(STATE_IDLE, NULL);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	Assert(shared->listed.count == 0);
	shared->sleeps = true;
	assert_lists();
	LWLockRelease(shared->lock);
	while (sleeps)
	{
		wait_for_latch(sleep_ms());
		write_if_due();
		LWLockAcquire(shared->lock, LW_SHARED);
		sleeps = shared->sleeps;
		LWLockRelease(shared->lock);
	}
}

/*
 * Whether a backend has wanted the syncer lately.  The first call since the syncer has slept begins
 * to measure the time.
 */
static bool
is_wanted(bool was_asleep)
{
	static uint64 seen;
	static TimestampTz seen_at;
	TimestampTz now = GetCurrentTimestamp();
	uint64		count = pg_atomic_read_u64(&shared->wanted);

	/* The clock may have been set back. */
	if (was_asleep || count != seen || now < seen_at)
	{
		seen = count;
		seen_at = now;
	}
	return !TimestampDifferenceExceeds(seen_at, now, IDLE_MS);
}

/* The redo pointer of the last checkpoint that is complete. */
static XLogRecPtr
completed_redo(void)
{
	ControlFileData *control;
	XLogRecPtr	redo;
	bool		is_valid;

	LWLockAcquire(ControlFileLock, LW_SHARED);
	control = get_controlfile(DataDir, &is_valid);
	LWLockRelease(ControlFileLock);
	redo = is_valid ? control->checkPointCopy.redo : InvalidXLogRecPtr;
	pfree(control);
	return redo;
}

/*
 * Whether the hold that began at `start`, and with this redo pointer, may go on.  A checkpoint that
 * fixed that pointer before the flag was set may have yet to collect, and would wait for this hold.
 * There is no such checkpoint if the last one is complete, and it is most unlikely if the hold
 * before this one has seen the same pointer.
 */
static bool
may_go_on(TimestampTz start, XLogRecPtr redo)
{
	static XLogRecPtr collected_redo = InvalidXLogRecPtr;
	TimestampTz now = GetCurrentTimestamp();

	if (GetRedoRecPtr() != redo || now < start)		/* the clock may have been set back */
		return false;
	if (!TimestampDifferenceExceeds(start, now, SHORT_HOLD_MS))
		return true;
	if (collected_redo == redo || completed_redo() == redo)
	{
		collected_redo = redo;
		return !TimestampDifferenceExceeds(start, now, LONG_HOLD_MS);
	}
	collected_redo = redo;
	return false;
}

/*
 * Hold one virtual transaction.  It ends soon after a checkpoint has begun.  It also ends after a
 * time, see may_go_on(), and when no backend has wanted the syncer for a while.
 */
static void
hold_once(void)
{
	TimestampTz start = GetCurrentTimestamp();
	XLogRecPtr	redo = GetRedoRecPtr();

	begin_holding();
	pgstat_report_activity(STATE_RUNNING, "blobext: syncing segments");
	do
	{
		wait_for_latch(POLL_MS);
		write_if_due();
	} while (may_go_on(start, redo) && is_wanted(false));
	end_holding();
}

/*
 * The syncer's main function.  It holds one virtual transaction after the other while backends want
 * it, and sleeps when none has done so for a while.
 */
void
blob_syncer_main(Datum argument)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGINT, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(InvalidOid, InvalidOid, 0);
	blob_settings_fix("transaction_timeout", "0");

	/* Callbacks of this come after the next one, which writes. */
	blob_engine_process_begins();

	/* This callback is called before the server's own, which abort the transaction. */
	before_shmem_exit(at_exit, (Datum) 0);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->latch = MyLatch;
	LWLockRelease(shared->lock);
	for (;;)
	{
		sleep_until_wanted();
		(void) is_wanted(true);
		do
		{
			hold_once();
		} while (is_wanted(false));
	}
}
