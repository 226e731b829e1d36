/*
 * io/engine.h
 *	  Asynchronous page I/O with two engines: io_uring, and preadv/pwritev.
 *
 * Contract: buffers come from blob_io_buffer() (page aligned, per process, never freed), so that
 * an error thrown while requests are in flight cannot let the kernel write into memory that
 * somebody else uses.  Reads may go to other memory (vectors), if it is as safe: frames of the read
 * cache, which stay claimed until the requests have ended.  A user of the engine claims it
 * (blob_io_begin), starts requests, waits for them, and ends (blob_io_end).  Claims do not nest:
 * there is one set of buffers.
 *
 * Errors.  The engine works on copies of the requests, so a request whose stack frame is gone is
 * never written to, once it has been abandoned: the next blob_io_begin() abandons what an error
 * left behind and waits for the kernel to finish it.  A PG_CATCH/PG_FINALLY block calls
 * blob_io_drain() if its own frame (or longer-lived memory) holds the requests, and
 * blob_io_abandon() if functions that it called held them.  No function here throws while a
 * request of the caller is in flight, except blob_io_begin(), which runs before any.
 */
#ifndef BLOB_ENGINE_H
#define BLOB_ENGINE_H

#include <sys/uio.h>

#include "core/page.h"

/* Buffers of one process; 4 MiB in all. */
#define BLOB_IO_BUFFER_BYTES (256 * 1024)
#define BLOB_IO_BUFFER_COUNT 16

/* Requests ahead that one process can have in flight. */
#define BLOB_IO_MAX_AHEAD 32

/* Pieces of memory that one request can have. */
#define BLOB_IO_MAX_VECTORS 16

typedef struct BlobIoRequest
{
	/* set by the caller */
	bool		is_write;
	int			fd;
	uint64		file_offset;	/* bytes, multiple of BLOB_PAGE_SIZE */
	int			buffer_no;		/* 0 .. BLOB_IO_BUFFER_COUNT - 1; of no meaning with vectors */
	uint32		length;			/* bytes, multiple of BLOB_PAGE_SIZE */
	int			vector_count;	/* 0: all of it in the buffer; else (blob_io_start: reads): */
	struct iovec vectors[BLOB_IO_MAX_VECTORS];	/* page-aligned, length bytes in all */
	/* result, valid once the request is done */
	int			error;			/* errno, or 0; a read past the end of the file is ENODATA */
	/* private to the engine */
	uint32		transferred;	/* short transfers are continued by the engine */
	bool		in_flight;
} BlobIoRequest;

/* Claim the engine: drains leftovers, sets the ring up on first use (falls back to sync). */
extern void blob_io_begin(void);
extern void blob_io_end(void);

/* Whether the engine is in use by this process: a signal handler must leave it alone then. */
extern bool blob_io_is_claimed(void);

extern char *blob_io_buffer(int buffer_no);

/*
 * Queue a request; it stays the caller's memory and must stay valid until done.  Queued requests
 * reach the kernel at the next blob_io_submit() or blob_io_wait().  Before queueing, the engine
 * sets error, transferred and in_flight.
 */
extern void blob_io_start(BlobIoRequest *request);
extern void blob_io_submit(void);

/* Wait until this request is done (others may complete meanwhile). Never throws. */
extern void blob_io_wait(BlobIoRequest *request);

/*
 * Whether the request is done, without blocking.  Of requests ahead a signal handler may ask this,
 * too, if it has not interrupted the engine.
 */
extern bool blob_io_poll(BlobIoRequest *request);

/* Wait for everything in flight, and set the results of all requests. Never throws. */
extern void blob_io_drain(void);

/* The same without touching the requests, whose memory may be gone. Never throws. */
extern void blob_io_abandon(void);

/*
 * Start a request that goes on when the claim has ended: a read into vectors, of memory that is
 * nobody else's until it is done, whatever happens; the request itself must live as long.  Drain
 * and abandon pass it by.  It reaches the kernel before this returns.  A short transfer is an error
 * (EAGAIN), because the file may have been closed since.  At most BLOB_IO_MAX_AHEAD at a time.
 * Only where blob_io_is_asynchronous().  Never throws.
 */
extern void blob_io_start_ahead(BlobIoRequest *request);

/* Whether requests of this claim go on while the caller does other work. */
extern bool blob_io_is_asynchronous(void);

#endif							/* BLOB_ENGINE_H */
