/*
 * io/engine_internal.h
 *	  Between the engine's front (engine.c) and its two back ends.
 */
#ifndef BLOB_ENGINE_INTERNAL_H
#define BLOB_ENGINE_INTERNAL_H

#include "io/engine.h"

/* engine.c: count a completed request. */
extern void blob_io_count(const BlobIoRequest *request);

/* engine.c: the whole buffer region, BLOB_IO_BUFFER_COUNT * BLOB_IO_BUFFER_BYTES bytes. */
extern char *blob_io_buffer_region(void);

/*
 * engine_sync.c: transfer the bytes of the request from request->transferred on, blocking.  Sets
 * error and transferred.  Never throws.
 */
extern void blob_sync_transfer(BlobIoRequest *request);

/*
 * engine_uring.c: make the ring if this process has none.  Returns 0, or the errno of the refusal.
 * None of the other functions throws; a ring that fails with requests in flight is a PANIC.
 */
extern int	blob_uring_open(void);
extern void blob_uring_process_begins(void);	/* see blob_io_process_begins() */
extern void blob_uring_start(BlobIoRequest *request, bool is_ahead);
extern void blob_uring_submit(void);
extern void blob_uring_wait(BlobIoRequest *request);
extern void blob_uring_reap(void);
extern void blob_uring_drain(void);
extern void blob_uring_abandon(void);

#endif							/* BLOB_ENGINE_INTERNAL_H */
