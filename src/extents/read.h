/*
 * extents/read.h
 *	  Reads stored bytes: from the read cache, from deferred writes, from the device.
 */
#ifndef BLOB_EXTENTS_READ_H
#define BLOB_EXTENTS_READ_H

#include "extents/readahead.h"
#include "extents/stored.h"

/*
 * Copy the stored bytes [offset, offset + length) to target; length > 0, and the extents that hold
 * them are known, those that the window reaches too (blob_readahead_reach()).  Reads exactly the
 * pages that cover the range, or, in a sequence, up to the end of the last one's chunk.
 *
 * The extents are looked up in the map before they are read for the first time, which leaves their
 * generations in *stored, and all that were read again afterwards: no byte is returned that was not
 * verified.  window: that of the reader, or NULL to read nothing ahead.  use_cache: else past the
 * read cache, what the files hold.
 *
 * ERROR XB001 if an extent is another's, XB002 if its content is missing on this server, XX001 or
 * 58P01 if a file is too short or cannot be read.  After an error *stored and *window may be used
 * again.  Takes AccessShareLock on the map and claims the I/O engine, both until it returns or
 * throws; serves interrupts between requests.
 */
extern void blob_stored_read(BlobStored *stored, BlobAheadWindow *window, bool use_cache,
							 uint64 offset_bytes, uint64 length_bytes, char *target);

/*
 * ERROR, as reading them all would report, unless all stored bytes are where they should be: the
 * extents (all are known) are looked up for the first time, and the files are there and long
 * enough.
 */
extern void blob_stored_require_readable(BlobStored *stored);

#endif							/* BLOB_EXTENTS_READ_H */
