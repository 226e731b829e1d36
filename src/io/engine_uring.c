/*
 * io/engine_uring.c
 *	  Requests through io_uring: one ring per process.
 *
 * Buffers are not registered with the ring.  That would save 0.3 us of the 78 us that a 256 KiB
 * write takes, but count 4 MiB per process against RLIMIT_MEMLOCK, which all processes of the user
 * share.  With the usual 8 MiB the first backend would have it.  New rings, which come out of the
 * same limit on newer kernels (seen on 6.18), would be refused the sooner.
 */
#include "postgres.h"

#include <liburing.h>

#include "io/engine_internal.h"
#include "storage/fd.h"

/* user_data of the trial run */
#define TRIAL_USER_DATA UINT64CONST(0xB10B)

/* How long to wait when the kernel is short of memory for requests. */
#define RETRY_WAIT_US 100

static struct io_uring ring;
static bool is_open = false;

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
	supported = io_uring_opcode_supported(probe, IORING_OP_READV) &&
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
	result = io_uring_queue_init(BLOB_IO_SLOT_COUNT, &ring,
								 IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
	if (result == -EINVAL)
#endif
		result = io_uring_queue_init(BLOB_IO_SLOT_COUNT, &ring, 0);
	if (result < 0)
		return -result;

	result = trial_run();
	if (result != 0)
		io_uring_queue_exit(&ring);
	return result;
}

static int
open_ring(void)
{
	int			error;

	if (is_open)
		return 0;
	if (!AcquireExternalFD())
		return EMFILE;
	error = make_ring();
	if (error != 0)
		ReleaseExternalFD();
	is_open = error == 0;
	return error;
}

static void
close_ring(void)
{
	if (!is_open)
		return;
	io_uring_queue_exit(&ring);
	ReleaseExternalFD();
	is_open = false;
}

/* Submit queued requests, and block until at least wait_count completions have arrived. */
static void
enter(unsigned wait_count)
{
	int			result = io_uring_submit_and_wait(&ring, wait_count);

	if (result >= 0 || result == -EINTR)
		return;
	if (result == -EAGAIN || result == -EBUSY)
	{
		/* The kernel wants completions to be fetched, or is short of memory. */
		pg_usleep(RETRY_WAIT_US);
		return;
	}
	errno = -result;
	elog(PANIC, "io_uring_enter failed with requests in flight: %m");
}

static bool
submit(void)
{
	if (io_uring_sq_ready(&ring) > 0)
		enter(0);
	return io_uring_sq_ready(&ring) == 0;
}

static void
await(void)
{
	enter(1);
}

/* The queue has as many entries as there are slots, but the kernel may not have fetched all. */
static void
queue(int slot_no, const BlobIoRequest *request)
{
	struct io_uring_sqe *sqe;

	while ((sqe = io_uring_get_sqe(&ring)) == NULL)
		enter(0);
	if (request->is_write)
		io_uring_prep_writev(sqe, request->fd, request->vectors, request->vector_count,
							 request->file_offset);
	else
		io_uring_prep_readv(sqe, request->fd, request->vectors, request->vector_count,
							request->file_offset);
	io_uring_sqe_set_data64(sqe, slot_no);
}

static bool
take(BlobIoCompletion *completion)
{
	struct io_uring_cqe *cqe;

	if (io_uring_peek_cqe(&ring, &cqe) != 0)
		return false;
	completion->slot_no = cqe->user_data;
	completion->result = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	return true;
}

const BlobIoRing blob_uring = {
	.name = "io_uring",
	.method = BLOB_IO_METHOD_URING,
	.needs_direct = false,
	.open = open_ring,
	.close = close_ring,
	.queue = queue,
	.submit = submit,
	.wait = await,
	.take = take
};
