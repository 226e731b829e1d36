/*
 * bench/floor.c
 *	  The durable store loop, and direct reads: bounds that no database on this machine can beat.
 *
 * A store of one value: SHA-256, while the content is written to a preallocated file through
 * io_uring with direct I/O; fdatasync(); 8 KB to a preallocated log; fdatasync().  A read: pages of
 * that file through io_uring, all pieces of a value in flight, into huge pages if there are any.
 * Prints lines as bench/load does.
 *
 * usage: floor directory size,rounds,values...
 *
 * With --file it reads an existing file from front to back, with 16 pieces in flight, and prints
 * bytes and seconds.
 *
 * usage: floor --file path
 *
 * With --pages it reads some of the first pages of such a file at random, one at a time, by
 * pread(), and prints their number and seconds.
 *
 * usage: floor --pages path pages count
 *
 * With --upload it receives content over a Unix socket, in pieces of 124 kB of another process,
 * while 16 pieces of 256 kB are in flight to a file with O_DIRECT and are hashed meanwhile; then
 * fdatasync().  "twice": each piece goes to a second file as well, as to a log.  Prints rounds of
 * bytes and seconds; the first one, which is not counted, is left out.
 *
 * usage: floor --upload directory MB rounds [twice]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <openssl/sha.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE_BYTES (256L * 1024)
#define PAGE_BYTES 4096L
#define MAX_PIECES 512
#define PIECES_IN_FLIGHT 16
#define AREA_BYTES (1L << 30)
#define LOG_BYTES (8 * 1024)
#define SENT_BYTES (124L * 1024)

static struct io_uring ring;
static char *content;			/* page aligned */
static int	data_fd;
static int	log_fd;
static long data_at;
static long log_at;

static void __attribute__((noreturn))
fail(const char *what)
{
	fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Make a file whose blocks have all been written once. */
static int
make_file(const char *directory, const char *name, int flags, long bytes)
{
	char		path[4096];
	int			fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
	if (fd < 0)
		fail(path);
	unlink(path);
	for (long done = 0; done < bytes; done += PIECE_BYTES)
	{
		if (pwrite(fd, content, PIECE_BYTES, done) != PIECE_BYTES)
			fail("write");
	}
	if (fsync(fd) != 0)
		fail("fsync");
	return fd;
}

static void
reap(int count)
{
	struct io_uring_cqe *cqe;

	for (; count > 0; count--)
	{
		if (io_uring_wait_cqe(&ring, &cqe) != 0 || cqe->res <= 0)
			fail("read or write");
		io_uring_cqe_seen(&ring, cqe);
	}
}

/* Store one value: content and digest at once, then the log, each synced. */
static void
store(long size_bytes)
{
	long		length = (size_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	unsigned char sha256[SHA256_DIGEST_LENGTH];
	SHA256_CTX	hash;
	int			pieces = 0;

	if (data_at + length > AREA_BYTES)
		data_at = 0;
	SHA256_Init(&hash);
	for (long done = 0; done < length; done += PIECE_BYTES)
	{
		long		bytes = length - done < PIECE_BYTES ? length - done : PIECE_BYTES;
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		io_uring_prep_write(sqe, data_fd, content + done, bytes, data_at + done);
		if (io_uring_submit(&ring) < 0)
			fail("submit");
		pieces++;
		SHA256_Update(&hash, content + done,
					  size_bytes - done < bytes ? size_bytes - done : bytes);
	}
	SHA256_Final(sha256, &hash);
	reap(pieces);
	data_at += length;
	if (fdatasync(data_fd) != 0)
		fail("fdatasync");

	memcpy(content, sha256, sizeof(sha256));
	if (log_at + LOG_BYTES > AREA_BYTES / 8)
		log_at = 0;
	if (pwrite(log_fd, content, LOG_BYTES, log_at) != LOG_BYTES || fdatasync(log_fd) != 0)
		fail("log");
	log_at += LOG_BYTES;
}

/* Read one value, with all of its pieces in flight. */
static void
read_back(long size_bytes)
{
	long		length = (size_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	int			pieces = 0;

	if (data_at + length > AREA_BYTES)
		data_at = 0;
	for (long done = 0; done < length; done += PIECE_BYTES, pieces++)
	{
		long		bytes = length - done < PIECE_BYTES ? length - done : PIECE_BYTES;

		io_uring_prep_read(io_uring_get_sqe(&ring), data_fd, content + done, bytes, data_at + done);
		if (io_uring_submit(&ring) < 0)
			fail("submit");
	}
	reap(pieces);
	data_at += length;
}

/* Read a file from front to back, and print bytes and seconds. */
static void
read_file(const char *path)
{
	double		started;
	long		size_bytes;
	long		requested = 0;

	data_fd = open(path, O_RDONLY | O_DIRECT);
	if (data_fd < 0)
		fail(path);
	size_bytes = lseek(data_fd, 0, SEEK_END) / PIECE_BYTES * PIECE_BYTES;
	started = now();
	for (long done = 0; done < size_bytes; done += PIECE_BYTES)
	{
		for (; requested < size_bytes && requested < done + PIECES_IN_FLIGHT * PIECE_BYTES;
			 requested += PIECE_BYTES)
		{
			io_uring_prep_read(io_uring_get_sqe(&ring), data_fd,
							   content + requested % (MAX_PIECES * PIECE_BYTES), PIECE_BYTES,
							   requested);
			if (io_uring_submit(&ring) < 0)
				fail("submit");
		}
		reap(1);
	}
	printf("%ld\t%.6f\n", size_bytes, now() - started);
}

/* Read some of the first pages of a file at random, and print their number and seconds. */
static void
read_pages(const char *path, long pages, long count)
{
	double		started;

	data_fd = open(path, O_RDONLY | O_DIRECT);
	if (data_fd < 0)
		fail(path);
	started = now();
	for (long n = 0; n < count; n++)
	{
		if (pread(data_fd, content, PAGE_BYTES, random() % pages * PAGE_BYTES) != PAGE_BYTES)
			fail("read");
	}
	printf("%ld\t%.6f\n", count, now() - started);
}

/* Another process that sends the first bytes of the content; returns the socket to receive from. */
static int
start_sender(long bytes)
{
	int			sockets[2];
	pid_t		pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (pid = fork()) < 0)
		fail("sender");
	if (pid > 0)
	{
		close(sockets[1]);
		return sockets[0];
	}
	for (long done = 0, sent; done < bytes; done += sent)
	{
		sent = send(sockets[1], content, bytes - done < SENT_BYTES ? bytes - done : SENT_BYTES, 0);
		if (sent <= 0)
			_exit(1);
	}
	_exit(0);
}

static void
receive_piece(int from, char *piece)
{
	for (long done = 0, got; done < PIECE_BYTES; done += got)
	{
		got = recv(from, piece + done, PIECE_BYTES - done, MSG_WAITALL);
		if (got <= 0)
			fail("receive");
	}
}

/* Wait until no write of a piece is in flight. */
static void
wait_for_piece(int *in_flight, long piece_no)
{
	struct io_uring_cqe *cqe;

	while (in_flight[piece_no] > 0)
	{
		if (io_uring_wait_cqe(&ring, &cqe) != 0 || cqe->res != PIECE_BYTES)
			fail("write");
		in_flight[cqe->user_data]--;
		io_uring_cqe_seen(&ring, cqe);
	}
}

/* Receive, hash and write content, once or twice, and make them durable. */
static void
upload(long bytes, int writes)
{
	int			fds[2] = {data_fd, log_fd};
	int			in_flight[PIECES_IN_FLIGHT] = {0};
	int			from = start_sender(bytes);
	int			status;
	unsigned char sha256[SHA256_DIGEST_LENGTH];
	SHA256_CTX	hash;

	SHA256_Init(&hash);
	for (long done = 0; done < bytes; done += PIECE_BYTES)
	{
		long		piece_no = done / PIECE_BYTES % PIECES_IN_FLIGHT;
		char	   *piece = content + (PIECES_IN_FLIGHT + piece_no) * PIECE_BYTES;

		wait_for_piece(in_flight, piece_no);
		receive_piece(from, piece);
		for (int i = 0; i < writes; i++, in_flight[piece_no]++)
		{
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			io_uring_prep_write(sqe, fds[i], piece, PIECE_BYTES, done);
			io_uring_sqe_set_data64(sqe, piece_no);
		}
		if (io_uring_submit(&ring) < 0)
			fail("submit");
		SHA256_Update(&hash, piece, PIECE_BYTES);
	}
	SHA256_Final(sha256, &hash);
	for (long piece_no = 0; piece_no < PIECES_IN_FLIGHT; piece_no++)
		wait_for_piece(in_flight, piece_no);
	for (int i = 0; i < writes; i++)
	{
		if (fdatasync(fds[i]) != 0)
			fail("fdatasync");
	}
	close(from);
	if (wait(&status) < 0 || status != 0)
		fail("sender");
}

static void
measure_uploads(const char *directory, long bytes, long rounds, int writes)
{
	data_fd = make_file(directory, "floor.data", O_DIRECT, bytes);
	log_fd = make_file(directory, "floor.log", O_DIRECT, bytes);
	for (long round = 0; round <= rounds; round++)
	{
		double		started = now();

		upload(bytes, writes);
		if (round > 0)
			printf("%ld\t%.6f\n", bytes, now() - started);
	}
}

/* Run one kind of work, in rounds. */
static void
measure(const char *name, void (*work) (long size_bytes), long size_bytes, long rounds,
		long values)
{
	work(size_bytes);
	for (long round = 0; round < rounds; round++)
	{
		double		started = now();

		for (long n = 0; n < values; n++)
			work(size_bytes);
		printf("floor\t%s\t%ld\t1\tfloor\t%ld\t%ld\t%.6f\n", name, size_bytes, round, values,
			   now() - started);
	}
}

int
main(int argc, char **argv)
{
	FILE	   *noise = fopen("/dev/urandom", "r");
	long		content_bytes = MAX_PIECES * PIECE_BYTES;

	if (argc < 3)
	{
		fprintf(stderr, "usage: floor directory size,rounds,values... | floor --file path"
				" | floor --pages path pages count | floor --upload directory MB rounds [twice]\n");
		return 2;
	}
	content = mmap(NULL, content_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (content != MAP_FAILED)
		madvise(content, content_bytes, MADV_HUGEPAGE);
	if (content == MAP_FAILED || noise == NULL ||
		fread(content, 1, content_bytes, noise) != (size_t) content_bytes)
		fail("content");
	if (io_uring_queue_init(MAX_PIECES, &ring, 0) != 0)
		fail("io_uring");
	if (strcmp(argv[1], "--file") == 0)
	{
		read_file(argv[2]);
		return 0;
	}
	if (strcmp(argv[1], "--pages") == 0 && argc >= 5)
	{
		srandom((unsigned) getpid());
		read_pages(argv[2], atol(argv[3]), atol(argv[4]));
		return 0;
	}
	if (strcmp(argv[1], "--upload") == 0 && argc >= 5)
	{
		measure_uploads(argv[2], atol(argv[3]) * 1024 * 1024, atol(argv[4]), argc > 5 ? 2 : 1);
		return 0;
	}
	data_fd = make_file(argv[1], "floor.data", O_DIRECT, AREA_BYTES);
	log_fd = make_file(argv[1], "floor.log", 0, AREA_BYTES / 8);

	for (int i = 2; i < argc; i++)
	{
		long		size_bytes = 0;
		long		rounds = 5;
		long		values = 10;

		sscanf(argv[i], "%ld,%ld,%ld", &size_bytes, &rounds, &values);
		if (size_bytes <= 0 || size_bytes > content_bytes)
			fail("size");
		measure("loop", store, size_bytes, rounds, values);
		measure("read", read_back, size_bytes, rounds, values);
	}
	return 0;
}
