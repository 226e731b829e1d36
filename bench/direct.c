/*
 * bench/direct.c
 *	  The contender "direct": a floor for stores that hash.
 *
 * write_direct(value bytea, grows boolean, syncs boolean) does in the server what cannot be left
 * out: it copies the value, piece by piece, to memory that direct I/O can take, hashes it while the
 * device writes the pieces to a file, syncs the file if that is wanted, and returns the digest.
 * No space is found or remembered, and nothing is buffered or collected.
 *
 * Each process has two files of its own in the data directory, which it writes around.  One has
 * AREA_BYTES, all of them written before: what a replacement finds, whose blocks are used again.
 * With grows it is the other one, whose blocks are reserved in steps, as those of a new value: the
 * file system has to note for each of them that it was written.
 */
#define _GNU_SOURCE
#include "postgres.h"

#include <fcntl.h>
#include <liburing.h>
#include <openssl/sha.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

#define AREA_BYTES (INT64CONST(256) * 1024 * 1024)
#define GROWN_BYTES (INT64CONST(1024) * 1024 * 1024)
#define STEP_BYTES (16 * 1024 * 1024)	/* as blobext reserves them */
#define PIECE_BYTES (256 * 1024)
#define PAGE_BYTES 4096
#define MAX_VALUE_BYTES (128 * 1024 * 1024)
#define MAX_PROCESSES 100

typedef struct Area
{
	int			fd;
	int64		at;				/* of the next value, bytes */
	int64		end;			/* blocks are reserved up to here, bytes */
} Area;

static struct io_uring ring;
static char *memory;			/* of a value, page aligned; NULL: not begun */
static Area written_area = {.fd = -1};
static Area grown_area = {.fd = -1};

static void pg_attribute_noreturn()
fail(const char *what)
{
	ereport(ERROR, (errcode_for_file_access(), errmsg("write_direct: %s: %m", what)));
}

/* Write all blocks of the area once, if that was not done. */
static void
fill_area(void)
{
	struct stat status;

	if (fstat(written_area.fd, &status) != 0)
		fail("fstat");
	for (int64 done = status.st_size; done < AREA_BYTES; done += PIECE_BYTES)
	{
		if (pwrite(written_area.fd, memory, PIECE_BYTES, done) != PIECE_BYTES)
			fail("write");
	}
	if (fsync(written_area.fd) != 0)
		fail("fsync");
	written_area.end = AREA_BYTES;
}

/* Without any block, as at the beginning. */
static void
empty_area(Area *area)
{
	if (ftruncate(area->fd, 0) != 0)
		fail("truncate");
	area->at = area->end = 0;
}

/* The first files that no other process has locked. */
static void
take_areas(void)
{
	char		path[MAXPGPATH];

	for (int i = 0; i < MAX_PROCESSES; i++)
	{
		snprintf(path, sizeof(path), "direct.%d", i);
		written_area.fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
		if (written_area.fd < 0)
			fail("open");
		if (flock(written_area.fd, LOCK_EX | LOCK_NB) == 0)
		{
			snprintf(path, sizeof(path), "direct.%d.grown", i);
			grown_area.fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
			if (grown_area.fd < 0)
				fail("open");
			return;
		}
		close(written_area.fd);
	}
	fail("flock");
}

static void
begin(void)
{
	if (io_uring_queue_init(MAX_VALUE_BYTES / PIECE_BYTES, &ring, 0) != 0 ||
		posix_memalign((void **) &memory, PAGE_BYTES, MAX_VALUE_BYTES) != 0)
		fail("memory");
	memset(memory, 0, MAX_VALUE_BYTES);
	take_areas();
	fill_area();
	empty_area(&grown_area);
}

/* Where the value is written. */
static void
find_place(Area *area, int64 length)
{
	if (area == &written_area)
	{
		if (area->at + length > area->end)
			area->at = 0;
		return;
	}
	if (area->at + length > GROWN_BYTES)
		empty_area(area);
	while (area->at + length > area->end)
	{
		if (fallocate(area->fd, 0, area->end, STEP_BYTES) != 0)
			fail("fallocate");
		area->end += STEP_BYTES;
	}
}

/* Start the write of a piece, whose bytes are in memory. */
static void
write_piece(const Area *area, int64 at, int64 bytes)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	int64		length = TYPEALIGN64(PAGE_BYTES, bytes);

	io_uring_prep_write(sqe, area->fd, memory + at, length, area->at + at);
	io_uring_sqe_set_data(sqe, (void *) length);
	if (io_uring_submit(&ring) < 0)
		fail("submit");
}

static void
await_pieces(int count)
{
	for (; count > 0; count--)
	{
		struct io_uring_cqe *cqe;
		int			result;

		while ((result = io_uring_wait_cqe(&ring, &cqe)) == -EINTR)
			;
		errno = result < 0 ? -result : cqe->res < 0 ? -cqe->res : ENOSPC;
		if (result < 0 || cqe->res != (int64) io_uring_cqe_get_data(cqe))
			fail("write");
		io_uring_cqe_seen(&ring, cqe);
	}
}

PG_FUNCTION_INFO_V1(write_direct);
Datum
write_direct(PG_FUNCTION_ARGS)
{
	struct varlena *value = PG_GETARG_VARLENA_PP(0);
	const char *content = VARDATA_ANY(value);
	int64		size = VARSIZE_ANY_EXHDR(value);
	Area	   *area = PG_GETARG_BOOL(1) ? &grown_area : &written_area;
	bytea	   *result = palloc(VARHDRSZ + SHA256_DIGEST_LENGTH);
	SHA256_CTX	hash;
	int			pieces = 0;

	if (size > MAX_VALUE_BYTES)
		elog(ERROR, "write_direct: the value is too large");
	if (memory == NULL)
		begin();
	find_place(area, TYPEALIGN64(PAGE_BYTES, size));
	SHA256_Init(&hash);
	for (int64 at = 0; at < size; at += PIECE_BYTES, pieces++)
	{
		int64		bytes = Min(PIECE_BYTES, size - at);

		memcpy(memory + at, content + at, bytes);
		write_piece(area, at, bytes);
		SHA256_Update(&hash, memory + at, bytes);
	}
	SET_VARSIZE(result, VARHDRSZ + SHA256_DIGEST_LENGTH);
	SHA256_Final((unsigned char *) VARDATA(result), &hash);
	await_pieces(pieces);
	area->at += TYPEALIGN64(PAGE_BYTES, size);
	if (PG_GETARG_BOOL(2) && fdatasync(area->fd) != 0)
		fail("fdatasync");
	PG_RETURN_BYTEA_P(result);
}
