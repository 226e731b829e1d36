/*
 * gc/summaries.h
 *	  Which pages of a table the WAL has changed: what PostgreSQL's WAL summaries say.  See
 *	  README.md, "WAL summaries".
 */
#ifndef BLOB_GC_SUMMARIES_H
#define BLOB_GC_SUMMARIES_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "storage/block.h"
#include "utils/rel.h"

typedef struct BlobGcSummaries BlobGcSummaries;

/*
 * List the summaries of this timeline, in the current memory context: the newest ones, without a
 * gap.  Returns NULL if there are none.  The position up to which they tell all changes.
 */
extern BlobGcSummaries *blob_gc_summaries_open(void);
extern XLogRecPtr blob_gc_summaries_end(const BlobGcSummaries *summaries);

/* A table begins, of this many blocks; ends. */
extern void blob_gc_summaries_begin_table(BlobGcSummaries *summaries, Relation relation,
										  BlockNumber block_count);
extern void blob_gc_summaries_end_table(BlobGcSummaries *summaries);

/*
 * Whether they tell all changes of the table by records that begin at or after a position; reads
 * them when it is called first.  An error of a file is logged: they do not tell.
 */
extern bool blob_gc_summaries_cover(BlobGcSummaries *summaries, XLogRecPtr since);

/* Has this block been changed since the first of these positions, up to the end? */
extern bool blob_gc_summaries_changed(const BlobGcSummaries *summaries, BlockNumber block);

#endif							/* BLOB_GC_SUMMARIES_H */
