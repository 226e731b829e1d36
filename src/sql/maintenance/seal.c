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

#include "access/htup_details.h"
#include "access/relation.h"
#include "blob/blob.h"
#include "blob/seal.h"
#include "catalog/pg_type.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/column.h"
#include "sql/maintenance/progress.h"
#include "sql/value.h"
#include "storage/bufmgr.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(blob_digest_is_open);
PG_FUNCTION_INFO_V1(blobext_seal);
PG_FUNCTION_INFO_V1(blobext_seal_state);

#define NAME "blobext_seal()"

/* Blocks of a table that one statement reads; fewer of each if there are many tables. */
#define RANGE_BLOCKS 256

/* A batch ends when this much content was read, too. */
#define BATCH_BYTES (UINT64CONST(128) * 1024 * 1024)

#define MAX_WARNINGS 20

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

#define FIRST_RESULT ROWS_SEALED
#define RESULT_COLUMNS (COUNTERS - FIRST_RESULT)

typedef struct Sealing
{
	BlobColumn	column;
	int			batch_rows;
	MemoryContext context;		/* to the end, over commits */
	MemoryContext row_context;	/* reset for each row, and in each transaction */
	SPIPlanPtr	scan;
	SPIPlanPtr	fetch;
	SPIPlanPtr	lock;
	SPIPlanPtr	update;
	BlobColumnRow *rows;		/* of a range of blocks, with open values */
	int			row_count;
	int			row_room;
	int			batch_done;		/* rows of this transaction */
	uint64		batch_bytes;	/* content that it has read */
	int			warnings;
	bool		is_second_pass;
	bool		needs_second_pass;	/* a row was refused as 55000 */
	uint64		counters[COUNTERS];
} Sealing;

static void
count(Sealing *sealing, int counter, uint64 value)
{
	sealing->counters[counter] += value;
	blob_progress_set(counter, sealing->counters[counter]);
}

/* ---- transactions ---- */

/* The next transaction; ERROR if the names mean something else now. */
static void
next_batch(Sealing *sealing)
{
	BlobColumn	now;

	MemoryContextReset(sealing->row_context);
	blob_batch_next();
	sealing->batch_done = 0;
	sealing->batch_bytes = 0;
	MemoryContextSwitchTo(sealing->row_context);
	blob_column_find(sealing->column.relid, sealing->column.name, NAME, &now);
	blob_column_require_same(&sealing->column, &now);
	blob_batch_require_updates(now.relid);
	MemoryContextReset(sealing->row_context);
}

/* ---- statements ---- */

/* The statements of a call; all names in them are qualified and quoted. */
static void
prepare(Sealing *sealing)
{
	const BlobColumn *column = &sealing->column;
	Oid			types[] = {OIDOID, TIDOID, blob_catalog_type()};
	Oid			range[] = {TIDOID, TIDOID};
	char	   *place = "tableoid OPERATOR(pg_catalog.=) $1 AND ctid OPERATOR(pg_catalog.=) $2";
	char	   *fetch = psprintf("SELECT %s FROM %s WHERE %s", column->column, column->table,
								 place);

	sealing->scan =
		blob_column_prepare(psprintf("SELECT tableoid, ctid FROM %s WHERE ctid "
									 "OPERATOR(pg_catalog.>=) $1 AND ctid "
									 "OPERATOR(pg_catalog.<) $2 AND %s(%s::%s)", column->table,
									 blob_catalog_function_name(BLOB_FUNCTION_DIGEST_IS_OPEN),
									 column->column, blob_catalog_type_name()), 2, range);
	sealing->fetch = blob_column_prepare(fetch, 2, types);
	sealing->lock = blob_column_prepare(psprintf("%s FOR %s SKIP LOCKED", fetch,
												 blob_column_row_lock(column)), 2, types);
	sealing->update =
		blob_column_prepare(psprintf("UPDATE %s SET %s = $3 WHERE %s", column->table,
									 column->column, place), 3, types);
}

static void
release_plans(Sealing *sealing)
{
	SPIPlanPtr	plans[] = {sealing->scan, sealing->fetch, sealing->lock, sealing->update};

	for (int i = 0; i < (int) lengthof(plans); i++)
	{
		if (plans[i] != NULL)
			SPI_freeplan(plans[i]);
	}
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
exchange(Sealing *sealing, const BlobColumnRow *row, const struct varlena *open,
		 const struct varlena *sealed)
{
	Datum		values[] = {ObjectIdGetDatum(row->table), PointerGetDatum(&row->tid),
	PointerGetDatum(sealed)};
	const struct varlena *locked = blob_column_value(sealing->lock, row, sealing->row_context);

	if (locked == NULL || !blob_column_is_same_datum(locked, open))
		return SKIPPED;
	blob_column_execute(sealing->update, values, SPI_OK_UPDATE);
	return SPI_processed > 0 ? SEALED : SKIPPED;
}

/* A BlobAttemptStep.  The content is read before the row is locked. */
static void
seal_row(void *argument)
{
	Attempt    *attempt = argument;
	Sealing    *sealing = attempt->sealing;
	struct varlena *open = blob_column_value(sealing->fetch, attempt->row, sealing->row_context);
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
	sealing->batch_bytes += value.size_bytes;
	count(sealing, BYTES_READ, value.size_bytes);
	attempt->outcome = exchange(sealing, attempt->row, open, sealed);
}

static void
warn(Sealing *sealing, const BlobColumnRow *row, const char *problem)
{
	count(sealing, ROWS_FAILED, 1);
	if (sealing->warnings++ >= MAX_WARNINGS)
		return;
	ereport(WARNING,
			(errmsg("the digest in row (%u,%u) of \"%s\" stays open: %s",
					ItemPointerGetBlockNumber(&row->tid), ItemPointerGetOffsetNumber(&row->tid),
					get_rel_name(row->table), problem)));
	if (sealing->warnings == MAX_WARNINGS)
		ereport(WARNING, (errmsg("further rows whose digests stay open are only counted")));
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
	MemoryContextSwitchTo(sealing->row_context);
	error = blob_attempt(seal_row, &attempt);
	sealing->batch_done++;
	if (error != NULL && blob_batch_is_to_be_thrown(error->sqlerrcode))
		ReThrowError(error);
	if (error != NULL && is_to_be_tried_again(sealing, error))
		elog(DEBUG1, "a row is tried again: %s", error->message);
	else if (error != NULL && !blob_batch_is_of_concurrency(error->sqlerrcode))
		warn(sealing, row, error->message);
	else if (error != NULL || attempt.outcome == SKIPPED)
		count(sealing, ROWS_SKIPPED, 1);
	else if (attempt.outcome == SEALED)
		count(sealing, ROWS_SEALED, 1);
	MemoryContextReset(sealing->row_context);
}

/* ---- all rows ---- */

static void
note_row(Sealing *sealing, HeapTuple tuple, TupleDesc row_type)
{
	BlobColumnRow *row;
	bool		is_null;

	if (sealing->row_count == sealing->row_room)
	{
		sealing->row_room *= 2;
		sealing->rows = repalloc_huge(sealing->rows, sizeof(BlobColumnRow) * sealing->row_room);
	}
	row = &sealing->rows[sealing->row_count++];
	row->table = DatumGetObjectId(SPI_getbinval(tuple, row_type, 1, &is_null));
	row->tid = *(ItemPointer) DatumGetPointer(SPI_getbinval(tuple, row_type, 2, &is_null));
}

/* Find the rows with open values in blocks [first, first + blocks) of all tables. */
static void
scan_range(Sealing *sealing, BlockNumber first, BlockNumber blocks)
{
	ItemPointerData from;
	ItemPointerData to;
	Datum		values[] = {PointerGetDatum(&from), PointerGetDatum(&to)};

	sealing->row_count = 0;
	ItemPointerSet(&from, first, 0);
	ItemPointerSet(&to, first + Min(blocks, MaxBlockNumber - first), 0);
	blob_column_execute(sealing->scan, values, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
		note_row(sealing, SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	SPI_freetuptable(SPI_tuptable);
}

/* The length of the longest table, in blocks, and the number of tables. */
static BlockNumber
measure(Sealing *sealing, int *tables)
{
	List	   *relations;
	BlockNumber longest = 0;
	ListCell   *cell;

	MemoryContextSwitchTo(sealing->row_context);
	relations = blob_column_list_tables(&sealing->column);
	*tables = Max(list_length(relations), 1);
	foreach(cell, relations)
	{
		Relation	table = relation_open(lfirst_oid(cell), AccessShareLock);

		longest = Max(longest, RelationGetNumberOfBlocks(table));
		relation_close(table, NoLock);
	}
	MemoryContextReset(sealing->row_context);
	return longest;
}

/* All rows that the table had at the beginning. */
static void
seal_rows(Sealing *sealing)
{
	int			tables;
	BlockNumber length = measure(sealing, &tables);
	BlockNumber step = Max(RANGE_BLOCKS / tables, 1);

	count(sealing, BLOCKS_TOTAL, length);
	for (uint64 block = 0; block < length; block += step)
	{
		BlockNumber blocks = Min(step, length - block);

		scan_range(sealing, block, blocks);
		next_batch(sealing);
		for (int i = 0; i < sealing->row_count; i++)
		{
			handle_row(sealing, &sealing->rows[i]);
			if (sealing->batch_done >= sealing->batch_rows ||
				sealing->batch_bytes >= BATCH_BYTES)
				next_batch(sealing);
		}
		count(sealing, BLOCKS_DONE, blocks);
	}
	SPI_commit();
}

/* ---- the procedure ---- */

/* The transaction in which CALL began ends first. */
static void
run(Sealing *sealing)
{
	blob_progress_begin(BLOB_PROGRESS_SEAL);
	PG_TRY();
	{
		blob_progress_relation(sealing->column.relid);
		blob_batch_require_updates(sealing->column.relid);
		prepare(sealing);
		next_batch(sealing);
		seal_rows(sealing);
		if (sealing->needs_second_pass)
		{
			sealing->is_second_pass = true;
			next_batch(sealing);
			seal_rows(sealing);
		}
	}
	PG_FINALLY();
	{
		release_plans(sealing);
		blob_progress_end();
	}
	PG_END_TRY();
}

static void
require_arguments(FunctionCallInfo fcinfo)
{
	for (int i = 0; i < 3; i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("arguments of %s must not be null", NAME)));
	}
	if (PG_GETARG_INT32(2) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_rows must be at least 1")));
}

static Datum
make_result(FunctionCallInfo fcinfo, const uint64 *counters)
{
	Datum		values[RESULT_COLUMNS];
	bool		nulls[RESULT_COLUMNS] = {0};
	TupleDesc	row_type;

	if (get_call_result_type(fcinfo, NULL, &row_type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "%s does not return a row", NAME);
	for (int i = 0; i < RESULT_COLUMNS; i++)
		values[i] = Int64GetDatum((int64) counters[FIRST_RESULT + i]);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(row_type), values, nulls));
}

/*
 * blobext_seal(relation, column_name, batch_rows): the rest are results, with null where CALL has
 * to have something.
 */
Datum
blobext_seal(PG_FUNCTION_ARGS)
{
	Sealing		sealing = {0};
	MemoryContext caller_context = CurrentMemoryContext;

	blob_store_require_preload();
	blob_batch_require_own_transactions(fcinfo, NAME);
	require_arguments(fcinfo);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	/* The current context outlives transactions. */
	sealing.context = CurrentMemoryContext;
	sealing.row_context = AllocSetContextCreate(sealing.context, "blobext seal row",
												ALLOCSET_DEFAULT_SIZES);
	blob_column_find(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), NAME,
					 &sealing.column);
	blob_column_require_privileges(&sealing.column);
	sealing.batch_rows = PG_GETARG_INT32(2);
	sealing.row_room = 1024;
	sealing.rows = palloc(sizeof(BlobColumnRow) * sealing.row_room);
	run(&sealing);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	MemoryContextSwitchTo(caller_context);
	return make_result(fcinfo, sealing.counters);
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
