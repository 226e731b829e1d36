/*
 * autogc/scrub_results.c
 *	  A file of results for each store, see autogc/scrub_results.h: a header, and a record for each
 *	  segment, of zeros where there is none.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "autogc/scrub_results.h"
#include "pgstat.h"
#include "storage/fd.h"

const BlobStoreFileKind blob_scrub_results_kind = {PG_STAT_TMP_DIR, "blobext_scrub."};

#define RESULTS_MAGIC UINT64CONST(0x3162757263736f62)	/* "boscrub1" */

/* As long as a record, so that none crosses a page of the file system. */
typedef struct ResultsHeader
{
	uint64		magic;
	uint64		unused[3];
} ResultsHeader;

StaticAssertDecl(sizeof(ResultsHeader) == sizeof(BlobScrubResult), "records are aligned");

static void
report_error(const char *action, const char *path)
{
	ereport(ERROR,
			(errcode_for_file_access(), errmsg("could not %s file \"%s\": %m", action, path)));
}

/* The records of an open file; none if it is not one of ours. */
static uint32
read_records(int fd, const char *path, BlobScrubResult **results)
{
	struct stat status;
	ResultsHeader header;
	ssize_t		bytes;

	if (fstat(fd, &status) != 0)
		report_error("stat", path);
	if (status.st_size < (off_t) sizeof(header))
		return 0;
	bytes = pread(fd, &header, sizeof(header), 0);
	if (bytes < 0)
		report_error("read", path);
	if (bytes < (ssize_t) sizeof(header) || header.magic != RESULTS_MAGIC)
		return 0;
	*results = palloc_extended(status.st_size, MCXT_ALLOC_HUGE);
	bytes = pread(fd, *results, status.st_size - sizeof(header), sizeof(header));
	if (bytes < 0)
		report_error("read", path);
	return (uint32) (bytes / sizeof(BlobScrubResult));
}

uint32
blob_scrub_results_read(const BlobStoreId *store, BlobScrubResult **results)
{
	char		path[MAXPGPATH];
	uint32		count;
	int			fd;

	*results = NULL;
	blob_store_file_path(path, &blob_scrub_results_kind, store, "");
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		report_error("open", path);
	count = read_records(fd, path, results);
	CloseTransientFile(fd);
	return count;
}

static void
write_at(int fd, const char *path, const void *data, size_t bytes, off_t offset)
{
	errno = 0;
	if (pwrite(fd, data, bytes, offset) == (ssize_t) bytes)
		return;
	if (errno == 0)
		errno = ENOSPC;
	report_error("write", path);
}

void
blob_scrub_results_write(const BlobStoreId *store, uint32 segment_no,
						 const BlobScrubResult *result)
{
	ResultsHeader header = {.magic = RESULTS_MAGIC};
	char		path[MAXPGPATH];
	int			fd;

	blob_store_file_path(path, &blob_scrub_results_kind, store, "");
	fd = OpenTransientFile(path, O_RDWR | O_CREAT | PG_BINARY);
	if (fd < 0)
		report_error("open", path);
	write_at(fd, path, &header, sizeof(header), 0);
	write_at(fd, path, result, sizeof(*result),
			 sizeof(header) + (off_t) segment_no * sizeof(*result));
	if (CloseTransientFile(fd) != 0)
		report_error("close", path);
}
