/*
 * extents/readahead.h
 *	  Reading ahead: stored bytes are requested before a read asks for them.
 *
 * A process that reads a value from front to back in pieces (blob_chunks(), blob_export(), a client
 * that calls blob_read() again and again) would leave the device idle between two pieces.  So a
 * reader notices that its reads follow each other, and the next bytes are read into the buffer,
 * without waiting.  Never more is requested ahead than was read in sequence before, unless the
 * reader was told that it will read the whole value.
 */
#ifndef BLOB_READAHEAD_H
#define BLOB_READAHEAD_H

#include "extents/stored.h"
#include "store/store.h"

/*
 * The read-ahead window of one reader, in stored offsets.  It is plain memory, which its owner may
 * copy, keep or drop at any time.  All zero: nothing was read yet.
 */
typedef struct BlobAheadWindow
{
	uint64		next_offset;	/* where the last read ended */
	uint64		sequence_bytes; /* read without a gap up to there */
	uint64		ahead_end;		/* requested up to here */
	bool		is_whole;		/* all will be read; the first read is to come */
	bool		is_open;		/* the current read may request more */
	bool		is_expected;	/* the current read was requested ahead itself */
} BlobAheadWindow;

/*
 * Make an empty window.  is_whole: all of the value is going to be read, from its beginning, so the
 * first read requests ahead as much as later ones do.
 */
extern void blob_readahead_window_init(BlobAheadWindow *window, bool is_whole);

/* Note that [offset, offset + length) is about to be read. */
extern void blob_readahead_note(BlobAheadWindow *window, uint64 offset_bytes,
								uint64 length_bytes);

/*
 * The stored offset up to which the read that was noted may request.  The extents up to there
 * should be known to that read.  The offset may lie behind the end.
 */
extern uint64 blob_readahead_reach(const BlobAheadWindow *window);

/*
 * Start the requests that are due now, within a use of the I/O engine.  A read calls this again
 * while it goes on; the call is cheap if nothing is due.  If window is NULL or not open, nothing is
 * due.
 */
extern void blob_readahead_start(BlobStore *store, const BlobStored *stored,
								 BlobAheadWindow *window);

/*
 * Request the stored bytes up to end, for a value that is no sequence: one of many whose beginnings
 * will be read soon.  Takes the I/O engine.  If as many requests are in flight as there can be, it
 * waits for one of them.  Ends as the requests of blob_readahead_start() do; chunks that are
 * kept, or cannot be read ahead, are left out.  The extents up to end are known.
 */
extern void blob_readahead_request(BlobStore *store, const BlobStored *stored, uint64 end);

/*
 * For values whose content does not lie in the order of its stored bytes: the window counts content
 * offsets.  Sets [*start, *end) to the content that is to be requested now; equal if none is, as
 * blob_readahead_start() would decide.  The caller requests it, in parts, and notes that in
 * window->ahead_end.
 */
extern void blob_readahead_due(const BlobAheadWindow *window, uint64 content_bytes, uint64 *start,
							   uint64 *end);

/*
 * Request several parts of the stored bytes, in the order of their place; their targets do not
 * matter.  Bytes before a part in its chunk come with it, those behind the last part of a chunk do
 * not: other versions may have yet to write them.  The extents that hold the parts are known.
 * Changes the order of the parts.  Takes the I/O engine; waits as blob_readahead_request() does.
 */
extern void blob_readahead_request_parts(BlobStore *store, const BlobStored *stored,
										 BlobStoredPart *parts, int count);

#endif							/* BLOB_READAHEAD_H */
