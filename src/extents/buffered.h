/*
 * extents/buffered.h
 *	  Stored bytes that the buffer has.
 */
#ifndef BLOB_BUFFERED_H
#define BLOB_BUFFERED_H

#include "extents/stored.h"
#include "store/store.h"

/* Longer ranges are copied in part only: a block of the map is locked meanwhile. */
#define BLOB_BUFFERED_MAX_BYTES (256 * 1024)

/*
 * Copy stored bytes from offset on, at most length, up to the first that the buffer lacks.  Returns
 * how many were copied.  All of them are verified: each extent is looked up once, and the map's
 * block with its entry stays share-locked while its bytes are copied.  The copy
 * also ends at an extent that may be stale, or has unlogged content: a read has to report that.
 *
 * The caller has the map open (AccessShareLock).  Does no I/O but for the map.
 */
extern uint64 blob_buffered_copy(const BlobStore *store, BlobStored *stored, uint64 offset_bytes,
								 uint64 length_bytes, char *target);

#endif							/* BLOB_BUFFERED_H */
