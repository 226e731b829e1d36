/*
 * writing/spool.c
 *	  Bytes of a file that is being written, see spool.h.
 */
#include "writing/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/errors.h"

enum
{
	FIRST_ROOM_BYTES = 4096
};

/* Room of all spools, in bytes; atomic. */
static size_t all_room;

/* Files of all spools, atomic, and how many there may be. */
static unsigned all_files;
static unsigned most_files;

void
spool_limit_files(unsigned most)
{
	most_files = most;
}

void
spool_begin(struct spool *spool, const char *directory)
{
	memset(spool, 0, sizeof(*spool));
	spool->directory = directory;
	spool->file = -1;
}

static void
free_memory(struct spool *spool)
{
	__atomic_sub_fetch(&all_room, spool->room, __ATOMIC_RELAXED);
	free(spool->memory);
	spool->memory = NULL;
	spool->used = spool->room = 0;
}

static void
close_file(int file)
{
	close(file);
	__atomic_sub_fetch(&all_files, 1, __ATOMIC_RELAXED);
}

void
spool_end(struct spool *spool)
{
	if (spool->file >= 0)
		close_file(spool->file);
	spool->file = -1;
	free_memory(spool);
}

/* ---- memory ---- */

/* Room for this number of bytes; false: there is none. */
static bool
reserve_memory(struct spool *spool, size_t bytes)
{
	size_t		room = spool->room > 0 ? spool->room : FIRST_ROOM_BYTES;
	char	   *memory;

	if (bytes <= spool->room)
		return true;
	while (room < bytes)
		room *= 2;
	if (room > SPOOL_MEMORY_BYTES)
		return false;
	if (__atomic_add_fetch(&all_room, room - spool->room, __ATOMIC_RELAXED) <=
		SPOOL_ALL_MEMORY_BYTES && (memory = realloc(spool->memory, room)) != NULL)
	{
		spool->memory = memory;
		spool->room = room;
		return true;
	}
	__atomic_sub_fetch(&all_room, room - spool->room, __ATOMIC_RELAXED);
	return false;
}

/* Within the room. */
static void
write_memory(struct spool *spool, const char *data, size_t length, size_t offset)
{
	if (offset > spool->used)
		memset(spool->memory + spool->used, 0, offset - spool->used);
	memcpy(spool->memory + offset, data, length);
	if (offset + length > spool->used)
		spool->used = offset + length;
}

static void
read_memory(const struct spool *spool, int64_t offset, size_t length, char *target)
{
	size_t		there = offset < (int64_t) spool->used ? spool->used - (size_t) offset : 0;

	if (there > length)
		there = length;
	if (there > 0)
		memcpy(target, spool->memory + offset, there);
	memset(target + there, 0, length - there);
}

/* ---- the file ---- */

static int
write_file(int file, const char *data, size_t length, int64_t offset)
{
	while (length > 0)
	{
		ssize_t		written = pwrite(file, data, length, offset);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return errno;
		data += written;
		length -= written;
		offset += written;
	}
	return 0;
}

/* 0 or an errno, among them that of no more descriptors, which the first time has a message. */
static int
open_file(const char *directory, int *file)
{
	static bool is_told;
	bool		may_open = __atomic_add_fetch(&all_files, 1, __ATOMIC_RELAXED) <= most_files;
	int			error = 0;

	*file = may_open ? open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
	if (*file >= 0)
		return 0;
	error = may_open ? errno : EMFILE;
	__atomic_sub_fetch(&all_files, 1, __ATOMIC_RELAXED);
	if (!may_open && !__atomic_exchange_n(&is_told, true, __ATOMIC_RELAXED))
		message("%u files are being written, and the limit of descriptors allows no more",
				most_files);
	return error;
}

/* The bytes go there from memory.  If they cannot, they stay where they are. */
static int
require_file(struct spool *spool)
{
	int			file;
	int			error;

	if (spool->file >= 0)
		return 0;
	error = open_file(spool->directory, &file);
	if (error != 0)
		return error;
	error = write_file(file, spool->memory, spool->used, 0);
	if (error != 0)
	{
		close_file(file);
		return error;
	}
	spool->file = file;
	free_memory(spool);
	return 0;
}

/* Bytes behind the end of the file are zeros. */
int
spool_read_file(int file, int64_t offset, size_t length, char *target)
{
	while (length > 0)
	{
		ssize_t		bytes = pread(file, target, length, offset);

		if (bytes < 0 && errno == EINTR)
			continue;
		if (bytes < 0)
			return errno;
		if (bytes == 0)
		{
			memset(target, 0, length);
			return 0;
		}
		target += bytes;
		length -= bytes;
		offset += bytes;
	}
	return 0;
}

/* ---- either ---- */

int
spool_write(struct spool *spool, const char *data, size_t length, int64_t offset)
{
	int			error;

	if (spool->file < 0 && offset <= SPOOL_MEMORY_BYTES && length <= SPOOL_MEMORY_BYTES &&
		reserve_memory(spool, (size_t) offset + length))
	{
		write_memory(spool, data, length, (size_t) offset);
		return 0;
	}
	error = require_file(spool);
	return error != 0 ? error : write_file(spool->file, data, length, offset);
}

int
spool_read(const struct spool *spool, int64_t offset, size_t length, char *target)
{
	if (spool->file >= 0)
		return spool_read_file(spool->file, offset, length, target);
	read_memory(spool, offset, length, target);
	return 0;
}

int
spool_cut(struct spool *spool, int64_t size)
{
	if (spool->file >= 0)
		return ftruncate(spool->file, size) != 0 ? errno : 0;
	if (size < (int64_t) spool->used)
		spool->used = (size_t) size;
	return 0;
}
