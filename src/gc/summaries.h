/*
 * gc/summaries.h
 *	  PostgreSQL's WAL summaries: which blocks the records of a range of the WAL name.  See
 *	  README.md, "Pages that no record names".
 */
#ifndef BLOB_GC_SUMMARIES_H
#define BLOB_GC_SUMMARIES_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "gc/changed.h"

typedef struct BlobGcSummaries BlobGcSummaries;

/* The summaries of this timeline, in the current memory context: the newest ones, without a gap. */
extern BlobGcSummaries *blob_gc_summaries_list(void);

/*
 * How many bytes the function below reads; PG_UINT64_MAX if a file is older than this run of the
 * server.  ERROR if one has gone.
 */
extern uint64 blob_gc_summaries_bytes(const BlobGcSummaries *summaries, XLogRecPtr since);

/*
 * Add the blocks of tables of this database that records name which begin at or after since, and
 * perhaps others.  Returns up to where: the end of the last summary, or since, if they do not tell
 * what comes directly after that.  ERROR if a file has gone or is damaged; then some of the blocks
 * have been added.
 */
extern XLogRecPtr blob_gc_summaries_read(const BlobGcSummaries *summaries, BlobGcChanged *changed,
										 XLogRecPtr since);

#endif							/* BLOB_GC_SUMMARIES_H */
