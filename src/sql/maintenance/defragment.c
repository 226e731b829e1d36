/*
 * sql/maintenance/defragment.c
 *	  blobext_defragment(): values that are scattered, or have dead bytes, are written anew.
 *
 * A procedure that commits.  It works with the rights of its caller, by statements that the caller
 * could have written.  sql/README.md, "blobext_defragment()", has the argument.
 *
 * From one transaction to the next it keeps places of rows and hashes of data, and no value.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "core/catalog.h"
#include "core/clock.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/defragment_row.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"

PG_FUNCTION_INFO_V1(blobext_defragment);
PG_FUNCTION_INFO_V1(blobext_defragment_state);

#define NAME "blobext_defragment()"

#define MEGABYTE (UINT64CONST(1024) * 1024)

/* A batch ends when this much content was written, too. */
#define BATCH_BYTES (128 * MEGABYTE)

/* Rows that are fetched from the list at once. */
#define LIST_STEP 64

#define FIRST_RESULT BLOB_DEFRAGMENT_VALUES_WRITTEN
#define RESULT_COLUMNS (BLOB_DEFRAGMENT_COUNTERS - FIRST_RESULT)

/* The longest pause within one transaction, in milliseconds. */
#define MAX_PAUSE 1000

/* ---- transactions ---- */

/* The next transaction; ERROR if the names mean something else now. */
static void
begin_transaction(BlobDefragment *run)
{
	BlobColumn	now;

	run->fresh.datum = NULL;
	run->fresh.is_known &= run->fresh.has_row;
	MemoryContextReset(run->row_context);
	MemoryContextReset(run->batch_context);
	blob_batch_next();
	run->batch_done = 0;
	run->batch_bytes = 0;
	MemoryContextSwitchTo(run->row_context);
	blob_column_find(run->column.relid, run->column.name, NAME, &now);
	blob_column_require_same(&run->column, &now);
	blob_batch_require_updates(now.relid);
	MemoryContextReset(run->row_context);
}

/* Milliseconds to wait until no more was written than the rate allows. */
static long
get_pause(const BlobDefragment *run)
{
	instr_time	passed;
	double		due;

	if (run->rate == 0)
		return 0;
	INSTR_TIME_SET_CURRENT(passed);
	INSTR_TIME_SUBTRACT(passed, run->begin);
	due = (double) run->counters[BLOB_DEFRAGMENT_BYTES_WRITTEN] * 1000 /
		((double) run->rate * MEGABYTE) - INSTR_TIME_GET_MILLISEC(passed);
	return due > 0 ? (long) Min(due + 1, MAX_PAUSE) : 0;
}

/* Commit; then pause, with no row locked and in short transactions, as long as the rate demands. */
static void
end_batch(BlobDefragment *run)
{
	long		pause;

	begin_transaction(run);
	while ((pause = get_pause(run)) > 0)
	{
		blob_clock_sleep(pause);
		begin_transaction(run);
	}
}

static bool
is_batch_full(const BlobDefragment *run)
{
	uint64		limit = run->rate == 0 ? BATCH_BYTES :
		Min(BATCH_BYTES, (uint64) run->rate * MEGABYTE);

	return run->batch_done >= run->batch_rows || run->batch_bytes >= limit;
}

/* ---- statements ---- */

/*
 * The rows to be done, in the order of the first one of each value: so copies follow each other,
 * and the new values lie in the order of the rows.
 */
static char *
make_list_query(const BlobColumn *column)
{
	return psprintf("%sSELECT part, tid, value_id, is_due, pg_catalog.count(*) OVER () FROM judged "
					"WHERE is_due IS NOT FALSE WINDOW w AS (PARTITION BY value_id) "
					"ORDER BY pg_catalog.min(part) OVER w, pg_catalog.min(tid) OVER w, value_id, "
					"part, tid", blob_fragmentation_query(column));
}

/* The statements of a call; all names in them are qualified and quoted. */
static void
prepare(BlobDefragment *run)
{
	const BlobColumn *column = &run->column;
	Oid			types[] = {OIDOID, TIDOID, blob_catalog_type()};
	Oid			rule_types[2];
	char	   *place = "tableoid OPERATOR(pg_catalog.=) $1 AND ctid OPERATOR(pg_catalog.=) $2";
	char	   *fetch = psprintf("SELECT %s FROM %s WHERE %s", column->column, column->table,
								 place);

	blob_fragmentation_types(rule_types);
	run->list = blob_column_prepare(make_list_query(column), 2, rule_types);
	run->fetch = blob_column_prepare(fetch, 2, types);
	run->lock_source = blob_column_prepare(psprintf("%s FOR SHARE SKIP LOCKED", fetch), 2, types);
	run->lock_target =
		blob_column_prepare(psprintf("%s FOR %s SKIP LOCKED", fetch,
									 blob_column_row_lock(column)), 2, types);
	run->update =
		blob_column_prepare(psprintf("UPDATE %s SET %s = $3 WHERE %s RETURNING tableoid, ctid",
									 column->table, column->column, place), 3, types);
}

static void
release_plans(BlobDefragment *run)
{
	SPIPlanPtr	plans[] = {run->list, run->fetch, run->lock_source, run->lock_target, run->update};

	for (int i = 0; i < (int) lengthof(plans); i++)
	{
		if (plans[i] != NULL)
			SPI_freeplan(plans[i]);
	}
}

/* ---- all rows ---- */

/* The next rows of the list; returns their number, 0 at the end. */
static int
fetch_list(BlobDefragment *run, Portal list, BlobDefragmentCandidate *candidates)
{
	int			fetched;

	SPI_cursor_fetch(list, true, LIST_STEP);
	fetched = (int) SPI_processed;
	for (int i = 0; i < fetched; i++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[i];
		TupleDesc	row_type = SPI_tuptable->tupdesc;
		BlobDefragmentCandidate *candidate = &candidates[i];
		bool		is_null;
		bool		is_unknown;
		Datum		tid = SPI_getbinval(tuple, row_type, 2, &is_null);

		candidate->row.table = DatumGetObjectId(SPI_getbinval(tuple, row_type, 1, &is_null));
		candidate->row.tid = *(ItemPointer) DatumGetPointer(tid);
		candidate->value_id = DatumGetInt64(SPI_getbinval(tuple, row_type, 3, &is_null));
		(void) SPI_getbinval(tuple, row_type, 4, &is_unknown);
		candidate->is_readable = !is_unknown;
		if (run->counters[BLOB_DEFRAGMENT_ROWS_TOTAL] == 0)
			blob_defragment_count(run, BLOB_DEFRAGMENT_ROWS_TOTAL,
				  DatumGetInt64(SPI_getbinval(tuple, row_type, 5, &is_null)));
	}
	SPI_freetuptable(SPI_tuptable);
	return fetched;
}

/*
 * The list is a query of the first transaction.  A pinned portal is materialised when that commits,
 * as the query of a loop in PL/pgSQL is, and holds no values.
 */
static void
do_list(BlobDefragment *run)
{
	BlobDefragmentCandidate candidates[LIST_STEP];
	Datum		values[2];
	Portal		list;
	int			fetched;

	blob_fragmentation_values(&run->rule, values);
	list = SPI_cursor_open(NULL, run->list, values, NULL, true);
	PinPortal(list);
	begin_transaction(run);
	INSTR_TIME_SET_CURRENT(run->begin);
	while ((fetched = fetch_list(run, list, candidates)) > 0)
	{
		for (int i = 0; i < fetched; i++)
		{
			blob_defragment_handle_row(run, &candidates[i]);
			blob_defragment_count(run, BLOB_DEFRAGMENT_ROWS_DONE, 1);
			if (is_batch_full(run))
				end_batch(run);
		}
	}
	UnpinPortal(list);
	SPI_cursor_close(list);
	SPI_commit();
}

/* ---- the procedure ---- */

/* The transaction in which CALL began ends first. */
static void
defragment(BlobDefragment *run)
{
	blob_progress_begin(BLOB_PROGRESS_DEFRAGMENT);
	PG_TRY();
	{
		blob_progress_relation(run->column.relid);
		blob_batch_require_updates(run->column.relid);
		prepare(run);
		begin_transaction(run);
		do_list(run);
	}
	PG_FINALLY();
	{
		release_plans(run);
		blob_progress_end();
	}
	PG_END_TRY();
}

/* The rule, and how fast to go; ERROR 22004 or 22023. */
static void
get_arguments(FunctionCallInfo fcinfo, BlobDefragment *run)
{
	for (int i = 0; i < 6; i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("arguments of %s must not be null", NAME)));
	}
	run->rule = blob_fragmentation_get_rule(fcinfo, 2, NAME);
	run->batch_rows = PG_GETARG_INT32(4);
	run->rate = PG_GETARG_INT32(5);
	if (run->batch_rows < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_rows must be at least 1")));
	if (run->rate < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("rate must be at least 0"),
				 errdetail("It is in megabytes a second; 0: no limit.")));
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
 * blobext_defragment(relation, column_name, max_dead_ratio, max_extra_runs, batch_rows, rate): the
 * rest are results, with null where CALL has to have something.
 */
Datum
blobext_defragment(PG_FUNCTION_ARGS)
{
	BlobDefragment run = {0};
	MemoryContext caller_context = CurrentMemoryContext;

	blob_store_require_preload();
	blob_batch_require_own_transactions(fcinfo, NAME);
	get_arguments(fcinfo, &run);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	/* The current context outlives transactions. */
	run.row_context = AllocSetContextCreate(CurrentMemoryContext, "blobext defragment row",
											ALLOCSET_DEFAULT_SIZES);
	run.batch_context = AllocSetContextCreate(CurrentMemoryContext, "blobext defragment batch",
											  ALLOCSET_DEFAULT_SIZES);
	blob_column_find(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), NAME,
					 &run.column);
	blob_column_require_privileges(&run.column);
	defragment(&run);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	MemoryContextSwitchTo(caller_context);
	return make_result(fcinfo, run.counters);
}

/* Rows of view blobext_defragment_progress. */
Datum
blobext_defragment_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_DEFRAGMENT, BLOB_DEFRAGMENT_COUNTERS);
}
