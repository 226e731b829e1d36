/*
 * gc/summaries.c
 *	  Which blocks the WAL names, see gc/summaries.h: what the summaries have, and after their end
 *	  the WAL itself.
 *
 * PostgreSQL does not install the header of its own functions that list and open the summaries'
 * files, so they are listed by their names here.  Their content is read by its functions.
 */
#include "postgres.h"

#include "core/compat.h"
#include "gc/summaries.h"

#if BLOB_HAS_WAL_SUMMARIES

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "common/blkreftable.h"
#include "core/attempt.h"
#include "gc/changed.h"
#include "gc/tail.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "wal/insert.h"

#define FOLDER XLOGDIR "/summaries"

/* Blocks that are taken from a summary at once. */
#define BLOCKS_AT_ONCE 256

/*
 * A round reads one byte of WAL for so many bytes of tables that it marks: where there is more WAL,
 * reading the pages costs less.
 */
#define TABLE_BYTES_PER_WAL_BYTE 4

/* The most WAL that is read at once, since nobody looks meanwhile whether the round is in the way. */
#define MAX_TAIL_BYTES (64 * 1024 * 1024)

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

	BlobGcChanged *changed;		/* NULL: nothing is read yet */
	XLogRecPtr	since;			/* it has all blocks from here on ... */
	XLogRecPtr	end;			/* ... up to here */
	XLogRecPtr	next_end;		/* up to where to read now */
	bool		has_failed;
	uint64		tail_bytes;		/* WAL that may still be read */

	/* The table. */
	Oid			tablespace;
	Oid			file;
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

/* ---- files ---- */

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

/* The blocks of an entry are taken, whether they are wanted or not: the next one comes after them. */
static void
read_blocks(BlobGcSummaries *summaries, BlockRefTableReader *reader, const RelFileLocator *file,
			bool is_wanted)
{
	BlockNumber blocks[BLOCKS_AT_ONCE];
	unsigned	count;

	while ((count = BlockRefTableReaderGetBlocks(reader, blocks, BLOCKS_AT_ONCE)) > 0)
	{
		for (unsigned i = 0; is_wanted && i < count; i++)
			blob_gc_changed_add(summaries->changed, file->spcOid, file->relNumber, blocks[i]);
	}
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
		bool		is_wanted = fork == MAIN_FORKNUM && locator.dbOid == MyDatabaseId;

		CHECK_FOR_INTERRUPTS();
		if (is_wanted && BlockNumberIsValid(limit))
			blob_gc_changed_add_from(summaries->changed, locator.spcOid, locator.relNumber, limit);
		read_blocks(summaries, reader, &locator, is_wanted);
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
	summaries->end = summaries->files[summaries->count - 1].end;
}

static void
read_tail(void *argument)
{
	BlobGcSummaries *summaries = argument;

	summaries->end = blob_gc_tail_read(summaries->changed, summaries->end, summaries->next_end);
}

/*
 * Read more; what an error leaves is incomplete.  Files and WAL that have been removed since they
 * were listed are no fault.
 */
static bool
try_to_read(BlobGcSummaries *summaries, BlobAttemptStep step)
{
	ErrorData  *error = blob_attempt(step, summaries);
	int			category;

	if (error == NULL)
		return true;
	category = ERRCODE_TO_CATEGORY(error->sqlerrcode);
	if (category == ERRCODE_OPERATOR_INTERVENTION || category == ERRCODE_INSUFFICIENT_RESOURCES)
		ReThrowError(error);
	if (error->sqlerrcode != ERRCODE_UNDEFINED_FILE)
		ereport(LOG,
				(errmsg("%s", error->message),
				 errdetail("Rounds of the collector read pages that have not changed.")));
	FreeErrorData(error);
	summaries->has_failed = true;
	return false;
}

static bool
read_summaries(BlobGcSummaries *summaries, XLogRecPtr since)
{
	MemoryContext old_context = MemoryContextSwitchTo(summaries->context);

	summaries->changed = blob_gc_changed_make();
	MemoryContextSwitchTo(old_context);
	summaries->since = since;
	return try_to_read(summaries, read_files);
}

/*
 * Read WAL, up to the present if it is not too much.  All of it counts before any of it is read:
 * a part would be of no use.
 */
static bool
extend(BlobGcSummaries *summaries)
{
	XLogRecPtr	last_end = summaries->end;
	XLogRecPtr	present = blob_wal_end();

	if (present - last_end > summaries->tail_bytes)
		return false;
	XLogFlush(present);
	summaries->next_end = Min(present, last_end + MAX_TAIL_BYTES);
	if (!try_to_read(summaries, read_tail))
		return false;
	summaries->tail_bytes -= Min(summaries->tail_bytes, summaries->end - last_end);
	return true;
}

/* ---- tables ---- */

void
blob_gc_summaries_begin_table(BlobGcSummaries *summaries, Relation relation)
{
	if (summaries == NULL)
		return;
	summaries->tablespace = relation->rd_locator.spcOid;
	summaries->file = relation->rd_locator.relNumber;
	summaries->tail_bytes += (uint64) RelationGetNumberOfBlocks(relation) * BLCKSZ /
		TABLE_BYTES_PER_WAL_BYTE;
}

bool
blob_gc_summaries_tell(BlobGcSummaries *summaries, XLogRecPtr since, XLogRecPtr position)
{
	if (summaries == NULL || summaries->has_failed || since < summaries->files[0].start)
		return false;
	if (summaries->changed == NULL && !read_summaries(summaries, since))
		return false;
	if (since < summaries->since || (position > summaries->end && !extend(summaries)))
		return false;
	return position <= summaries->end;
}

bool
blob_gc_summaries_changed(BlobGcSummaries *summaries, BlockNumber block)
{
	return blob_gc_changed_has(summaries->changed, summaries->tablespace, summaries->file, block);
}

#else							/* !BLOB_HAS_WAL_SUMMARIES */

BlobGcSummaries *
blob_gc_summaries_open(void)
{
	return NULL;
}

void
blob_gc_summaries_begin_table(BlobGcSummaries *summaries, Relation relation)
{
}

bool
blob_gc_summaries_tell(BlobGcSummaries *summaries, XLogRecPtr since, XLogRecPtr position)
{
	return false;
}

bool
blob_gc_summaries_changed(BlobGcSummaries *summaries, BlockNumber block)
{
	return true;
}

#endif							/* BLOB_HAS_WAL_SUMMARIES */
