/*
 * gc/logged.h
 *	  Which blocks of a table the WAL names from a position on: what PostgreSQL's WAL summaries say,
 *	  and after their end the WAL itself.  See README.md, "Pages that no record names".
 */
#ifndef BLOB_GC_LOGGED_H
#define BLOB_GC_LOGGED_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "gc/roots.h"
#include "storage/block.h"
#include "utils/rel.h"

typedef struct BlobGcLogged BlobGcLogged;

/*
 * For the relations of the list, in the current memory context.  NULL if the WAL does not tell all
 * changes, which is the case with wal_level = minimal, or this is not known of PostgreSQL.
 */
extern BlobGcLogged *blob_gc_logged_open(const BlobGcRoots *roots);
extern void blob_gc_logged_close(BlobGcLogged *logged);

/* The table that the functions below ask for.  The larger it is, the more WAL may be read. */
extern void blob_gc_logged_begin_table(BlobGcLogged *logged, Relation relation);

/*
 * Whether all records are known that begin at or after since, and end at or before position; reads
 * summaries and WAL for it, unless that would be too much.  An error of a file is logged: then the
 * answer is no.  Flushes the WAL.
 */
extern bool blob_gc_logged_tell(BlobGcLogged *logged, XLogRecPtr since, XLogRecPtr position);

/* Does one of these records name this block?  Only after a yes. */
extern bool blob_gc_logged_names(BlobGcLogged *logged, BlockNumber block);

#endif							/* BLOB_GC_LOGGED_H */
