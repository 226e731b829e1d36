/*
 * sql/maintenance/dedup.c
 *	  blobext_dedup(): rows whose values have the same content share one value.
 *
 * A procedure that commits.  It works with the rights of its caller, by statements that the caller
 * could have written: SELECT, SELECT ... FOR SHARE, UPDATE.  sql/README.md, "blobext_dedup()", has
 * the argument why no change of others is lost, and why the collector goes on meanwhile.
 *
 * From one transaction to the next it keeps digests and places of rows, and no value.  Within
 * one it keeps the value that rows were compared with last, and its content if that is small.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "blob/blob.h"
#include "blob/share.h"
#include "catalog/pg_type.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/dedup_parts.h"
#include "sql/maintenance/dedup_row.h"
#include "sql/maintenance/progress.h"
#include "storage/bufmgr.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(blobext_dedup);
PG_FUNCTION_INFO_V1(blobext_dedup_state);

#define NAME "blobext_dedup()"

/* Blocks of a table that one statement reads; fewer of each if there are many tables. */
#define RANGE_BLOCKS 256

/* A batch ends when this much content was read, too. */
#define BATCH_BYTES (UINT64CONST(128) * 1024 * 1024)

#define FIRST_RESULT BLOB_DEDUP_ROWS_SHARED
#define RESULT_COLUMNS (BLOB_DEDUP_COUNTERS - FIRST_RESULT)

/* ---- transactions ---- */

/* The next transaction; ERROR if the names mean something else now. */
static void
next_batch(BlobDedup *dedup)
{
	BlobColumn now;

	blob_dedup_forget_source(dedup);
	MemoryContextReset(dedup->row_context);
	blob_batch_next();
	dedup->batch_done = 0;
	dedup->batch_bytes = 0;
	MemoryContextSwitchTo(dedup->row_context);
	blob_column_find(dedup->column.relid, dedup->column.name, NAME, &now);
	blob_column_require_same(&dedup->column, &now);
	blob_batch_require_updates(now.relid);
	MemoryContextReset(dedup->row_context);
}

/* ---- statements ---- */

/* The statements of a call; all names in them are qualified and quoted. */
static void
prepare(BlobDedup *dedup)
{
	const BlobColumn *column = &dedup->column;
	Oid			types[] = {OIDOID, TIDOID, blob_catalog_type()};
	Oid			range[] = {TIDOID, TIDOID};
	char	   *place = "tableoid OPERATOR(pg_catalog.=) $1 AND ctid OPERATOR(pg_catalog.=) $2";
	char	   *fetch = psprintf("SELECT %s FROM %s WHERE %s", column->column, column->table,
								 place);

	dedup->scan =
		blob_column_prepare(psprintf("SELECT tableoid, ctid, %s FROM %s WHERE ctid "
									"OPERATOR(pg_catalog.>=) $1 AND ctid "
									"OPERATOR(pg_catalog.<) $2", column->column,
									column->table), 2, range);
	dedup->fetch = blob_column_prepare(fetch, 2, types);
	dedup->lock_source = blob_column_prepare(psprintf("%s FOR SHARE NOWAIT", fetch), 2, types);
	dedup->lock_target =
		blob_column_prepare(psprintf("%s FOR %s SKIP LOCKED", fetch,
									 blob_column_row_lock(column)), 2, types);
	dedup->update =
		blob_column_prepare(psprintf("UPDATE %s SET %s = $3 WHERE %s", column->table,
									column->column, place), 3, types);
}

static void
release_plans(BlobDedup *dedup)
{
	SPIPlanPtr	plans[] = {dedup->scan, dedup->fetch, dedup->lock_source, dedup->lock_target,
	dedup->update};

	for (int i = 0; i < (int) lengthof(plans); i++)
	{
		if (plans[i] != NULL)
			SPI_freeplan(plans[i]);
	}
}

/* ---- all rows ---- */

typedef void (*RowVisitor) (BlobDedup *dedup, const BlobColumnRow *row, const BlobDedupKey *key,
							const BlobDedupDatum *datum);

static void
add_to_group(BlobDedup *dedup, const BlobColumnRow *row, const BlobDedupKey *key,
			 const BlobDedupDatum *datum)
{
	blob_dedup_groups_add(dedup->groups, key, datum, row);
}

/* In the second pass: remember a row whose value is not that of its group. */
static void
note_candidate(BlobDedup *dedup, const BlobColumnRow *row, const BlobDedupKey *key,
			   const BlobDedupDatum *datum)
{
	BlobDedupGroup *group = blob_dedup_groups_find(dedup->groups, key);

	if (group == NULL)
		return;
	if (group->datum.hash == datum->hash)
	{
		/* The row that was seen last has the best chance to be there still. */
		group->source = *row;
		group->has_source = true;
		return;
	}
	if (dedup->candidate_count == dedup->candidate_room)
	{
		dedup->candidate_room *= 2;
		dedup->candidates = repalloc_huge(dedup->candidates,
										  sizeof(BlobDedupCandidate) * dedup->candidate_room);
	}
	dedup->candidates[dedup->candidate_count++] =
		(BlobDedupCandidate) {.row = *row,.group = group,.datum = *datum};
}

/*
 * Visit a row, unless its value is inline, or its digest is open.  Leaves memory in the current
 * context.
 */
static void
visit_row(BlobDedup *dedup, HeapTuple tuple, TupleDesc row_type, RowVisitor visit)
{
	bool		is_null;
	Datum		datum = SPI_getbinval(tuple, row_type, 3, &is_null);
	BlobColumnRow row;
	BlobDedupKey key;
	BlobDedupDatum summary;
	BlobValue	value;
	struct varlena *plain;

	if (is_null || blob_datum_is_inline(datum))
		return;
	plain = PG_DETOAST_DATUM_PACKED(datum);
	blob_value_unpack(plain, &value);
	if (value.descriptor.is_open)
		return;
	key.size_bytes = value.size_bytes;
	memcpy(key.sha256, value.descriptor.sha256, BLOB_DIGEST_BYTES);
	summary.bytes = blob_share_spares(&value, NULL);
	summary.generation = value.descriptor.generation;
	summary.hash = blob_column_hash_datum(plain);
	row.table = DatumGetObjectId(SPI_getbinval(tuple, row_type, 1, &is_null));
	row.tid = *(ItemPointer) DatumGetPointer(SPI_getbinval(tuple, row_type, 2, &is_null));
	visit(dedup, &row, &key, &summary);
}

/* Visit the rows in blocks [first, first + blocks) of all tables. */
static void
scan_range(BlobDedup *dedup, BlockNumber first, BlockNumber blocks, RowVisitor visit)
{
	ItemPointerData from;
	ItemPointerData to;
	Datum		values[] = {PointerGetDatum(&from), PointerGetDatum(&to)};

	ItemPointerSet(&from, first, 0);
	ItemPointerSet(&to, first + Min(blocks, MaxBlockNumber - first), 0);
	blob_column_execute(dedup->scan, values, SPI_OK_SELECT);
	MemoryContextSwitchTo(dedup->row_context);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		visit_row(dedup, SPI_tuptable->vals[i], SPI_tuptable->tupdesc, visit);
		MemoryContextReset(dedup->row_context);
	}
	SPI_freetuptable(SPI_tuptable);
	blob_dedup_count(dedup, BLOB_DEDUP_BLOCKS_DONE, blocks);
}

/* Groups in some order, and the rows of a group in that of the table. */
static int
compare_candidates(const void *a, const void *b)
{
	const BlobDedupCandidate *first = a;
	const BlobDedupCandidate *second = b;

	if (first->group != second->group)
		return first->group < second->group ? -1 : 1;
	return ItemPointerCompare((ItemPointer) &first->row.tid, (ItemPointer) &second->row.tid);
}

/*
 * Values are not kept over a commit, so candidates are places of rows.  Those of a group follow
 * each other, so that its value is looked up, read and locked once in a batch.
 */
static void
handle_candidates(BlobDedup *dedup)
{
	qsort(dedup->candidates, dedup->candidate_count, sizeof(BlobDedupCandidate),
		  compare_candidates);
	for (int i = 0; i < dedup->candidate_count; i++)
	{
		blob_dedup_handle_row(dedup, &dedup->candidates[i]);
		if (dedup->batch_done >= dedup->batch_rows || dedup->batch_bytes >= BATCH_BYTES)
			next_batch(dedup);
	}
	dedup->candidate_count = 0;
}

/* The length of the longest table, in blocks, and the number of tables. */
static BlockNumber
measure(BlobDedup *dedup, int *tables)
{
	List	   *relations;
	BlockNumber longest = 0;
	ListCell   *cell;

	MemoryContextSwitchTo(dedup->row_context);
	relations = blob_column_list_tables(&dedup->column);
	*tables = Max(list_length(relations), 1);
	foreach(cell, relations)
	{
		Relation	table = relation_open(lfirst_oid(cell), AccessShareLock);

		longest = Max(longest, RelationGetNumberOfBlocks(table));
		relation_close(table, NoLock);
	}
	MemoryContextReset(dedup->row_context);
	return longest;
}

/* The digests that are in the groups' range now: both passes over the rows. */
static void
do_range(BlobDedup *dedup)
{
	int			tables;
	BlockNumber length = measure(dedup, &tables);
	BlockNumber step = Max(RANGE_BLOCKS / tables, 1);

	blob_dedup_count(dedup, BLOB_DEDUP_BLOCKS_TOTAL, (uint64) length * 2);
	for (uint64 block = 0; block < length; block += step)
	{
		scan_range(dedup, block, Min(step, length - block), add_to_group);
		next_batch(dedup);
	}
	for (uint64 block = 0; block < length; block += step)
	{
		scan_range(dedup, block, Min(step, length - block), note_candidate);
		next_batch(dedup);
		handle_candidates(dedup);
	}
	blob_dedup_count(dedup, BLOB_DEDUP_RANGES_DONE, 1);
}

/* ---- the procedure ---- */

/* All ranges.  The transaction in which CALL began ends first. */
static void
run(BlobDedup *dedup)
{
	blob_progress_begin(BLOB_PROGRESS_DEDUP);
	PG_TRY();
	{
		blob_progress_relation(dedup->column.relid);
		prepare(dedup);
		next_batch(dedup);
		do
			do_range(dedup);
		while (blob_dedup_groups_next(dedup->groups));
		SPI_commit();
	}
	PG_FINALLY();
	{
		release_plans(dedup);
		blob_progress_end();
	}
	PG_END_TRY();
}

static void
require_arguments(FunctionCallInfo fcinfo)
{
	for (int i = 0; i < 4; i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("arguments of %s must not be null", NAME)));
	}
	if (PG_GETARG_INT32(3) < 1)
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
 * blobext_dedup(relation, column_name, verify, batch_rows): the rest are results, with null where
 * CALL has to have something.
 */
Datum
blobext_dedup(PG_FUNCTION_ARGS)
{
	BlobDedup	dedup = {0};
	MemoryContext caller_context = CurrentMemoryContext;

	blob_store_require_preload();
	blob_batch_require_own_transactions(fcinfo, NAME);
	require_arguments(fcinfo);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	/* The current context outlives transactions. */
	dedup.context = CurrentMemoryContext;
	dedup.row_context = AllocSetContextCreate(dedup.context, "blobext dedup row",
											  ALLOCSET_DEFAULT_SIZES);
	dedup.source_context = AllocSetContextCreate(dedup.context, "blobext dedup source",
												 ALLOCSET_DEFAULT_SIZES);
	blob_column_find(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), NAME,
						   &dedup.column);
	blob_column_require_privileges(&dedup.column);
	dedup.verify = PG_GETARG_BOOL(2);
	dedup.batch_rows = PG_GETARG_INT32(3);
	dedup.groups = blob_dedup_groups_make(dedup.context, (Size) maintenance_work_mem * 1024);
	dedup.candidate_room = 1024;
	dedup.candidates = palloc(sizeof(BlobDedupCandidate) * dedup.candidate_room);
	run(&dedup);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	MemoryContextSwitchTo(caller_context);
	return make_result(fcinfo, dedup.counters);
}

/* Rows of view blobext_dedup_progress. */
Datum
blobext_dedup_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_DEDUP, BLOB_DEDUP_COUNTERS);
}
