/*
 * sql/maintenance/exchange.h
 *	  What the procedures have in common that exchange values of a column, row by row:
 *	  blobext_dedup(), blobext_defragment(), blobext_seal().
 *
 * Such a procedure commits after each batch of rows.  It reads the value of a row, locks the row
 * without waiting, and updates it if it has still that value.  All of it is done by statements that
 * the caller could have written, with the rights of the caller.
 */
#ifndef BLOB_SQL_EXCHANGE_H
#define BLOB_SQL_EXCHANGE_H

#include "postgres.h"

#include "executor/spi.h"
#include "fmgr.h"
#include "sql/maintenance/column.h"
#include "sql/maintenance/progress.h"

/* A batch ends when this much content was read, too. */
#define BLOB_EXCHANGE_BATCH_BYTES (UINT64CONST(128) * 1024 * 1024)

typedef struct BlobExchange
{
	const char *name;			/* of the procedure, for messages */
	BlobColumn	column;
	int			batch_rows;
	MemoryContext caller_context;
	MemoryContext context;		/* to the end, over commits */
	MemoryContext row_context;	/* reset for each row, and in each transaction */
	SPIPlanPtr	scan;			/* rows in a range of blocks, see blob_exchange_prepare_scan() */
	SPIPlanPtr	fetch;			/* the value of a row, by its table and place */
	SPIPlanPtr	lock_source;	/* the same; no other session changes the row then */
	SPIPlanPtr	lock_target;	/* the same, with the lock of an UPDATE; skips locked rows */
	SPIPlanPtr	update;
	int			batch_done;		/* rows of this transaction */
	uint64		batch_bytes;	/* content that it has read */
	int			warnings;
	uint64		counters[BLOB_PROGRESS_COUNTERS];	/* those of the progress view */
} BlobExchange;

/*
 * The procedure begins: arguments 0, 1 and batch_argument are the table, the column and the rows of
 * a batch.  Connects SPI.  ERROR 22004 if one of the first argument_count arguments is null, 22023,
 * 25001, 25006, and those of blob_column_find() and blob_column_require_privileges().
 */
extern void blob_exchange_begin(BlobExchange *exchange, FunctionCallInfo fcinfo, const char *name,
								int argument_count, int batch_argument);

/*
 * Prepare the statements for a row.  source_wait: what lock_source does with a locked row, as SQL
 * has it.  ERROR 0A000 for a table that no UPDATE changes.
 */
extern void blob_exchange_prepare(BlobExchange *exchange, const char *source_wait);

/*
 * Prepare the scan of a range of blocks: rows (tableoid, ctid, and more).  more, condition: further
 * results, and "AND ..." for its WHERE, or "".
 */
extern void blob_exchange_prepare_scan(BlobExchange *exchange, const char *more,
									   const char *condition);

/* Scan blocks [first, first + blocks) of all tables; the rows are in SPI_tuptable. */
extern void blob_exchange_scan(BlobExchange *exchange, BlockNumber first, BlockNumber blocks);

/* The place of a row in the result of a statement that begins with tableoid and ctid. */
extern BlobColumnRow blob_exchange_get_row(HeapTuple tuple, TupleDesc row_type);

/*
 * The length of the longest table that has rows, in blocks; and how many blocks of each table a
 * scan should read.
 */
extern BlockNumber blob_exchange_measure(BlobExchange *exchange, BlockNumber *step);

/*
 * Commit; the next transaction.  ERROR 55006 if the names mean something else now, and those of
 * blob_column_find().
 */
extern void blob_exchange_next_batch(BlobExchange *exchange);

extern bool blob_exchange_batch_is_full(const BlobExchange *exchange);

/*
 * Give a row another value; false if a trigger does not want it.  now: its place then, may be NULL.
 */
extern bool blob_exchange_update(BlobExchange *exchange, const BlobColumnRow *row,
								 const struct varlena *value, BlobColumnRow *now);

extern void blob_exchange_count(BlobExchange *exchange, int counter, uint64 value);

/* WARNING that a row keeps its value; after some they are only counted, by the caller. */
extern void blob_exchange_warn(BlobExchange *exchange, const BlobColumnRow *row,
							   const char *problem);

/* Release the statements; in PG_FINALLY. */
extern void blob_exchange_release(BlobExchange *exchange);

/* Disconnects SPI.  The result: columns count - first counters, from the first on. */
extern Datum blob_exchange_end(BlobExchange *exchange, FunctionCallInfo fcinfo, int first,
							   int count);

#endif							/* BLOB_SQL_EXCHANGE_H */
