/*
 * test/lossy_disk.c
 *	  A disk with a volatile write cache, whose power can be cut:
 *
 *		lossy_disk FILE DIRECTORY MEGABYTES
 *
 * A FUSE server of one file: FILE (which exists, and is covered by the mount) becomes a file of
 * that size, for a loop device to be put over.  It speaks the kernel's protocol itself, so nothing
 * but the kernel's headers is needed.  Started by power_switch as root; ends when its input does.
 *
 * It keeps the promises of a device, and no others.  A write that was answered is seen by reads,
 * and may be lost until a FLUSH.  A FLUSH (the loop driver makes fsync() of it; FUA is a write and
 * a FLUSH) makes the writes durable that were answered before the FLUSH arrived; a write that was
 * not answered by then may be lost in spite of it.  Therefore some writes are answered late.  When
 * the power is cut, each write that is not durable is kept with a probability, or torn (each of its
 * sectors is kept or not), or lost; which one does not depend on the order of the writes.  ext4's
 * superblock, two sectors, is never torn: its checksum is verified before the journal is replayed.
 *
 * FILE is opened with FOPEN_DIRECT_IO, so that no page cache is between the loop device and this
 * process.  Two sparse files in DIRECTORY hold the bytes: lossy.now as reads see them,
 * lossy.durable as the next power cut leaves them at least.  A list in memory holds the writes by
 * which they differ.
 *
 * Commands, one a line, are read from standard input, and each is answered with a line: "ok",
 * perhaps with figures, or a message.  Probabilities are per mille.
 *
 *		cut KEPT TORN SEED	cut the power: probability that a write is kept, and that one which
 *							is not is torn.  All I/O fails until
 *		on					it is switched on again; not while FILE is open
 *		arm COUNT WRITES KEPT TORN SEED
 *							cut the power when the COUNT-th FLUSH from now arrives that would make
 *							at least WRITES writes durable: in its place
 *		fate				the fate of the writes: the answer to the last cut, or "ok pending"
 *		hold				FLUSHes are not answered
 *		hold_writes [COUNT]	the next COUNT writes, or all, are neither carried out nor answered, and
 *							reads do not see them
 *		release				until this: held writes are carried out, then held FLUSHes
 *		is_open				how often FILE is open
 *		figures				writes, FLUSHes and bytes since the start
 *
 * One thread, so each command finds all requests either done or not begun.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef FOPEN_PARALLEL_DIRECT_WRITES	/* older headers */
#define FOPEN_PARALLEL_DIRECT_WRITES (1 << 6)
#endif

#define SECTOR_BYTES 512
#define SUPERBLOCK_AT 1024
#define SUPERBLOCK_BYTES 1024
#define MAX_WRITE (1024 * 1024)
#define MAX_PAGES (MAX_WRITE / 4096)
#define MAX_REQUEST (MAX_WRITE + 4096)	/* with headers */
#define MAX_HELD_FLUSHES 64

/* One of this many writes is answered late: after at most LATE_EVENTS requests, or LATE_MS. */
#define LATE_EACH 4
#define LATE_EVENTS 6
#define LATE_MS 2

/* Exit code if there is no FUSE here. */
#define NOT_POSSIBLE 77

/* A write that is not durable yet. */
typedef struct Write
{
	struct Write *next;
	uint64_t	unique;			/* of the request, until it was answered */
	uint64_t	answered;		/* when, by the clock; 0 if it was not */
	uint64_t	due;			/* when it shall be answered at the latest */
	uint64_t	offset;
	uint32_t	length;
	char		data[];
} Write;

typedef struct HeldFlush
{
	uint64_t	unique;
	uint64_t	arrived;
} HeldFlush;

static int	fuse_fd;
static int	now_fd;
static int	durable_fd;
static uint64_t disk_bytes;

static Write *first_write;
static Write **last_link = &first_write;
static uint64_t clock_ticks = 1;	/* counts requests */
static int	late_count;
static HeldFlush held[MAX_HELD_FLUSHES];
static int	held_count;
static bool is_holding;
static Write *first_held_write;
static Write **last_held_link = &first_held_write;
static int	held_write_count;
static int	writes_to_hold;		/* from now on */
static bool is_off;
static int	open_count;

/* The power cut that is to come, and the fate of the writes in the last one. */
static struct
{
	int			flushes;		/* count from now; 0: none is to come */
	int			writes;			/* only those that make as many durable count */
	int			kept_per_mille;
	int			torn_per_mille;
	uint64_t	seed;
} armed;

static struct
{
	uint64_t	writes;
	uint64_t	bytes;
	uint64_t	kept;
	uint64_t	torn;
} fate;

/* Of the answers that are late; the power cut has its own. */
static uint64_t late_seed = 1;

static struct
{
	uint64_t	writes;
	uint64_t	bytes;
	uint64_t	late;
	uint64_t	flushes;
} figures;

static void
die(const char *what)
{
	fprintf(stderr, "lossy_disk: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* If the disk cannot be set up, tests are left out. */
static void
die_not_possible(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(NOT_POSSIBLE);
}

/* splitmix64 */
static uint64_t
next_random(uint64_t *state)
{
	uint64_t	z = (*state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static bool
is_hit(uint64_t *state, int per_mille)
{
	return next_random(state) % 1000 < (uint64_t) per_mille;
}

static void
write_at(int fd, const char *data, size_t length, uint64_t offset)
{
	while (length > 0)
	{
		ssize_t		done = pwrite(fd, data, length, offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			die("pwrite");
		data += done;
		length -= done;
		offset += done;
	}
}

static void
read_at(int fd, char *data, size_t length, uint64_t offset)
{
	while (length > 0)
	{
		ssize_t		done = pread(fd, data, length, offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			die("pread");
		data += done;
		length -= done;
		offset += done;
	}
}

/* ---- answers ---- */

static void
answer(uint64_t unique, int error, const void *data, size_t length)
{
	struct fuse_out_header header = {
		.len = sizeof(header) + length,
		.error = -error,
		.unique = unique
	};
	struct iovec parts[2] = {
		{.iov_base = &header,.iov_len = sizeof(header)},
		{.iov_base = (void *) data,.iov_len = length}
	};

	/* ENOENT: the request was given up meanwhile. */
	if (writev(fuse_fd, parts, 2) < 0 && errno != ENOENT)
		die("answer");
}

static void
answer_write(Write *write, int error)
{
	struct fuse_write_out out = {.size = write->length};

	if (error != 0)
		answer(write->unique, error, NULL, 0);
	else
		answer(write->unique, 0, &out, sizeof(out));
	write->answered = clock_ticks;
}

/* Answer writes that are due, or all that are late. */
static void
answer_late(bool all, int error)
{
	for (Write *write = first_write; write != NULL && late_count > 0; write = write->next)
	{
		if (write->answered == 0 && (all || write->due <= clock_ticks))
		{
			answer_write(write, error);
			late_count--;
		}
	}
}

/* ---- the cache ---- */

/* Writes that were answered by then are durable. */
static void
make_durable(uint64_t until)
{
	Write	  **link = &first_write;

	while (*link != NULL)
	{
		Write	   *write = *link;

		if (write->answered == 0 || write->answered > until)
		{
			link = &write->next;
			continue;
		}
		write_at(durable_fd, write->data, write->length, write->offset);
		*link = write->next;
		free(write);
	}
	last_link = link;
}

/* Reads see the write from now on.  It is answered now, or late. */
static void
carry_out(Write *write)
{
	write_at(now_fd, write->data, write->length, write->offset);
	*last_link = write;
	last_link = &write->next;
	figures.writes++;
	figures.bytes += write->length;
	if (next_random(&late_seed) % LATE_EACH == 0)
	{
		late_count++;
		figures.late++;
	}
	else
		answer_write(write, 0);
}

static void
hold_write(Write *write)
{
	*last_held_link = write;
	last_held_link = &write->next;
	held_write_count++;
	writes_to_hold--;
}

/* Carry the held writes out, in their order, or give them up with an error. */
static void
end_held_writes(int error)
{
	writes_to_hold = 0;
	while (first_held_write != NULL)
	{
		Write	   *write = first_held_write;

		first_held_write = write->next;
		write->next = NULL;
		if (error != 0)
		{
			answer(write->unique, error, NULL, 0);
			free(write);
		}
		else
			carry_out(write);
	}
	last_held_link = &first_held_write;
	held_write_count = 0;
}

/* Length of the piece at this offset of the disk that a cut keeps or loses as a whole. */
static uint32_t
whole_bytes(uint64_t offset)
{
	return offset == SUPERBLOCK_AT ? SUPERBLOCK_BYTES : SECTOR_BYTES;
}

/* Returns false if no sector, or each, was kept. */
static bool
keep_some_sectors(const Write *write, uint64_t *state)
{
	bool		has_kept = false;
	bool		has_lost = false;
	uint32_t	length;

	for (uint32_t at = 0; at < write->length; at += length)
	{
		uint32_t	left = write->length - at;

		length = whole_bytes(write->offset + at);
		if (length > left)
			length = left;
		if (!is_hit(state, 500))
		{
			has_lost = true;
			continue;
		}
		has_kept = true;
		write_at(durable_fd, write->data + at, length, write->offset + at);
	}
	return has_kept && has_lost;
}

static void
cut(int kept_per_mille, int torn_per_mille, uint64_t seed)
{
	static char buffer[MAX_WRITE];

	is_off = true;
	is_holding = false;
	end_held_writes(EIO);
	armed.flushes = 0;
	memset(&fate, 0, sizeof(fate));
	answer_late(true, EIO);
	while (held_count > 0)
		answer(held[--held_count].unique, EIO, NULL, 0);

	for (Write *write = first_write; write != NULL; write = write->next)
	{
		fate.writes++;
		fate.bytes += write->length;
		if (is_hit(&seed, kept_per_mille))
		{
			write_at(durable_fd, write->data, write->length, write->offset);
			fate.kept++;
		}
		else if (is_hit(&seed, torn_per_mille))
			fate.torn += keep_some_sectors(write, &seed);
	}
	/* Only now, for writes may overlap. */
	while (first_write != NULL)
	{
		Write	   *write = first_write;

		read_at(durable_fd, buffer, write->length, write->offset);
		write_at(now_fd, buffer, write->length, write->offset);
		first_write = write->next;
		free(write);
	}
	last_link = &first_write;
}

/* A power cut in place of a FLUSH; false if it is not the armed one. */
static bool
cut_if_armed(void)
{
	int			writes = 0;

	if (armed.flushes == 0)
		return false;
	for (Write *write = first_write; write != NULL; write = write->next)
		writes++;
	if (writes < armed.writes || --armed.flushes > 0)
		return false;
	cut(armed.kept_per_mille, armed.torn_per_mille, armed.seed);
	return true;
}

/* ---- requests ---- */

static void
serve_init(const struct fuse_in_header *in, const struct fuse_init_in *init)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = FUSE_KERNEL_MINOR_VERSION,
		.flags = init->flags &
			(FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO),
		.max_background = 64,
		.congestion_threshold = 48,
		.max_write = MAX_WRITE,
		.max_pages = MAX_PAGES,
		.time_gran = 1
	};

	/* Direct I/O that is not asynchronous would be one request at a time. */
	if (init->major != FUSE_KERNEL_VERSION || (out.flags & FUSE_ASYNC_DIO) == 0)
	{
		errno = EPROTO;
		die_not_possible("FUSE of this kernel");
	}
	answer(in->unique, 0, &out, sizeof(out));
}

static void
serve_getattr(const struct fuse_in_header *in)
{
	struct fuse_attr_out out = {
		.attr_valid = 3600,
		.attr = {
			.ino = FUSE_ROOT_ID,
			.size = disk_bytes,
			.blocks = disk_bytes / 512,
			.mode = S_IFREG | 0600,
			.nlink = 1,
			.blksize = 4096
		}
	};

	answer(in->unique, 0, &out, sizeof(out));
}

static void
serve_open(const struct fuse_in_header *in)
{
	struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES};

	open_count++;
	answer(in->unique, 0, &out, sizeof(out));
}

static void
serve_read(const struct fuse_in_header *in, const struct fuse_read_in *read)
{
	static char buffer[MAX_WRITE];
	uint64_t	length = read->size;

	if (is_off)
	{
		answer(in->unique, EIO, NULL, 0);
		return;
	}
	if (read->offset >= disk_bytes)
		length = 0;
	else if (length > disk_bytes - read->offset)
		length = disk_bytes - read->offset;
	if (length > sizeof(buffer))
	{
		answer(in->unique, EINVAL, NULL, 0);
		return;
	}
	read_at(now_fd, buffer, length, read->offset);
	answer(in->unique, 0, buffer, length);
}

static void
serve_write(const struct fuse_in_header *in, const struct fuse_write_in *in_write)
{
	Write	   *write;

	if (is_off || in_write->offset + in_write->size > disk_bytes || in_write->size > MAX_WRITE)
	{
		answer(in->unique, is_off ? EIO : ENOSPC, NULL, 0);
		return;
	}
	write = malloc(sizeof(Write) + in_write->size);
	if (write == NULL)
		die("malloc");
	*write = (Write)
	{
		.unique = in->unique,.due = clock_ticks + 1 + next_random(&late_seed) % LATE_EVENTS,
			.offset = in_write->offset,.length = in_write->size
	};
	memcpy(write->data, in_write + 1, in_write->size);
	if (writes_to_hold > 0)
		hold_write(write);
	else
		carry_out(write);
}

static void
serve_flush(const struct fuse_in_header *in)
{
	if (is_off || cut_if_armed() || (is_holding && held_count == MAX_HELD_FLUSHES))
	{
		answer(in->unique, EIO, NULL, 0);
		return;
	}
	figures.flushes++;
	if (is_holding)
	{
		held[held_count++] = (HeldFlush) {.unique = in->unique,.arrived = clock_ticks};
		return;
	}
	make_durable(clock_ticks - 1);
	answer(in->unique, 0, NULL, 0);
}

static void
release(void)
{
	end_held_writes(0);
	is_holding = false;
	for (int i = 0; i < held_count; i++)
	{
		make_durable(held[i].arrived - 1);
		answer(held[i].unique, 0, NULL, 0);
	}
	held_count = 0;
}

static void
serve(const struct fuse_in_header *in, const void *body)
{
	clock_ticks++;
	switch (in->opcode)
	{
		case FUSE_INIT:
			serve_init(in, body);
			break;
		case FUSE_GETATTR:
			serve_getattr(in);
			break;
		case FUSE_OPEN:
			serve_open(in);
			break;
		case FUSE_READ:
			serve_read(in, body);
			break;
		case FUSE_WRITE:
			serve_write(in, body);
			break;
		case FUSE_FSYNC:
			serve_flush(in);
			break;
		case FUSE_RELEASE:
			open_count--;
			answer(in->unique, 0, NULL, 0);
			break;
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			break;				/* not answered */
		default:
			answer(in->unique, ENOSYS, NULL, 0);
	}
	answer_late(false, 0);
}

/* ---- commands ---- */

static void
tell_fate(void)
{
	if (is_off)
		printf("ok writes=%" PRIu64 " bytes=%" PRIu64 " kept=%" PRIu64 " torn=%" PRIu64
			   " lost=%" PRIu64 "\n", fate.writes, fate.bytes, fate.kept, fate.torn,
			   fate.writes - fate.kept - fate.torn);
	else
		printf("ok pending\n");
}

static void
switch_on(void)
{
	if (open_count > 0)
	{
		printf("the disk is still in use\n");
		return;
	}
	is_off = false;
	printf("ok\n");
}

static void
command(const char *line)
{
	int			kept;
	int			torn;
	uint64_t	seed;
	int			count;
	int			writes;

	if (sscanf(line, "cut %d %d %" SCNu64, &kept, &torn, &seed) == 3)
	{
		if (!is_off)			/* an armed one may have come before */
			cut(kept, torn, seed);
		tell_fate();
	}
	else if (sscanf(line, "arm %d %d %d %d %" SCNu64, &count, &writes, &kept, &torn, &seed) == 5)
	{
		armed.flushes = count;
		armed.writes = writes;
		armed.kept_per_mille = kept;
		armed.torn_per_mille = torn;
		armed.seed = seed;
		printf("ok\n");
	}
	else if (strcmp(line, "fate") == 0)
		tell_fate();
	else if (strcmp(line, "on") == 0)
		switch_on();
	else if (strcmp(line, "hold") == 0)
	{
		is_holding = true;
		printf("ok\n");
	}
	else if (strcmp(line, "hold_writes") == 0)
	{
		writes_to_hold = INT_MAX;
		printf("ok\n");
	}
	else if (sscanf(line, "hold_writes %d", &count) == 1)
	{
		writes_to_hold = count;
		printf("ok\n");
	}
	else if (strcmp(line, "release") == 0)
	{
		release();
		printf("ok\n");
	}
	else if (strcmp(line, "is_open") == 0)
		printf("ok %d\n", open_count);
	else if (strcmp(line, "figures") == 0)
		printf("ok writes=%" PRIu64 " bytes=%" PRIu64 " late=%" PRIu64 " flushes=%" PRIu64
			   " held=%d held_writes=%d\n", figures.writes, figures.bytes, figures.late,
			   figures.flushes, held_count, held_write_count);
	else
		printf("the disk does not know the command \"%s\"\n", line);
	fflush(stdout);
}

/* Returns false at the end of the input. */
static bool
read_commands(void)
{
	static char line[256];
	static size_t used;
	ssize_t		bytes = read(STDIN_FILENO, line + used, sizeof(line) - 1 - used);
	char	   *end;

	if (bytes <= 0)
		return false;
	used += bytes;
	line[used] = '\0';
	while ((end = strchr(line, '\n')) != NULL)
	{
		*end = '\0';
		command(line);
		used -= end + 1 - line;
		memmove(line, end + 1, used + 1);
	}
	return used < sizeof(line) - 1;
}

/* Returns false when nothing more will come. */
static bool
read_request(void)
{
	static char buffer[MAX_REQUEST] __attribute__((aligned(8)));
	const struct fuse_in_header *in = (const struct fuse_in_header *) buffer;
	ssize_t		bytes = read(fuse_fd, buffer, sizeof(buffer));

	if (bytes < 0)
	{
		if (errno == ENODEV)
			return false;		/* unmounted */
		if (errno == EAGAIN || errno == EINTR || errno == ENOENT)
			return true;
		die("read of a request");
	}
	if ((size_t) bytes < sizeof(*in) || in->len != bytes)
	{
		errno = EPROTO;
		die("request");
	}
	serve(in, in + 1);
	return true;
}

static void
serve_all(void)
{
	struct pollfd sources[2] = {
		{.fd = fuse_fd,.events = POLLIN},
		{.fd = STDIN_FILENO,.events = POLLIN}
	};

	for (;;)
	{
		int			ready = poll(sources, 2, late_count > 0 ? LATE_MS : -1);

		if (ready < 0 && errno != EINTR)
			die("poll");
		if (ready == 0)
		{
			clock_ticks++;
			answer_late(true, 0);
		}
		if (ready <= 0)
			continue;
		if (sources[0].revents != 0 && !read_request())
			return;
		if (sources[1].revents != 0 && !read_commands())
			return;
	}
}

static int
open_bytes(const char *directory, const char *name)
{
	char		path[4096];
	int			fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, disk_bytes) != 0)
		die(path);
	return fd;
}

int
main(int argc, char **argv)
{
	char		options[128];

	if (argc != 4)
	{
		fprintf(stderr, "usage: lossy_disk FILE DIRECTORY MEGABYTES\n");
		return 2;
	}
	disk_bytes = strtoull(argv[3], NULL, 10) * 1024 * 1024;
	now_fd = open_bytes(argv[2], "lossy.now");
	durable_fd = open_bytes(argv[2], "lossy.durable");

	fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fuse_fd < 0)
		die_not_possible("/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=%o,user_id=0,group_id=0", fuse_fd, S_IFREG);
	if (mount("lossy_disk", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) != 0)
		die_not_possible("mount of FUSE");
	/* Memory that this process needs must not wait for writes to its own disk. */
	(void) prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);

	command("is_open");
	serve_all();
	(void) umount2(argv[1], MNT_DETACH);
	return 0;
}
