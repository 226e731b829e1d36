/*
 * store/limits.c
 *	  The file "limits" of a store, see store/limits.h.
 *
 * The file has entries of a fixed size, and grows at its end.  Copies may be made at any time; an
 * entry that is cut off is ignored.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/segment.h"
#include "storage/fd.h"
#include "store/limits.h"

typedef struct LimitEntry
{
	XLogRecPtr	lsn;
	BlobGeneration limit;
} LimitEntry;

StaticAssertDecl(sizeof(LimitEntry) == 16, "layout of the file of limits");

static void
file_path(char *path, size_t path_bytes, const BlobStoreId *store)
{
	char		directory[MAXPGPATH];

	blob_segment_dir_path(directory, sizeof(directory), store);
	snprintf(path, path_bytes, "%s/limits", directory);
}

static void
log_failure(const char *action, const char *path)
{
	ereport(LOG,
			(errcode_for_file_access(), errmsg("could not %s file \"%s\": %m", action, path)));
}

/* Whether the last entry is this one; *end is the end of the whole entries. */
static bool
is_last(int fd, const LimitEntry *entry, off_t *end)
{
	struct stat status;
	LimitEntry	last;

	*end = 0;
	if (fstat(fd, &status) != 0)
		return false;
	*end = status.st_size / sizeof(last) * sizeof(last);
	return *end > 0 && pread(fd, &last, sizeof(last), *end - sizeof(last)) == sizeof(last) &&
		last.lsn == entry->lsn && last.limit == entry->limit;
}

void
blob_limits_note(const BlobStoreId *store, XLogRecPtr lsn, BlobGeneration limit)
{
	LimitEntry	entry = {lsn, limit};
	char		path[MAXPGPATH];
	off_t		end;
	int			fd;

	if (!blob_segment_dir_exists(store))
		return;					/* nothing was ever stored */
	file_path(path, sizeof(path), store);
	fd = OpenTransientFile(path, O_RDWR | O_CREAT | PG_BINARY);
	if (fd < 0)
	{
		log_failure("open", path);
		return;
	}
	if (!is_last(fd, &entry, &end) &&
		(pwrite(fd, &entry, sizeof(entry), end) != sizeof(entry) || pg_fdatasync(fd) != 0))
		log_failure("write", path);
	CloseTransientFile(fd);
}

BlobGeneration
blob_limits_at(const BlobStoreId *store, XLogRecPtr lsn)
{
	BlobGeneration limit = BLOB_INVALID_GENERATION;
	char		path[MAXPGPATH];
	LimitEntry	entry;
	int			fd;

	file_path(path, sizeof(path), store);
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0)
	{
		if (errno != ENOENT)
			log_failure("open", path);
		return limit;
	}
	while (read(fd, &entry, sizeof(entry)) == sizeof(entry))
		if (entry.lsn != InvalidXLogRecPtr && entry.lsn <= lsn)
			limit = Max(limit, entry.limit);
	CloseTransientFile(fd);
	return limit;
}
