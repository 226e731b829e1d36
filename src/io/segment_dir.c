/*
 * io/segment_dir.c
 *	  Directories of stores: listing and removal.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlogutils.h"
#include "core/settings.h"
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

int
blob_segment_database_room(void)
{
	static int	room = 0;

	if (room == 0)
	{
		BlobStoreId *stores;

		room = Max(blob_max_databases, blob_segment_list_stores(&stores));
		pfree(stores);
	}
	return room;
}

bool
blob_segment_dir_exists(const BlobStoreId *store)
{
	char		path[MAXPGPATH];

	blob_segment_dir_path(path, sizeof(path), store);
	return access(path, F_OK) == 0 || errno != ENOENT;
}
