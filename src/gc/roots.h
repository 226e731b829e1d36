/*
 * gc/roots.h
 *	  Relations that can hold blobstate, as the committed catalogs show them: step 4 of README.md.
 */
#ifndef BLOB_GC_ROOTS_H
#define BLOB_GC_ROOTS_H

#include "postgres.h"

#include "access/attnum.h"
#include "storage/block.h"

/* A relation whose rows or row type can hold blobstate, as the catalogs show it. */
typedef struct BlobGcRoot
{
	Oid			relid;			/* first, for oid_cmp() */
	Oid			file;			/* pg_class.relfilenode */
	Oid			tablespace;
	Oid			access_method;
	char		kind;			/* pg_class.relkind */
	bool		is_scanned;		/* has values in a file of its own */
	uint64		columns;		/* blob_gc_hash_column() of all columns, added */
	BlockNumber pages;			/* estimate */

	/* Found while it is marked, see keys.c. */
	Oid			table;			/* of an index */
	bool		is_exclusion;	/* an index of an exclusion constraint */
	bool		may_vacuum;		/* a table that autovacuum may vacuum, with its indexes */
	uint64		dead_key_pages; /* that leaf items of this index, and nothing before it, hold */
	uint64		high_key_pages; /* the same of high keys and of keys on inner pages */
} BlobGcRoot;

/* A temporary table, or an index of one, of another session that is there. */
typedef struct BlobGcTemporary
{
	Oid			relid;			/* first, for oid_cmp() */
	Oid			file;			/* pg_class.relfilenode */
	int			owner;			/* the number of its process */
	int			pid;			/* of that process */
	bool		is_index;
	uint64		columns;		/* as in BlobGcRoot */
	char	   *name;			/* qualified */
} BlobGcTemporary;

typedef struct BlobGcRoots
{
	int			count;
	BlobGcRoot *items;			/* ordered by relid */
	int			temporary_count;
	BlobGcTemporary *temporary; /* ordered by relid */
	char	   *obstacle;		/* why the collector cannot work, or NULL */
	char	   *snapshot;		/* of the list, serialized; may be NULL with an obstacle */
} BlobGcRoots;

/*
 * The list of this moment, in a memory context.  Locks no relation but the catalogs that it reads,
 * in AccessShare mode.
 */
extern BlobGcRoots *blob_gc_list_roots(MemoryContext context);

/*
 * Whether two lists show the same relations, files and columns.  Temporary tables of other sessions
 * may come and go, and have the same columns if they are in both.
 */
extern bool blob_gc_roots_equal(const BlobGcRoots *left, const BlobGcRoots *right);

/*
 * Whether a column that can hold values was committed after a list was made, and be it gone again:
 * then a table may have been there, and had values, that no later list shows.  S1 must have been
 * registered since before the list was made: it keeps the rows of pg_attribute that tell.
 */
extern bool blob_gc_columns_were_made(const BlobGcRoots *since);

/* One column's part of BlobGcRoot.columns. */
extern uint64 blob_gc_hash_column(AttrNumber number, Oid type, bool is_dropped);

#endif							/* BLOB_GC_ROOTS_H */
