/*
 * io/engine_aio.c
 *	  Requests through the kernel's older interface for asynchronous I/O (io_setup(2)), where
 *	  io_uring is refused, as containers do: one context per process.
 *
 * Only direct I/O is asynchronous there.  With a file of the page cache io_submit() does the whole
 * transfer, so such files are left to blocking calls.
 *
 * A context belongs to the memory of a process: a child has none, and when a process ends, whatever
 * the reason, the kernel waits for its requests before it takes the memory away.
 *
 * A request that io_submit() refuses was not begun.  That is a completion of its slot with the
 * error; if the kernel had no room for it, the error is EAGAIN, and a blocking call follows.
 */
#include "postgres.h"

#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "io/engine_internal.h"

static aio_context_t context = 0;	/* 0: none */

static struct iocb blocks[BLOB_IO_SLOT_COUNT];	/* by slot */
static struct iocb *queued[BLOB_IO_SLOT_COUNT];
static int	queued_count = 0;

/* Completions that were fetched or made up; the last one is taken first. */
static struct io_event arrived[BLOB_IO_SLOT_COUNT];
static int	arrived_count = 0;

/*
 * Fetch completions, when all that were there have been taken: those that have come meanwhile, or
 * wait for one.  Returns 0, also after a signal, or an errno.
 */
static int
fetch(bool waits)
{
	struct timespec no_time = {0, 0};
	long		result = syscall(__NR_io_getevents, context, waits ? 1L : 0L,
								 (long) BLOB_IO_SLOT_COUNT, arrived, waits ? NULL : &no_time);

	if (result < 0)
		return errno == EINTR ? 0 : errno;
	arrived_count = (int) result;
	return 0;
}

/* The same, for a context that has requests in flight. */
static void
fetch_or_panic(bool waits)
{
	errno = fetch(waits);
	if (errno != 0)
		elog(PANIC, "io_getevents failed with requests in flight: %m");
}

/* Give up the context.  If that is refused, the end of the process does it. */
static void
close_context(void)
{
	if (context != 0)
		(void) syscall(__NR_io_destroy, context);
	context = 0;
}

/*
 * A sandbox may allow the first call, and no more; so the others are tried without a request.
 * EAGAIN: there are as many contexts as fs.aio-max-nr allows.
 */
static int
open_context(void)
{
	int			error = 0;

	if (context != 0)
		return 0;
	if (syscall(__NR_io_setup, (long) BLOB_IO_SLOT_COUNT, &context) != 0)
	{
		error = errno;
		context = 0;
		return error;
	}
	error = syscall(__NR_io_submit, context, 0L, queued) == 0 ? fetch(false) : errno;
	if (error != 0)
		close_context();
	return error;
}

static void
queue(int slot_no, const BlobIoRequest *request)
{
	struct iocb *block = &blocks[slot_no];

	memset(block, 0, sizeof(*block));
	block->aio_data = slot_no;
	block->aio_lio_opcode = request->is_write ? IOCB_CMD_PWRITEV : IOCB_CMD_PREADV;
	block->aio_fildes = request->fd;
	block->aio_buf = (uintptr_t) request->vectors;
	block->aio_nbytes = request->vector_count;
	block->aio_offset = request->file_offset;
	queued[queued_count++] = block;
}

/* io_submit() begins requests in their order until one is refused; an error is of the first one. */
static bool
submit(void)
{
	int			done = 0;

	while (done < queued_count)
	{
		long		count = syscall(__NR_io_submit, context, (long) (queued_count - done),
									queued + done);

		if (count > 0)
			done += (int) count;
		else
			arrived[arrived_count++] = (struct io_event) {
				.data = queued[done++]->aio_data,
				.res = count < 0 ? -errno : -EAGAIN
			};
	}
	queued_count = 0;
	return true;
}

static void
await(void)
{
	(void) submit();
	if (arrived_count == 0)
		fetch_or_panic(true);
}

static bool
take(BlobIoCompletion *completion)
{
	if (arrived_count == 0)
		fetch_or_panic(false);
	if (arrived_count == 0)
		return false;
	arrived_count--;
	completion->slot_no = arrived[arrived_count].data;
	completion->result = arrived[arrived_count].res;
	return true;
}

const BlobIoRing blob_aio = {
	.name = "aio",
	.method = BLOB_IO_METHOD_AIO,
	.needs_direct = true,
	.open = open_context,
	.close = close_context,
	.queue = queue,
	.submit = submit,
	.wait = await,
	.take = take
};
