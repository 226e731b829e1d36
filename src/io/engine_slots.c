/*
 * io/engine_slots.c
 *	  Requests in flight of this process, whichever ring they go through.
 *
 * The kernel is given the number of a slot, never a pointer.  A slot holds its own copy of the
 * request and a pointer to the caller's.  When an error unwinds the caller's stack, the slots are
 * abandoned: the pointer is cleared, and completions that still come in touch no memory but the
 * buffers.  Slots of requests ahead are left alone: their owners live as long as the process.
 *
 * One ring is in use at a time; without one, transfers are blocking.  The postmaster never starts a
 * request, so no process inherits one.
 *
 * Transfers that come back short or with EAGAIN/EINTR are finished by blocking calls: that is rare,
 * so it need not be fast.
 */
#include "postgres.h"
#include "utils/wait_event.h"

#include "io/engine_internal.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "pgstat.h"

#define MAX_AHEAD (BLOB_IO_MAX_AHEAD + BLOB_IO_MAX_TRAILING)

typedef struct IoSlot
{
	bool		in_use;
	bool		is_ahead;		/* not of the current use */
	BlobIoRequest work;			/* the engine's copy */
	BlobIoRequest *owner;		/* the caller's, or NULL once abandoned */
} IoSlot;

static const BlobIoRing *ring = NULL;	/* of the requests in flight; NULL: there are none */
static IoSlot slots[BLOB_IO_SLOT_COUNT];
static int	slots_in_use = 0;
static int	ahead_in_use = 0;	/* of slots_in_use */

/* Count a request that has ended, and give its results to its owner. */
static void
finish(const BlobIoRequest *work, BlobIoRequest *owner)
{
	blob_stat_count(io_requests[ring != NULL ? ring->method : BLOB_IO_METHOD_SYNC], 1);
	if (work->is_write)
	{
		blob_stat_count(io_writes, 1);
		blob_stat_count(io_write_bytes, work->transferred);
	}
	else
	{
		blob_stat_count(io_reads, 1);
		blob_stat_count(io_read_bytes, work->transferred);
	}
	if (owner != NULL)
	{
		owner->error = work->error;
		owner->transferred = work->transferred;
		owner->in_flight = false;
	}
}

/* Take over one completion, and free its slot. */
static void
complete(const BlobIoCompletion *completion)
{
	IoSlot	   *slot;
	BlobIoRequest *work;

	if (completion->slot_no >= BLOB_IO_SLOT_COUNT || !slots[completion->slot_no].in_use)
		elog(PANIC, "%s completed request " UINT64_FORMAT ", which was not in flight",
			 ring->name, completion->slot_no);
	slot = &slots[completion->slot_no];
	work = &slot->work;

	if (completion->result < 0 && completion->result != -EINTR && completion->result != -EAGAIN)
		work->error = (int) -completion->result;
	else
	{
		if (completion->result > 0)
			work->transferred = (uint32) completion->result;
		/*
		 * No progress: the end of the file, or of the disk; blob_sync_transfer() finds out.  The
		 * descriptor of a request ahead may name another file by now.
		 */
		if (work->transferred < work->length && slot->is_ahead)
			work->error = EAGAIN;
		else if (work->transferred < work->length && slot->owner != NULL)
			blob_sync_transfer(work);
	}
	finish(work, slot->owner);
	slot->in_use = false;
	slots_in_use--;
	if (slot->is_ahead)
		ahead_in_use--;
}

/* Take over all completions that have arrived, without blocking for more. */
void
blob_slots_reap(void)
{
	BlobIoCompletion completion;

	while (slots_in_use > 0 && ring->take(&completion))
		complete(&completion);
}

/* Submit queued requests, and take over completions, of which one is waited for. */
static void
await_completion(void)
{
	pgstat_report_wait_start(PG_WAIT_EXTENSION);
	ring->wait();
	pgstat_report_wait_end();
	blob_slots_reap();
}

void
blob_slots_submit(void)
{
	while (slots_in_use > 0 && !ring->submit())
		blob_slots_reap();
}

/* The number of a free slot; waits for one if necessary. */
static int
take_slot(void)
{
	while (slots_in_use == BLOB_IO_SLOT_COUNT)
		await_completion();
	for (int i = 0; i < BLOB_IO_SLOT_COUNT; i++)
	{
		if (!slots[i].in_use)
			return i;
	}
	pg_unreachable();
}

void
blob_slots_start(const BlobIoRequest *request, BlobIoRequest *owner, bool is_ahead)
{
	int			slot_no = ring != NULL ? take_slot() : 0;
	IoSlot	   *slot = &slots[slot_no];

	slot->work = *request;
	if (ring == NULL)
	{
		blob_sync_transfer(&slot->work);
		finish(&slot->work, owner);
		return;
	}
	slot->in_use = true;
	slot->is_ahead = is_ahead;
	slot->owner = owner;
	slots_in_use++;
	ahead_in_use += is_ahead;
	ring->queue(slot_no, &slot->work);
}

void
blob_slots_wait(BlobIoRequest *owner)
{
	blob_slots_reap();
	while (owner->in_flight && slots_in_use > 0)
		await_completion();

	/*
	 * The request was abandoned while its owner still waits for it.  Its result is lost, and must
	 * not pass for success.
	 */
	if (owner->in_flight)
	{
		owner->error = ECANCELED;
		owner->in_flight = false;
	}
}

/* Wait until at most `left` requests ahead, and no others, are in flight. */
static void
drain_slots(int left)
{
	blob_slots_reap();
	while (slots_in_use - ahead_in_use > 0 || ahead_in_use > left)
		await_completion();
}

void
blob_slots_drain(void)
{
	drain_slots(MAX_AHEAD);
}

/* Forget the owners of the requests, then wait for them. */
void
blob_slots_abandon(void)
{
	for (int i = 0; i < BLOB_IO_SLOT_COUNT && slots_in_use > 0; i++)
	{
		if (!slots[i].is_ahead)
			slots[i].owner = NULL;
	}
	drain_slots(MAX_AHEAD);
}

void
blob_slots_use(const BlobIoRing *next_ring)
{
	Assert(IsUnderPostmaster || !IsPostmasterEnvironment);
	if (next_ring == ring)
		return;
	drain_slots(0);
	ring = next_ring;
}

bool
blob_slots_are_in_use(void)
{
	return slots_in_use > 0;
}

bool
blob_slots_are_asynchronous(void)
{
	return ring != NULL;
}
