/*
 * extents/neighbours.h
 *	  Reading neighbours: small values that lie side by side are read together.
 *
 * A scan of a table reads values in the order in which they were stored, so in the order of their
 * extents.  A process whose reads ascend through a store, or descend, has what lies next brought
 * into the buffer by few large requests, of whichever values that is.
 */
#ifndef BLOB_NEIGHBOURS_H
#define BLOB_NEIGHBOURS_H

#include "extents/stored.h"
#include "store/store.h"

/*
 * Note that stored bytes of a value were read, and whether the buffer lacked some; request what
 * comes next, if a scan is certain.  Then it takes the I/O engine.  Requests end as
 * extents/ahead.h says.  The caller has the map open (AccessShareLock).
 */
extern void blob_neighbours_note(BlobStore *store, const BlobStored *stored, uint64 length_bytes,
								 bool is_missing);

#endif							/* BLOB_NEIGHBOURS_H */
