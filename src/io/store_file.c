/*
 * io/store_file.c
 *	  Names and removal of the files of stores, see io/store_file.h.
 */
#include "postgres.h"

#include <unistd.h>

#include "io/store_file.h"
#include "storage/fd.h"

void
blob_store_file_path(char path[MAXPGPATH], const BlobStoreFileKind *kind,
					 const BlobStoreId *store, const char *suffix)
{
	snprintf(path, MAXPGPATH, "%s/%s%u.%016llx%s", kind->folder, kind->prefix, store->dboid,
			 (unsigned long long) store->incarnation, suffix);
}

static void
remove_file(const char *path)
{
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(), errmsg("could not remove file \"%s\": %m", path)));
}

void
blob_store_file_remove(const BlobStoreFileKind *kind, const BlobStoreId *store)
{
	char		path[MAXPGPATH];

	blob_store_file_path(path, kind, store, "");
	remove_file(path);
}

/* Whether this is the path of a file of one of these stores, with any suffix. */
static bool
is_kept(const BlobStoreFileKind *kind, const char *path, const BlobStoreId *stores, int count)
{
	for (int i = 0; i < count; i++)
	{
		char		kept[MAXPGPATH];

		blob_store_file_path(kept, kind, &stores[i], "");
		if (strncmp(path, kept, strlen(kept)) == 0)
			return true;
	}
	return false;
}

void
blob_store_files_keep(const BlobStoreFileKind *kind, const BlobStoreId *stores, int count)
{
	DIR		   *directory = AllocateDir(kind->folder);
	struct dirent *entry;

	if (directory == NULL && errno == ENOENT)
		return;					/* the server makes it when it has something to put there */
	while ((entry = ReadDirExtended(directory, kind->folder, LOG)) != NULL)
	{
		char		path[MAXPGPATH];

		if (strncmp(entry->d_name, kind->prefix, strlen(kind->prefix)) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", kind->folder, entry->d_name);
		if (!is_kept(kind, path, stores, count))
			remove_file(path);
	}
	FreeDir(directory);
}
