/*
 * extents/read.h
 *	  Reads stored bytes: from the buffer or from the device.
 */
#ifndef BLOB_EXTENTS_READ_H
#define BLOB_EXTENTS_READ_H

#include "extents/readahead.h"
#include "extents/stored.h"

/*
 * Copy the stored bytes [offset, offset + length) to target; length > 0.  The caller has made the
 * extents known that hold these bytes, and those that the window reaches (blob_readahead_reach()).
 * Reads exactly the pages that cover the range; in a sequence, up to the end of the last page's
 * chunk.
 *
 * An extent is looked up in the map before it is read for the first time, which leaves its
 * generation in *stored.  After the read all extents of the range are looked up again.  So no byte
 * is returned that was not verified.  window: that of the reader, or NULL to read nothing ahead.
 * use_buffer: if false, the read bypasses the buffer, dirty pages excepted, and returns the bytes
 * of the files.
 *
 * ERROR XB001 if an extent is stale, XB002 if it has unlogged content, XX001 or 58P01 if a file is
 * too short or cannot be read.  After an error *stored and *window may be used again.  Takes
 * AccessShareLock on the map and takes the I/O engine, both until it returns or throws.  Serves
 * interrupts between requests.
 */
extern void blob_stored_read(BlobStored *stored, BlobAheadWindow *window, bool use_buffer,
							 uint64 offset_bytes, uint64 length_bytes, char *target);

/*
 * The same for several parts at once, which are parts of one target, without a window.  Their
 * requests are in flight together, in the order of their place, and parts in one chunk of the
 * buffer have one request.  So pages between them may be read, and those before a part in its
 * chunk, which were written before the part was.  Damage of such a page is no error, but the
 * buffer does not get it.  Changes the order of the parts.
 */
extern void blob_stored_read_parts(BlobStored *stored, bool use_buffer, BlobStoredPart *parts,
								   int count);

/*
 * ERROR, as reading all stored bytes would report, unless the extents pass the first look, and the
 * files exist and are long enough.  The caller has made all extents known.
 */
extern void blob_stored_require_readable(BlobStored *stored);

#endif							/* BLOB_EXTENTS_READ_H */
