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

#include "core/clock.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "sql/maintenance/defragment_row.h"
#include "utils/memutils.h"
#include "utils/portal.h"

PG_FUNCTION_INFO_V1(blobext_defragment);
PG_FUNCTION_INFO_V1(blobext_defragment_state);

#define NAME "blobext_defragment()"

#define MEGABYTE (UINT64CONST(1024) * 1024)

/* Rows that are fetched from the list at once. */
#define LIST_STEP 64

/* The longest pause within one transaction, in milliseconds. */
#define MAX_PAUSE 1000

/* ---- transactions ---- */

/* No value is kept over a commit. */
static void
begin_transaction(BlobDefragment *run)
{
	run->fresh.datum = NULL;
	run->fresh.is_known &= run->fresh.has_row;
	MemoryContextReset(run->batch_context);
	blob_exchange_next_batch(&run->exchange);
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
	due = (double) run->exchange.counters[BLOB_DEFRAGMENT_BYTES_WRITTEN] * 1000 /
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
	return blob_exchange_batch_is_full(&run->exchange) ||
		(run->rate != 0 && run->exchange.batch_bytes >= (uint64) run->rate * MEGABYTE);
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

static void
prepare(BlobDefragment *run)
{
	Oid			rule_types[2];

	blob_exchange_prepare(&run->exchange, "SKIP LOCKED");
	blob_fragmentation_types(rule_types);
	run->list = blob_column_prepare(make_list_query(&run->exchange.column), 2, rule_types);
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

		candidate->row = blob_exchange_get_row(tuple, row_type);
		candidate->value_id = DatumGetInt64(SPI_getbinval(tuple, row_type, 3, &is_null));
		(void) SPI_getbinval(tuple, row_type, 4, &is_unknown);
		candidate->is_readable = !is_unknown;
		if (run->exchange.counters[BLOB_DEFRAGMENT_ROWS_TOTAL] == 0)
			blob_exchange_count(&run->exchange, BLOB_DEFRAGMENT_ROWS_TOTAL,
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
			blob_exchange_count(&run->exchange, BLOB_DEFRAGMENT_ROWS_DONE, 1);
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
		blob_progress_relation(run->exchange.column.relid);
		prepare(run);
		begin_transaction(run);
		do_list(run);
	}
	PG_FINALLY();
	{
		if (run->list != NULL)
			SPI_freeplan(run->list);
		blob_exchange_release(&run->exchange);
		blob_progress_end();
	}
	PG_END_TRY();
}

/* The rule, and how fast to go; ERROR 22023. */
static void
get_arguments(FunctionCallInfo fcinfo, BlobDefragment *run)
{
	run->rule = blob_fragmentation_get_rule(fcinfo, 2, NAME);
	run->rate = PG_GETARG_INT32(5);
	if (run->rate < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("rate must be at least 0"),
				 errdetail("It is in megabytes a second; 0: no limit.")));
}

/*
 * blobext_defragment(relation, column_name, max_dead_ratio, max_extra_runs, batch_rows, rate): the
 * rest are results, with null where CALL has to have something.
 */
Datum
blobext_defragment(PG_FUNCTION_ARGS)
{
	BlobDefragment run = {0};

	blob_exchange_begin(&run.exchange, fcinfo, NAME, 6, 4);
	get_arguments(fcinfo, &run);
	run.batch_context = AllocSetContextCreate(run.exchange.context, "blobext defragment batch",
											  ALLOCSET_DEFAULT_SIZES);
	defragment(&run);
	return blob_exchange_end(&run.exchange, fcinfo, BLOB_DEFRAGMENT_VALUES_WRITTEN,
							 BLOB_DEFRAGMENT_COUNTERS);
}

/* Rows of view blobext_defragment_progress. */
Datum
blobext_defragment_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_DEFRAGMENT, BLOB_DEFRAGMENT_COUNTERS);
}
