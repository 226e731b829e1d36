/*
 * io/engine_uring.c
 *	  The io_uring back end: one ring per process.
 *
 * Slots.  The kernel is given the number of a slot as user_data, never a pointer.  A slot holds its
 * own copy of the request and a pointer to the caller's.  When an error unwinds the caller's stack,
 * the slots are abandoned: the pointer is cleared, and completions that still come in touch no
 * memory but the buffers.  Slots of requests ahead are left alone: their owners live as long as the
 * process.
 *
 * Life.  The ring is made at the first use in a process, and marked with that process's pid; a
 * process that inherited it never uses it.  It is closed before the process leaves shared memory,
 * after all I/O has ended: otherwise the kernel would go on writing to extents on behalf of a dead
 * backend.
 *
 * Buffers are not registered with the ring.  That would save 0.3 us of the 78 us that a 256 KiB
 * write takes, but count 4 MiB per process against RLIMIT_MEMLOCK, which all processes of the user
 * share.  With the usual 8 MiB the first backend would have it.  New rings, which come out of the
 * same limit on newer kernels (seen on 6.18), would be refused the sooner.
 *
 * Errors.  A refusal, also of single operations, which a trial run finds, means the sync back end.
 * Transfers that come back short or with EAGAIN/EINTR are finished by blocking calls: that is rare,
 * so it need not be fast.  If io_uring_enter() itself fails with requests in flight, we can no
 * longer know which buffers the kernel uses: PANIC.
 */
#include "postgres.h"
#include "utils/wait_event.h"

#include <liburing.h>

#include "io/engine_internal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/ipc.h"

/*
 * Requests in flight at most: two for each buffer, as a caller may split one; and reads ahead.
 * Writes ahead are rare, and use slots of these: take_slot() waits if none is free.
 */
#define SLOT_COUNT (2 * BLOB_IO_BUFFER_COUNT + BLOB_IO_MAX_AHEAD)
#define MAX_AHEAD (BLOB_IO_MAX_AHEAD + BLOB_IO_MAX_TRAILING)

/* user_data of the trial run */
#define TRIAL_USER_DATA UINT64CONST(0xB10B)

/* How long to wait when the kernel is short of memory for requests. */
#define RETRY_WAIT_US 100

typedef struct UringSlot
{
	bool		in_use;
	bool		is_ahead;		/* not of the current claim */
	BlobIoRequest work;			/* the engine's copy */
	BlobIoRequest *owner;		/* the caller's, or NULL once abandoned */
} UringSlot;

static struct io_uring ring;
static pid_t ring_pid = 0;		/* the process that made the ring; 0: none */
static bool exit_registered = false;
static UringSlot slots[SLOT_COUNT];
static int	slots_in_use = 0;
static int	ahead_in_use = 0;	/* of slots_in_use */

static bool
ring_is_mine(void)
{
	return ring_pid != 0 && ring_pid == MyProcPid;
}

static void drain_slots(int left);

/* before_shmem_exit callback */
static void
close_ring(int code, Datum arg)
{
	if (!ring_is_mine())
		return;
	blob_uring_abandon();
	drain_slots(0);
	io_uring_queue_exit(&ring);
	ReleaseExternalFD();
	ring_pid = 0;
}

void
blob_uring_process_begins(void)
{
	if (exit_registered)
		return;
	exit_registered = true;
	before_shmem_exit(close_ring, (Datum) 0);
}

/*
 * Whether the kernel supports the operations that we need, and lets us enter the ring.  (A sandbox
 * may allow setting one up, and no more.)  Returns 0 or an errno.
 */
static int
trial_run(void)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	bool		supported;
	int			result;

	if (probe == NULL)
		return ENOSYS;
	supported = io_uring_opcode_supported(probe, IORING_OP_READ) &&
		io_uring_opcode_supported(probe, IORING_OP_READV) &&
		io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
		io_uring_opcode_supported(probe, IORING_OP_WRITEV);
	io_uring_free_probe(probe);
	if (!supported)
		return ENOSYS;

	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data64(sqe, TRIAL_USER_DATA);
	do
	{
		result = io_uring_submit(&ring);
	} while (result == -EINTR);
	if (result < 0)
		return -result;
	do
	{
		result = io_uring_wait_cqe(&ring, &cqe);
	} while (result == -EINTR);
	if (result < 0)
		return -result;
	result = cqe->user_data == TRIAL_USER_DATA ? -cqe->res : EIO;
	io_uring_cqe_seen(&ring, cqe);
	return result;
}

/* Make the ring; the caller accounts for its descriptor.  Returns 0 or an errno. */
static int
make_ring(void)
{
	int			result;

	/* Completions need not interrupt us: we fetch them. */
#if defined(IORING_SETUP_COOP_TASKRUN) && defined(IORING_SETUP_TASKRUN_FLAG)
	result = io_uring_queue_init(SLOT_COUNT, &ring,
								 IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
	if (result == -EINVAL)
#endif
		result = io_uring_queue_init(SLOT_COUNT, &ring, 0);
	if (result < 0)
		return -result;

	result = trial_run();
	if (result != 0)
		io_uring_queue_exit(&ring);
	return result;
}

int
blob_uring_open(void)
{
	int			error;

	if (ring_is_mine())
		return 0;

	if (!AcquireExternalFD())
		return EMFILE;
	error = make_ring();
	if (error != 0)
	{
		ReleaseExternalFD();
		return error;
	}

	/* Slots that a parent process had in use are not ours. */
	memset(slots, 0, sizeof(slots));
	slots_in_use = 0;
	ahead_in_use = 0;
	ring_pid = MyProcPid;
	blob_uring_process_begins();
	return 0;
}

/*
 * Take over one completion: store its result in the caller's request, unless that was abandoned,
 * and free the slot.
 */
static void
complete(uint64 slot_no, int32 result)
{
	UringSlot  *slot;
	BlobIoRequest *work;

	if (slot_no >= SLOT_COUNT || !slots[slot_no].in_use)
		elog(PANIC, "io_uring completed request %llu, which was not in flight",
			 (unsigned long long) slot_no);
	slot = &slots[slot_no];
	work = &slot->work;

	if (result < 0 && result != -EINTR && result != -EAGAIN)
		work->error = -result;
	else
	{
		if (result > 0)
			work->transferred = result;
		/*
		 * No progress: the end of the file, or of the disk; blob_sync_transfer() finds out.  The
		 * descriptor of a request ahead may name another file by now.
		 */
		if (work->transferred < work->length && slot->is_ahead)
			work->error = EAGAIN;
		else if (work->transferred < work->length && slot->owner != NULL)
			blob_sync_transfer(work);
	}
	blob_io_count(work);

	if (slot->owner != NULL)
	{
		slot->owner->error = work->error;
		slot->owner->transferred = work->transferred;
		slot->owner->in_flight = false;
	}
	slot->in_use = false;
	slots_in_use--;
	if (slot->is_ahead)
		ahead_in_use--;
}

/* Take over all completions that have arrived, without blocking for more. */
void
blob_uring_reap(void)
{
	struct io_uring_cqe *cqe;

	if (!ring_is_mine())
		return;
	while (slots_in_use > 0 && io_uring_peek_cqe(&ring, &cqe) == 0)
	{
		uint64		slot_no = cqe->user_data;
		int32		result = cqe->res;

		io_uring_cqe_seen(&ring, cqe);
		complete(slot_no, result);
	}
}

/* Submit queued requests, and block until at least wait_count completions have arrived. */
static void
enter(unsigned wait_count)
{
	int			result;

	if (wait_count > 0)
	{
		pgstat_report_wait_start(PG_WAIT_EXTENSION);
		result = io_uring_submit_and_wait(&ring, wait_count);
		pgstat_report_wait_end();
	}
	else
		result = io_uring_submit(&ring);

	if (result >= 0 || result == -EINTR)
		return;
	if (result == -EAGAIN || result == -EBUSY)
	{
		/* The kernel wants completions to be fetched, or is short of memory. */
		blob_uring_reap();
		pg_usleep(RETRY_WAIT_US);
		return;
	}
	errno = -result;
	elog(PANIC, "io_uring_enter failed with %d requests in flight: %m", slots_in_use);
}

void
blob_uring_submit(void)
{
	if (!ring_is_mine())
		return;
	while (io_uring_sq_ready(&ring) > 0)
		enter(0);
}

/* The number of a free slot; waits for one if necessary. */
static int
take_slot(void)
{
	while (slots_in_use == SLOT_COUNT)
	{
		blob_uring_reap();
		if (slots_in_use == SLOT_COUNT)
			enter(1);
	}
	for (int i = 0; i < SLOT_COUNT; i++)
	{
		if (!slots[i].in_use)
			return i;
	}
	pg_unreachable();
}

/* Queue a request in a free slot.  Waits for a slot, or for room in the queue, if necessary. */
void
blob_uring_start(BlobIoRequest *request, bool is_ahead)
{
	int			slot_no = take_slot();
	UringSlot  *slot = &slots[slot_no];
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	char	   *start = request->vector_count > 0 ? NULL : blob_io_buffer(request->buffer_no);

	/*
	 * The queue has as many entries as there are slots, but the kernel may not have fetched
	 * submitted requests yet.
	 */
	while (sqe == NULL)
	{
		enter(0);
		sqe = io_uring_get_sqe(&ring);
	}

	slot->in_use = true;
	slot->is_ahead = is_ahead;
	ahead_in_use += is_ahead;
	slot->work = *request;
	slot->owner = request;
	slots_in_use++;

	if (request->vector_count > 0 && request->is_write)
		io_uring_prep_writev(sqe, request->fd, slot->work.vectors, request->vector_count,
							 request->file_offset);
	else if (request->vector_count > 0)
		io_uring_prep_readv(sqe, request->fd, slot->work.vectors, request->vector_count,
							request->file_offset);
	else if (request->is_write)
		io_uring_prep_write(sqe, request->fd, start, request->length, request->file_offset);
	else
		io_uring_prep_read(sqe, request->fd, start, request->length, request->file_offset);
	io_uring_sqe_set_data64(sqe, slot_no);
}

void
blob_uring_wait(BlobIoRequest *request)
{
	if (ring_is_mine())
	{
		blob_uring_reap();
		while (request->in_flight && slots_in_use > 0)
		{
			enter(1);
			blob_uring_reap();
		}
	}

	/*
	 * The request was abandoned while its owner still waits for it.  Its result is lost, and must
	 * not pass for success.
	 */
	if (request->in_flight)
	{
		request->error = ECANCELED;
		request->in_flight = false;
	}
}

/* Wait until at most `left` requests ahead, and no others, are in flight. */
static void
drain_slots(int left)
{
	while (slots_in_use - ahead_in_use > 0 || ahead_in_use > left)
	{
		blob_uring_reap();
		if (slots_in_use - ahead_in_use > 0 || ahead_in_use > left)
			enter(1);
	}
}

void
blob_uring_drain(void)
{
	if (ring_is_mine())
		drain_slots(MAX_AHEAD);
}

/* Forget the owners of the requests, then wait for them. */
void
blob_uring_abandon(void)
{
	if (!ring_is_mine())
		return;
	for (int i = 0; i < SLOT_COUNT; i++)
	{
		if (!slots[i].is_ahead)
			slots[i].owner = NULL;
	}
	drain_slots(MAX_AHEAD);
}
