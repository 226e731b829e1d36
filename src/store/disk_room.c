/*
 * store/disk_room.c
 *	  Disk space that stores leave to the rest of the server, see store/disk_room.h.
 *
 * Segments grow rarely, and take their space at once: each growth asks the kernel.  The WAL grows
 * with each store.  So all stores count the bytes that they are about to log, and ask the kernel
 * when the sum reaches what it had at the last look, or when that look is too old.
 */
#include "postgres.h"

#include <sys/statvfs.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "core/clock.h"
#include "core/settings.h"
#include "io/segment.h"
#include "port/atomics.h"
#include "storage/fd.h"
#include "storage/shmem.h"
#include "store/disk_room.h"
#include "utils/timestamp.h"

/* How long a look at the WAL's file system is good for, since others use the disk, too. */
#define LOOK_INTERVAL_MS 100

/* What a store logs besides its content, in records of the map and of rows. */
#define RECORDS_BYTES 4096

/* No lock: any mixture of the values of two looks is as good as one of them. */
typedef struct DiskRoomShared
{
	pg_atomic_uint64 taken_bytes;	/* of the WAL, counted by all stores since the start */
	pg_atomic_uint64 limit_bytes;	/* taken_bytes may come up to this */
	pg_atomic_uint64 good_until;	/* TimestampTz, for which limit_bytes is good */
} DiskRoomShared;

static DiskRoomShared *room_shared;

Size
blob_disk_room_shmem_size(void)
{
	return MAXALIGN(sizeof(DiskRoomShared));
}

void
blob_disk_room_shmem_init(void)
{
	bool		found;

	room_shared = ShmemInitStruct("blobext disk room", blob_disk_room_shmem_size(), &found);
	if (found)
		return;
	pg_atomic_init_u64(&room_shared->taken_bytes, 0);
	pg_atomic_init_u64(&room_shared->limit_bytes, 0);
	pg_atomic_init_u64(&room_shared->good_until, 0);
}

/* The bytes that must stay free. */
static uint64
kept_bytes(void)
{
	return (uint64) blob_min_free_disk_mb * 1024 * 1024;
}

/* Bytes that the file system of a directory has left; PG_UINT64_MAX if that is unknown. */
static uint64
free_bytes(const char *path)
{
	struct statvfs file_system;
	int			result;

	do
	{
		result = statvfs(path, &file_system);
	} while (result != 0 && errno == EINTR);
	if (result == 0)
		return (uint64) file_system.f_bavail * file_system.f_frsize;

	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not find out the free space of the file system of \"%s\": %m", path)));
	return PG_UINT64_MAX;
}

/* ---- segments ---- */

uint64
blob_disk_room_for_segments(void)
{
	uint64		bytes = free_bytes(BLOB_STORE_DIR);

	if (bytes == PG_UINT64_MAX)
		return bytes;
	return bytes > kept_bytes() ? bytes - kept_bytes() : 0;
}

void
blob_disk_room_require_for_segments(uint64 bytes)
{
	uint64		free;

	pg_atomic_write_u64(&room_shared->good_until, 0);
	if (blob_min_free_disk_mb == 0)
		return;					/* fallocate() fails where there is no space */
	free = free_bytes(BLOB_STORE_DIR);
	if (free >= kept_bytes() && free - kept_bytes() >= bytes)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DISK_FULL),
			 errmsg("could not store blob content: disk is almost full"),
			 errdetail("The file system of \"%s\" has %llu bytes left. The content needs %llu, and "
					   "blobext.min_free_disk keeps %llu.",
					   BLOB_STORE_DIR, (unsigned long long) free, (unsigned long long) bytes,
					   (unsigned long long) kept_bytes()),
			 errhint("Free disk space, or reduce blobext.min_free_disk.")));
}

/* ---- WAL ---- */

/*
 * Bytes of the segments of the WAL that exist already, behind the present one: recycled ones,
 * mostly.  WAL that is written there takes no more disk space.  0 if the directory cannot be read.
 */
static uint64
recycled_bytes(void)
{
	TimeLineID	current_timeline;
	XLogRecPtr	flushed = GetFlushRecPtr(&current_timeline);
	XLogSegNo	current_segment;
	uint64		bytes = 0;
	struct dirent *entry;
	DIR		   *directory = AllocateDir(XLOGDIR);

	XLByteToSeg(flushed, current_segment, wal_segment_size);
	while ((entry = ReadDirExtended(directory, XLOGDIR, LOG)) != NULL)
	{
		TimeLineID	timeline;
		XLogSegNo	segment;

		if (!IsXLogFileName(entry->d_name))
			continue;
		XLogFromFileName(entry->d_name, &timeline, &segment, wal_segment_size);
		if (timeline == current_timeline && segment > current_segment)
			bytes += wal_segment_size;
	}
	if (directory != NULL)
		FreeDir(directory);
	return bytes;
}

/* The bytes that must stay free for the WAL: the next segment as well, which is made as a whole. */
static uint64
kept_for_wal_bytes(void)
{
	return kept_bytes() + wal_segment_size;
}

static void
report_no_room_for_wal(uint64 room, uint64 bytes)
{
	ereport(ERROR,
			(errcode(ERRCODE_DISK_FULL),
			 errmsg("could not store blob content: disk is almost full"),
			 errdetail("The file system of \"%s\" has %llu bytes left for the WAL. The content "
					   "needs %llu, and blobext.min_free_disk and a WAL segment keep %llu.",
					   XLOGDIR, (unsigned long long) room, (unsigned long long) bytes,
					   (unsigned long long) kept_for_wal_bytes()),
			 errhint("Free disk space, or reduce blobext.min_free_disk. Other sessions go on "
					 "writing to the WAL.")));
}

/*
 * Look at the file system, and note up to which sum stores may count on.  counted_bytes of the
 * caller are in the sum already, and not in the WAL yet.  ERROR unless there is room for bytes.
 */
static void
look_at_wal(uint64 bytes, uint64 counted_bytes)
{
	uint64		taken = pg_atomic_read_u64(&room_shared->taken_bytes);
	uint64		room = free_bytes(XLOGDIR);

	if (room < kept_for_wal_bytes() + bytes)
		room += recycled_bytes();
	if (room < kept_for_wal_bytes() + bytes)
	{
		pg_atomic_fetch_sub_u64(&room_shared->taken_bytes, counted_bytes);
		report_no_room_for_wal(room, bytes);
	}
	room = Min(room - kept_for_wal_bytes(), PG_INT64_MAX);
	pg_atomic_write_u64(&room_shared->limit_bytes, taken + room - counted_bytes);
	pg_atomic_write_u64(&room_shared->good_until, GetCurrentTimestamp() + LOOK_INTERVAL_MS * 1000);
}

static bool
is_within_last_look(uint64 taken)
{
	return taken <= pg_atomic_read_u64(&room_shared->limit_bytes) &&
		blob_clock_is_before(GetCurrentTimestamp(),
							 (TimestampTz) pg_atomic_read_u64(&room_shared->good_until),
							 LOOK_INTERVAL_MS);
}

void
blob_disk_room_require_for_wal(uint64 bytes)
{
	if (blob_min_free_disk_mb == 0)
		return;
	if (!is_within_last_look(pg_atomic_read_u64(&room_shared->taken_bytes) + bytes))
		look_at_wal(bytes, 0);
}

void
blob_disk_room_take_for_wal(uint64 bytes)
{
	if (blob_min_free_disk_mb == 0)
		return;
	bytes += RECORDS_BYTES;
	if (!is_within_last_look(pg_atomic_fetch_add_u64(&room_shared->taken_bytes, bytes) + bytes))
		look_at_wal(bytes, bytes);
}
