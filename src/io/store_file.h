/*
 * io/store_file.h
 *	  A file for each store that says something of it, in a directory that no backup copies.
 *
 * Such a file is not durable, and may be missing or damaged at any time: the caller knows what it
 * reads then, and what an error means.
 */
#ifndef BLOB_STORE_FILE_H
#define BLOB_STORE_FILE_H

#include "core/page.h"

/* A kind of these files: FOLDER/PREFIX<dboid>.<incarnation, 16 hex digits>. */
typedef struct BlobStoreFileKind
{
	const char *folder;
	const char *prefix;
} BlobStoreFileKind;

/* The path of a store's file, with a suffix: "", or that of one that will take its place. */
extern void blob_store_file_path(char path[MAXPGPATH], const BlobStoreFileKind *kind,
								 const BlobStoreId *store, const char *suffix);

/* Remove the file of a store, if it has one.  A failure is a LOG line. */
extern void blob_store_file_remove(const BlobStoreFileKind *kind, const BlobStoreId *store);

/* The launcher's: remove the files of all stores but these.  A failure is a LOG line. */
extern void blob_store_files_keep(const BlobStoreFileKind *kind, const BlobStoreId *stores,
								  int count);

#endif							/* BLOB_STORE_FILE_H */
