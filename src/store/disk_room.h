/*
 * store/disk_room.h
 *	  Disk space that stores leave to the rest of the server (blobext.min_free_disk), on the file
 *	  systems of the segments and of the WAL.  See "Room on the disk" in the README of this folder.
 *
 * For stores only: never in recovery, and not for the collector, whose work gives space back.
 * ERRORs have SQLSTATE 53100.
 */
#ifndef BLOB_DISK_ROOM_H
#define BLOB_DISK_ROOM_H

#include "postgres.h"

extern Size blob_disk_room_shmem_size(void);
extern void blob_disk_room_shmem_init(void);

/*
 * Bytes of the segments' file system that stores may still take; PG_UINT64_MAX if that is unknown.
 * Asks the kernel.
 */
extern uint64 blob_disk_room_for_segments(void);

/*
 * Before segments grow by this number of bytes: ERROR unless blob_disk_room_for_segments() has
 * them.  The next store looks at the WAL's file system, which may be the same.
 */
extern void blob_disk_room_require_for_segments(uint64 bytes);

/*
 * ERROR unless the WAL has room for this number of bytes of content.  The second function counts
 * them as written.  Both ask the kernel only when counted bytes, or the time, make that necessary.
 */
extern void blob_disk_room_require_for_wal(uint64 bytes);
extern void blob_disk_room_take_for_wal(uint64 bytes);

#endif							/* BLOB_DISK_ROOM_H */
