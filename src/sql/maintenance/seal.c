/*
 * sql/maintenance/seal.c
 *	  blobext_seal(): the digests of a column's values that are open are computed, and kept.
 *
 * A procedure that commits.  It works with the rights of its caller, by statements that the caller
 * could have written.  sql/README.md, "blobext_seal()", says which step guards against what.
 *
 * From one transaction to the next it keeps places of rows, and no value.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/seal.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/exchange.h"
#include "sql/maintenance/progress.h"
#include "sql/value.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(blob_digest_is_open);
PG_FUNCTION_INFO_V1(blobext_seal);
PG_FUNCTION_INFO_V1(blobext_seal_state);

#define NAME "blobext_seal()"

/* Columns of view blobext_seal_progress; the last ones are the result. */
enum
{
	BLOCKS_DONE,
	BLOCKS_TOTAL,
	BYTES_READ,
	ROWS_SEALED,
	ROWS_SKIPPED,
	ROWS_FAILED,
	COUNTERS
};

typedef struct Sealing
{
	BlobExchange exchange;
	BlobColumnRow *rows;		/* of a range of blocks, with open values */
	int			row_count;
	int			row_room;
	bool		is_second_pass;
	bool		needs_second_pass;	/* a row was refused as 55000 */
} Sealing;

static void
count(Sealing *sealing, int counter, uint64 value)
{
	blob_exchange_count(&sealing->exchange, counter, value);
}

/* ---- one row ---- */

typedef enum Outcome
{
	SEALED,
	SKIPPED,					/* changed, or locked by others, or by a trigger's will */
	NOT_OPEN					/* another session has sealed it */
} Outcome;

typedef struct Attempt
{
	Sealing    *sealing;
	const BlobColumnRow *row;
	Outcome		outcome;
} Attempt;

/* Lock the row, if it has still this value, and exchange that.  Never waits for the row's lock. */
static Outcome
exchange_value(Sealing *sealing, const BlobColumnRow *row, const struct varlena *open,
			   const struct varlena *sealed)
{
	BlobExchange *exchange = &sealing->exchange;
	const struct varlena *locked = blob_column_value(exchange->lock_target, row,
													 exchange->row_context);

	if (locked == NULL || !blob_column_is_same_datum(locked, open))
		return SKIPPED;
	return blob_exchange_update(exchange, row, sealed, NULL) ? SEALED : SKIPPED;
}

/* A BlobAttemptStep.  The content is read before the row is locked. */
static void
seal_row(void *argument)
{
	Attempt    *attempt = argument;
	Sealing    *sealing = attempt->sealing;
	BlobExchange *exchange = &sealing->exchange;
	struct varlena *open = blob_column_value(exchange->fetch, attempt->row,
											 exchange->row_context);
	struct varlena *sealed;
	BlobValue	value;

	attempt->outcome = SKIPPED;
	if (open == NULL)
		return;
	blob_value_unpack(open, &value);
	attempt->outcome = NOT_OPEN;
	if (value.is_inline || !value.descriptor.is_open)
		return;
	sealed = blob_seal(open);
	exchange->batch_bytes += value.size_bytes;
	count(sealing, BYTES_READ, value.size_bytes);
	attempt->outcome = exchange_value(sealing, attempt->row, open, sealed);
}

/*
 * Where the column is a key of an index, a new version may have to be compared with an open key
 * whose digest is not known, and that is refused.  The key may belong to a row that is still to
 * come.  All digests are known behind the last row (as many as are remembered), so rows that were
 * refused are tried once more.
 */
static bool
is_to_be_tried_again(Sealing *sealing, const ErrorData *error)
{
	if (error->sqlerrcode != ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE || sealing->is_second_pass)
		return false;
	sealing->needs_second_pass = true;
	return true;
}

/* Seal a row, or not, and count it. */
static void
handle_row(Sealing *sealing, const BlobColumnRow *row)
{
	Attempt		attempt = {.sealing = sealing, .row = row};
	ErrorData  *error;

	CHECK_FOR_INTERRUPTS();
	MemoryContextSwitchTo(sealing->exchange.row_context);
	error = blob_attempt(seal_row, &attempt);
	sealing->exchange.batch_done++;
	if (error != NULL && blob_batch_is_to_be_thrown(error->sqlerrcode))
		ReThrowError(error);
	if (error != NULL && is_to_be_tried_again(sealing, error))
		elog(DEBUG1, "a row is tried again: %s", error->message);
	else if (error != NULL && !blob_batch_is_of_concurrency(error->sqlerrcode))
	{
		count(sealing, ROWS_FAILED, 1);
		blob_exchange_warn(&sealing->exchange, row, error->message);
	}
	else if (error != NULL || attempt.outcome == SKIPPED)
		count(sealing, ROWS_SKIPPED, 1);
	else if (attempt.outcome == SEALED)
		count(sealing, ROWS_SEALED, 1);
	MemoryContextReset(sealing->exchange.row_context);
}

/* ---- all rows ---- */

static void
note_row(Sealing *sealing, const BlobColumnRow *row)
{
	if (sealing->row_count == sealing->row_room)
	{
		sealing->row_room *= 2;
		sealing->rows = repalloc_huge(sealing->rows, sizeof(BlobColumnRow) * sealing->row_room);
	}
	sealing->rows[sealing->row_count++] = *row;
}

/* Find the rows with open values in blocks [first, first + blocks) of all tables. */
static void
scan_range(Sealing *sealing, BlockNumber first, BlockNumber blocks)
{
	sealing->row_count = 0;
	blob_exchange_scan(&sealing->exchange, first, blocks);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		BlobColumnRow row = blob_exchange_get_row(SPI_tuptable->vals[i], SPI_tuptable->tupdesc);

		note_row(sealing, &row);
	}
	SPI_freetuptable(SPI_tuptable);
}

/* All rows that the table had at the beginning. */
static void
seal_rows(Sealing *sealing)
{
	BlobExchange *exchange = &sealing->exchange;
	BlockNumber step;
	BlockNumber length = blob_exchange_measure(exchange, &step);

	count(sealing, BLOCKS_TOTAL, length);
	for (uint64 block = 0; block < length; block += step)
	{
		BlockNumber blocks = Min(step, length - block);

		scan_range(sealing, block, blocks);
		blob_exchange_next_batch(exchange);
		for (int i = 0; i < sealing->row_count; i++)
		{
			handle_row(sealing, &sealing->rows[i]);
			if (blob_exchange_batch_is_full(exchange))
				blob_exchange_next_batch(exchange);
		}
		count(sealing, BLOCKS_DONE, blocks);
	}
	SPI_commit();
}

/* ---- the procedure ---- */

static char *
make_condition(const BlobColumn *column)
{
	return psprintf(" AND %s(%s::%s)", blob_catalog_function_name(BLOB_FUNCTION_DIGEST_IS_OPEN),
					column->column, blob_catalog_type_name());
}

/* The transaction in which CALL began ends first. */
static void
run(Sealing *sealing)
{
	BlobExchange *exchange = &sealing->exchange;

	blob_progress_begin(BLOB_PROGRESS_SEAL);
	PG_TRY();
	{
		blob_progress_relation(exchange->column.relid);
		blob_exchange_prepare(exchange, "SKIP LOCKED");
		blob_exchange_prepare_scan(exchange, "", make_condition(&exchange->column));
		blob_exchange_next_batch(exchange);
		seal_rows(sealing);
		if (sealing->needs_second_pass)
		{
			sealing->is_second_pass = true;
			blob_exchange_next_batch(exchange);
			seal_rows(sealing);
		}
	}
	PG_FINALLY();
	{
		blob_exchange_release(exchange);
		blob_progress_end();
	}
	PG_END_TRY();
}

/*
 * blobext_seal(relation, column_name, batch_rows): the rest are results, with null where CALL has
 * to have something.
 */
Datum
blobext_seal(PG_FUNCTION_ARGS)
{
	Sealing		sealing = {0};

	blob_exchange_begin(&sealing.exchange, fcinfo, NAME, 3, 2);
	sealing.row_room = 1024;
	sealing.rows = palloc(sizeof(BlobColumnRow) * sealing.row_room);
	run(&sealing);
	return blob_exchange_end(&sealing.exchange, fcinfo, ROWS_SEALED, COUNTERS);
}

/* Rows of view blobext_seal_progress. */
Datum
blobext_seal_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_SEAL, COUNTERS);
}

/* blob_digest_is_open(blobstate): of the datum, not whether the digest is remembered. */
Datum
blob_digest_is_open(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));

	PG_RETURN_BOOL(!value.is_inline && value.descriptor.is_open);
}
