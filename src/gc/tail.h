/*
 * gc/tail.h
 *	  The WAL that no summary has yet: which blocks its records name.  See README.md, "Pages that no
 *	  record names".
 */
#ifndef BLOB_GC_TAIL_H
#define BLOB_GC_TAIL_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "gc/changed.h"

/*
 * Add the blocks of tables of this database that records name which begin from start on, and before
 * stop.  start is where a record ends or begins, on the current timeline, and stop is flushed.
 * Returns where the last of them ends: at stop, or behind it.  ERROR if the WAL is not there, or
 * cannot be read; then some of the blocks have been added.
 */
extern XLogRecPtr blob_gc_tail_read(BlobGcChanged *changed, XLogRecPtr start, XLogRecPtr stop);

#endif							/* BLOB_GC_TAIL_H */
