/*
 * io/segment.h
 *	  Segment files of the extent store: names, reservation, descriptors, durability.
 *
 * All functions may be called by any backend and by the startup process; none takes a heavyweight
 * lock or reads a catalog.
 */
#ifndef BLOB_SEGMENT_H
#define BLOB_SEGMENT_H

#include "core/page.h"

#define BLOB_STORE_DIR "pg_blobext"

/*
 * What to do when a segment file is not there.  Redo creates it: the file may have been removed
 * by a later record that recovery has not reached yet.
 */
typedef enum BlobSegmentMissing
{
	BLOB_SEGMENT_MUST_EXIST,	/* ERROR with SQLSTATE 58P01 (undefined file) */
	BLOB_SEGMENT_MISSING_OK,	/* return -1 */
	BLOB_SEGMENT_CREATE			/* make directory and file, both durable */
} BlobSegmentMissing;

extern Size blob_segment_shmem_size(void);
extern void blob_segment_shmem_init(void);

/* Relative paths ("pg_blobext/<dboid>.<incarnation as 16 hex digits>[/<segment as 8 hex digits>]"). */
extern void blob_segment_dir_path(char *path, size_t path_bytes, const BlobSpaceId *space);
extern void blob_segment_path(char *path, size_t path_bytes, const BlobSpaceId *space,
							  uint32 segment_no);

/* Make the space's directory, durably; no error when it exists. */
extern void blob_segment_make_dir(const BlobSpaceId *space);

/*
 * Reserve the pages [first_page, end_page) with fallocate(), making files where needed; files,
 * sizes and directory are durable on return.  The caller serialises reservations of one space.
 * ENOSPC and EDQUOT: ERROR 53100 with hint; nothing that was there before is harmed.
 */
extern void blob_segment_reserve(const BlobSpaceId *space, BlobPageNo first_page,
								 BlobPageNo end_page);

/*
 * An open descriptor of the segment file, opened with O_DIRECT where the cluster's store allows
 * it (blob_segment_is_direct).  It stays owned by a small per-process cache (AcquireExternalFD
 * accounted) and stays valid until the next blob_segment_release_all() or until BLOB_SEGMENT_PINS
 * further distinct segments were opened.
 */
#define BLOB_SEGMENT_PINS 32
extern int	blob_segment_open(const BlobSpaceId *space, uint32 segment_no,
							  BlobSegmentMissing missing);

/* Close all cached descriptors (segments were removed, or the process is about to end). */
extern void blob_segment_release_all(void);

/* Whether segment files are opened with O_DIRECT: one answer for all processes of the cluster. */
extern bool blob_segment_is_direct(void);

/*
 * Make everything that was written to the segment before this call durable.  Backends that arrive
 * together share one fdatasync().  Does nothing with fsync = off.  Any failure is a PANIC: the
 * kernel may have dropped the pages, a retry would lie.
 */
extern void blob_segment_sync(const BlobSpaceId *space, uint32 segment_no);

/* Size of the file in bytes, or -1 if it does not exist. */
extern int64 blob_segment_file_bytes(const BlobSpaceId *space, uint32 segment_no);

#endif							/* BLOB_SEGMENT_H */
