/*
 * bench/load/files.c
 *	  Contender "file": a plain file for each value, in the directory "file".
 *
 * A commit of many files is one syncfs().  A value is replaced as by an application that must not
 * lose it: a new file, a sync, a rename, a sync of the directory.  So are values that get another
 * size in the middle.  A part is overwritten in place, which a crash may leave half done.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "load.h"

typedef struct Files
{
	int			directory_fd;
	char	   *buffer;			/* for values that are read */
	long		buffer_bytes;
	bool		is_batch;		/* in a transaction */
} Files;

static void
file_open(Session *session)
{
	Files	   *files = calloc(1, sizeof(Files));
	char		path[4096];

	snprintf(path, sizeof(path), "%s/file", options.directory);
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		fail("could not create directory %s: %s", path, strerror(errno));
	files->directory_fd = open(path, O_RDONLY | O_DIRECTORY);
	if (files->directory_fd < 0)
		fail("could not open directory %s: %s", path, strerror(errno));
	files->buffer_bytes = largest_bytes() + 1;
	files->buffer = malloc(files->buffer_bytes);
	memset(files->buffer, 1, files->buffer_bytes);
	session->state = files;
}

static void
file_close(Session *session)
{
	Files	   *files = session->state;

	close(files->directory_fd);
}

static void
sync_directory(Files *files)
{
	if (fsync(files->directory_fd) != 0)
		fail("could not sync the directory: %s", strerror(errno));
}

static void
close_file(int fd)
{
	if (close(fd) != 0)
		fail("could not close a file: %s", strerror(errno));
}

static void
sync_file(int fd)
{
	if (fdatasync(fd) != 0)
		fail("could not sync a file: %s", strerror(errno));
	close_file(fd);
}

static void
file_begin(Session *session)
{
	Files	   *files = session->state;

	files->is_batch = true;
}

static void
file_commit(Session *session)
{
	Files	   *files = session->state;

	if (syncfs(files->directory_fd) != 0)
		fail("could not sync the file system: %s", strerror(errno));
	files->is_batch = false;
}

/* Write to the end of a file that is open. */
static void
write_bytes(int fd, const char *value, long size_bytes)
{
	for (long done = 0; done < size_bytes;)
	{
		ssize_t		written = write(fd, value + done, size_bytes - done);

		if (written <= 0)
			fail("could not write a file: %s", strerror(errno));
		done += written;
	}
}

static int
create_file(Files *files, const char *name, const char *value, long size_bytes)
{
	int			fd = openat(files->directory_fd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	if (fd < 0)
		fail("could not create file %s: %s", name, strerror(errno));
	write_bytes(fd, value, size_bytes);
	return fd;
}

static void
file_store(Session *session, long id, const char *value, long size_bytes)
{
	Files	   *files = session->state;
	char		name[32];
	int			fd;

	snprintf(name, sizeof(name), "%ld", id);
	fd = create_file(files, name, value, size_bytes);
	if (files->is_batch)
		close_file(fd);
	else
	{
		sync_file(fd);
		sync_directory(files);
	}
}

static void
rename_file(Files *files, const char *from, const char *to)
{
	if (renameat(files->directory_fd, from, files->directory_fd, to) != 0)
		fail("could not rename file %s: %s", from, strerror(errno));
	sync_directory(files);
}

static void
file_replace(Session *session, long id, const char *value, long size_bytes)
{
	Files	   *files = session->state;
	char		name[32];
	char		temporary[40];

	snprintf(name, sizeof(name), "%ld", id);
	snprintf(temporary, sizeof(temporary), "%ld.new", id);
	sync_file(create_file(files, temporary, value, size_bytes));
	rename_file(files, temporary, name);
}

static void
file_append(Session *session, long id, long offset, const char *piece)
{
	Files	   *files = session->state;
	char		name[32];
	int			fd;

	snprintf(name, sizeof(name), "%ld", id);
	fd = openat(files->directory_fd, name, O_WRONLY);
	if (fd < 0 || lseek(fd, offset, SEEK_SET) != offset)
		fail("could not open file %s: %s", name, strerror(errno));
	write_bytes(fd, piece, options.piece_bytes);
	sync_file(fd);
}

/* Returns the size. */
static long
read_file(Files *files, const char *name)
{
	long		done = 0;
	ssize_t		got;
	int			fd;

	fd = openat(files->directory_fd, name, O_RDONLY);
	if (fd < 0)
		fail("could not open file %s: %s", name, strerror(errno));
	while ((got = read(fd, files->buffer + done, files->buffer_bytes - done)) > 0)
		done += got;
	if (got < 0)
		fail("could not read file %s: %s", name, strerror(errno));
	close(fd);
	return done;
}

static long
file_read(Session *session, long id)
{
	char		name[32];

	snprintf(name, sizeof(name), "%ld", id);
	return read_file(session->state, name);
}

static int
open_value(Files *files, long id, int flags)
{
	char		name[32];
	int			fd;

	snprintf(name, sizeof(name), "%ld", id);
	fd = openat(files->directory_fd, name, flags);
	if (fd < 0)
		fail("could not open file %s: %s", name, strerror(errno));
	return fd;
}

static long
file_size(Session *session, long id)
{
	int			fd = open_value(session->state, id, O_RDONLY);
	off_t		size_bytes = lseek(fd, 0, SEEK_END);

	if (size_bytes < 0)
		fail("could not see the size of a file: %s", strerror(errno));
	close_file(fd);
	return size_bytes;
}

static long
file_read_part(Session *session, long id, long offset, long size_bytes)
{
	Files	   *files = session->state;
	int			fd = open_value(files, id, O_RDONLY);
	ssize_t		got = pread(fd, files->buffer, size_bytes, offset);

	if (got < 0)
		fail("could not read a file: %s", strerror(errno));
	close_file(fd);
	return got;
}

/* stat(), or the beginning, too. */
static long
file_metadata(Session *session, const long *ids)
{
	Files	   *files = session->state;
	struct stat state;
	char		name[32];
	long		sum = 0;

	for (int i = 0; i < METADATA_VALUES; i++)
	{
		snprintf(name, sizeof(name), "%ld", ids[i]);
		if (options.asked == ASKED_PREFIX &&
			file_read_part(session, ids[i], 0, PREFIX_BYTES) != PREFIX_BYTES)
			fail("file %s is too short", name);
		if (fstatat(files->directory_fd, name, &state, 0) != 0)
			fail("could not see the size of file %s: %s", name, strerror(errno));
		sum += state.st_size;
	}
	return sum;
}

static void
file_write_part(Session *session, long id, long offset, const char *piece, long size_bytes)
{
	int			fd = open_value(session->state, id, O_WRONLY);

	if (pwrite(fd, piece, size_bytes, offset) != size_bytes)
		fail("could not write a file: %s", strerror(errno));
	sync_file(fd);
}

/* Copy the bytes before an offset in a file, or all that are left, to the end of another. */
static void
copy_until(Files *files, int from, int to, long offset)
{
	long		place = lseek(from, 0, SEEK_CUR);

	while (place < offset)
	{
		long		wanted = offset - place;
		ssize_t		got = read(from, files->buffer,
							   wanted < files->buffer_bytes ? wanted : files->buffer_bytes);

		if (got < 0)
			fail("could not read a file: %s", strerror(errno));
		if (got == 0)
			return;
		write_bytes(to, files->buffer, got);
		place += got;
	}
}

/* A new file with the other size, in place of the old one. */
static void
file_splice(Session *session, long id, long offset, long removed_bytes, const char *piece,
			long size_bytes)
{
	Files	   *files = session->state;
	char		name[32];
	char		temporary[40];
	int			from = open_value(files, id, O_RDONLY);
	int			to;

	snprintf(name, sizeof(name), "%ld", id);
	snprintf(temporary, sizeof(temporary), "%ld.new", id);
	to = create_file(files, temporary, "", 0);
	copy_until(files, from, to, offset);
	write_bytes(to, piece, size_bytes);
	if (lseek(from, removed_bytes, SEEK_CUR) < 0)
		fail("could not read file %s: %s", name, strerror(errno));
	copy_until(files, from, to, LONG_MAX);
	close_file(from);
	sync_file(to);
	rename_file(files, temporary, name);
}

static void
file_fill(Session *session, const char *payload, long value_count)
{
	file_begin(session);
	for (long id = 0; id < value_count; id++)
		file_store(session, id, payload + payload_offset(id, 0), options.size_bytes);
	file_commit(session);
}

static DIR *
open_directory(Files *files)
{
	DIR		   *directory = fdopendir(openat(files->directory_fd, ".", O_RDONLY | O_DIRECTORY));

	if (directory == NULL)
		fail("could not read the directory: %s", strerror(errno));
	return directory;
}

/* In the order of the directory. */
static long
file_scan(Session *session)
{
	Files	   *files = session->state;
	DIR		   *directory = open_directory(files);
	struct dirent *entry;
	long		count = 0;

	while ((entry = readdir(directory)) != NULL)
		count += entry->d_name[0] != '.' && read_file(files, entry->d_name) == options.size_bytes;
	closedir(directory);
	return count;
}

static void
file_empty(Session *session)
{
	Files	   *files = session->state;
	DIR		   *directory = open_directory(files);
	struct dirent *entry;

	while ((entry = readdir(directory)) != NULL)
	{
		if (entry->d_name[0] != '.' && unlinkat(files->directory_fd, entry->d_name, 0) != 0)
			fail("could not remove file %s: %s", entry->d_name, strerror(errno));
	}
	closedir(directory);
	sync_directory(files);
}

const Driver file_driver = {
	.open = file_open,
	.close = file_close,
	.begin = file_begin,
	.commit = file_commit,
	.store = file_store,
	.replace = file_replace,
	.append = file_append,
	.read = file_read,
	.fill = file_fill,
	.scan = file_scan,
	.size = file_size,
	.metadata = file_metadata,
	.read_part = file_read_part,
	.write_part = file_write_part,
	.splice = file_splice,
	.empty = file_empty,
};
