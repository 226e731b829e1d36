/*
 * extents/readahead.h
 *	  Reading ahead: stored bytes that will be wanted next are requested before they are.
 *
 * A process that reads a value from front to back in pieces (blob_chunks(), blob_export(), a client
 * that calls blob_read() again and again) would have the device idle between two pieces.  So reads
 * that follow each other are noticed, and the next bytes are read into the shared cache, without
 * waiting.  Never more is requested ahead than was read in sequence before.
 */
#ifndef BLOB_READAHEAD_H
#define BLOB_READAHEAD_H

#include "extents/stored.h"
#include "store/store.h"

/*
 * The reads of one value by one reader, in stored offsets.  It is plain memory,
 * which its owner may copy, keep or drop at any time; all zero: nothing was read yet.
 */
typedef struct BlobAheadWindow
{
	uint64		next_offset;	/* where the last read ended */
	uint64		sequence_bytes; /* read without a gap up to there */
	uint64		ahead_end;		/* requested up to here */
	bool		is_whole;		/* all will be read from the front; the first read is to come */
	bool		is_open;		/* the read that is under way may request more */
	bool		is_expected;	/* it was requested ahead itself: let it begin with this */
} BlobAheadWindow;

/* As blob_io_process_begins(), after that. */
extern void blob_readahead_process_begins(void);

/*
 * A window of nothing.  is_whole: all of the value is going to be read, from its beginning, so the
 * first read requests ahead as much as later ones do.
 */
extern void blob_readahead_window_init(BlobAheadWindow *window, bool is_whole);

/* Note that [offset, offset + length) is about to be read. */
extern void blob_readahead_note(BlobAheadWindow *window, uint64 offset_bytes,
								uint64 length_bytes);

/*
 * Stored offset up to which the read that was noted may request; the extents up to there should be
 * known to it.  It may lie behind the end.
 */
extern uint64 blob_readahead_reach(const BlobAheadWindow *window);

/*
 * Start as many requests as are due now, in a claim of the I/O engine; to be called again while the
 * read goes on, and cheap if nothing is due (window NULL or not open: nothing is).  They fill
 * frames of the cache, and are waited for by blob_readahead_await(), or when the resource owner
 * ends that is current now (so at the end of the query, the cursor, the transaction), or the
 * process.  A timer makes what no read comes to available to all, some ms after it has arrived.  No
 * error comes of them: a chunk that cannot be read ahead is left to the read.
 */
extern void blob_readahead_start(BlobStore *store, const BlobStored *stored,
								 BlobAheadWindow *window);

/*
 * Wait for the request ahead that covers a page; false if there is none, or if it had arrived.
 * Never throws.
 */
extern bool blob_readahead_await(const BlobStoreId *store, BlobPageNo page);

#endif							/* BLOB_READAHEAD_H */
