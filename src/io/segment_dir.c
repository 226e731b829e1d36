/*
 * io/segment_dir.c
 *	  Directories of stores: listing and removal.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlogutils.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "storage/fd.h"

/* Parse the name of a directory; false if blob_segment_dir_path() does not make such a name. */
static bool
parse_name(const char *name, BlobStoreId *store)
{
	char		path[MAXPGPATH];
	unsigned int dboid;
	unsigned long long incarnation;

	if (sscanf(name, "%u.%llx", &dboid, &incarnation) != 2)
		return false;
	memset(store, 0, sizeof(*store));
	store->dboid = dboid;
	store->incarnation = incarnation;
	blob_segment_dir_path(path, sizeof(path), store);
	return strcmp(path + strlen(BLOB_STORE_DIR "/"), name) == 0;
}

int
blob_segment_list_stores(BlobStoreId **stores)
{
	int			room = 64;
	int			count = 0;
	DIR		   *directory;
	struct dirent *entry;

	*stores = palloc(sizeof(BlobStoreId) * room);
	directory = AllocateDir(BLOB_STORE_DIR);
	if (directory == NULL && errno == ENOENT)
		return 0;
	while ((entry = ReadDir(directory, BLOB_STORE_DIR)) != NULL)
	{
		if (count == room)
		{
			room *= 2;
			*stores = repalloc(*stores, sizeof(BlobStoreId) * room);
		}
		if (parse_name(entry->d_name, &(*stores)[count]))
			count++;
	}
	FreeDir(directory);
	return count;
}

bool
blob_segment_dir_exists(const BlobStoreId *store)
{
	char		path[MAXPGPATH];

	blob_segment_dir_path(path, sizeof(path), store);
	return access(path, F_OK) == 0 || errno != ENOENT;
}

/*
 * Remove the files of a store, and have the syncer and the table of deferred writes forget them.
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
		if (!blob_segment_unlink(store, BLOB_ALL_SEGMENTS, file))
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
		return blob_segment_unlink(store, BLOB_ALL_SEGMENTS, path);

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
		is_gone = blob_segment_unlink(store, BLOB_ALL_SEGMENTS, path);
	blob_segment_sync_directory(BLOB_STORE_DIR);
	return is_gone;
}
