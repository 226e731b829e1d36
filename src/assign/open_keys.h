/*
 * assign/open_keys.h
 *	  Columns whose digests may be open are no keys: of an index on content or digest, of
 *	  partitions, of a foreign key.
 *
 * Nothing would be wrong if one were: comparators and hashes know open values.  But they read the
 * whole content of such a value to place it, under the lock of an index page, where more than some
 * MB is an error (blob/seal.h).  See "Digests that may be open" in the README of this folder.
 */
#ifndef BLOB_OPEN_KEYS_H
#define BLOB_OPEN_KEYS_H

#include "postgres.h"

#include "access/attnum.h"

/*
 * ERROR 55000 if a column, or that of its name in a table below, is a key; 42809 if it is
 * not of type blobstate.
 */
extern void blob_open_keys_require_none(Oid relation, AttrNumber column);

/*
 * ERROR 55000 if a column of a table, or of one below it, may be open and is a key.  The table has
 * got a parent.
 */
extern void blob_open_keys_check_hierarchy(Oid table);

/* The same for the table of an index that was made in this command; other relations pass. */
extern void blob_open_keys_check_index(Oid relation);

/*
 * open_builds.c: ERROR 55000 if rows have open values in the key columns of an index.  Reads the
 * rows of its table, on which the caller has a lock.  Other relations, and one that is gone, pass.
 */
extern void blob_open_keys_check_build(Oid index);

/* The same for that of a foreign key that was made in this command; other constraints pass. */
extern void blob_open_keys_check_constraint(Oid constraint);

#endif							/* BLOB_OPEN_KEYS_H */
