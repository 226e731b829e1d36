/*
 * gc/tail.c
 *	  Reads WAL by PostgreSQL's own functions, see gc/tail.h.
 *
 * Which record it is does not matter: one that puts rows into a page names the page.
 */
#include "postgres.h"

#include "core/compat.h"
#include "gc/tail.h"

#if BLOB_HAS_WAL_SUMMARIES

#include "access/xlog.h"
#include "access/xlogreader.h"
#include "access/xlogutils.h"
#include "miscadmin.h"

static void
add_blocks(BlobGcChanged *changed, XLogReaderState *reader)
{
	for (int i = 0; i <= XLogRecMaxBlockId(reader); i++)
	{
		RelFileLocator file;
		ForkNumber	fork;
		BlockNumber block;

		if (XLogRecGetBlockTagExtended(reader, i, &file, &fork, &block, NULL) &&
			fork == MAIN_FORKNUM && file.dbOid == MyDatabaseId)
			blob_gc_changed_add(changed, file.relNumber, block);
	}
}

/* Ends behind the last record that begins before stop. */
static void
read_records(BlobGcChanged *changed, XLogReaderState *reader, XLogRecPtr start, XLogRecPtr stop)
{
	XLogBeginRead(reader, start);
	while (reader->EndRecPtr < stop)
	{
		XLogRecPtr	position = reader->EndRecPtr;
		char	   *problem;

		CHECK_FOR_INTERRUPTS();
		if (XLogReadRecord(reader, &problem) == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("could not read WAL at %X/%X: %s", LSN_FORMAT_ARGS(position),
							problem != NULL ? problem : "its end has come too early")));
		add_blocks(changed, reader);
	}
}

XLogRecPtr
blob_gc_tail_read(BlobGcChanged *changed, XLogRecPtr start, XLogRecPtr stop)
{
	ReadLocalXLogPageNoWaitPrivate private = {.end_of_wal = false};
	XLogReaderRoutine routine = {.page_read = read_local_xlog_page_no_wait,
	.segment_open = wal_segment_open,.segment_close = wal_segment_close};
	XLogReaderState *reader = XLogReaderAllocate(wal_segment_size, NULL, &routine, &private);
	volatile XLogRecPtr end = start;

	if (reader == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	/* The reader has a file open that no one else would close. */
	PG_TRY();
	{
		read_records(changed, reader, start, stop);
		end = reader->EndRecPtr;
	}
	PG_FINALLY();
	{
		XLogReaderFree(reader);
	}
	PG_END_TRY();
	return end;
}

#endif							/* BLOB_HAS_WAL_SUMMARIES */
