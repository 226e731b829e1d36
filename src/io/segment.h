/*
 * io/segment.h
 *	  Segment files of the extent store: names, reservation, descriptors, durability, removal.
 *
 * Any backend and the startup process may call all functions.  None takes a heavyweight lock or
 * reads a catalog.
 */
#ifndef BLOB_SEGMENT_H
#define BLOB_SEGMENT_H

#include "core/page.h"

/* Under $PGDATA.  A directory entry whose name is not that of a store is ignored. */
#define BLOB_STORE_DIR "pg_blobext"

/*
 * What to do if a segment file does not exist.  Only reservation and the replay of content create
 * files.  Replay asks before whether the file is as long as the WAL implies (invalid_segments.h);
 * so it creates one only with the server's setting ignore_invalid_pages.
 */
typedef enum BlobSegmentMissing
{
	BLOB_SEGMENT_MUST_EXIST,	/* ERROR with SQLSTATE 58P01 (undefined file) */
	BLOB_SEGMENT_MISSING_OK,	/* return -1 */
	BLOB_SEGMENT_TRY,			/* return -1 with errno, whatever the reason */
	BLOB_SEGMENT_CREATE			/* make directory and file, names durable */
} BlobSegmentMissing;

extern Size blob_segment_shmem_size(void);
extern void blob_segment_shmem_init(void);

/* Relative paths: "pg_blobext/<dboid>.<incarnation, 16 hex digits>[/<segment, 8 hex digits>]". */
extern void blob_segment_dir_path(char *path, size_t path_bytes, const BlobStoreId *store);
extern void blob_segment_path(char *path, size_t path_bytes, const BlobStoreId *store,
							  uint32 segment_no);

/* Make the store's directory, durably; no error when it exists. */
extern void blob_segment_make_dir(const BlobStoreId *store);

/* Free pages of one segment that are to get blocks. */
typedef struct BlobSegmentPart
{
	BlobPageNo	first_page;
	uint64		pages;
	bool		is_hole;		/* of a file; else the file ends where they begin, or before */
	int64		bytes_before;	/* of the file, -1: none; set by the functions below */
} BlobSegmentPart;

/*
 * Reserve the pages [first_page, end_page) with fallocate(), making files where needed.  Files,
 * sizes and directory are durable on return.  The caller serialises reservations of one store.
 *
 * ENOSPC and EDQUOT are ERROR 53100 with a hint: the reservation gives back its pages, and harms
 * nothing that was there before.  If a file lacks pages below first_page, that is an ERROR, except
 * in recovery.  Where the file system does not support fallocate(), zeros are written, but only
 * past the end of the file.
 */
extern void blob_segment_reserve(const BlobStoreId *store, BlobPageNo first_page,
								 BlobPageNo end_page);

/*
 * The same for parts, in page order: holes that are filled, and pages behind the end of a file.  If
 * a hole is not inside of its file, that is an ERROR.  After an error the holes are made again.
 */
extern void blob_segment_fill(const BlobStoreId *store, BlobSegmentPart *parts, int count);

/*
 * An open descriptor of the segment file, opened with O_DIRECT where the cluster's store allows it
 * (blob_segment_is_direct).
 *
 * A small cache of this process owns the descriptor (accounted by AcquireExternalFD).  It stays
 * valid until the next blob_segment_release_all(), or until BLOB_SEGMENT_PINS further distinct
 * segments were opened.  If the file was removed or replaced, the next call notices that, and opens
 * the new file.
 */
#define BLOB_SEGMENT_PINS 32
extern int	blob_segment_open(const BlobStoreId *store, uint32 segment_no,
							  BlobSegmentMissing missing);

/*
 * A file that should be there is not, and is about to be made anew.  From now on no process uses a
 * descriptor of a file that was moved away, unless it has got it before.
 */
extern void blob_segment_note_loss(void);

/* Close all cached descriptors; the caller has no I/O in flight on any of them. */
extern void blob_segment_release_all(void);

/* Whether segment files are opened with O_DIRECT; the same for all processes of the cluster. */
extern bool blob_segment_is_direct(void);

/*
 * Make everything durable that was written to the segment before this call, and the pages that
 * became dirty in the buffer since start_time, of blob_dirty_time().  Dirty pages are written
 * first; ERROR if that fails.  Backends that arrive together share one fdatasync(); with fsync =
 * off there is none.  A failed fdatasync() is a PANIC: the kernel may have dropped the pages, so
 * that a retry would succeed without them.
 *
 * Returns false if the file does not exist, or ends before a dirty page.  That is no error for
 * extents of an aborted transaction: the collector may have freed them and removed the segment
 * since.  A caller that is about to return a value there must treat it as one.
 */
extern bool blob_segment_sync(const BlobStoreId *store, uint32 segment_no, uint64 start_time);

/* The same for completed writes, also with fsync = off; dirty pages are left alone. */
extern bool blob_segment_sync_written(const BlobStoreId *store, uint32 segment_no);

/*
 * Remove a segment file, durably; true if it is gone, or never was there.  A failure is a WARNING
 * and false.  The caller serialises this against reservations of the store, and has made sure that
 * nothing refers to the segment.
 *
 * The file is truncated, too, because other processes may keep it open for long.  So a reader that
 * comes too late meets ENODATA, and must check its extents' generations before it reports a read
 * error.
 */
extern bool blob_segment_remove(const BlobStoreId *store, uint32 segment_no);

/*
 * Give the blocks of [first_page, end_page), which lie in one segment, back to the file system.
 * The pages read as zeros from then on, and the file keeps its size.  If the file is missing, if
 * the file system knows no holes (then the result is false), and after a failure (LOG), the blocks
 * stay where they are.  The caller has made sure that the pages are free, and that no process
 * writes there.  Does not throw.
 */
extern bool blob_segment_punch(const BlobStoreId *store, BlobPageNo first_page,
							   BlobPageNo end_page);

/*
 * Remove a whole store, durably; true if it is gone.  Failures are WARNINGs.  Can be cancelled
 * between files (not in recovery), and continued by another call.
 */
extern bool blob_segment_remove_dir(const BlobStoreId *store);

/*
 * Number of files removed since the start.  If a file is found between two calls that give the same
 * number, it has not been removed at the second call, or its removal is under way.
 */
extern uint64 blob_segment_removals(void);

/* Whether the store has a directory.  It has one from its first reservation to its end. */
extern bool blob_segment_dir_exists(const BlobStoreId *store);

/*
 * List the stores that have a directory, in no order, in the current memory context; returns their
 * number.
 */
extern int	blob_segment_list_stores(BlobStoreId **stores);

/*
 * How many databases the tables in shared memory have room for: as many as blobext.max_databases
 * says, or as had a store when the server started, if these are more.  Never changes after the
 * first call, which is the postmaster's.
 */
extern int	blob_segment_database_room(void);

/*
 * Wait for writes to the file that are in flight in the kernel, whichever process started them.  A
 * killed process can leave some behind.  They must have ended before the pages are given to other
 * values after a restart.  A missing file is no error here.
 */
extern void blob_segment_settle(const BlobStoreId *store, uint32 segment_no);

/* Size of the file in bytes, or -1 if it does not exist. */
extern int64 blob_segment_file_bytes(const BlobStoreId *store, uint32 segment_no);

/* Bytes of the disk that the file takes, fewer than its size if it has holes; -1: unknown. */
extern int64 blob_segment_disk_bytes(const BlobStoreId *store, uint32 segment_no);

#endif							/* BLOB_SEGMENT_H */
