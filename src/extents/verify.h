/*
 * extents/verify.h
 *	  Whether extents still belong to a descriptor; see "Verification" in the README of this folder.
 *
 * All functions here look into the extent map, which the caller has open (AccessShareLock), and
 * share-lock one of its buffers at a time.
 */
#ifndef BLOB_VERIFY_H
#define BLOB_VERIFY_H

#include "extents/stored.h"
#include "storage/buf.h"
#include "store/store.h"

/*
 * SQLSTATE of a read whose extents were freed, and perhaps reused: the value does not exist any
 * more.
 */
#define ERRCODE_BLOB_STALE MAKE_SQLSTATE('X', 'B', '0', '0', '1')

/* SQLSTATE of a read of unlogged content, which another server wrote and did not log. */
#define ERRCODE_BLOB_UNLOGGED MAKE_SQLSTATE('X', 'B', '0', '0', '2')

/*
 * Whether the map says that the extent is allocated, as tier or tail as is_tail says, with
 * extent->pages pages, by a generation of at most max_generation.  Sets extent->generation to the
 * generation in the map.
 */
extern bool blob_verify_extent(Relation map, BlobExtent *extent, BlobGeneration max_generation);

/*
 * The same for an extent of stored bytes whose entry is in a buffer that is locked
 * (blob_map_lock_entry()): while the lock is held, it counts as the look before a read and the one
 * after it.  So if the extent was looked up before, it must have the same generation as then.
 * Never throws.
 */
extern bool blob_verify_locked(Buffer buffer, BlobStored *stored, int extent_no,
							   BlobGeneration *generation);

/*
 * Note the generation of an extent's first look, unless there is one already.  False, and nothing
 * is noted, if the extent has unlogged content.  May read a file, so no buffer should be locked.
 * Exported, so that test/unit/stop_calls.c can take its place.
 */
extern PGDLLEXPORT bool blob_verify_note(const BlobStore *store, BlobStored *stored, int extent_no,
										 BlobGeneration generation);

/* ERROR XB001: the extent_no-th extent of a value of value_bytes bytes has been freed or reused. */
pg_noreturn extern void blob_verify_report_stale(int extent_no, uint64 value_bytes);

/*
 * The first look at extents [first_no, end_no), before they are read.  An extent that has no
 * generation yet gets that of the map.  ERROR XB001 if an extent is stale, XB002 if it has unlogged
 * content.
 */
extern void blob_verify_before(BlobStore *store, BlobStored *stored, int first_no, int end_no);

/*
 * The second look at extents [first_no, end_no), after they were read.  ERROR XB001 unless the map
 * says the same of each as at the first look, its generation included; XB002 if the content of one
 * is unlogged by now.
 */
extern void blob_verify_after(BlobStore *store, const BlobStored *stored, int first_no,
							  int end_no);

#endif							/* BLOB_VERIFY_H */
