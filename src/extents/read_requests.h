/*
 * extents/read_requests.h
 *	  The requests of a read that is under way: for extents/read.c only.
 *
 * A request has one buffer of the I/O engine, and parts that follow each other on the device.  The
 * parts go to slabs of the buffer, or to the request's own memory, and from there to their targets
 * when the request has ended.  All of this within a use of the I/O engine.
 */
#ifndef BLOB_READ_REQUESTS_H
#define BLOB_READ_REQUESTS_H

#include "extents/readahead.h"
#include "io/buffer.h"

/* The part of a request that lies in one chunk of one extent. */
typedef struct BlobReadPart
{
	BlobGeneration generation;
	uint64		extent_offset;	/* bytes from the extent's start, a multiple of the page */
	uint32		length;			/* bytes read, a multiple of the page */
	uint32		valid;			/* bytes of it that are content */
	uint32		skip;			/* bytes before the first wanted one */
	uint64		stored_offset;	/* of its first byte */
	const BlobStoredPart *asked;	/* parts that may have bytes of this one */
	int			asked_count;
	uint32		chunk_bytes;	/* of the buffer, for this extent */
	bool		lacks_sums;		/* has no checksums, and should: no reader gets the bytes */
	bool		is_withheld;	/* from the buffer: a page that was not asked for is damaged */
	char	   *memory;			/* where the device puts it: in the I/O buffer, or in a slab */
	int			fill_no;		/* of the buffer, or -1 */
} BlobReadPart;

/*
 * A part to come, of one chunk: from its first page to the last one that was asked for.  Offsets
 * are those in the extent.
 */
typedef struct BlobReadJoined
{
	const BlobStoredExtent *stored; /* NULL: there is none */
	uint64		start;			/* a multiple of the page, as the others */
	uint64		end;
	uint64		limit;			/* so far it may grow */
	int			first_no;		/* of the parts that were asked for: those that it may have */
	int			end_no;
} BlobReadJoined;

/* A read under way. */
typedef struct BlobReadState
{
	BlobStore	store;
	BlobStored *stored;
	BlobAheadWindow *window;	/* NULL: nothing is read ahead */
	BlobBufferUse use;
	const BlobStoredPart *asked;	/* parts that were asked for, by their stored offsets */
	int			asked_count;
	int			asked_no;		/* the part that the read has come to */
	bool		joins;			/* those in one chunk are read as one part */
	BlobReadJoined joined;
	uint32		rewrites;		/* of the buffer, before the read */
	int			error;			/* first errno seen, or 0, and where */
	BlobPageNo	error_page;
	BlobGeneration error_generation;	/* of the damaged page's extent */
	bool		has_damage;		/* of a reader that notes it: a page without its checksum */
	BlobPageNo	damaged_page;	/* the first one */
	int			current;		/* request that is being filled, not yet started */
	int			started;		/* requests so far */
} BlobReadState;

/* Begin a use: no request is in flight, and none is being filled. */
extern void blob_read_begin(BlobReadState *state);

/* Add a part to the request that is being filled, or begin another one with it. */
extern void blob_read_add(BlobReadState *state, BlobPageNo first_page, const BlobExtent *extent,
						  const BlobReadPart *part);

/* Start the request that is being filled, if there is one. */
extern void blob_read_start(BlobReadState *state);

/* Wait for all requests that were started, and finish their parts. */
extern void blob_read_finish_all(BlobReadState *state);

#endif							/* BLOB_READ_REQUESTS_H */
