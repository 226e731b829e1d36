/*
 * io/segment.c
 *	  Segment files of the extent store: names, descriptors, direct or buffered I/O.
 *
 * Layout.  $PGDATA/pg_blobext/<dboid>.<incarnation>/<segment>, each file at most 1 GiB.  A file is
 * made empty, then its directory is synced, and only then does the file get a size.  So a file of a
 * non-zero size has a durable name, whichever process made it and however that ended.
 *
 * Direct or buffered.  The postmaster decides once per start, by trying.  All processes follow its
 * answer in shared memory, so no file is written both ways at a time.
 *
 * Descriptors.  Each process keeps up to BLOB_SEGMENT_PINS of them, and closes the least recently
 * used one first.  Before it uses one again, it looks whether the file still has a name (st_nlink);
 * and, if a lost file was to be made anew since, whether that is the segment's name: an
 * administrator may have set the file aside.  Look-ups skip the descriptor of another file, but it
 * is closed only in its turn, because its user may have I/O in flight there.
 *
 * Locking.  None here: the allocator serialises reservation and removal within a store.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "utils/wait_event.h"
#include "core/settings.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/fd.h"
#include "storage/shmem.h"

#define PROBE_PATH BLOB_STORE_DIR "/direct_io_probe"

typedef struct SegmentShared
{
	bool		is_direct;		/* set by the postmaster, then constant */
	pg_atomic_uint64 removals;	/* files removed since the start */
	pg_atomic_uint64 losses;	/* lost files that were to be made anew */
} SegmentShared;

/* One cached descriptor. */
typedef struct OpenSegment
{
	int			fd;
	bool		has_name;		/* false: the file was removed, look-ups skip the entry */
	uint32		segment_no;
	BlobStoreId store;
	uint64		last_use;		/* value of use_clock */
	bool		name_is_durable;	/* the directory is known to be synced */
	uint64		losses;			/* that there were when it was seen under its name */
} OpenSegment;

static SegmentShared *segment_shared = NULL;

/* The postmaster never fills these, so no process inherits any. */
static OpenSegment open_segments[BLOB_SEGMENT_PINS];
static int	open_segment_count = 0;
static uint64 use_clock = 0;

/* Never written. */
static char zero_page[BLOB_PAGE_SIZE] __attribute__((aligned(BLOB_PAGE_SIZE)));

Size
blob_segment_shmem_size(void)
{
	return MAXALIGN(sizeof(SegmentShared));
}

/* Write one aligned page with O_DIRECT; returns 0 or the errno.  The content does not matter. */
static int
probe_direct_write(void)
{
	int			fd;
	int			error = 0;
	ssize_t		written;

	fd = BasicOpenFilePerm(PROBE_PATH,
						   O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | PG_BINARY | PG_O_DIRECT,
						   pg_file_create_mode);
	if (fd < 0)
		error = errno;
	else
	{
		errno = 0;
		written = pwrite(fd, zero_page, BLOB_PAGE_SIZE, 0);
		if (written != BLOB_PAGE_SIZE)
			error = errno ? errno : ENOSPC;
		close(fd);
	}

	/* A file system may refuse O_DIRECT after it made the file. */
	if (unlink(PROBE_PATH) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", PROBE_PATH)));
	return error;
}

/*
 * Decide between direct and buffered I/O for this run of the server.  A failure here must not keep
 * the server from starting.
 */
static bool
decide_direct(void)
{
	int			error = 0;

	if (MakePGDirectory(BLOB_STORE_DIR) == 0)
		ereport(LOG,
				(errmsg("blobext has made the directory \"%s\" for its files", BLOB_STORE_DIR),
				 errdetail("If databases of this server have values in extents already, their "
						   "files are missing.")));
	else if (errno != EEXIST)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", BLOB_STORE_DIR),
				 errdetail("blobext uses buffered I/O.")));
		return false;
	}
	if (!blob_direct_io || PG_O_DIRECT == 0)
		return false;

	error = probe_direct_write();
	if (error == 0)
		return true;

	errno = error;
	if (error == EINVAL || error == EOPNOTSUPP)
		ereport(LOG,
				(errmsg("direct I/O is not supported for directory \"%s\": %m", BLOB_STORE_DIR),
				 errdetail("blobext uses buffered I/O.")));
	else
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not test direct I/O with file \"%s\": %m", PROBE_PATH),
				 errdetail("blobext uses buffered I/O.")));
	return false;
}

/* Called under AddinShmemInitLock; the working directory is the data directory. */
void
blob_segment_shmem_init(void)
{
	bool		found;

	segment_shared = ShmemInitStruct("blobext segments", sizeof(SegmentShared), &found);
	if (!found)
	{
		segment_shared->is_direct = decide_direct();
		pg_atomic_init_u64(&segment_shared->removals, 0);
		pg_atomic_init_u64(&segment_shared->losses, 0);
	}
}

bool
blob_segment_is_direct(void)
{
	return segment_shared->is_direct;
}

void
blob_segment_dir_path(char *path, size_t path_bytes, const BlobStoreId *store)
{
	snprintf(path, path_bytes, BLOB_STORE_DIR "/%u.%016llx",
			 store->dboid, (unsigned long long) store->incarnation);
}

void
blob_segment_path(char *path, size_t path_bytes, const BlobStoreId *store, uint32 segment_no)
{
	snprintf(path, path_bytes, BLOB_STORE_DIR "/%u.%016llx/%08x",
			 store->dboid, (unsigned long long) store->incarnation, segment_no);
}

/*
 * fsync() a directory; a failure is a PANIC, as for the files in it.  fsync_fname() would do,
 * except that data_sync_retry turns its PANIC into an ERROR.
 */
void
blob_segment_sync_directory(const char *path)
{
	int			fd;
	int			result;

	if (!enableFsync)
		return;

	fd = BasicOpenFilePerm(path, O_RDONLY | O_CLOEXEC | PG_BINARY, pg_file_create_mode);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open directory \"%s\": %m", path)));

	pgstat_report_wait_start(PG_WAIT_EXTENSION);
	result = pg_fsync(fd);
	pgstat_report_wait_end();

	/* Some file systems do not support fsync of directories; then there is nothing to do. */
	if (result != 0 && errno != EBADF && errno != EINVAL)
		ereport(PANIC,
				(errcode_for_file_access(),
				 errmsg("could not fsync directory \"%s\": %m", path)));
	close(fd);
}

/*
 * Make one directory, and its name durable.  The parent is synced also if the directory exists: the
 * process that made it may have died before it synced.
 */
static void
make_directory(const char *path, const char *parent)
{
	if (MakePGDirectory(path) != 0 && errno != EEXIST)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", path)));
	blob_segment_sync_directory(parent);
}

void
blob_segment_make_dir(const BlobStoreId *store)
{
	char		path[MAXPGPATH];

	blob_segment_dir_path(path, sizeof(path), store);
	make_directory(BLOB_STORE_DIR, ".");
	make_directory(path, BLOB_STORE_DIR);
}

void
blob_segment_count_removal(const char *path)
{
	Assert(access(path, F_OK) != 0);
	pg_atomic_fetch_add_u64(&segment_shared->removals, 1);
}

uint64
blob_segment_removals(void)
{
	uint64		removals = pg_atomic_read_u64(&segment_shared->removals);

	/* The caller looks up files next. */
	pg_read_barrier();
	return removals;
}

void
blob_segment_note_loss(void)
{
	pg_atomic_fetch_add_u64(&segment_shared->losses, 1);
}

/* Close one cached descriptor, and move the last one to its place. */
static void
close_entry(OpenSegment *entry)
{
	if (close(entry->fd) != 0)
		elog(LOG, "could not close blob segment file: %m");
	ReleaseExternalFD();
	*entry = open_segments[--open_segment_count];
}

void
blob_segment_release_all(void)
{
	while (open_segment_count > 0)
		close_entry(&open_segments[open_segment_count - 1]);
}

/* Whether the file of an entry, with this status, is the one that has the segment's name. */
static bool
has_its_name(OpenSegment *entry, const struct stat *status)
{
	uint64		losses = pg_atomic_read_u64(&segment_shared->losses);
	char		path[MAXPGPATH];
	struct stat named;

	if (status->st_nlink == 0)
		return false;
	if (entry->losses == losses)
		return true;
	pg_read_barrier();
	blob_segment_path(path, sizeof(path), &entry->store, entry->segment_no);
	if (stat(path, &named) != 0 || named.st_ino != status->st_ino ||
		named.st_dev != status->st_dev)
		return false;
	entry->losses = losses;
	return true;
}

/* The cached entry of the segment, or NULL. */
static OpenSegment *
find_entry(const BlobStoreId *store, uint32 segment_no)
{
	for (int i = 0; i < open_segment_count; i++)
	{
		OpenSegment *entry = &open_segments[i];
		struct stat status;

		if (!entry->has_name || entry->segment_no != segment_no ||
			!blob_store_id_equals(&entry->store, store))
			continue;
		if (fstat(entry->fd, &status) == 0 && has_its_name(entry, &status))
			return entry;
		entry->has_name = false;
		return NULL;
	}
	return NULL;
}

/* Make room for one more descriptor, and account for it. */
static void
make_room(void)
{
	if (open_segment_count == BLOB_SEGMENT_PINS)
	{
		OpenSegment *oldest = &open_segments[0];

		for (int i = 1; i < open_segment_count; i++)
		{
			if (open_segments[i].last_use < oldest->last_use)
				oldest = &open_segments[i];
		}
		close_entry(oldest);
	}

	/*
	 * Callers rely on BLOB_SEGMENT_PINS descriptors.  So exceeding the limit for extensions is
	 * better than failing a store.
	 */
	if (!AcquireExternalFD())
		ReserveExternalFD();
}

/* open() a segment file in the cluster's mode; returns -1 with errno. */
static int
open_file(const char *path, bool create)
{
	int			flags = O_RDWR | O_CLOEXEC | PG_BINARY;

	if (segment_shared->is_direct)
		flags |= PG_O_DIRECT;
	if (create)
		flags |= O_CREAT;
	return BasicOpenFilePerm(path, flags, pg_file_create_mode);
}

/*
 * Open the file, which make_room() has accounted for, and make it if asked to.  Returns -1 if the
 * file does not exist and that is no error.
 */
static int
open_or_make(const BlobStoreId *store, uint32 segment_no, BlobSegmentMissing missing)
{
	char		path[MAXPGPATH];
	int			fd;

	blob_segment_path(path, sizeof(path), store, segment_no);
	fd = open_file(path, false);
	if (fd < 0 && errno == ENOENT && missing == BLOB_SEGMENT_CREATE)
	{
		blob_segment_make_dir(store);
		fd = open_file(path, true);
	}
	if (fd < 0 && missing != BLOB_SEGMENT_TRY &&
		(errno != ENOENT || missing != BLOB_SEGMENT_MISSING_OK))
	{
		bool		is_full = (errno == ENOSPC || errno == EDQUOT);

		ereport(ERROR,
				(is_full ? errcode(ERRCODE_DISK_FULL) : errcode_for_file_access(),
				 errmsg("could not open blob segment file \"%s\": %m", path),
				 is_full ? errhint("Check free disk space and quotas.") : 0));
	}
	return fd;
}

/*
 * The maker of an empty file may have died before it synced the directory.  So sync the directory
 * now, before the file gets a size.
 */
static void
make_name_durable(OpenSegment *entry)
{
	char		path[MAXPGPATH];
	struct stat status;

	blob_segment_dir_path(path, sizeof(path), &entry->store);
	if (fstat(entry->fd, &status) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat blob segment file in \"%s\": %m", path)));
	if (status.st_size == 0)
		blob_segment_sync_directory(path);
	entry->name_is_durable = true;
}

/* Open a segment that is not cached, and cache it.  Returns NULL if the file does not exist. */
static OpenSegment *
add_entry(const BlobStoreId *store, uint32 segment_no, BlobSegmentMissing missing)
{
	OpenSegment *entry;
	uint64		losses = pg_atomic_read_u64(&segment_shared->losses);
	int			fd = -1;

	pg_read_barrier();
	make_room();
	PG_TRY();
	{
		fd = open_or_make(store, segment_no, missing);
	}
	PG_CATCH();
	{
		ReleaseExternalFD();
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (fd < 0)
	{
		int			save_errno = errno;

		ReleaseExternalFD();
		errno = save_errno;
		return NULL;
	}

	entry = &open_segments[open_segment_count++];
	entry->fd = fd;
	entry->has_name = true;
	entry->store = *store;
	entry->segment_no = segment_no;
	entry->name_is_durable = false;
	entry->losses = losses;
	return entry;
}

/* See segment.h.  With BLOB_SEGMENT_CREATE the file's name is durable on return, too. */
int
blob_segment_open(const BlobStoreId *store, uint32 segment_no, BlobSegmentMissing missing)
{
	OpenSegment *entry;

	if (segment_shared == NULL)
		blob_io_not_preloaded();

	entry = find_entry(store, segment_no);
	if (entry == NULL)
		entry = add_entry(store, segment_no, missing);
	if (entry == NULL)
		return -1;

	entry->last_use = ++use_clock;
	if (missing == BLOB_SEGMENT_CREATE && !entry->name_is_durable)
		make_name_durable(entry);
	return entry->fd;
}
