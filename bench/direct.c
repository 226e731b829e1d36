/*
 * bench/direct.c
 *	  The contender "direct": a floor for stores that hash.
 *
 * write_direct(value bytea, syncs boolean) does in the server what cannot be left out: it copies
 * the value, piece by piece, to memory that direct I/O can take, hashes it while the device writes
 * the pieces to a file whose blocks exist, syncs the file if that is wanted, and returns the
 * digest.  No space is found or remembered, and nothing is buffered or collected.  Each process has
 * a file of its own, of AREA_BYTES, in the data directory, which it writes around.
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
#define PIECE_BYTES (256 * 1024)
#define PAGE_BYTES 4096
#define MAX_VALUE_BYTES (64 * 1024 * 1024)
#define MAX_PROCESSES 100

static struct io_uring ring;
static char *memory;			/* of a value, page aligned; NULL: not begun */
static int	area = -1;
static int64 area_at;

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

	if (fstat(area, &status) != 0)
		fail("fstat");
	for (int64 done = status.st_size; done < AREA_BYTES; done += PIECE_BYTES)
	{
		if (pwrite(area, memory, PIECE_BYTES, done) != PIECE_BYTES)
			fail("write");
	}
	if (fsync(area) != 0)
		fail("fsync");
}

/* The first file that no other process has locked. */
static void
take_area(void)
{
	char		path[MAXPGPATH];

	for (int i = 0; i < MAX_PROCESSES; i++)
	{
		snprintf(path, sizeof(path), "direct.%d", i);
		area = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
		if (area < 0)
			fail("open");
		if (flock(area, LOCK_EX | LOCK_NB) == 0)
			return;
		close(area);
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
	take_area();
	fill_area();
}

/* Start the write of a piece, whose bytes are in memory. */
static void
write_piece(int64 at, int64 bytes)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	int64		length = TYPEALIGN64(PAGE_BYTES, bytes);

	io_uring_prep_write(sqe, area, memory + at, length, area_at + at);
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

		if (io_uring_wait_cqe(&ring, &cqe) != 0 || cqe->res != (int64) io_uring_cqe_get_data(cqe))
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
	bytea	   *result = palloc(VARHDRSZ + SHA256_DIGEST_LENGTH);
	SHA256_CTX	hash;
	int			pieces = 0;

	if (memory == NULL)
		begin();
	if (size > MAX_VALUE_BYTES)
		elog(ERROR, "write_direct: the value is too large");
	if (area_at + TYPEALIGN64(PAGE_BYTES, size) > AREA_BYTES)
		area_at = 0;
	SHA256_Init(&hash);
	for (int64 at = 0; at < size; at += PIECE_BYTES, pieces++)
	{
		int64		bytes = Min(PIECE_BYTES, size - at);

		memcpy(memory + at, content + at, bytes);
		write_piece(at, bytes);
		SHA256_Update(&hash, memory + at, bytes);
	}
	SET_VARSIZE(result, VARHDRSZ + SHA256_DIGEST_LENGTH);
	SHA256_Final((unsigned char *) VARDATA(result), &hash);
	await_pieces(pieces);
	area_at += TYPEALIGN64(PAGE_BYTES, size);
	if (PG_GETARG_BOOL(1) && fdatasync(area) != 0)
		fail("fdatasync");
	PG_RETURN_BYTEA_P(result);
}
