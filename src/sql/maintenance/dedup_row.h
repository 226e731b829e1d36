/*
 * sql/maintenance/dedup_row.h
 *	  A call of blobext_dedup(), for dedup.c, which goes through the rows, and dedup_row.c, which
 *	  exchanges the value of one.
 */
#ifndef BLOB_SQL_DEDUP_ROW_H
#define BLOB_SQL_DEDUP_ROW_H

#include "postgres.h"

#include "sql/maintenance/dedup_parts.h"
#include "sql/maintenance/exchange.h"

/*
 * Columns of view blobext_dedup_progress, and of the result the last four but
 * BLOB_DEDUP_BYTES_COMPARED.
 */
enum
{
	BLOB_DEDUP_RANGES_DONE,
	BLOB_DEDUP_BLOCKS_DONE,
	BLOB_DEDUP_BLOCKS_TOTAL,
	BLOB_DEDUP_BYTES_COMPARED,
	BLOB_DEDUP_ROWS_SHARED,
	BLOB_DEDUP_BYTES_SAVED,
	BLOB_DEDUP_ROWS_SKIPPED,
	BLOB_DEDUP_ROWS_FAILED,
	BLOB_DEDUP_COUNTERS
};

/* A row whose value may be exchanged for that of its group. */
typedef struct BlobDedupCandidate
{
	BlobColumnRow row;
	BlobDedupGroup *group;
	BlobDedupDatum datum;
} BlobDedupCandidate;

/*
 * The value of a group that a row was compared with last; all of it ends with the batch.  The
 * candidates of a group follow each other.
 */
typedef struct BlobDedupSource
{
	struct varlena *datum;		/* NULL: there is none */
	char	   *content;		/* NULL: not read, or too large */
	BlobColumnRow row;
	bool		is_locked;		/* this transaction has the row locked, with this datum */
} BlobDedupSource;

typedef struct BlobDedup
{
	BlobExchange exchange;
	bool		verify;
	MemoryContext source_context;	/* of known, reset in each transaction */
	BlobDedupSource known;
	BlobDedupGroups *groups;
	BlobDedupCandidate *candidates;	/* of a range of blocks */
	int			candidate_count;
	int			candidate_room;
} BlobDedup;

/* The next row is compared with another source; at the end of a transaction, too. */
extern void blob_dedup_forget_source(BlobDedup *dedup);

/* Give a row its group's value, or not, and count it. */
extern void blob_dedup_handle_row(BlobDedup *dedup, const BlobDedupCandidate *candidate);

#endif							/* BLOB_SQL_DEDUP_ROW_H */
