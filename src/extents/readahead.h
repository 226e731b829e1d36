/*
 * extents/readahead.h
 *	  Reading ahead: pieces of a value that will be wanted next are requested before they are.
 *
 * Who reads a value from front to back in pieces (blob_chunks(), blob_export(), a client that calls
 * blob_read() again and again) would have the device idle between two pieces.  So reads that
 * follow each other are noticed, and what comes next is read into the shared cache, without
 * waiting.  Never more is requested ahead than was read in sequence before.
 */
#ifndef BLOB_READAHEAD_H
#define BLOB_READAHEAD_H

#include "core/descriptor.h"
#include "store/store.h"

/* What a read is to request ahead. */
typedef struct BlobAheadPlan
{
	struct BlobStream *stream;	/* NULL: nothing */
	uint64		read_end;		/* content offset, in bytes, where the read ends */
	bool		is_expected;	/* the read itself was requested ahead: start with this */
} BlobAheadPlan;

/* As blob_io_process_begins(), after that. */
extern void blob_readahead_process_begins(void);

/* Note a read of [offset, offset + length), which lies in extents, and plan what to do about it. */
extern BlobAheadPlan blob_readahead_plan(const BlobDescriptor *descriptor, uint64 offset_bytes,
										 uint64 length_bytes);

/*
 * All of a value is going to be read, from its beginning: the first read requests ahead as much as
 * later ones do.
 */
extern void blob_readahead_announce(const BlobDescriptor *descriptor);

/*
 * Start as many of the planned requests as are due now, in a claim of the I/O engine; to be called
 * again while the read goes on, and cheap if nothing is due.  They fill frames of the cache, and
 * are waited for by blob_readahead_await(), or when the resource owner ends that is
 * current now (so at the end of the query, the cursor, the transaction), or the process.  A timer
 * makes what no read comes to available to all, some ms after it has arrived.  No error comes of
 * them: what cannot be read ahead is left to the read.
 */
extern void blob_readahead_start(BlobStore *store, const BlobDescriptor *descriptor,
								 const BlobAheadPlan *plan);

/*
 * Wait for the request ahead that covers a page; false if there is none, or if it had arrived.
 * Never throws.
 */
extern bool blob_readahead_await(const BlobStoreId *store, BlobPageNo page);

#endif							/* BLOB_READAHEAD_H */
