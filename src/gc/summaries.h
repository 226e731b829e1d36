/*
 * gc/summaries.h
 *	  Which blocks of a table records of the WAL name: what PostgreSQL's WAL summaries say, and
 *	  what came after them.  See README.md, "WAL summaries".
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
 * gap.  Returns NULL if there are none.
 */
extern BlobGcSummaries *blob_gc_summaries_open(void);

/* The table that the functions below ask for; it lets the round read more WAL, the larger it is. */
extern void blob_gc_summaries_begin_table(BlobGcSummaries *summaries, Relation relation);

/*
 * Whether all records are known that begin at or after since, and before position at least.  Reads
 * the summaries when it is called first, and WAL from their end to the present, which it flushes, if
 * position is beyond what was read, and that is not much.  An error of a file is logged: then the
 * answer is no.
 */
extern bool blob_gc_summaries_tell(BlobGcSummaries *summaries, XLogRecPtr since,
								   XLogRecPtr position);

/* Does one of these records name this block?  Only after a yes. */
extern bool blob_gc_summaries_changed(BlobGcSummaries *summaries, BlockNumber block);

#endif							/* BLOB_GC_SUMMARIES_H */
