/*
 * gc/changed.h
 *	  A set of blocks of the main forks of some tables of one database: those that records of the
 *	  WAL name, see README.md, "Pages that no record names".
 */
#ifndef BLOB_GC_CHANGED_H
#define BLOB_GC_CHANGED_H

#include "postgres.h"

#include "storage/block.h"

typedef struct BlobGcChanged BlobGcChanged;

/*
 * An empty set of blocks of these files.  It takes some 100 bytes for each 512 blocks, in a row, of
 * which it has one, in the current memory context.
 */
extern BlobGcChanged *blob_gc_changed_make(const Oid *files, int file_count);

/*
 * Add a block of a file; is one there?  Blocks of other files are left out.  Not the tablespace,
 * but the number tells the file: ALTER DATABASE SET TABLESPACE moves files, and records name the
 * place that they had.  Files of one number are taken for one.
 */
extern void blob_gc_changed_add(BlobGcChanged *changed, Oid file, BlockNumber block);
extern bool blob_gc_changed_has(BlobGcChanged *changed, Oid file, BlockNumber block);

#endif							/* BLOB_GC_CHANGED_H */
