/*
 * gc/logged.c
 *	  Which blocks the WAL names, see gc/logged.h.
 */
#include "postgres.h"

#include "core/compat.h"
#include "gc/logged.h"

#if BLOB_HAS_WAL_SUMMARIES

#include "access/xlog.h"
#include "core/attempt.h"
#include "gc/changed.h"
#include "gc/summaries.h"
#include "gc/tail.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "wal/insert.h"

/*
 * A round reads one byte of WAL at most for this number of bytes of the tables that it marks: where
 * there is more WAL, it costs less to read the pages.
 */
#define TABLE_BYTES_PER_WAL_BYTE 4

/* The most WAL that is read at once: meanwhile the round does not see that it is in the way. */
#define MAX_TAIL_BYTES (64 * 1024 * 1024)

struct BlobGcLogged
{
	MemoryContext context;
	BlobGcChanged *changed;		/* NULL: nothing is read yet */
	XLogRecPtr	since;			/* it has all blocks from here on ... */
	XLogRecPtr	end;			/* ... up to here */
	XLogRecPtr	next_end;		/* up to where the tail is being read */
	bool		has_failed;
	uint64		tail_bytes;		/* WAL that may still be read */

	Oid			file;			/* of the table */
};

BlobGcLogged *
blob_gc_logged_open(void)
{
	BlobGcLogged *logged;

	if (!XLogIsNeeded())
		return NULL;
	logged = palloc0(sizeof(BlobGcLogged));
	logged->context = AllocSetContextCreate(CurrentMemoryContext, "changed blocks",
											ALLOCSET_DEFAULT_SIZES);
	return logged;
}

void
blob_gc_logged_close(BlobGcLogged *logged)
{
	if (logged == NULL)
		return;
	MemoryContextDelete(logged->context);
	pfree(logged);
}

void
blob_gc_logged_begin_table(BlobGcLogged *logged, Relation relation)
{
	logged->file = relation->rd_locator.relNumber;
	logged->tail_bytes += (uint64) RelationGetNumberOfBlocks(relation) * BLCKSZ /
		TABLE_BYTES_PER_WAL_BYTE;
}

/* ---- reading ---- */

static void
read_summaries(void *argument)
{
	BlobGcLogged *logged = argument;

	logged->end = blob_gc_summaries_read(blob_gc_summaries_list(), logged->changed, logged->since);
}

static void
read_tail(void *argument)
{
	BlobGcLogged *logged = argument;

	logged->end = blob_gc_tail_read(logged->changed, logged->end, logged->next_end);
}

/*
 * Read more; what an error leaves is incomplete, so it ends all reading of this round.  That the
 * server has removed summaries or WAL is no fault.
 */
static bool
try_to_read(BlobGcLogged *logged, BlobAttemptStep step)
{
	ErrorData  *error = blob_attempt(step, logged);

	if (error == NULL)
		return true;
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);
	if (error->sqlerrcode != ERRCODE_UNDEFINED_FILE)
		ereport(LOG,
				(errmsg("%s", error->message),
				 errdetail("Rounds of the collector read pages that have not changed.")));
	FreeErrorData(error);
	logged->has_failed = true;
	MemoryContextReset(logged->context);
	return false;
}

static bool
begin(BlobGcLogged *logged, XLogRecPtr since)
{
	MemoryContext old_context = MemoryContextSwitchTo(logged->context);

	logged->changed = blob_gc_changed_make();
	MemoryContextSwitchTo(old_context);
	logged->since = since;
	return try_to_read(logged, read_summaries);
}

/*
 * Read WAL, up to the present or as much as is read at once; none, if all of it is too much, since
 * a part is of little use.
 */
static bool
extend(BlobGcLogged *logged)
{
	XLogRecPtr	last_end = logged->end;
	XLogRecPtr	present = blob_wal_end();

	if (present - last_end > logged->tail_bytes)
		return false;
	XLogFlush(present);
	logged->next_end = Min(present, last_end + MAX_TAIL_BYTES);
	if (!try_to_read(logged, read_tail))
		return false;
	logged->tail_bytes -= Min(logged->tail_bytes, logged->end - last_end);
	return true;
}

/* ---- answers ---- */

bool
blob_gc_logged_tell(BlobGcLogged *logged, XLogRecPtr since, XLogRecPtr position)
{
	if (logged == NULL || logged->has_failed)
		return false;
	if (logged->changed == NULL && !begin(logged, since))
		return false;
	if (since < logged->since || (position > logged->end && !extend(logged)))
		return false;
	return position <= logged->end;
}

bool
blob_gc_logged_names(BlobGcLogged *logged, BlockNumber block)
{
	return blob_gc_changed_has(logged->changed, logged->file, block);
}

#else							/* !BLOB_HAS_WAL_SUMMARIES */

BlobGcLogged *
blob_gc_logged_open(void)
{
	return NULL;
}

void
blob_gc_logged_close(BlobGcLogged *logged)
{
}

void
blob_gc_logged_begin_table(BlobGcLogged *logged, Relation relation)
{
}

bool
blob_gc_logged_tell(BlobGcLogged *logged, XLogRecPtr since, XLogRecPtr position)
{
	return false;
}

bool
blob_gc_logged_names(BlobGcLogged *logged, BlockNumber block)
{
	return true;
}

#endif							/* BLOB_HAS_WAL_SUMMARIES */
