/*
 * gc/changed.h
 *	  A set of blocks of the main forks of tables of one database: those that records of the WAL
 *	  name, see README.md, "Pages that no record names".
 */
#ifndef BLOB_GC_CHANGED_H
#define BLOB_GC_CHANGED_H

#include "postgres.h"

#include "storage/block.h"

typedef struct BlobGcChanged BlobGcChanged;

/*
 * An empty set.  It takes some 100 bytes for each 512 blocks, in a row, of which it has one, in the
 * current memory context.
 */
extern BlobGcChanged *blob_gc_changed_make(void);

/*
 * Add a block of a file; is one there?  A file is told by its number alone, since it keeps that
 * when ALTER DATABASE moves it to another tablespace.  Two files of one number share their blocks.
 */
extern void blob_gc_changed_add(BlobGcChanged *changed, Oid file, BlockNumber block);
extern bool blob_gc_changed_has(BlobGcChanged *changed, Oid file, BlockNumber block);

#endif							/* BLOB_GC_CHANGED_H */
