/*
 * sql/maintenance/defragment_row.h
 *	  A call of blobext_defragment(), for defragment.c, which goes through the list of rows, and
 *	  defragment_row.c, which exchanges the value of one.
 */
#ifndef BLOB_SQL_DEFRAGMENT_ROW_H
#define BLOB_SQL_DEFRAGMENT_ROW_H

#include "postgres.h"

#include "portability/instr_time.h"
#include "sql/maintenance/exchange.h"
#include "sql/maintenance/fragmentation.h"

/* Columns of view blobext_defragment_progress; the last ones are the result. */
enum
{
	BLOB_DEFRAGMENT_ROWS_DONE,
	BLOB_DEFRAGMENT_ROWS_TOTAL,
	BLOB_DEFRAGMENT_VALUES_WRITTEN,
	BLOB_DEFRAGMENT_BYTES_WRITTEN,
	BLOB_DEFRAGMENT_ROWS_CHANGED,
	BLOB_DEFRAGMENT_ROWS_SKIPPED,
	BLOB_DEFRAGMENT_ROWS_FAILED,
	BLOB_DEFRAGMENT_COUNTERS
};

/* A row of the list. */
typedef struct BlobDefragmentCandidate
{
	BlobColumnRow row;
	int64		value_id;		/* hash of its datum */
	bool		is_readable;
} BlobDefragmentCandidate;

/* The value that was written last, for the rows that have copies of the old one. */
typedef struct BlobFreshValue
{
	bool		is_known;
	int64		value_id;		/* of the old datum */
	struct varlena *datum;		/* NULL: it is in a row, and was made in another transaction */
	int64		hash;			/* of the new datum */
	bool		has_row;
	BlobColumnRow row;			/* has_row: one that has it */
} BlobFreshValue;

typedef struct BlobDefragment
{
	BlobExchange exchange;
	BlobFragmentationRule rule;
	int			rate;			/* megabytes a second; 0: no limit */
	MemoryContext batch_context;	/* reset in each transaction */
	SPIPlanPtr	list;
	BlobFreshValue fresh;
	instr_time	begin;			/* when the first batch began */
} BlobDefragment;

/* Give a row of the list a new value, or not, and count it. */
extern void blob_defragment_handle_row(BlobDefragment *run,
									   const BlobDefragmentCandidate *candidate);

#endif							/* BLOB_SQL_DEFRAGMENT_ROW_H */
