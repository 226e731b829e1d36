/*
 * recovery/invalid_segments.h
 *	  Invalid segments: replay needs their files and does not find them, because a later record
 *	  removes them, or because they are lost.
 *
 * xlogutils.c does the same for invalid pages of relations.
 */
#ifndef BLOB_INVALID_SEGMENTS_H
#define BLOB_INVALID_SEGMENTS_H

#include "core/page.h"

/*
 * Whether redo has to skip its action on a segment, because the file has fewer bytes than all the
 * records before imply.  If so, the segment is noted: recovery fails unless a later record removes
 * the file, and makes no restartpoint before.  With the server's setting ignore_invalid_pages: a
 * WARNING, and false.
 */
extern bool blob_invalid_segments_is_lacking(const BlobStoreId *store, uint32 segment_no,
											 uint64 expected_bytes);

/* The same for the directory of a store, which has one from its first reservation on. */
extern bool blob_invalid_segments_lacks_directory(const BlobStoreId *store);

/*
 * Replay has written to this segment, and finds no file now that it has to sync it.  No record has
 * removed the file: FATAL.  With the server's setting ignore_invalid_pages: a WARNING.
 */
extern void blob_invalid_segments_disappeared(const BlobStoreId *store, uint32 segment_no);

/* This segment, or with BLOB_ALL_SEGMENTS the whole store, is removed. */
extern void blob_invalid_segments_removed(const BlobStoreId *store, uint32 segment_no);

/* Whether this recovery has removed the segment, or (BLOB_ALL_SEGMENTS: only this) its store. */
extern bool blob_invalid_segments_was_removed(const BlobStoreId *store, uint32 segment_no);

/* The files agree with the WAL now: FATAL if there is still something noted. */
extern void blob_invalid_segments_check(void);

#endif							/* BLOB_INVALID_SEGMENTS_H */
