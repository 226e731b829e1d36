/*
 * sql/maintenance/add_checksums.c
 *	  Checksums of pages for stores and values that have none: blobext_enable_checksums(), and
 *	  blobext_add_checksums(), which goes through tables as blobext_check() does.
 *
 * A procedure that commits, so that no snapshot lasts for long.  It changes no row: it reads the
 * values that the snapshot of a batch sees, and sets checksums in the extent map
 * (blob/add_sums.h).  Rows are read past their policies, and no code of users runs: so it is not
 * for PUBLIC.
 *
 * A row that another transaction moves to a block that is done already may be left out.  The next
 * call finds it; values that have all their checksums are not read again.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "blob/add_sums.h"
#include "catalog/pg_inherits.h"
#include "containers/rows.h"
#include "containers/walk.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/check.h"
#include "sql/maintenance/progress.h"
#include "sql/value.h"
#include "store/map.h"
#include "store/store.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(blobext_enable_checksums);
PG_FUNCTION_INFO_V1(blobext_add_checksums);
PG_FUNCTION_INFO_V1(blobext_add_checksums_state);

#define NAME "blobext_add_checksums()"

/* A batch has this many blocks of a table, but ends when this much content was read. */
#define BATCH_BLOCKS 256
#define BATCH_BYTES (UINT64CONST(128) * 1024 * 1024)

/* Columns of view blobext_add_checksums_progress; the last ones are the results of the call. */
enum
{
	RELATIONS_DONE,
	RELATIONS_TOTAL,
	BLOCKS_DONE,
	BLOCKS_TOTAL,
	BYTES_READ,
	VALUES_READ,
	PAGES_ADDED,
	VALUES_FAILED,
	COUNTERS,
	FIRST_RESULT = VALUES_READ
};

typedef struct Adding
{
	MemoryContext row_context;	/* reset for each row */
	uint64		counters[COUNTERS];
	uint64		batch_bytes;	/* content that was read in this transaction */
} Adding;

/* A value in a row. */
typedef struct RowValue
{
	Adding	   *adding;
	Relation	relation;
	ItemPointer tid;
	const char *column;
	Datum		datum;			/* of the column, then of the value */
	Oid			type;			/* of the column */
} RowValue;

/* ---- stores ---- */

/* blobext_enable_checksums(): whether new values got no checksums before. */
Datum
blobext_enable_checksums(PG_FUNCTION_ARGS)
{
	BlobStore	store;
	bool		is_new;

	PreventCommandDuringRecovery("blobext_enable_checksums()");
	PreventCommandIfReadOnly("blobext_enable_checksums()");
	blob_store_open(&store, RowExclusiveLock);
	is_new = blob_store_enable_sums(&store);
	blob_store_close(&store);
	PG_RETURN_BOOL(is_new);
}

static void
require_enabled(void)
{
	BlobStore	store;
	bool		is_enabled;

	blob_store_open(&store, AccessShareLock);
	is_enabled = blob_map_has_sums(store.map);
	blob_store_close(&store);
	if (!is_enabled)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extent store of this database has no checksums"),
				 errdetail("New values get none."),
				 errhint("When all standbys have blobext 0.4 or later, call "
						 "blobext_enable_checksums() first.")));
}

/* ---- values ---- */

static void
count(Adding *adding, int counter, uint64 number)
{
	adding->counters[counter] += number;
	blob_progress_add(counter, number);
}

/* A BlobAttemptStep. */
static void
add_to_value(void *context)
{
	RowValue   *row = context;
	BlobValue	value = blob_sql_unpack(row->datum);

	if (!blob_add_sums_is_due(&value))
		return;
	row->adding->batch_bytes += value.size_bytes;
	count(row->adding, BYTES_READ, value.size_bytes);
	count(row->adding, PAGES_ADDED, blob_add_sums(&value));
	count(row->adding, VALUES_READ, 1);
}

/* Run a step for a value.  One that cannot be read is named, and left as it is. */
static void
try_step(BlobAttemptStep step, RowValue *row)
{
	ErrorData  *error = blob_attempt(step, row);

	if (error == NULL)
		return;
	if (!blob_batch_is_of_value(error->sqlerrcode))
		ReThrowError(error);
	count(row->adding, VALUES_FAILED, 1);
	ereport(WARNING,
			(errmsg("column \"%s\" of row (%u,%u) of \"%s\" got no checksums: %s", row->column,
					ItemPointerGetBlockNumber(row->tid), ItemPointerGetOffsetNumber(row->tid),
					RelationGetRelationName(row->relation), error->message),
			 error->detail == NULL ? 0 : errdetail_internal("%s", error->detail)));
}

/* A BlobWalkVisitor. */
static void
visit_value(Datum datum, void *context)
{
	RowValue   *row = context;

	if (blob_datum_is_inline(datum))
		return;
	row->datum = datum;
	try_step(add_to_value, row);
}

/* A BlobAttemptStep: all values of a column, which may be damaged as a whole. */
static void
walk_column(void *context)
{
	RowValue   *row = context;

	blob_walk_datum(row->datum, row->type, visit_value, row);
}

/* A BlobRowsVisitor: all values of a column. */
static void
add_to_column(Form_pg_attribute column, Datum datum, void *context)
{
	RowValue   *row = context;

	row->column = NameStr(column->attname);
	row->datum = datum;
	row->type = column->atttypid;
	if (row->type == blob_catalog_type())
		visit_value(datum, row);
	else
		try_step(walk_column, row);
}

/* All values of a row, in containers too; works in a context that is reset for each row. */
static void
add_to_row(Adding *adding, Relation relation, TupleTableSlot *slot)
{
	RowValue	row = {.adding = adding, .relation = relation, .tid = &slot->tts_tid};
	char	   *problem = blob_rows_visit(relation, slot, add_to_column, &row);

	if (problem == NULL)
		return;
	count(adding, VALUES_FAILED, 1);
	ereport(WARNING,
			(errmsg("row (%u,%u) of \"%s\" got no checksums: it cannot be read: %s",
					ItemPointerGetBlockNumber(row.tid), ItemPointerGetOffsetNumber(row.tid),
					RelationGetRelationName(relation), problem)));
}

/* ---- tables ---- */

/*
 * The rows of a batch that begins at a place, which moves behind it.  All of a table whose access
 * method has no ranges is one batch.
 */
static void
add_to_range(Adding *adding, Relation relation, ItemPointer from)
{
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	bool		has_ranges = relation->rd_tableam->scan_set_tidrange != NULL;
	BlockNumber first_block = ItemPointerGetBlockNumberNoCheck(from);
	BlockNumber next_block = has_ranges ?
		first_block + Min(BATCH_BLOCKS, MaxBlockNumber - first_block) : MaxBlockNumber;
	bool		goes_on = true;
	TableScanDesc scan;
	ItemPointerData last;

	ItemPointerSet(&last, next_block - 1, MaxOffsetNumber);
	scan = has_ranges ?
		blob_table_beginscan_tidrange(relation, GetActiveSnapshot(), from, &last) :
		blob_table_beginscan(relation, GetActiveSnapshot());
	while (goes_on && (has_ranges ?
					   table_scan_getnextslot_tidrange(scan, ForwardScanDirection, slot) :
					   table_scan_getnextslot(scan, ForwardScanDirection, slot)))
	{
		MemoryContext old_context = MemoryContextSwitchTo(adding->row_context);

		CHECK_FOR_INTERRUPTS();
		add_to_row(adding, relation, slot);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(adding->row_context);
		ItemPointerSet(from, ItemPointerGetBlockNumberNoCheck(&slot->tts_tid),
					   ItemPointerGetOffsetNumberNoCheck(&slot->tts_tid) + 1);
		goes_on = !has_ranges || adding->batch_bytes < BATCH_BYTES;
	}
	if (goes_on)
		ItemPointerSet(from, next_block, FirstOffsetNumber);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}

/* One batch of a table, from a place on; false if the table is gone, or has no more rows. */
static bool
add_to_batch(Adding *adding, Oid relid, ItemPointer from, BlockNumber *blocks)
{
	Relation	relation = try_relation_open(relid, AccessShareLock);
	bool		goes_on = false;

	if (relation == NULL)
		return false;
	if (blob_check_is_readable(relation) && blob_walk_row_holds(RelationGetDescr(relation)) &&
		!blob_catalog_is_map_method(relation->rd_rel->relam))
	{
		if (*blocks == InvalidBlockNumber)
		{
			*blocks = RelationGetNumberOfBlocks(relation);
			blob_progress_relation(relid);
			blob_progress_set(BLOCKS_TOTAL, *blocks);
		}
		if (ItemPointerGetBlockNumberNoCheck(from) < *blocks)
		{
			add_to_range(adding, relation, from);
			goes_on = true;
		}
		blob_progress_set(BLOCKS_DONE, Min(ItemPointerGetBlockNumberNoCheck(from), *blocks));
	}
	relation_close(relation, AccessShareLock);
	return goes_on;
}

/* All rows that a table has now, in batches; nothing is locked between two. */
static void
add_to_table(Adding *adding, Oid relid)
{
	BlockNumber blocks = InvalidBlockNumber;
	ItemPointerData from;

	ItemPointerSet(&from, 0, FirstOffsetNumber);
	while (add_to_batch(adding, relid, &from, &blocks))
	{
		blob_batch_next();
		adding->batch_bytes = 0;
	}
}

/* All tables of the list, in transactions of their own. */
static void
add_to_tables(Adding *adding, List *tables)
{
	ListCell   *cell;

	blob_progress_begin(BLOB_PROGRESS_ADD_CHECKSUMS);
	PG_TRY();
	{
		blob_progress_set(RELATIONS_TOTAL, list_length(tables));
		blob_batch_next();
		foreach(cell, tables)
		{
			CHECK_FOR_INTERRUPTS();
			add_to_table(adding, lfirst_oid(cell));
			blob_progress_add(RELATIONS_DONE, 1);
		}
	}
	PG_FINALLY();
	{
		blob_progress_end();
	}
	PG_END_TRY();
}

/* ---- the call ---- */

/*
 * blobext_add_checksums(relation, INOUT values_read, pages_added, values_failed): a table with its
 * partitions and children; NULL: all tables and materialized views of the database.
 */
Datum
blobext_add_checksums(PG_FUNCTION_ARGS)
{
	MemoryContext caller_context = CurrentMemoryContext;
	Adding	   *adding;
	uint64		counters[COUNTERS];
	List	   *tables;

	blob_store_require_preload();
	blob_batch_require_own_transactions(fcinfo, NAME);
	require_enabled();
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	/* The current context outlives transactions. */
	adding = palloc0(sizeof(Adding));
	adding->row_context = AllocSetContextCreate(CurrentMemoryContext, "blobext add checksums row",
												ALLOCSET_DEFAULT_SIZES);
	if (PG_ARGISNULL(0))
		tables = blob_check_list_relations();
	else
	{
		relation_close(blob_sql_open_relation(PG_GETARG_OID(0)), AccessShareLock);
		tables = find_all_inheritors(PG_GETARG_OID(0), NoLock, NULL);
	}
	add_to_tables(adding, tables);
	memcpy(counters, adding->counters, sizeof(counters));
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	MemoryContextSwitchTo(caller_context);
	return blob_batch_result(fcinfo, NAME, counters + FIRST_RESULT, COUNTERS - FIRST_RESULT);
}

/* Rows of view blobext_add_checksums_progress. */
Datum
blobext_add_checksums_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_ADD_CHECKSUMS, COUNTERS);
}
