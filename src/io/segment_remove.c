/*
 * io/segment_remove.c
 *	  Removal of segment files and of the directories of stores.
 *
 * The syncer and the list of dirty slabs must not mistake a removed file for a missing one:
 * see "Removed files and missing files" in the README of this folder.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlogutils.h"
#include "io/buffer.h"
#include "io/dirty.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "io/syncer.h"
#include "miscadmin.h"
#include "storage/fd.h"

/* Take a name away; true if it is gone, otherwise errno says why.  No process writes meanwhile. */
static bool
take_name(const char *path)
{
	blob_dirty_check_removing();
	return unlink(path) == 0 || errno == ENOENT;
}

/*
 * The order of steps matters: see "Removed files and missing files" in the README.  The count is a
 * full barrier: a process that sees the new count finds the name gone.  Dirty pages are of no use
 * any more also if the name stays: written later, they would replace those of the pages' next life.
 */
static bool
unlink_segment(const BlobStoreId *store, uint32 segment_no, const char *path)
{
	bool		is_gone;
	int			error;
	int			fd = BasicOpenFile(path, O_RDWR | O_CLOEXEC | PG_BINARY);

	blob_dirty_begin_removal();
	is_gone = take_name(path);
	error = errno;
	if (is_gone)
	{
		blob_segment_count_removal(path);
		blob_syncer_forget(store, segment_no);
	}
	blob_dirty_end_removal(store, segment_no);
	if (fd >= 0)
	{
		/* Other processes may keep the file open for long; its space is wanted now. */
		if (is_gone && ftruncate(fd, 0) != 0)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not truncate removed file \"%s\": %m", path)));
		if (close(fd) != 0)
			elog(LOG, "could not close blob segment file: %m");
	}
	errno = error;
	return is_gone;
}

bool
blob_segment_remove(const BlobStoreId *store, uint32 segment_no)
{
	char		path[MAXPGPATH];
	char		directory[MAXPGPATH];

	blob_segment_path(path, sizeof(path), store, segment_no);
	blob_segment_dir_path(directory, sizeof(directory), store);

	if (!unlink_segment(store, segment_no, path))
	{
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not remove blob segment file \"%s\": %m", path)));
		return false;
	}

	if (access(directory, F_OK) == 0)
		blob_segment_sync_directory(directory);
	return true;
}

/*
 * Remove the files of a store, and have the syncer and the list of dirty slabs forget them.
 * False if one of them is still there.
 */
static bool
remove_files(const BlobStoreId *store, const char *path)
{
	DIR		   *directory = AllocateDir(path);
	struct dirent *entry;
	bool		are_gone = directory != NULL;

	while ((entry = ReadDirExtended(directory, path, WARNING)) != NULL)
	{
		char		file[MAXPGPATH * 2];

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (!InRecovery)
			CHECK_FOR_INTERRUPTS();
		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		if (!unlink_segment(store, BLOB_ALL_SEGMENTS, file))
		{
			ereport(WARNING,
					(errcode_for_file_access(),
					 errmsg("could not remove blob segment file \"%s\": %m", file)));
			are_gone = false;
		}
	}
	FreeDir(directory);
	return are_gone;
}

bool
blob_segment_remove_dir(const BlobStoreId *store)
{
	char		path[MAXPGPATH];
	bool		is_gone;

	blob_segment_dir_path(path, sizeof(path), store);
	/* If the directory is gone already, the syncer must not wait for its files. */
	if (access(path, F_OK) != 0 && errno == ENOENT)
	{
		is_gone = unlink_segment(store, BLOB_ALL_SEGMENTS, path);
		blob_buffer_forget_store(store);
		return is_gone;
	}

	is_gone = remove_files(store, path);
	if (is_gone && rmdir(path) != 0 && errno != ENOENT)
	{
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not remove directory \"%s\": %m", path)));
		is_gone = false;
	}
	/* The syncer must not wait for files that were missing, and so have not been removed. */
	if (is_gone)
		is_gone = unlink_segment(store, BLOB_ALL_SEGMENTS, path);
	blob_buffer_forget_store(store);
	blob_segment_sync_directory(BLOB_STORE_DIR);
	return is_gone;
}
