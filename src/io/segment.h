/*
 * io/segment.h
 *	  Segment files of the extent store: names, reservation, descriptors, durability, removal.
 *
 * All functions may be called by any backend and by the startup process; none takes a heavyweight
 * lock or reads a catalog.
 */
#ifndef BLOB_SEGMENT_H
#define BLOB_SEGMENT_H

#include "core/page.h"

/* Under $PGDATA.  Files in it that do not look like stores are none. */
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

/* Relative paths: "pg_blobext/<dboid>.<incarnation, 16 hex digits>[/<segment, 8 hex digits>]". */
extern void blob_segment_dir_path(char *path, size_t path_bytes, const BlobStoreId *store);
extern void blob_segment_path(char *path, size_t path_bytes, const BlobStoreId *store,
							  uint32 segment_no);

/* Make the store's directory, durably; no error when it exists. */
extern void blob_segment_make_dir(const BlobStoreId *store);

/*
 * Reserve the pages [first_page, end_page) with fallocate(), making files where needed; files,
 * sizes and directory are durable on return.  The caller serialises reservations of one store.
 * ENOSPC and EDQUOT: ERROR 53100 with hint; nothing that was there before is harmed, and what was
 * taken is given back.  Where the file system knows no fallocate(), zeros are written, but only
 * past the end of the file.
 */
extern void blob_segment_reserve(const BlobStoreId *store, BlobPageNo first_page,
								 BlobPageNo end_page);

/*
 * An open descriptor of the segment file, opened with O_DIRECT where the cluster's store allows
 * it (blob_segment_is_direct).  It stays owned by a small per-process cache (AcquireExternalFD
 * accounted) and stays valid until the next blob_segment_release_all() or until BLOB_SEGMENT_PINS
 * further distinct segments were opened.  A file that was removed, or replaced by another one, is
 * noticed: the next call opens the new file.
 */
#define BLOB_SEGMENT_PINS 32
extern int	blob_segment_open(const BlobStoreId *store, uint32 segment_no,
							  BlobSegmentMissing missing);

/* Close all cached descriptors; the caller has no I/O in flight on any of them. */
extern void blob_segment_release_all(void);

/* Whether segment files are opened with O_DIRECT: one answer for all processes of the cluster. */
extern bool blob_segment_is_direct(void);

/*
 * Make everything that was written to the segment before this call durable, and what is written
 * behind (deferred.h; ERROR if that fails).  Backends that arrive
 * together share one fdatasync().  Does nothing with fsync = off.  Any failure is a PANIC: the
 * kernel may have dropped the pages, a retry would lie.
 *
 * Returns false if the file does not exist, or ends before what was to be written.  That is no
 * error for extents of an aborted transaction (the collector may have freed them and removed the
 * segment since); a caller that is about to return a value there must treat it as one.
 */
extern bool blob_segment_sync(const BlobStoreId *store, uint32 segment_no);

/*
 * Remove a segment file, durably; true when it is gone (also if it never was there).  A failure
 * is a WARNING and false.  The file is truncated, too, because other processes may keep it open
 * for long; a reader that comes too late meets ENODATA, so it must check its extents'
 * generations before it reports a read error.  The caller serialises this against reservations
 * of the store, and has made sure that nothing refers to the segment.
 */
extern bool blob_segment_remove(const BlobStoreId *store, uint32 segment_no);

/*
 * Give the blocks of [first_page, end_page), which lie in one segment, back to the file system.
 * The pages read as zeros from then on, and the file keeps its size.  If the file is missing, if
 * the file system knows no holes, and after a failure (LOG), the blocks stay where they are.  The
 * caller has made sure that the pages are free, and that nobody writes there.
 */
extern void blob_segment_punch(const BlobStoreId *store, BlobPageNo first_page,
							   BlobPageNo end_page);

/*
 * Remove a whole store, durably; true when it is gone.  Failures are WARNINGs.  Can be cancelled
 * between files (not in recovery), and carried on with another call.
 */
extern bool blob_segment_remove_dir(const BlobStoreId *store);

/*
 * How many files have been removed since the start.  Of a file that was found after a call one
 * knows that it has not been removed if another call gives the same, or that the removal is under
 * way.
 */
extern uint64 blob_segment_removals(void);

/* Whether the store has a directory; it has one from the first reservation to its end. */
extern bool blob_segment_dir_exists(const BlobStoreId *store);

/* The stores that have a directory, in no order, in the current memory context. */
extern int	blob_segment_list_stores(BlobStoreId **stores);

/*
 * Wait for writes to the file that are still in the kernel's hands, whoever started them.  A
 * process that was killed can leave some behind; before its pages are given to others after a
 * restart, they must have come to an end.  A missing file is no error here.
 */
extern void blob_segment_settle(const BlobStoreId *store, uint32 segment_no);

/* Size of the file in bytes, or -1 if it does not exist. */
extern int64 blob_segment_file_bytes(const BlobStoreId *store, uint32 segment_no);

#endif							/* BLOB_SEGMENT_H */
