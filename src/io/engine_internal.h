/*
 * io/engine_internal.h
 *	  Between the engine's front (engine.c), its slots, its rings, and blocking transfers.
 */
#ifndef BLOB_ENGINE_INTERNAL_H
#define BLOB_ENGINE_INTERNAL_H

#include "core/settings.h"
#include "io/request.h"

/*
 * Requests in flight at most: two for each buffer, as a caller may split one; and reads ahead.
 * Writes ahead are rare, and use slots of these: starting one waits if none is free.
 */
#define BLOB_IO_SLOT_COUNT (2 * BLOB_IO_BUFFER_COUNT + BLOB_IO_MAX_AHEAD)

/* The result of a request: bytes, or an errno with a minus. */
typedef struct BlobIoCompletion
{
	uint64		slot_no;
	int64		result;
} BlobIoCompletion;

/*
 * A way to have the kernel work on requests while the process goes on.  The kernel is given numbers
 * of slots, never pointers.  None of the functions throws.  A ring that fails with requests in
 * flight is a PANIC, since we can no longer know which memory the kernel uses.
 */
typedef struct BlobIoRing
{
	const char *name;			/* as a value of the setting */
	int			method;			/* BlobIoMethod */
	bool		needs_direct;	/* requests for files of the page cache would block */

	/* Make it, if the process has none, and try it.  Returns 0, or the errno of the refusal. */
	int			(*open) (void);

	/* Give it up, if there is one.  No request is in flight. */
	void		(*close) (void);

	/* Queue a request, at most one for each slot.  It has vectors, which stay until it is done. */
	void		(*queue) (int slot_no, const BlobIoRequest *request);

	/* Hand over queued requests.  False: completions have to be taken before the others. */
	bool		(*submit) (void);

	/* The same, and block until a completion can be taken, or a signal has come. */
	void		(*wait) (void);

	/* Take a completion that has arrived; false if there is none.  For signal handlers, too. */
	bool		(*take) (BlobIoCompletion *completion);
} BlobIoRing;

extern const BlobIoRing blob_uring; /* engine_uring.c */
extern const BlobIoRing blob_aio;	/* engine_aio.c */

/*
 * engine_slots.c: requests in flight of this process.  None of the functions throws.
 *
 * blob_slots_use() has requests go through a ring that is open, or block if it is NULL.  Requests
 * of another one are waited for, those ahead as well.
 */
extern void blob_slots_use(const BlobIoRing *ring);
extern bool blob_slots_are_asynchronous(void);

/* Whether a request is in flight, as far as this process has looked.  For signal handlers, too. */
extern bool blob_slots_are_in_use(void);

/* Start a request that has vectors; its results go to *owner, unless it is abandoned before. */
extern void blob_slots_start(const BlobIoRequest *request, BlobIoRequest *owner, bool is_ahead);
extern void blob_slots_submit(void);
extern void blob_slots_wait(BlobIoRequest *owner);
extern void blob_slots_reap(void);	/* take over what has arrived */

/* Wait for all requests but those ahead; blob_slots_abandon() forgets their owners before. */
extern void blob_slots_drain(void);
extern void blob_slots_abandon(void);

/* engine.c: see blob_io_process_begins(), and io.c. */
extern void blob_engine_process_begins(void);
extern Size blob_engine_shmem_size(void);
extern void blob_engine_shmem_init(void);

/*
 * engine_sync.c: transfer the bytes of a request that has vectors, from request->transferred on,
 * blocking.  Sets error and transferred.  Never throws.
 */
extern void blob_sync_transfer(BlobIoRequest *request);

#endif							/* BLOB_ENGINE_INTERNAL_H */
