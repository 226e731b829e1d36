/*
 * blob/durability.c
 *	  Pre-commit durability of content, see blob/durability.h.
 *
 * The list of written segments belongs to the process, not to a transaction or subtransaction: a
 * PL/pgSQL variable carries a value out of a rolled back subtransaction, or over a procedure's
 * ROLLBACK, and a later transaction may store it.  So only a successful sync removes an entry.
 */
#include "postgres.h"

#include "access/xact.h"
#include "blob/durability.h"
#include "io/segment.h"
#include "utils/memutils.h"

typedef struct WrittenSegment
{
	BlobSpaceId space;
	uint32		segment_no;
} WrittenSegment;

static WrittenSegment *written;
static int	written_count;
static int	written_capacity;

/* This transaction's pre-commit sync has run; reset when the transaction has ended. */
static bool is_late;

static void
at_transaction_event(XactEvent event, void *context)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			blob_durability_sync();
			is_late = true;
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			is_late = false;
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;				/* parallel workers write nothing */
	}
}

void
blob_durability_init(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
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
blob_durability_note(const BlobSpaceId *space, uint32 segment_no)
{
	for (int i = written_count - 1; i >= 0; i--)
	{
		if (written[i].segment_no == segment_no && written[i].space.dboid == space->dboid &&
			written[i].space.incarnation == space->incarnation)
			return;
	}
	Assert(written_count < written_capacity);
	written[written_count].space = *space;
	written[written_count].segment_no = segment_no;
	written_count++;
}

static void
report_missing(const WrittenSegment *segment)
{
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), &segment->space, segment->segment_no);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FILE),
			 errmsg("segment file \"%s\" has disappeared", path),
			 errdetail("Content that was written to it cannot be made durable.")));
}

void
blob_durability_sync(void)
{
	while (written_count > 0)
	{
		WrittenSegment last = written[written_count - 1];
		bool		exists = blob_segment_sync(&last.space, last.segment_no);

		/* Gone from the list in either case: trying again would not bring the file back. */
		written_count--;
		if (!exists)
			report_missing(&last);
	}
}

bool
blob_durability_is_late(void)
{
	return is_late;
}
