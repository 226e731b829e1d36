/*
 * io/segment_space.c
 *	  Segment files of the extent store: reserving their bytes, holes, sizes.
 *
 * Locking.  None here: the allocator serialises all of that within a store.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlogutils.h"
#include "utils/wait_event.h"
#include "io/segment.h"
#include "pgstat.h"
#include "storage/fd.h"

/* Bytes that one write() of zeros covers, where fallocate() is not supported. */
#define ZERO_BYTES (256 * 1024)

/* The unit of st_blocks, whatever the file system. */
#define STAT_BLOCK_BYTES 512

/* Never written: its pages stay the kernel's zero page. */
static char zero_bytes[ZERO_BYTES] __attribute__((aligned(BLOB_PAGE_SIZE)));

/*
 * Lengthen the file with zeros to end_bytes; returns 0 or the errno.  Bytes below the present end
 * may be content, and are left alone.
 */
static int
write_zeros(int fd, uint64 end_bytes)
{
	struct stat status;
	uint64		offset;

	if (fstat(fd, &status) != 0)
		return errno;

	offset = TYPEALIGN64(BLOB_PAGE_SIZE, (uint64) status.st_size);
	while (offset < end_bytes)
	{
		ssize_t		written;

		written = pwrite(fd, zero_bytes, Min(ZERO_BYTES, end_bytes - offset), offset);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return errno;
		/* Less than a page was written, directly or not: the disk is about to be full. */
		written -= written % BLOB_PAGE_SIZE;
		if (written == 0)
			return ENOSPC;
		offset += written;
	}
	return 0;
}

/* Reserve bytes in an open file; returns 0 or the errno. */
static int
allocate_bytes(int fd, uint64 offset_bytes, uint64 length_bytes)
{
	int			result;

	do
	{
		result = fallocate(fd, 0, offset_bytes, length_bytes);
	} while (result != 0 && errno == EINTR);

	if (result == 0)
		return 0;
	if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
		return write_zeros(fd, offset_bytes + length_bytes);
	return errno;
}

/* Reserve bytes of an open segment file. */
static void
reserve_bytes(int fd, const BlobStoreId *store, uint32 segment_no, uint64 offset_bytes,
			  uint64 length_bytes)
{
	char		path[MAXPGPATH];
	int			error;

	blob_segment_path(path, sizeof(path), store, segment_no);
	pgstat_report_wait_start(PG_WAIT_EXTENSION);
	error = allocate_bytes(fd, offset_bytes, length_bytes);
	pgstat_report_wait_end();
	if (error != 0)
	{
		bool		is_full = (error == ENOSPC || error == EDQUOT);

		errno = error;
		ereport(ERROR,
				(is_full ? errcode(ERRCODE_DISK_FULL) : errcode_for_file_access(),
				 errmsg("could not reserve space for blob content: %m"),
				 errdetail("Extending blob segment file \"%s\" by %llu bytes failed.",
						   path, (unsigned long long) length_bytes),
				 is_full ? errhint("Check free disk space and quotas.") : 0));
	}
}

/* Make a reservation durable. */
static void
sync_reservation(int fd, const BlobStoreId *store, uint32 segment_no)
{
	char		path[MAXPGPATH];
	int			error;

	blob_segment_path(path, sizeof(path), store, segment_no);
	pgstat_report_wait_start(PG_WAIT_EXTENSION);
	error = pg_fsync(fd) != 0 ? errno : 0;
	pgstat_report_wait_end();
	if (error != 0)
	{
		/*
		 * The error may concern content of returned values in this file, and is reported only once.
		 */
		errno = error;
		ereport(PANIC,
				(errcode_for_file_access(),
				 errmsg("could not fsync blob segment file \"%s\": %m", path)));
	}
}

/*
 * The bytes of a file below those that are being reserved must be there, and all of a file around a
 * hole: making the file anew, or longer, would turn an error of its readers into zeros.  Replay
 * makes this check by itself (recovery/invalid_segments.h).
 */
static void
check_reserved_before(const BlobStoreId *store, const BlobSegmentPart *part)
{
	uint32		segment_no = blob_segment_of(part->first_page);
	uint64		pages = part->first_page % BLOB_SEGMENT_PAGES + (part->is_hole ? part->pages : 0);
	char		path[MAXPGPATH];

	if (InRecovery || Max(part->bytes_before, 0) >= (int64) (pages * BLOB_PAGE_SIZE))
		return;
	blob_segment_path(path, sizeof(path), store, segment_no);
	ereport(ERROR,
			(errcode(part->bytes_before < 0 ? ERRCODE_UNDEFINED_FILE : ERRCODE_DATA_CORRUPTED),
			 part->bytes_before < 0 ? errmsg("blob segment file \"%s\" is missing", path) :
			 errmsg("blob segment file \"%s\" is too short", path),
			 errhint("Restore the file from a backup; blobext_check() lists the affected "
					 "values.")));
}

/* The map is about to promise these pages. */
static void
assert_reserved(const BlobStoreId *store, const BlobSegmentPart *part)
{
	Assert(blob_segment_file_bytes(store, blob_segment_of(part->first_page)) >=
		   (int64) ((part->first_page % BLOB_SEGMENT_PAGES + part->pages) * BLOB_PAGE_SIZE));
}

/*
 * Reserve the blocks of parts, and sync each file once, when the next part is in another one.
 * *begun is the number of parts whose files may have been changed, also after an error.
 */
static void
reserve_parts(const BlobStoreId *store, BlobSegmentPart *parts, int count, volatile int *begun)
{
	for (int i = 0; i < count; i++)
	{
		BlobSegmentPart *part = &parts[i];
		uint32		segment_no = blob_segment_of(part->first_page);
		int			fd;

		part->bytes_before = blob_segment_file_bytes(store, segment_no);
		check_reserved_before(store, part);
		*begun = i + 1;
		/* Syncs the directory of a new file. */
		fd = blob_segment_open(store, segment_no,
							   part->is_hole ? BLOB_SEGMENT_MUST_EXIST : BLOB_SEGMENT_CREATE);
		reserve_bytes(fd, store, segment_no,
					  (part->first_page % BLOB_SEGMENT_PAGES) * BLOB_PAGE_SIZE,
					  part->pages * BLOB_PAGE_SIZE);
		if (i + 1 == count || blob_segment_of(parts[i + 1].first_page) != segment_no)
			sync_reservation(fd, store, segment_no);
		assert_reserved(store, part);
	}
}

/*
 * Give back the space that a failed reservation took, last part first.  Otherwise a value that was
 * too large would leave a full disk behind, which would stop the server's WAL.  Beyond the size
 * that a file had before there is no content, because reservations are serialised.  Best effort,
 * never throws.
 */
static void
give_back(const BlobStoreId *store, const BlobSegmentPart *parts, int count)
{
	for (int i = count - 1; i >= 0; i--)
	{
		const BlobSegmentPart *part = &parts[i];
		int64		bytes_before = Max(part->bytes_before, 0);
		char		path[MAXPGPATH];
		struct stat status;

		if (part->is_hole)
		{
			(void) blob_segment_punch(store, part->first_page, part->first_page + part->pages);
			continue;
		}
		blob_segment_path(path, sizeof(path), store, blob_segment_of(part->first_page));
		if (stat(path, &status) == 0 && status.st_size > bytes_before &&
			truncate(path, bytes_before) != 0)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not truncate blob segment file \"%s\": %m", path)));
	}
}

void
blob_segment_fill(const BlobStoreId *store, BlobSegmentPart *parts, int count)
{
	volatile int begun = 0;

	PG_TRY();
	{
		reserve_parts(store, parts, count, &begun);
	}
	PG_CATCH();
	{
		give_back(store, parts, begun);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

void
blob_segment_reserve(const BlobStoreId *store, BlobPageNo first_page, BlobPageNo end_page)
{
	BlobSegmentPart *parts;
	int			count = 0;

	Assert(end_page <= BLOB_MAX_PAGE_NO + 1);
	if (first_page >= end_page)
		return;

	parts = palloc0(sizeof(BlobSegmentPart) *
					(blob_segment_of(end_page - 1) - blob_segment_of(first_page) + 1));
	while (first_page < end_page)
	{
		BlobPageNo	stop = Min(end_page, blob_segment_end(first_page));

		parts[count].first_page = first_page;
		parts[count++].pages = stop - first_page;
		first_page = stop;
	}
	blob_segment_fill(store, parts, count);
	pfree(parts);
}

int64
blob_segment_file_bytes(const BlobStoreId *store, uint32 segment_no)
{
	char		path[MAXPGPATH];
	struct stat status;

	blob_segment_path(path, sizeof(path), store, segment_no);
	if (stat(path, &status) == 0)
		return (int64) status.st_size;
	if (errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat blob segment file \"%s\": %m", path)));
	return -1;
}

int64
blob_segment_disk_bytes(const BlobStoreId *store, uint32 segment_no)
{
	char		path[MAXPGPATH];
	struct stat status;

	blob_segment_path(path, sizeof(path), store, segment_no);
	if (stat(path, &status) == 0)
		return (int64) status.st_blocks * STAT_BLOCK_BYTES;
	return -1;
}

/*
 * fallocate() waits for direct writes in flight before it looks at anything.  It does not change
 * blocks that are allocated.
 */
void
blob_segment_settle(const BlobStoreId *store, uint32 segment_no)
{
	int			fd = blob_segment_open(store, segment_no, BLOB_SEGMENT_MISSING_OK);
	int			result;

	if (fd < 0)
		return;
	pgstat_report_wait_start(PG_WAIT_EXTENSION);
	do
		result = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, BLOB_PAGE_SIZE);
	while (result != 0 && errno == EINTR);
	pgstat_report_wait_end();

	/* A file system without fallocate() has no asynchronous direct writes either. */
	if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not wait for writes to blob segment %u: %m", segment_no)));
}

bool
blob_segment_punch(const BlobStoreId *store, BlobPageNo first_page, BlobPageNo end_page)
{
	uint32		segment_no = blob_segment_of(first_page);
	int			fd = blob_segment_open(store, segment_no, BLOB_SEGMENT_TRY);
	int			result = -1;

	if (fd >= 0)
	{
		pgstat_report_wait_start(PG_WAIT_EXTENSION);
		do
			result = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
							   (first_page % BLOB_SEGMENT_PAGES) * BLOB_PAGE_SIZE,
							   (end_page - first_page) * BLOB_PAGE_SIZE);
		while (result != 0 && errno == EINTR);
		pgstat_report_wait_end();
	}
	if (result == 0 || errno == ENOENT)
		return true;
	if (errno == EOPNOTSUPP || errno == ENOSYS)
		return false;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not give blocks of blob segment %u back to the file system: %m",
					segment_no)));
	return true;
}
