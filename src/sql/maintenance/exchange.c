/*
 * sql/maintenance/exchange.c
 *	  Procedures that exchange values of a column, see sql/maintenance/exchange.h.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_type.h"
#include "core/catalog.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/exchange.h"
#include "storage/bufmgr.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* Blocks of a table that one statement reads; fewer of each if there are many tables. */
#define SCAN_BLOCKS 256

#define MAX_WARNINGS 20

/* ---- the call ---- */

void
blob_exchange_begin(BlobExchange *exchange, FunctionCallInfo fcinfo, const char *name,
					int argument_count, int batch_argument)
{
	exchange->name = name;
	exchange->caller_context = CurrentMemoryContext;
	blob_store_require_preload();
	blob_batch_require_own_transactions(fcinfo, name);
	for (int i = 0; i < argument_count; i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("arguments of %s must not be null", name)));
	}
	exchange->batch_rows = PG_GETARG_INT32(batch_argument);
	if (exchange->batch_rows < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_rows must be at least 1")));
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	/* The current context outlives transactions. */
	exchange->context = CurrentMemoryContext;
	exchange->row_context = AllocSetContextCreate(exchange->context, "blobext row",
												  ALLOCSET_DEFAULT_SIZES);
	blob_column_find(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), name,
					 &exchange->column);
	blob_column_require_privileges(&exchange->column);
}

Datum
blob_exchange_end(BlobExchange *exchange, FunctionCallInfo fcinfo, int first, int count)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	MemoryContextSwitchTo(exchange->caller_context);
	return blob_batch_result(fcinfo, exchange->name, exchange->counters + first, count - first);
}

void
blob_exchange_count(BlobExchange *exchange, int counter, uint64 value)
{
	exchange->counters[counter] += value;
	blob_progress_set(counter, exchange->counters[counter]);
}

void
blob_exchange_warn(BlobExchange *exchange, const BlobColumnRow *row, const char *problem)
{
	if (exchange->warnings++ >= MAX_WARNINGS)
		return;
	ereport(WARNING,
			(errmsg("row (%u,%u) of \"%s\" keeps its value: %s",
					ItemPointerGetBlockNumber(&row->tid), ItemPointerGetOffsetNumber(&row->tid),
					get_rel_name(row->table), problem)));
	if (exchange->warnings == MAX_WARNINGS)
		ereport(WARNING, (errmsg("further rows that keep their values are only counted")));
}

/* ---- transactions ---- */

void
blob_exchange_next_batch(BlobExchange *exchange)
{
	BlobColumn	now;

	MemoryContextReset(exchange->row_context);
	blob_batch_next();
	exchange->batch_done = 0;
	exchange->batch_bytes = 0;
	MemoryContextSwitchTo(exchange->row_context);
	blob_column_find(exchange->column.relid, exchange->column.name, exchange->name, &now);
	blob_column_require_same(&exchange->column, &now);
	blob_batch_require_updates(now.relid);
	MemoryContextReset(exchange->row_context);
}

bool
blob_exchange_batch_is_full(const BlobExchange *exchange)
{
	return exchange->batch_done >= exchange->batch_rows ||
		exchange->batch_bytes >= BLOB_EXCHANGE_BATCH_BYTES;
}

/* ---- statements; all names in them are qualified and quoted ---- */

void
blob_exchange_prepare(BlobExchange *exchange, const char *source_wait)
{
	const BlobColumn *column = &exchange->column;
	Oid			types[] = {OIDOID, TIDOID, blob_catalog_type()};
	char	   *place = "tableoid OPERATOR(pg_catalog.=) $1 AND ctid OPERATOR(pg_catalog.=) $2";
	char	   *fetch = psprintf("SELECT %s FROM %s WHERE %s", column->column, column->table,
								 place);

	blob_batch_require_updates(column->relid);
	exchange->fetch = blob_column_prepare(fetch, 2, types);
	exchange->lock_source =
		blob_column_prepare(psprintf("%s FOR SHARE %s", fetch, source_wait), 2, types);
	exchange->lock_target =
		blob_column_prepare(psprintf("%s FOR %s SKIP LOCKED", fetch,
									 blob_column_row_lock(column)), 2, types);
	exchange->update =
		blob_column_prepare(psprintf("UPDATE %s SET %s = $3 WHERE %s RETURNING tableoid, ctid",
									 column->table, column->column, place), 3, types);
}

void
blob_exchange_prepare_scan(BlobExchange *exchange, const char *more, const char *condition)
{
	Oid			types[] = {TIDOID, TIDOID};

	exchange->scan =
		blob_column_prepare(psprintf("SELECT tableoid, ctid%s FROM %s WHERE ctid "
									 "OPERATOR(pg_catalog.>=) $1 AND ctid "
									 "OPERATOR(pg_catalog.<) $2%s", more,
									 exchange->column.table, condition), 2, types);
}

void
blob_exchange_release(BlobExchange *exchange)
{
	SPIPlanPtr	plans[] = {exchange->scan, exchange->fetch, exchange->lock_source,
	exchange->lock_target, exchange->update};

	for (int i = 0; i < (int) lengthof(plans); i++)
	{
		if (plans[i] != NULL)
			SPI_freeplan(plans[i]);
	}
}

void
blob_exchange_scan(BlobExchange *exchange, BlockNumber first, BlockNumber blocks)
{
	ItemPointerData from;
	ItemPointerData to;
	Datum		values[] = {PointerGetDatum(&from), PointerGetDatum(&to)};

	ItemPointerSet(&from, first, 0);
	ItemPointerSet(&to, first + Min(blocks, MaxBlockNumber - first), 0);
	blob_column_execute(exchange->scan, values, SPI_OK_SELECT);
}

BlobColumnRow
blob_exchange_get_row(HeapTuple tuple, TupleDesc row_type)
{
	BlobColumnRow row;
	bool		is_null;

	row.table = DatumGetObjectId(SPI_getbinval(tuple, row_type, 1, &is_null));
	row.tid = *(ItemPointer) DatumGetPointer(SPI_getbinval(tuple, row_type, 2, &is_null));
	return row;
}

bool
blob_exchange_update(BlobExchange *exchange, const BlobColumnRow *row,
					 const struct varlena *value, BlobColumnRow *now)
{
	Datum		values[] = {ObjectIdGetDatum(row->table), PointerGetDatum(&row->tid),
	PointerGetDatum(value)};
	bool		is_done;

	blob_column_execute(exchange->update, values, SPI_OK_UPDATE_RETURNING);
	is_done = SPI_processed > 0;
	if (is_done && now != NULL)
		*now = blob_exchange_get_row(SPI_tuptable->vals[0], SPI_tuptable->tupdesc);
	SPI_freetuptable(SPI_tuptable);
	return is_done;
}

BlockNumber
blob_exchange_measure(BlobExchange *exchange, BlockNumber *step)
{
	List	   *relations;
	BlockNumber longest = 0;
	ListCell   *cell;

	MemoryContextSwitchTo(exchange->row_context);
	relations = blob_column_list_tables(&exchange->column);
	*step = Max(SCAN_BLOCKS / Max(list_length(relations), 1), 1);
	foreach(cell, relations)
	{
		Relation	table = relation_open(lfirst_oid(cell), AccessShareLock);

		longest = Max(longest, RelationGetNumberOfBlocks(table));
		relation_close(table, NoLock);
	}
	MemoryContextReset(exchange->row_context);
	return longest;
}
