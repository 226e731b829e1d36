/*
 * extents/durability.c
 *	  Transaction callbacks that make content crash-safe, see extents/durability.h.
 *
 * The list of written segments belongs to the process, not to a transaction or subtransaction: a
 * PL/pgSQL variable carries a value out of a rolled back subtransaction, or over a procedure's
 * ROLLBACK, and a later transaction may store it.  So an abort removes no entry.  An entry leaves
 * the list when its segment has been synced, or when the syncer has accepted it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "extents/durability.h"
#include "extents/omissions.h"
#include "extents/ahead.h"
#include "core/settings.h"
#include "io/dirty.h"
#include "io/io.h"
#include "io/segment.h"
#include "io/syncer.h"
#include "miscadmin.h"
#include "store/store.h"
#include "utils/memutils.h"

/*
 * Where content is not logged otherwise, a write of at most this many bytes is logged if that
 * spares the sync.  That holds for every such write that would be synced at once.  Other writes are
 * logged only up to this many bytes of a transaction.
 */
#define SPARE_MAX_BYTES (256 * 1024)

typedef struct WrittenSegment
{
	BlobStoreId store;
	uint32		segment_no;
	uint64		transaction_no;		/* of the last write; 0: that was given up */
	bool		is_logged;		/* all that was written is, or will be, in the WAL */
	XLogRecPtr	redo;			/* the server's redo pointer before the first write */
	uint64		start_time;		/* of blob_dirty_time(), before the first write */
} WrittenSegment;

static WrittenSegment *written;
static int	written_count;
static int	written_capacity;

/* This transaction's pre-commit sync has run; reset when the transaction has ended. */
static bool is_late;

/* Bytes that this transaction logged only to spare a sync. */
static uint64 spared_bytes;

/* Counts top-level transactions of this process, from 1 on. */
static uint64 transaction_no = 1;

static bool (*must_be_durable) (void);

/*
 * Prepare this process for I/O.  A process has a transaction of its own, to look at its database,
 * before it does anything else.
 */
static void
begin_process(void)
{
	static pid_t begun_pid = 0;

	if (begun_pid == MyProcPid)
		return;
	begun_pid = MyProcPid;
	blob_io_process_begins();
	blob_ahead_process_begins();
}

/*
 * The file of a segment is gone: ERROR if this transaction wrote to it.  No process can have freed
 * what this transaction wrote, so the file was taken away, and the transaction must not commit.  If
 * only an earlier transaction wrote there and did not commit, its extents may have been found
 * unreferenced, and the file removed with them.  The present transaction loses nothing then: values
 * that a procedure carries over its ROLLBACK are not freed while it runs.
 */
static void
report_missing(const WrittenSegment *segment)
{
	char		path[MAXPGPATH];

	if (segment->transaction_no != transaction_no)
		return;
	blob_segment_path(path, sizeof(path), &segment->store, segment->segment_no);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FILE),
			 errmsg("segment file \"%s\" has disappeared", path),
			 errdetail("Content that was written to it cannot be made durable.")));
}

/*
 * Make one segment crash-safe; returns false if its file does not exist.  The file is looked up
 * also if the segment is logged: for the syncer, a file must be there unless the collector removed
 * it.
 */
static bool
make_crash_safe(const WrittenSegment *segment)
{
	uint64		removals = blob_segment_removals();

	if (segment->is_logged &&
		blob_segment_open(&segment->store, segment->segment_no, BLOB_SEGMENT_MISSING_OK) < 0)
		return false;
	if (segment->is_logged &&
		blob_syncer_hand_over(&segment->store, segment->segment_no, segment->redo, removals))
		return true;
	return blob_segment_sync(&segment->store, segment->segment_no, segment->start_time);
}

static void
make_segments_crash_safe(void)
{
	while (written_count > 0)
	{
		WrittenSegment last = written[written_count - 1];
		bool		exists = make_crash_safe(&last);

		/* After an error the entry stays: its content is not crash-safe. */
		if (!exists)
			report_missing(&last);
		written_count--;
	}
}

/* OMITTED follows the writes, and the syncs.  All: also what may have to be said again. */
static void
log_omissions(bool all)
{
	Assert(written_count == 0);
	if (all)
		blob_omissions_log_all();
	else
		blob_omissions_log_noted();
}

void
blob_durability_make_crash_safe(void)
{
	make_segments_crash_safe();
	log_omissions(false);
}

/*
 * Transaction callback.  Makes noted segments crash-safe before the commit or prepare record, and
 * may throw there.  At the end of the transaction it only resets variables, which cannot fail.
 */
static pg_attribute_hot void
at_transaction_event(XactEvent event, void *context)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			begin_process();
			make_segments_crash_safe();
			/*
			 * A transaction without an XID makes nothing visible to others, and must not wait for a
			 * lock because an earlier one has failed to store.
			 */
			if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
				log_omissions(true);
			is_late = true;
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			/* The record of a commit or prepare is behind all that makes content crash-safe. */
			Assert(event == XACT_EVENT_ABORT || written_count == 0);
			is_late = false;
			transaction_no++;
			spared_bytes = 0;
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;				/* parallel workers write nothing */
	}
}

void
blob_durability_register(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}

void
blob_durability_set_rule(bool (*rule) (void))
{
	must_be_durable = rule;
}

void
blob_durability_prepare(int segment_count)
{
	int			needed = written_count + segment_count;

	if (needed <= written_capacity)
		return;
	needed = Max(needed, 2 * written_capacity);
	if (written == NULL)
		written = MemoryContextAlloc(TopMemoryContext, needed * sizeof(*written));
	else
		written = repalloc(written, needed * sizeof(*written));
	written_capacity = needed;
}

void
blob_durability_note(const BlobStoreId *store, uint32 segment_no, bool is_logged)
{
	for (int i = written_count - 1; i >= 0; i--)
	{
		if (written[i].segment_no == segment_no &&
			blob_store_id_equals(&written[i].store, store))
		{
			written[i].transaction_no = transaction_no;
			written[i].is_logged &= is_logged;
			return;
		}
	}
	Assert(written_count < written_capacity);
	written[written_count].store = *store;
	written[written_count].segment_no = segment_no;
	written[written_count].transaction_no = transaction_no;
	written[written_count].is_logged = is_logged;
	written[written_count].redo = GetRedoRecPtr();
	written[written_count].start_time = blob_dirty_time();
	written_count++;
}

/*
 * The entry stays, because values that are kept may have been written to the same segment.  In that
 * case the file cannot be removed.  If it is taken away from outside, readers notice.
 */
void
blob_durability_give_up(const BlobStoreId *store, uint32 segment_no)
{
	for (int i = 0; i < written_count; i++)
	{
		if (written[i].segment_no == segment_no &&
			blob_store_id_equals(&written[i].store, store))
			written[i].transaction_no = 0;
	}
}

void
blob_durability_use_wait(void)
{
	static uint64 last_transaction_no = 0;

	if (last_transaction_no == transaction_no)
		return;
	last_transaction_no = transaction_no;
	blob_durability_make_crash_safe();
}

/* Whether an entry has content that is not in the WAL, so that a sync is needed anyway. */
static bool
must_sync(void)
{
	for (int i = 0; i < written_count; i++)
	{
		if (!written[i].is_logged)
			return true;
	}
	return false;
}

bool
blob_durability_wants_log(uint64 bytes)
{
	if (blob_wal_logs_content() || blob_store_replays_predecessor())
	{
		(void) blob_syncer_want();
		return true;
	}
	if (blob_wal_content != BLOB_WAL_CONTENT_AUTO || bytes > SPARE_MAX_BYTES || must_sync())
		return false;
	if (!is_late && !(must_be_durable && must_be_durable()) &&
		spared_bytes + bytes > SPARE_MAX_BYTES)
		return false;
	if (!blob_syncer_want())
		return false;
	spared_bytes += bytes;
	return true;
}

bool
blob_durability_is_unsafe(void)
{
	return written_count > 0;
}

bool
blob_durability_is_pending(void)
{
	return blob_durability_is_unsafe() || blob_omissions_are_noted();
}

void
blob_durability_before_return(void)
{
	if (blob_durability_is_pending() && (is_late || (must_be_durable && must_be_durable())))
		blob_durability_make_crash_safe();
}
