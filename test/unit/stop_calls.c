/*
 * test/unit/stop_calls.c
 *	  A library for LD_PRELOAD: a process stops at a system call on a segment file.
 *
 * The environment variable BLOBEXT_STOP names a file.  As long as it exists and has two words, the
 * process that comes to the call stops (SIGSTOP): "punch", "reserve" (both are fallocate()), "read"
 * or "write" (of blobext.io_method = sync), "fsync" or "unlink", "before" it or "after" it; or to a
 * function of the extension, "restore" (blob_map_fill()), "verify" (blob_verify_note()), "load"
 * (blob_store_load_some()), "sums" (blob_map_begin_sums()) or "mend" (blob_map_repair_sums()); or
 * to a "checkpoint", "before" it writes.  A file of that name and ".stopped" says that one has.
 *
 * With BLOBEXT_SPARSE in the environment segment files get their length without blocks.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "preload.h"

/* Stop here if the file asks for that. */
static void
come_to(const char *call, const char *when)
{
	FILE	   *file = open_control("BLOBEXT_STOP");
	char		wanted_call[16] = "";
	char		wanted_when[16] = "";
	int			fields;

	if (file == NULL)
		return;
	fields = fscanf(file, "%15s %15s", wanted_call, wanted_when);
	fclose(file);
	if (fields != 2 || strcmp(call, wanted_call) != 0 || strcmp(when, wanted_when) != 0)
		return;
	tell("BLOBEXT_STOP", ".stopped");
	raise(SIGSTOP);
}

int
fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	static int	(*real) (int, int, off_t, off_t);
	const char *call = mode & FALLOC_FL_PUNCH_HOLE ? "punch" : "reserve";
	int			is_ours = is_segment(fd) && mode != FALLOC_FL_KEEP_SIZE;
	int			result;

	if (real == NULL)
		real = (int (*) (int, int, off_t, off_t)) dlsym(RTLD_NEXT, "fallocate");
	if (is_ours)
		come_to(call, "before");
	if (is_ours && mode == 0 && getenv("BLOBEXT_SPARSE") != NULL)
		result = lseek(fd, 0, SEEK_END) >= offset + bytes ? 0 : ftruncate(fd, offset + bytes);
	else
		result = real(fd, mode, offset, bytes);
	if (is_ours && result == 0)
		come_to(call, "after");
	return result;
}

int
fallocate64(int fd, int mode, off_t offset, off_t bytes)
{
	return fallocate(fd, mode, offset, bytes);
}

ssize_t
pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
	static ssize_t (*real) (int, const void *, size_t, off_t);
	int			is_ours = is_segment(fd);
	ssize_t		result;

	if (real == NULL)
		real = (ssize_t (*) (int, const void *, size_t, off_t)) dlsym(RTLD_NEXT, "pwrite");
	if (is_ours)
		come_to("write", "before");
	result = real(fd, data, bytes, offset);
	if (is_ours && result >= 0)
		come_to("write", "after");
	return result;
}

ssize_t
pwrite64(int fd, const void *data, size_t bytes, off_t offset)
{
	return pwrite(fd, data, bytes, offset);
}

ssize_t
pwritev(int fd, const struct iovec *vectors, int count, off_t offset)
{
	static ssize_t (*real) (int, const struct iovec *, int, off_t);
	int			is_ours = is_segment(fd);
	ssize_t		result;

	if (real == NULL)
		real = (ssize_t (*) (int, const struct iovec *, int, off_t)) dlsym(RTLD_NEXT, "pwritev");
	if (is_ours)
		come_to("write", "before");
	result = real(fd, vectors, count, offset);
	if (is_ours && result >= 0)
		come_to("write", "after");
	return result;
}

ssize_t
pwritev64(int fd, const struct iovec *vectors, int count, off_t offset)
{
	return pwritev(fd, vectors, count, offset);
}

ssize_t
preadv(int fd, const struct iovec *vectors, int count, off_t offset)
{
	static ssize_t (*real) (int, const struct iovec *, int, off_t);
	int			is_ours = is_segment(fd);
	ssize_t		result;

	if (real == NULL)
		real = (ssize_t (*) (int, const struct iovec *, int, off_t)) dlsym(RTLD_NEXT, "preadv");
	if (is_ours)
		come_to("read", "before");
	result = real(fd, vectors, count, offset);
	if (is_ours && result >= 0)
		come_to("read", "after");
	return result;
}

ssize_t
preadv64(int fd, const struct iovec *vectors, int count, off_t offset)
{
	return preadv(fd, vectors, count, offset);
}

int
fsync(int fd)
{
	static int	(*real) (int);
	int			is_ours = is_segment(fd);
	int			result;

	if (real == NULL)
		real = (int (*) (int)) dlsym(RTLD_NEXT, "fsync");
	if (is_ours)
		come_to("fsync", "before");
	result = real(fd);
	if (is_ours && result == 0)
		come_to("fsync", "after");
	return result;
}

/* Each checkpoint reads this directory, before it writes pages. */
DIR *
opendir(const char *path)
{
	static DIR *(*real) (const char *);

	if (real == NULL)
		real = (DIR *(*) (const char *)) dlsym(RTLD_NEXT, "opendir");
	if (strcmp(path, "pg_logical/snapshots") == 0)
		come_to("checkpoint", "before");
	return real(path);
}

int
unlink(const char *path)
{
	static int	(*real) (const char *);
	int			is_ours = strstr(path, "pg_blobext/") != NULL;
	int			result;

	if (real == NULL)
		real = (int (*) (const char *)) dlsym(RTLD_NEXT, "unlink");
	if (is_ours)
		come_to("unlink", "before");
	result = real(path);
	if (is_ours && result == 0)
		come_to("unlink", "after");
	return result;
}

/* In place of the extension's functions; their declarations need headers of the server. */
bool
blob_verify_note(const void *store, void *stored, int extent_no, uint64_t generation)
{
	static bool (*real) (const void *, void *, int, uint64_t);

	if (real == NULL)
		real = (bool (*) (const void *, void *, int, uint64_t)) dlsym(RTLD_NEXT,
																	  "blob_verify_note");
	come_to("verify", "before");
	return real(store, stored, extent_no, generation);
}

void
blob_store_load_some(void *store, void *shared)
{
	static void (*real) (void *, void *);

	if (real == NULL)
		real = (void (*) (void *, void *)) dlsym(RTLD_NEXT, "blob_store_load_some");
	come_to("load", "before");
	real(store, shared);
}

bool
blob_map_begin_sums(void *map, const void *extent, uint64_t pages, const uint32_t *sums)
{
	static bool (*real) (void *, const void *, uint64_t, const uint32_t *);

	if (real == NULL)
		real = (bool (*) (void *, const void *, uint64_t,
						  const uint32_t *)) dlsym(RTLD_NEXT, "blob_map_begin_sums");
	come_to("sums", "before");
	return real(map, extent, pages, sums);
}

bool
blob_map_repair_sums(void *map, const void *run)
{
	static bool (*real) (void *, const void *);

	if (real == NULL)
		real = (bool (*) (void *, const void *)) dlsym(RTLD_NEXT, "blob_map_repair_sums");
	come_to("mend", "before");
	return real(map, run);
}

uint64_t
blob_map_fill(void *map, uint64_t first_page, uint64_t end_page)
{
	static uint64_t (*real) (void *, uint64_t, uint64_t);
	uint64_t	result;

	if (real == NULL)
		real = (uint64_t (*) (void *, uint64_t, uint64_t)) dlsym(RTLD_NEXT, "blob_map_fill");
	come_to("restore", "before");
	result = real(map, first_page, end_page);
	come_to("restore", "after");
	return result;
}
