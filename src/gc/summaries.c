/*
 * gc/summaries.c
 *	  WAL summaries, see gc/summaries.h: lists their files, and reads them.
 *
 * PostgreSQL does not install the header of its own functions that list and open these files, so
 * they are listed by their names here.  Their content is read by its functions.
 */
#include "postgres.h"

#include "core/compat.h"
#include "gc/summaries.h"

#if BLOB_HAS_WAL_SUMMARIES

#include <sys/stat.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "common/blkreftable.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#define FOLDER XLOGDIR "/summaries"

/* Blocks that are taken from a summary at once. */
#define BLOCKS_AT_ONCE 256

typedef struct SummaryFile
{
	XLogRecPtr	start;
	XLogRecPtr	end;
} SummaryFile;

struct BlobGcSummaries
{
	TimeLineID	timeline;
	SummaryFile *files;			/* in the order of the WAL; each begins where the last one ends */
	int			count;
};

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

/* All summaries of the timeline, sorted. */
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
blob_gc_summaries_list(void)
{
	BlobGcSummaries *summaries = palloc0(sizeof(BlobGcSummaries));
	int			first;

	summaries->timeline = GetWALInsertionTimeLine();
	list_files(summaries);
	for (first = summaries->count - 1; first > 0; first--)
	{
		if (summaries->files[first - 1].end != summaries->files[first].start)
			break;
	}
	if (first > 0)
	{
		summaries->files += first;
		summaries->count -= first;
	}
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

static void
make_path(char path[MAXPGPATH], const BlobGcSummaries *summaries, const SummaryFile *summary)
{
	snprintf(path, MAXPGPATH, FOLDER "/%08X%08X%08X%08X%08X.summary", summaries->timeline,
			 LSN_FORMAT_ARGS(summary->start), LSN_FORMAT_ARGS(summary->end));
}

/* The blocks of an entry are taken, wanted or not: the next entry comes after them. */
static void
read_blocks(BlobGcChanged *changed, BlockRefTableReader *reader, const RelFileLocator *file,
			bool is_wanted)
{
	BlockNumber blocks[BLOCKS_AT_ONCE];
	unsigned	count;

	while ((count = BlockRefTableReaderGetBlocks(reader, blocks, BLOCKS_AT_ONCE)) > 0)
	{
		for (unsigned i = 0; is_wanted && i < count; i++)
			blob_gc_changed_add(changed, file->relNumber, blocks[i]);
	}
}

/* All of a file is read, since its checksum comes last. */
static void
read_file(const BlobGcSummaries *summaries, const SummaryFile *summary,
		  BlobGcChanged *changed)
{
	char		path[MAXPGPATH];
	FILE	   *file;
	BlockRefTableReader *reader;
	RelFileLocator locator;
	ForkNumber	fork;
	BlockNumber limit;			/* from where on an older backup is of no use */

	make_path(path, summaries, summary);
	file = AllocateFile(path, PG_BINARY_R);
	if (file == NULL)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path)));
	reader = CreateBlockRefTableReader(read_bytes, file, path, refuse, file);
	while (BlockRefTableReaderNextRelation(reader, &locator, &fork, &limit))
	{
		bool		is_wanted = fork == MAIN_FORKNUM && locator.dbOid == MyDatabaseId;

		CHECK_FOR_INTERRUPTS();
		read_blocks(changed, reader, &locator, is_wanted);
	}
	DestroyBlockRefTableReader(reader);
	(void) FreeFile(file);		/* nothing was written */
}

static bool
tell_from(const BlobGcSummaries *summaries, XLogRecPtr since)
{
	return summaries->count > 0 && since >= summaries->files[0].start;
}

/* A file that is older than this run is left over from WAL that was lost: it has other records. */
uint64
blob_gc_summaries_bytes(const BlobGcSummaries *summaries, XLogRecPtr since)
{
	uint64		bytes = 0;

	for (int i = 0; tell_from(summaries, since) && i < summaries->count; i++)
	{
		char		path[MAXPGPATH];
		struct stat status;

		if (summaries->files[i].end <= since)
			continue;
		make_path(path, summaries, &summaries->files[i]);
		if (stat(path, &status) != 0)
			ereport(ERROR,
					(errcode_for_file_access(), errmsg("could not stat file \"%s\": %m", path)));
		if (status.st_mtime < timestamptz_to_time_t(PgStartTime))
			return PG_UINT64_MAX;
		bytes += status.st_size;
	}
	return bytes;
}

XLogRecPtr
blob_gc_summaries_read(const BlobGcSummaries *summaries, BlobGcChanged *changed, XLogRecPtr since)
{
	if (!tell_from(summaries, since))
		return since;
	for (int i = 0; i < summaries->count; i++)
	{
		if (summaries->files[i].end > since)
			read_file(summaries, &summaries->files[i], changed);
	}
	return Max(since, summaries->files[summaries->count - 1].end);
}

#endif							/* BLOB_HAS_WAL_SUMMARIES */
