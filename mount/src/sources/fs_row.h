/*
 * sources/fs_row.h
 *	  Rows of blobfs.attr, which the functions of a file system return.
 */
#ifndef FS_ROW_H
#define FS_ROW_H

#include <libpq-fe.h>

#include "common/tree.h"

/* Inode numbers from here on are of no inode: names that the program itself adds have them. */
#define FS_FIRST_FOREIGN_INO (UINT64_C(1) << 62)

enum
{
	/* Of blobfs.attr. */
	ATTRIBUTE_COLUMNS = 12
};

/* A row, from a column on, without the snapshot's number.  0, or EIO if the row is none. */
int fs_attributes(const PGresult *result, int row, int column, struct attributes *attributes);

/* The number that the row of a file has as its version. */
int64_t fs_get_version(const struct version *version);

#endif							/* FS_ROW_H */
