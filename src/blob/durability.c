/*
 * blob/durability.c
 *	  When content becomes durable, see blob/durability.h.
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
	uint64		transaction_no;		/* of the last write */
} WrittenSegment;

static WrittenSegment *written;
static int	written_count;
static int	written_capacity;

/* This transaction's pre-commit sync has run; reset when the transaction has ended. */
static bool is_late;

/* Counts top-level transactions of this process. */
static uint64 transaction_no;

static bool (*must_be_durable) (void);

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
			transaction_no++;
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
blob_durability_note(const BlobSpaceId *space, uint32 segment_no)
{
	for (int i = written_count - 1; i >= 0; i--)
	{
		if (written[i].segment_no == segment_no && written[i].space.dboid == space->dboid &&
			written[i].space.incarnation == space->incarnation)
		{
			written[i].transaction_no = transaction_no;
			return;
		}
	}
	Assert(written_count < written_capacity);
	written[written_count].space = *space;
	written[written_count].segment_no = segment_no;
	written[written_count].transaction_no = transaction_no;
	written_count++;
}

/*
 * The file of a segment is gone.  What this transaction wrote cannot have been freed by anybody,
 * so the file was taken away: the transaction must not commit.  What an earlier one wrote and did
 * not commit may have been found unreferenced, and the file removed with it.  That is no business
 * of this transaction, for whom nothing is lost: what a procedure carries over its ROLLBACK is not
 * freed while it runs.
 */
static void
report_missing(const WrittenSegment *segment)
{
	char		path[MAXPGPATH];

	if (segment->transaction_no != transaction_no)
		return;
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
blob_durability_is_pending(void)
{
	return written_count > 0;
}

void
blob_durability_publish(void)
{
	if (written_count > 0 && (is_late || (must_be_durable && must_be_durable())))
		blob_durability_sync();
}
