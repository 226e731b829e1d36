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
	MemoryContext context;		/* of the set, and of buffers for reading */
	BlobGcChanged *changed;		/* NULL: nothing is read yet */
	Oid		   *files;			/* of the tables and indexes of the round */
	int			file_count;
	XLogRecPtr	since;			/* it has all blocks from here on ... */
	XLogRecPtr	end;			/* ... up to here */
	XLogRecPtr	next_end;		/* up to where the tail is being read */
	bool		has_failed;
	uint64		least_bytes;	/* that the summaries have */
	uint64		room_bytes;		/* of summaries and WAL that may still be read */
	Oid			file;			/* of the table */
};

BlobGcLogged *
blob_gc_logged_open(const BlobGcRoots *roots)
{
	BlobGcLogged *logged;

	if (!XLogIsNeeded())
		return NULL;
	logged = palloc0(sizeof(BlobGcLogged));
	logged->context = AllocSetContextCreate(CurrentMemoryContext, "blobext blocks in the WAL",
											ALLOCSET_DEFAULT_SIZES);
	logged->files = palloc_extended(Max(roots->count, 1) * sizeof(Oid), MCXT_ALLOC_HUGE);
	for (int i = 0; i < roots->count; i++)
		logged->files[logged->file_count++] = roots->items[i].file;
	return logged;
}

void
blob_gc_logged_close(BlobGcLogged *logged)
{
	if (logged == NULL)
		return;
	MemoryContextDelete(logged->context);
	pfree(logged->files);
	pfree(logged);
}

void
blob_gc_logged_begin_table(BlobGcLogged *logged, Relation relation)
{
	logged->file = relation->rd_locator.relNumber;
	logged->room_bytes += (uint64) RelationGetNumberOfBlocks(relation) * BLCKSZ /
		TABLE_BYTES_PER_WAL_BYTE;
}

/* ---- reading ---- */

static void
read_summaries(void *argument)
{
	BlobGcLogged *logged = argument;
	BlobGcSummaries *summaries = blob_gc_summaries_list();

	logged->least_bytes = blob_gc_summaries_bytes(summaries, logged->since);
	if (logged->least_bytes > logged->room_bytes)
		return;
	logged->room_bytes -= logged->least_bytes;
	logged->changed = blob_gc_changed_make(logged->files, logged->file_count);
	logged->end = blob_gc_summaries_read(summaries, logged->changed, logged->since);
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
	MemoryContext old_context = MemoryContextSwitchTo(logged->context);
	ErrorData  *error = blob_attempt(step, logged);

	MemoryContextSwitchTo(old_context);
	if (error == NULL)
		return true;
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);
	if (error->sqlerrcode != ERRCODE_UNDEFINED_FILE)
		ereport(LOG,
				(errmsg("%s", error->message),
				 errdetail("Rounds of the collector read pages that have not changed.")));
	logged->has_failed = true;
	MemoryContextReset(logged->context);
	return false;
}

/* With the first tables there may be too little room for the summaries. */
static bool
begin(BlobGcLogged *logged, XLogRecPtr since)
{
	if (logged->least_bytes > logged->room_bytes)
		return false;
	logged->since = since;
	return try_to_read(logged, read_summaries) && logged->changed != NULL;
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

	if (present - last_end > logged->room_bytes)
		return false;
	XLogFlush(present);
	logged->next_end = Min(present, last_end + MAX_TAIL_BYTES);
	if (!try_to_read(logged, read_tail))
		return false;
	logged->room_bytes -= Min(logged->room_bytes, logged->end - last_end);
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
blob_gc_logged_open(const BlobGcRoots *roots)
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
