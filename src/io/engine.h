/*
 * io/engine.h
 *	  Page I/O, asynchronous through io_uring or the kernel's older interface (aio), or blocking.
 *
 * Contract.  Buffers come from blob_io_buffer(): page aligned, one set per process, never freed.
 * So if an error is thrown while requests are in flight, the kernel cannot write into memory that
 * other code uses.  (Between uses their content may go: their memory does, not their addresses.)
 * Requests may use other memory (vectors), if it is as safe: slabs of the buffer, which stay owned
 * or pinned until the requests have ended.  A user of the engine takes it (blob_io_begin), starts
 * requests, waits for them, and ends the use (blob_io_end).  Uses do not nest: there is one set of
 * buffers.
 *
 * Errors.  The engine works on copies of the requests.  Once a request has been abandoned, the
 * engine does not write to the caller's copy, whose stack frame may be gone.  blob_io_begin()
 * abandons the requests that an error left behind, and waits for the kernel to finish them.  A
 * PG_CATCH/PG_FINALLY block calls blob_io_drain() if the requests are in its own slab or in
 * longer-lived memory, and blob_io_abandon() if they are in slabs of functions that it called.  No
 * function here throws while a request of the caller is in flight.  blob_io_begin() may throw; it
 * runs before any.
 */
#ifndef BLOB_ENGINE_H
#define BLOB_ENGINE_H

#include "io/request.h"

/*
 * Take the engine.  Waits for requests that an error left behind, makes buffers and ring on first
 * use, and chooses the ring.  ERROR if there is no memory, or if blobext.io_method demands a ring
 * that is refused.  blob_io_end() waits for requests that are still in flight, except
 * those ahead.
 */
extern void blob_io_begin(void);

/*
 * The same for requests that have vectors and need no buffer.  Never throws: if no ring can be had,
 * requests are blocking.
 */
extern void blob_io_begin_vectors(void);
extern void blob_io_end(void);

/* Whether this process has taken the engine: a signal handler must leave it alone then. */
extern bool blob_io_is_used(void);

extern char *blob_io_buffer(int buffer_no);

/*
 * Queue a request.  The request stays the caller's memory, and must stay valid until it is done.
 * Queued requests reach the kernel at the next blob_io_submit() or blob_io_wait().  This function
 * sets error, transferred and in_flight.
 */
extern void blob_io_start(BlobIoRequest *request);
extern void blob_io_submit(void);

/* Wait until this request is done (others may complete meanwhile). Never throws. */
extern void blob_io_wait(BlobIoRequest *request);

/*
 * Whether the request is done, without blocking.  A signal handler may ask this about requests
 * ahead, if it has not interrupted the engine.
 */
extern bool blob_io_poll(BlobIoRequest *request);

/* Wait for everything in flight, and set the results of all requests. Never throws. */
extern void blob_io_drain(void);

/*
 * Wait for everything in flight without touching the requests, whose memory may be gone.  Never
 * throws.
 */
extern void blob_io_abandon(void);

/*
 * Start a request ahead: one with vectors that goes on when the use has ended.  It reaches the
 * kernel before this returns; unless blob_io_is_asynchronous(), it has ended then.  At most
 * BLOB_IO_MAX_AHEAD reads and BLOB_IO_MAX_TRAILING writes at a time.  Never throws.
 *
 * The memory of the vectors belongs to the request until that is done, whatever happens, and the
 * request itself must live as long.  blob_io_drain() and blob_io_abandon() do not wait for it.  A
 * short transfer is an error (EAGAIN), because the file may have been closed since.
 */
extern void blob_io_start_ahead(BlobIoRequest *request);

/* Whether requests of this use go on while the caller does other work. */
extern bool blob_io_is_asynchronous(void);

#endif							/* BLOB_ENGINE_H */
