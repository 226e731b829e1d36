/*
 * sql/streams/server_file.c
 *	  Values from and to files of the server.
 *
 * Roles pg_read_server_files and pg_write_server_files have the privilege to call these functions,
 * as for COPY.  Paths and errors are COPY's, too, with one difference: blob_export() writes to a
 * temporary file beside the wanted one and renames it at the end, so that no process ever sees a
 * part of a value under the wanted name, and a symbolic link there is replaced, not followed.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blob/blob.h"
#include "blob/builder.h"
#include "blob/reader.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "store/store.h"
#include "sql/value.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

PG_FUNCTION_INFO_V1(blob_import);
PG_FUNCTION_INFO_V1(blob_export);

/* Bytes that an export writes at a time. */
#define STEP_BYTES (4 * 1024 * 1024)

/* How far an import has the kernel read ahead. */
#define AHEAD_BYTES (1024 * 1024)

/* So much of a file that is written may wait for the device: fsync must not take long. */
#define DIRTY_BYTES ((uint64) 16 * 1024 * 1024)

#define TEMPORARY_PREFIX ".blobext_export."

/* The file that blob_export() is writing, to be removed if the process exits meanwhile. */
static char temporary_path[MAXPGPATH];

/* A pipe would wait for its other end, a device may have no end. */
static void
report_not_regular(const char *path)
{
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("\"%s\" is not a regular file", path)));
}

/* ---- import ---- */

/*
 * Open a file to read.  O_NONBLOCK, because to open a pipe would wait for its writer; it means
 * nothing for a regular file.
 */
static int
open_to_read(const char *path, uint64 *size_bytes)
{
	int			fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);
	struct stat status;

	if (fd < 0)
	{
		int			error = errno;

		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\" for reading: %m", path),
				 (error == ENOENT || error == EACCES) ?
				 errhint("blob_import() reads a file of the server. A client sends its own files "
						 "as parameters, or in pieces by blob_append().") : 0));
	}
	if (fstat(fd, &status) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not stat file \"%s\": %m", path)));
	if (S_ISDIR(status.st_mode))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is a directory", path)));
	if (!S_ISREG(status.st_mode))
		report_not_regular(path);
	*size_bytes = (uint64) status.st_size;
	return fd;
}

typedef struct Import
{
	int			fd;
	const char *path;
	uint64		offset;			/* of the next byte */
	uint64		ahead;			/* so far the kernel was asked to read */
} Import;

/* A BlobFill: the next bytes of the file, which the kernel has read while others were written. */
static uint64
read_file(void *source, char *memory, uint64 bytes)
{
	Import	   *import = source;
	ssize_t		count;

	if (import->offset >= import->ahead)
	{
		import->ahead = import->offset + AHEAD_BYTES;
		(void) posix_fadvise(import->fd, (off_t) import->ahead, AHEAD_BYTES, POSIX_FADV_WILLNEED);
	}
	do
	{
		CHECK_FOR_INTERRUPTS();
		pgstat_report_wait_start(WAIT_EVENT_COPY_FILE_READ);
		count = read(import->fd, memory, bytes);
		pgstat_report_wait_end();
	} while (count < 0 && errno == EINTR);
	if (count < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", import->path)));
	import->offset += count;
	return count;
}

/* blob_import(path): relative to the data directory, as for COPY FROM. */
Datum
blob_import(PG_FUNCTION_ARGS)
{
	Import		import = {.path = text_to_cstring(PG_GETARG_TEXT_PP(0))};
	uint64		size_bytes;
	BlobBuilder *builder;

	blob_store_require_preload();
	import.fd = open_to_read(import.path, &size_bytes);
	(void) posix_fadvise(import.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	builder = blob_builder_begin(size_bytes);
	blob_builder_add_from(builder, read_file, &import);
	if (CloseTransientFile(import.fd) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not close file \"%s\": %m", import.path)));
	PG_RETURN_POINTER(blob_builder_finish(builder));
}

/* ---- export ---- */

static void
report_cannot_write(const char *path)
{
	int			error = errno;

	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not open file \"%s\" for writing: %m", path),
			 errdetail("A temporary file is written in the same directory first."),
			 (error == ENOENT || error == EACCES) ?
			 errhint("blob_export() writes a file of the server. A client reads content by "
					 "blob_read() or blob_chunks().") : 0));
}

/* The wanted name may be that of a file or a symbolic link, which is replaced, or not exist. */
static void
check_target(const char *path)
{
	struct stat status;

	if (!is_absolute_path(path))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("relative path not allowed for blob_export()")));
	if (lstat(path, &status) == 0)
	{
		if (S_ISDIR(status.st_mode))
		{
			errno = EISDIR;
			report_cannot_write(path);
		}
		if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
			report_not_regular(path);
	}
	else if (errno != ENOENT)
		report_cannot_write(path);
	else if (path[strlen(path) - 1] == '/')
	{
		errno = EISDIR;
		report_cannot_write(path);
	}
}

static void
remove_temporary_file(int code, Datum argument)
{
	if (temporary_path[0] != '\0')
		(void) unlink(temporary_path);
	temporary_path[0] = '\0';
}

/*
 * Create a file of a name that cannot be guessed in the directory of path.  O_EXCL: it is new, and
 * no symbolic link is followed.  The mode is that of COPY's files.
 */
static int
create_temporary_file(const char *path)
{
	static bool is_registered = false;
	int			directory_length = (int) (strrchr(path, '/') - path);
	char		name[MAXPGPATH];
	uint64		number;
	mode_t		old_mask;
	int			fd;

	if (!is_registered)
		on_proc_exit(remove_temporary_file, 0);
	is_registered = true;
	if (!pg_strong_random(&number, sizeof(number)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));
	if (snprintf(name, sizeof(name), "%.*s/" TEMPORARY_PREFIX "%016llx", directory_length, path,
				 (unsigned long long) number) >= (int) sizeof(name))
	{
		errno = ENAMETOOLONG;
		report_cannot_write(path);
	}

	old_mask = umask(S_IWGRP | S_IWOTH);
	PG_TRY();
	{
		fd = OpenTransientFilePerm(name, O_WRONLY | O_CREAT | O_EXCL | PG_BINARY, 0666);
	}
	PG_FINALLY();
	{
		umask(old_mask);
	}
	PG_END_TRY();
	if (fd < 0)
		report_cannot_write(path);
	strlcpy(temporary_path, name, sizeof(temporary_path));
	return fd;
}

/* Write all of it, over short writes; a write of no bytes without an errno is a full disk. */
static void
write_step(int fd, const char *data, size_t length_bytes)
{
	while (length_bytes > 0)
	{
		ssize_t		written_bytes;

		errno = 0;
		pgstat_report_wait_start(WAIT_EVENT_COPY_FILE_WRITE);
		written_bytes = write(fd, data, length_bytes);
		pgstat_report_wait_end();
		if (written_bytes <= 0 && errno != EINTR)
		{
			if (errno == 0)
				errno = ENOSPC;
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not write to file \"%s\": %m", temporary_path)));
		}
		data += Max(written_bytes, 0);
		length_bytes -= Max(written_bytes, 0);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Have the device write the last step, and wait for steps long before it: so that
 * the fsync at the end, which cannot be interrupted, is short.  That one reports errors.
 */
static void
write_back(int fd, uint64 offset, uint64 length_bytes)
{
	if (!enableFsync)
		return;
	(void) sync_file_range(fd, (off_t) offset, (off_t) length_bytes, SYNC_FILE_RANGE_WRITE);
	if (offset >= DIRTY_BYTES)
		(void) sync_file_range(fd, (off_t) (offset - DIRTY_BYTES), (off_t) length_bytes,
							   SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
							   SYNC_FILE_RANGE_WAIT_AFTER);
}

/*
 * Not fsync_fname() and the like, which PANIC, or may: the file is none of the database's.
 */
static void
sync_file(int fd, const char *path)
{
	int			result;

	pgstat_report_wait_start(WAIT_EVENT_COPY_FILE_WRITE);
	result = pg_fsync(fd);
	pgstat_report_wait_end();
	if (result != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not fsync file \"%s\": %m", path)));
}

/* Write the content in steps, each of which the kernel is told to write back, and sync the file. */
static void
write_content(int fd, const BlobValue *value)
{
	char	   *buffer = palloc(Max(1, Min(value->size_bytes, STEP_BYTES)));
	uint64		offset = 0;
	uint64		bytes;
	BlobReader	reader;

	blob_reader_begin(&reader, value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, buffer, STEP_BYTES)) > 0)
	{
		write_step(fd, buffer, bytes);
		write_back(fd, offset, bytes);
		offset += bytes;
	}
	blob_reader_end(&reader);
	pfree(buffer);
	sync_file(fd, temporary_path);
}

/* Make the new name durable.  Some file systems cannot sync a directory: then it is not. */
static void
sync_directory(const char *path)
{
	char	   *directory = pnstrdup(path, strrchr(path, '/') - path + 1);
	int			fd = OpenTransientFile(directory, O_RDONLY);

	if (fd >= 0)
	{
		(void) pg_fsync(fd);
		(void) CloseTransientFile(fd);
	}
	pfree(directory);
}

/* blob_export(value, path): the path is absolute, as for COPY TO.  Returns the size. */
Datum
blob_export(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack_preloaded(PG_GETARG_DATUM(0));
	char	   *path = text_to_cstring(PG_GETARG_TEXT_PP(1));
	int			fd;

	check_target(path);
	fd = create_temporary_file(path);
	PG_TRY();
	{
		write_content(fd, &value);
		if (CloseTransientFile(fd) != 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not close file \"%s\": %m", temporary_path)));
		if (rename(temporary_path, path) != 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not rename file \"%s\" to \"%s\": %m", temporary_path, path)));
	}
	PG_CATCH();
	{
		remove_temporary_file(0, (Datum) 0);
		PG_RE_THROW();
	}
	PG_END_TRY();
	temporary_path[0] = '\0';
	sync_directory(path);
	PG_RETURN_INT64((int64) value.size_bytes);
}
