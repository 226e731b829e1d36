/*
 * test/unit/fail_writes.c
 *	  A library for LD_PRELOAD: writes to segment files fail while a test wants that.
 *
 * The environment variable BLOBEXT_FAULT names a file.  As long as it exists, writes to files below
 * pg_blobext fail with the error that it names, EIO or ENOSPC; with "sync" in the place of these
 * fdatasync() fails with EIO; with "hold" blocking writes wait until the file is gone, and a file
 * of that name and ".held" says that one does; with "late20" writes by io_uring or aio are begun,
 * and read the memory that they write, 20 ms after they were submitted; with "short" they write the
 * first of their vectors only; with "hash20" another thread than the first takes 20 ms more for
 * each part that it hashes; with "aio" processes get no context for it, as if all were taken; with
 * "refuse" io_submit() refuses writes with EAGAIN.  A number after that is the only process that is
 * affected.
 *
 * Requests of io_uring are handed to a file that fails all writes with that error.  Those of aio
 * are handed to /dev/null, and their completions are changed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <liburing.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "preload.h"

/* The word in the file that controls this process; empty if there is none. */
static void
read_control(char word[16])
{
	FILE	   *file = open_control("BLOBEXT_FAULT");
	long		pid = 0;
	int			fields;

	word[0] = '\0';
	if (file == NULL)
		return;
	fields = fscanf(file, "%15s %ld", word, &pid);
	fclose(file);
	if (fields < 1 || (fields == 2 && pid != getpid()))
		word[0] = '\0';
}

/* The error that writes of this process are to have; -1: its syncs; -2: they wait; 0: none. */
static int
wanted_error(void)
{
	char		word[16];

	read_control(word);
	return strcmp(word, "EIO") == 0 ? EIO : strcmp(word, "ENOSPC") == 0 ? ENOSPC :
		strcmp(word, "sync") == 0 ? -1 : strcmp(word, "hold") == 0 ? -2 : 0;
}

/* Whether the file that controls the library has this word, for this process. */
static int
is_wanted(const char *wanted)
{
	char		word[16];

	read_control(word);
	return strcmp(word, wanted) == 0;
}

/* Wait until the file that asks for that is gone. */
static void
hold(void)
{
	tell("BLOBEXT_FAULT", ".held");
	while (wanted_error() == -2)
		usleep(10000);
}

/* Set errno and return true if a write to fd is to fail. */
static int
fails(int fd)
{
	int			save_errno = errno;
	int			error = is_segment(fd) ? wanted_error() : 0;

	errno = error > 0 ? error : save_errno;
	return error > 0;
}

ssize_t
pwritev(int fd, const struct iovec *vectors, int count, off_t offset)
{
	static ssize_t (*real) (int, const struct iovec *, int, off_t);

	if (real == NULL)
		real = (ssize_t (*) (int, const struct iovec *, int, off_t)) dlsym(RTLD_NEXT, "pwritev");
	if (is_segment(fd) && wanted_error() == -2)
		hold();
	return fails(fd) ? -1 : real(fd, vectors, count, offset);
}

ssize_t
pwritev64(int fd, const struct iovec *vectors, int count, off_t offset)
{
	return pwritev(fd, vectors, count, offset);
}

ssize_t
pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
	static ssize_t (*real) (int, const void *, size_t, off_t);

	if (real == NULL)
		real = (ssize_t (*) (int, const void *, size_t, off_t)) dlsym(RTLD_NEXT, "pwrite");
	return fails(fd) ? -1 : real(fd, data, bytes, offset);
}

ssize_t
pwrite64(int fd, const void *data, size_t bytes, off_t offset)
{
	return pwrite(fd, data, bytes, offset);
}

int
fdatasync(int fd)
{
	static int	(*real) (int);

	if (real == NULL)
		real = (int (*) (int)) dlsym(RTLD_NEXT, "fdatasync");
	if (is_segment(fd) && wanted_error() == -1)
	{
		errno = EIO;
		return -1;
	}
	return real(fd);
}

/* Whether a request is a write to a segment. */
static int
is_write(const struct io_uring_sqe *sqe)
{
	return (sqe->opcode == IORING_OP_WRITE || sqe->opcode == IORING_OP_WRITEV) &&
		is_segment(sqe->fd);
}

/* Have the writes that are about to be submitted go to a file that refuses them, or cut them. */
static void
divert(struct io_uring *ring)
{
	static int	refusing[2] = {-1, -1};

	for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++)
	{
		struct io_uring_sqe *sqe = &ring->sq.sqes[i & *ring->sq.kring_mask];
		int			which;

		if (!is_write(sqe))
			continue;
		if (sqe->opcode == IORING_OP_WRITEV && is_wanted("short"))
			sqe->len = 1;
		if (!fails(sqe->fd))
			continue;
		/* Offset 0 of a process is mapped nowhere. */
		which = errno == ENOSPC;
		if (refusing[which] < 0)
			refusing[which] = open(which ? "/dev/full" : "/proc/self/mem", O_RDWR | O_CLOEXEC);
		if (refusing[which] < 0)
			abort();
		sqe->fd = refusing[which];
		sqe->off = 0;
	}
}

/* How late this process is to be, in milliseconds: "late" with writes, "hash" with digests. */
static int
wanted_delay(const char *what)
{
	char		word[16];
	size_t		length = strlen(what);

	read_control(word);
	return strncmp(word, what, length) == 0 ? atoi(word + length) : 0;
}

int
SHA256_Update(void *context, const void *data, size_t bytes)
{
	static int	(*real) (void *, const void *, size_t);

	if (real == NULL)
		real = (int (*) (void *, const void *, size_t)) dlsym(RTLD_NEXT, "SHA256_Update");
	if (gettid() != getpid())
		usleep(wanted_delay("hash") * 1000);
	return real(context, data, bytes);
}

/*
 * Put a timeout before each write that is about to be submitted, linked with it.  The timeout
 * itself is not seen: its success completes nothing.
 */
static void
delay(struct io_uring *ring)
{
	static struct __kernel_timespec times[128];
	static int	next_time;
	unsigned	end = ring->sq.sqe_tail;
	int			delay_ms = end != ring->sq.sqe_head ? wanted_delay("late") : 0;

	for (unsigned i = ring->sq.sqe_head; delay_ms > 0 && i != end; i++)
	{
		struct io_uring_sqe *sqe = &ring->sq.sqes[i & *ring->sq.kring_mask];
		struct io_uring_sqe write = *sqe;
		struct __kernel_timespec *time = &times[next_time++ % 128];

		if (!is_write(sqe))
			continue;
		/* Linked requests must follow each other. */
		if (i + 1 != end)
			abort();
		time->tv_sec = delay_ms / 1000;
		time->tv_nsec = delay_ms % 1000 * 1000000L;
		io_uring_prep_timeout(sqe, time, 0, IORING_TIMEOUT_ETIME_SUCCESS);
		sqe->flags |= IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
		sqe = io_uring_get_sqe(ring);
		if (sqe == NULL)
			abort();
		*sqe = write;
	}
}

int
io_uring_submit(struct io_uring *ring)
{
	static int	(*real) (struct io_uring *);

	if (real == NULL)
		real = (int (*) (struct io_uring *)) dlsym(RTLD_NEXT, "io_uring_submit");
	divert(ring);
	delay(ring);
	return real(ring);
}

int
io_uring_submit_and_wait(struct io_uring *ring, unsigned count)
{
	static int	(*real) (struct io_uring *, unsigned);

	if (real == NULL)
		real = (int (*) (struct io_uring *, unsigned)) dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
	divert(ring);
	delay(ring);
	return real(ring, count);
}

/* ---- aio ---- */

#define MAX_DATA 256			/* numbers of requests are smaller */
#define MAX_VECTORS 64

typedef struct LateWrite
{
	aio_context_t context;
	struct iocb block;
	struct iovec vectors[MAX_VECTORS];
	int			delay_ms;
} LateWrite;

static long (*real_syscall) (long, ...);
static int	errors[MAX_DATA];	/* that completions are to have */

/* A thread that submits a write late. */
static void *
submit_late(void *argument)
{
	LateWrite  *late = argument;
	struct iocb *block = &late->block;

	usleep(late->delay_ms * 1000);
	if (real_syscall(__NR_io_submit, late->context, 1L, &block) != 1)
		abort();
	free(late);
	return NULL;
}

/* The kernel reads the vectors when a request is submitted, and what they point to later. */
static void
begin_late(aio_context_t context, const struct iocb *block, int delay_ms)
{
	LateWrite  *late = malloc(sizeof(LateWrite));
	sigset_t	all;
	sigset_t	before;
	pthread_t	thread;

	if (late == NULL || block->aio_nbytes > MAX_VECTORS)
		abort();
	late->context = context;
	late->block = *block;
	late->delay_ms = delay_ms;
	memcpy(late->vectors, (void *) (uintptr_t) block->aio_buf,
		   block->aio_nbytes * sizeof(struct iovec));
	late->block.aio_buf = (uintptr_t) late->vectors;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, submit_late, late) != 0)
		abort();
	pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Have a write that is about to be submitted fail, or cut it. */
static void
divert_block(struct iocb *block)
{
	static int	null_fd = -1;

	if (block->aio_data >= MAX_DATA)
		abort();
	if (is_wanted("short"))
		block->aio_nbytes = 1;
	if (!fails(block->aio_fildes))
		return;
	if (null_fd < 0)
		null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (null_fd < 0)
		abort();
	errors[block->aio_data] = wanted_error();
	block->aio_fildes = null_fd;
}

static int
is_block_to_change(const struct iocb *block)
{
	return block->aio_lio_opcode == IOCB_CMD_PWRITEV && is_segment(block->aio_fildes);
}

static long
submit_blocks(aio_context_t context, long count, struct iocb **blocks)
{
	int			delay_ms = count > 0 ? wanted_delay("late") : 0;
	long		left = 0;
	struct iocb *others[MAX_DATA];

	/* The kernel begins requests up to one that it refuses; an error is that of the first. */
	if (count > 0 && is_wanted("refuse"))
	{
		if (!is_block_to_change(blocks[0]))
			return real_syscall(__NR_io_submit, context, 1L, blocks);
		errno = EAGAIN;
		return -1;
	}
	for (long i = 0; i < count; i++)
	{
		int			is_ours = is_block_to_change(blocks[i]);

		if (is_ours)
			divert_block(blocks[i]);
		if (is_ours && delay_ms > 0)
			begin_late(context, blocks[i], delay_ms);
		else
			others[left++] = blocks[i];
	}
	/* All are accepted, as otherwise those that are late would be submitted again. */
	if (left > 0 && delay_ms > 0 && real_syscall(__NR_io_submit, context, left, others) != left)
		abort();
	return delay_ms > 0 ? count : real_syscall(__NR_io_submit, context, count, blocks);
}

static long
get_events(long context, long min, long max, struct io_event *events, long timeout)
{
	long		count = real_syscall(__NR_io_getevents, context, min, max, events, timeout);

	for (long i = 0; i < count; i++)
	{
		if (errors[events[i].data] != 0)
			events[i].res = -errors[events[i].data];
		errors[events[i].data] = 0;
	}
	return count;
}

long
syscall(long number, ...)
{
	long		arguments[6];
	va_list		list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		arguments[i] = va_arg(list, long);
	va_end(list);
	if (real_syscall == NULL)
		real_syscall = (long (*) (long, ...)) dlsym(RTLD_NEXT, "syscall");
	if (number == __NR_io_setup && is_wanted("aio"))
	{
		errno = EAGAIN;
		return -1;
	}
	if (number == __NR_io_submit)
		return submit_blocks(arguments[0], arguments[1], (struct iocb **) arguments[2]);
	if (number == __NR_io_getevents)
		return get_events(arguments[0], arguments[1], arguments[2],
						  (struct io_event *) arguments[3], arguments[4]);
	return real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
						arguments[4], arguments[5]);
}
