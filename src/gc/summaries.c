/*
 * gc/summaries.c
 *	  WAL summaries, see gc/summaries.h: lists their files, and reads what they have of a table.
 *
 * PostgreSQL does not install the header of its own functions that list and open these files, so
 * they are listed by their names here.  Their content is read by its functions.
 */
#include "postgres.h"

#include "core/compat.h"
#include "gc/summaries.h"

#if BLOB_HAS_WAL_SUMMARIES

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "common/blkreftable.h"
#include "core/attempt.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#define FOLDER XLOGDIR "/summaries"

/* Blocks that are taken from a summary at once. */
#define BLOCKS_AT_ONCE 256

typedef struct SummaryFile
{
	XLogRecPtr	start;
	XLogRecPtr	end;
} SummaryFile;

typedef struct BlobGcSummaries
{
	MemoryContext context;
	TimeLineID	timeline;
	SummaryFile *files;			/* in the order of the WAL; each begins where the last one ends */
	int			count;

	/* The table. */
	RelFileLocator locator;
	BlockNumber block_count;
	uint8	   *changed;		/* a bit for each block; NULL: not read yet */
	XLogRecPtr	since;			/* all changes from here on are read */
	bool		has_failed;
} BlobGcSummaries;

/* ---- list ---- */

static int
compare_files(const void *left, const void *right)
{
	XLogRecPtr	a = ((const SummaryFile *) left)->start;
	XLogRecPtr	b = ((const SummaryFile *) right)->start;

	return a < b ? -1 : a > b;
}

/* The name of a summary: timeline, first position, end, each in hexadecimal digits. */
static bool
parse_name(const char *name, TimeLineID timeline, SummaryFile *file)
{
	unsigned int parts[5];

	if (strspn(name, "0123456789ABCDEF") != 40 || strcmp(name + 40, ".summary") != 0 ||
		sscanf(name, "%08X%08X%08X%08X%08X", &parts[0], &parts[1], &parts[2], &parts[3],
			   &parts[4]) != 5)
		return false;
	file->start = (uint64) parts[1] << 32 | parts[2];
	file->end = (uint64) parts[3] << 32 | parts[4];
	return parts[0] == timeline;
}

static void
list_files(BlobGcSummaries *summaries)
{
	DIR		   *directory = AllocateDir(FOLDER);
	struct dirent *entry;
	int			room = 64;

	summaries->files = palloc(sizeof(SummaryFile) * room);
	while ((entry = ReadDirExtended(directory, FOLDER, LOG)) != NULL)
	{
		SummaryFile file;

		if (!parse_name(entry->d_name, summaries->timeline, &file))
			continue;
		if (summaries->count == room)
			summaries->files = repalloc(summaries->files, sizeof(SummaryFile) * (room *= 2));
		summaries->files[summaries->count++] = file;
	}
	FreeDir(directory);
	qsort(summaries->files, summaries->count, sizeof(SummaryFile), compare_files);
}

BlobGcSummaries *
blob_gc_summaries_open(void)
{
	BlobGcSummaries *summaries = palloc0(sizeof(BlobGcSummaries));
	int			first;

	summaries->context = CurrentMemoryContext;
	summaries->timeline = GetWALInsertionTimeLine();
	list_files(summaries);
	if (summaries->count == 0)
		return NULL;
	for (first = summaries->count - 1; first > 0; first--)
	{
		if (summaries->files[first - 1].end != summaries->files[first].start)
			break;
	}
	summaries->files += first;
	summaries->count -= first;
	return summaries;
}

XLogRecPtr
blob_gc_summaries_end(const BlobGcSummaries *summaries)
{
	return summaries == NULL ? InvalidXLogRecPtr : summaries->files[summaries->count - 1].end;
}

/* ---- tables ---- */

void
blob_gc_summaries_begin_table(BlobGcSummaries *summaries, Relation relation,
							  BlockNumber block_count)
{
	if (summaries == NULL)
		return;
	summaries->locator = relation->rd_locator;
	summaries->block_count = block_count;
	summaries->has_failed = false;
}

void
blob_gc_summaries_end_table(BlobGcSummaries *summaries)
{
	if (summaries == NULL || summaries->changed == NULL)
		return;
	pfree(summaries->changed);
	summaries->changed = NULL;
}

static void
set_changed(BlobGcSummaries *summaries, BlockNumber block)
{
	if (block < summaries->block_count)
		summaries->changed[block / 8] |= 1 << (block % 8);
}

bool
blob_gc_summaries_changed(const BlobGcSummaries *summaries, BlockNumber block)
{
	return block >= summaries->block_count ||
		(summaries->changed[block / 8] >> (block % 8) & 1) != 0;
}

static int
read_bytes(void *file, void *data, int length)
{
	size_t		bytes = fread(data, 1, length, (FILE *) file);

	if (bytes == 0 && ferror((FILE *) file))
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not read a WAL summary: %m")));
	return (int) bytes;
}

static void
refuse(void *file, char *format,...)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("a WAL summary is damaged")));
}

/* From the limit on blocks were cut off, or are those of another file of this name. */
static void
set_changed_from(BlobGcSummaries *summaries, BlockNumber limit)
{
	for (BlockNumber block = limit; block < summaries->block_count; block++)
		set_changed(summaries, block);
}

/* Whether an entry is of the table.  Number 0 stands for all tables of a database. */
static bool
is_of_table(const BlobGcSummaries *summaries, const RelFileLocator *locator, ForkNumber fork)
{
	return fork == MAIN_FORKNUM && locator->spcOid == summaries->locator.spcOid &&
		locator->dbOid == summaries->locator.dbOid &&
		(locator->relNumber == summaries->locator.relNumber || locator->relNumber == 0);
}

/* All of a file is read, since its checksum comes last. */
static void
read_file(BlobGcSummaries *summaries, const SummaryFile *summary)
{
	char		path[MAXPGPATH];
	FILE	   *file;
	BlockRefTableReader *reader;
	RelFileLocator locator;
	ForkNumber	fork;
	BlockNumber limit;

	snprintf(path, sizeof(path), FOLDER "/%08X%08X%08X%08X%08X.summary", summaries->timeline,
			 LSN_FORMAT_ARGS(summary->start), LSN_FORMAT_ARGS(summary->end));
	file = AllocateFile(path, PG_BINARY_R);
	if (file == NULL)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path)));
	reader = CreateBlockRefTableReader(read_bytes, file, path, refuse, file);
	while (BlockRefTableReaderNextRelation(reader, &locator, &fork, &limit))
	{
		BlockNumber blocks[BLOCKS_AT_ONCE];
		unsigned	count;

		bool		is_ours = is_of_table(summaries, &locator, fork);

		CHECK_FOR_INTERRUPTS();
		if (is_ours)
			set_changed_from(summaries, limit);
		/* The next entry comes after the blocks of this one have been taken. */
		while ((count = BlockRefTableReaderGetBlocks(reader, blocks, BLOCKS_AT_ONCE)) > 0)
		{
			for (unsigned i = 0; is_ours && i < count; i++)
				set_changed(summaries, blocks[i]);
		}
	}
	DestroyBlockRefTableReader(reader);
	(void) FreeFile(file);		/* nothing was written */
}

static void
read_files(void *argument)
{
	BlobGcSummaries *summaries = argument;

	for (int i = 0; i < summaries->count; i++)
	{
		if (summaries->files[i].end > summaries->since)
			read_file(summaries, &summaries->files[i]);
	}
}

static bool
read_table(BlobGcSummaries *summaries)
{
	ErrorData  *error;

	summaries->changed = MemoryContextAllocExtended(summaries->context,
													summaries->block_count / 8 + 1,
													MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	error = blob_attempt(read_files, summaries);
	if (error == NULL)
		return true;
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED || error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
		ReThrowError(error);
	ereport(LOG,
			(errmsg("%s", error->message),
			 errdetail("Rounds of the collector read pages that have not changed.")));
	FreeErrorData(error);
	summaries->has_failed = true;
	return false;
}

bool
blob_gc_summaries_cover(BlobGcSummaries *summaries, XLogRecPtr since)
{
	if (summaries == NULL || summaries->has_failed || since < summaries->files[0].start)
		return false;
	if (summaries->changed != NULL)
		return since >= summaries->since;
	summaries->since = since;
	return read_table(summaries);
}

#else							/* !BLOB_HAS_WAL_SUMMARIES */

BlobGcSummaries *
blob_gc_summaries_open(void)
{
	return NULL;
}

XLogRecPtr
blob_gc_summaries_end(const BlobGcSummaries *summaries)
{
	return InvalidXLogRecPtr;
}

void
blob_gc_summaries_begin_table(BlobGcSummaries *summaries, Relation relation,
							  BlockNumber block_count)
{
}

void
blob_gc_summaries_end_table(BlobGcSummaries *summaries)
{
}

bool
blob_gc_summaries_cover(BlobGcSummaries *summaries, XLogRecPtr since)
{
	return false;
}

bool
blob_gc_summaries_changed(const BlobGcSummaries *summaries, BlockNumber block)
{
	return true;
}

#endif							/* BLOB_HAS_WAL_SUMMARIES */
