/*
 * sql/maintenance/compression.c
 *	  Functions of compression: what values take, the method of a column, values stored anew.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "assign/column_storage.h"
#include "blob/mapping.h"
#include "blob/recompress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "core/clock.h"
#include "core/codec.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/column_label.h"
#include "sql/value.h"
#include "storage/bufmgr.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(blob_stored_length);
PG_FUNCTION_INFO_V1(blob_compression);
PG_FUNCTION_INFO_V1(blob_recompress_sql);
PG_FUNCTION_INFO_V1(blob_recompress_is_due_sql);
PG_FUNCTION_INFO_V1(blobext_set_compression);
PG_FUNCTION_INFO_V1(blobext_recompress);
PG_FUNCTION_INFO_V1(blobext_column_space);

/* ---- one value ---- */

/* blob_stored_length(blobstate): bytes of the content, or those that stand for it in extents. */
Datum
blob_stored_length(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	uint64		bytes = 0;
	uint64		start = 0;

	if (value.is_inline)
		PG_RETURN_INT64((int64) value.size_bytes);
	for (int i = 0; i < blob_descriptor_extent_count(&value.descriptor); i++)
	{
		BlobStoredExtent stored;

		blob_mapping_extent(&value.descriptor, i, start, &stored);
		start = stored.start + stored.bytes;
		bytes += stored.bytes;
	}
	PG_RETURN_INT64((int64) (bytes + blob_mapping_datum_bytes(&value.descriptor)));
}

/* blob_compression(blobstate): the name of the method. */
Datum
blob_compression(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	uint8		method = value.is_inline || !value.descriptor.is_compressed ? BLOB_METHOD_NONE :
		value.descriptor.compression.method;

	PG_RETURN_TEXT_P(cstring_to_text(blob_method_name(method)));
}

/* The method of this name; ERROR if there is none, or it is not built in. */
static BlobMethod
get_method(const text *name)
{
	char	   *method_name = text_to_cstring(name);
	BlobMethod	method;

	if (!blob_method_from_name(method_name, &method))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not a method of compression", method_name),
				 errhint("Available methods: none, lz4, zstd.")));
	blob_method_require((uint8) method);
	return method;
}

/* blob_recompress_is_due(blobstate, method) */
Datum
blob_recompress_is_due_sql(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));

	PG_RETURN_BOOL(blob_recompress_is_due(&value, get_method(PG_GETARG_TEXT_PP(1))));
}

/* blob_recompress(blobstate, method): the same datum if there is nothing to do. */
Datum
blob_recompress_sql(PG_FUNCTION_ARGS)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	BlobMethod	method = get_method(PG_GETARG_TEXT_PP(1));

	if (!blob_recompress_is_due(&value, method))
		PG_RETURN_DATUM(PG_GETARG_DATUM(0));
	PG_RETURN_POINTER(blob_recompress(&value, method));
}

/* ---- columns ---- */

/* blobext_set_compression(relation, column, method): NULL removes the method from the label. */
Datum
blobext_set_compression(PG_FUNCTION_ARGS)
{
	BlobLabelledColumn column;

	blob_column_label_find(fcinfo, true, &column);
	column.label.has_method = !PG_ARGISNULL(2);
	if (!PG_ARGISNULL(2))
		column.label.method = get_method(PG_GETARG_TEXT_PP(2));
	blob_column_label_set(&column);
	PG_RETURN_VOID();
}

/* ---- what a column takes ---- */

/*
 * The query of blobext_space(): a CTE with the values, their sizes, and their extents, each once.
 * All names are qualified; USING would look for operators in the caller's search_path.
 */
static char *
make_space_query(Oid relid, const char *column)
{
	const char *name = quote_identifier(column);
	const char *compression = blob_catalog_function_name(BLOB_FUNCTION_COMPRESSION);
	StringInfoData query;

	initStringInfo(&query);
	appendStringInfo(&query, "WITH value AS MATERIALIZED (SELECT tableoid AS part, "
					 "%s::%s AS b FROM %s WHERE %s IS NOT NULL), ", name,
					 blob_catalog_type_name(), blob_catalog_relation_name(relid), name);
	appendStringInfo(&query, "size AS (SELECT part, %s(b) AS storage, "
					 "%s(b) AS compression, pg_catalog.count(*) AS rows, "
					 "pg_catalog.sum(%s(b))::pg_catalog.int8 AS content_bytes, "
					 "pg_catalog.sum(%s(b))::pg_catalog.int8 AS stored_bytes "
					 "FROM value GROUP BY 1, 2, 3), ",
					 blob_catalog_function_name(BLOB_FUNCTION_STORAGE), compression,
					 blob_catalog_function_name(BLOB_FUNCTION_LENGTH),
					 blob_catalog_function_name(BLOB_FUNCTION_STORED_LENGTH));
	appendStringInfo(&query, "extent AS (SELECT part, compression, pg_catalog.sum(pages)::"
					 "pg_catalog.int8 AS pages FROM (SELECT DISTINCT part, "
					 "%s(b) AS compression, first_page, pages "
					 "FROM value, %s(b)) AS e GROUP BY 1, 2) ", compression,
					 blob_catalog_function_name(BLOB_FUNCTION_EXTENTS));
	appendStringInfo(&query, "SELECT size.part::pg_catalog.regclass, storage, size.compression, "
					 "rows, content_bytes, stored_bytes, "
					 "CASE WHEN storage OPERATOR(pg_catalog.=) 'extents'::pg_catalog.text "
					 "THEN pages OPERATOR(pg_catalog.*) %d::pg_catalog.int8 END "
					 "FROM size LEFT JOIN extent "
					 "ON size.part OPERATOR(pg_catalog.=) extent.part AND "
					 "size.compression OPERATOR(pg_catalog.=) extent.compression "
					 "ORDER BY size.part::pg_catalog.regclass::pg_catalog.text, storage, "
					 "size.compression", BLOB_PAGE_SIZE);
	return query.data;
}

/*
 * blobext_space(relation, column): rows (part, storage, compression, rows, content_bytes,
 * stored_bytes, extent_bytes), by a SELECT with the rights of the caller.  Reads rows, no content.
 */
Datum
blobext_column_space(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			relid = PG_GETARG_OID(0);
	char	   *column = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char		kind;

	blob_column_label_require_relation(relid);
	(void) blob_column_label_number(relid, column, false);
	kind = get_rel_relkind(relid);
	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE && kind != RELKIND_MATVIEW)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table or materialized view", get_rel_name(relid))));
	InitMaterializedSRF(fcinfo, 0);
	SPI_connect();
	if (SPI_execute(make_space_query(relid, column), true, 0) != SPI_OK_SELECT)
		elog(ERROR, "values of a table could not be counted");
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
	SPI_finish();
	return (Datum) 0;
}

/* ---- all values of a column ---- */

/* A row that another transaction had locked. */
typedef struct LockedRow
{
	Oid			relid;
	ItemPointerData tid;
} LockedRow;

typedef struct Recompression
{
	const char *column;
	int			batch_pages;
	uint64		changed_rows;
	ErrorData  *failure;		/* of the first row that could not be read, or NULL */
	MemoryContext context;		/* outlives transactions */
	LockedRow  *locked;
	int			locked_count;
	int			locked_room;
} Recompression;

/* The rows of a table from one place to another, in one statement. */
typedef struct RowRange
{
	const Recompression *run;
	Oid			relid;
	ItemPointerData from;
	ItemPointerData to;			/* exclusive */
	uint64		changed_rows;
} RowRange;

/* Blocks of a table's main fork, or -1 if the table is gone or has no rows of its own. */
static int64
count_blocks(Oid relid)
{
	Relation	relation = try_relation_open(relid, AccessShareLock);
	int64		blocks = -1;

	if (relation == NULL)
		return -1;
	if (relation->rd_rel->relkind == RELKIND_RELATION && !RELATION_IS_OTHER_TEMP(relation))
		blocks = RelationGetNumberOfBlocks(relation);
	relation_close(relation, AccessShareLock);
	return blocks;
}

/* The statement that locks the rows of a range whose values are due; all names are qualified. */
static char *
make_lock(Oid relid, const char *column)
{
	return psprintf("SELECT ctid FROM ONLY %s "
					"WHERE ctid OPERATOR(pg_catalog.>=) $2 AND ctid OPERATOR(pg_catalog.<) $3 "
					"AND %s(%s::%s, $1) FOR %s NOWAIT",
					blob_catalog_relation_name(relid),
					blob_catalog_function_name(BLOB_FUNCTION_RECOMPRESS_IS_DUE),
					quote_identifier(column), blob_catalog_type_name(),
					blob_batch_row_lock(relid, column));
}

/* The statement that stores the values of these rows anew. */
static char *
make_update(Oid relid, const char *column)
{
	const char *type = blob_catalog_type_name();
	const char *name = quote_identifier(column);

	return psprintf("UPDATE ONLY %s SET %s = %s(%s::%s, $1) "
					"WHERE ctid OPERATOR(pg_catalog.=) ANY ($2)",
					blob_catalog_relation_name(relid), name,
					blob_catalog_function_name(BLOB_FUNCTION_RECOMPRESS), name, type);
}

/* The places of rows that a statement has returned. */
static Datum
make_places(void)
{
	Datum	   *places = palloc(sizeof(Datum) * Max(SPI_processed, 1));
	bool		is_null;

	for (uint64 i = 0; i < SPI_processed; i++)
		places[i] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &is_null);
	return PointerGetDatum(construct_array(places, (int) SPI_processed, TIDOID,
										   sizeof(ItemPointerData), false, TYPALIGN_SHORT));
}

/*
 * A BlobAttemptStep: store the values of these rows anew.  The rows are locked without waiting, and
 * only these are updated: so a transaction of a user may wait for this one, and never the other way
 * round, or PostgreSQL could take that for the victim of a deadlock.
 */
static void
update_rows(void *argument)
{
	RowRange   *range = argument;
	const char *column = range->run->column;
	AttrNumber	number = blob_column_label_number(range->relid, column, false);
	BlobMethod	method = blob_column_storage(range->relid, number).method;
	Oid			types[] = {TEXTOID, TIDOID, TIDOID};
	Oid			update_types[] = {TEXTOID, TIDARRAYOID};
	Datum		values[] = {
		CStringGetTextDatum(blob_method_name((uint8) method)),
		PointerGetDatum(&range->from), PointerGetDatum(&range->to)
	};
	char	   *update = make_update(range->relid, column);

	range->changed_rows = 0;
	if (SPI_execute_with_args(make_lock(range->relid, column), 3, types, values, NULL, false, 0) !=
		SPI_OK_SELECT)
		elog(ERROR, "rows of a table could not be locked");
	if (SPI_processed == 0)
		return;
	values[1] = make_places();
	if (SPI_execute_with_args(update, 2, update_types, values, NULL, false, 0) != SPI_OK_UPDATE)
		elog(ERROR, "values of a table could not be updated");
	range->changed_rows = SPI_processed;
}

/*
 * Store the values of rows anew; if that is an error about a value, or if a row is locked, which
 * then is the result, none of them.  Other errors are thrown.  A trigger may wait for other rows:
 * the victim of a deadlock begins anew, without its locks, so the others go on.
 */
static ErrorData *
recompress_rows(Recompression *run, Oid relid, int64 block, OffsetNumber offset, int64 to_block,
				OffsetNumber to_offset)
{
	RowRange	range = {.run = run, .relid = relid};
	ErrorData  *error;

	ItemPointerSet(&range.from, (BlockNumber) block, offset);
	ItemPointerSet(&range.to, (BlockNumber) Min(to_block, (int64) MaxBlockNumber), to_offset);
	do
	{
		CHECK_FOR_INTERRUPTS();
		error = blob_attempt(update_rows, &range);
	} while (error != NULL && error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED);
	if (error != NULL && !blob_batch_is_of_value(error->sqlerrcode) &&
		error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	if (error == NULL)
		run->changed_rows += range.changed_rows;
	return error;
}

static void
note_locked_row(Recompression *run, Oid relid, int64 block, OffsetNumber offset)
{
	LockedRow  *row;

	if (run->locked_count == run->locked_room)
	{
		run->locked_room = Max(run->locked_room * 2, 64);
		run->locked = run->locked == NULL ?
			MemoryContextAlloc(run->context, sizeof(LockedRow) * run->locked_room) :
			repalloc_huge(run->locked, sizeof(LockedRow) * run->locked_room);
	}
	row = &run->locked[run->locked_count++];
	row->relid = relid;
	ItemPointerSet(&row->tid, (BlockNumber) block, offset);
}

/* A row that is locked is noted, for later; one whose value cannot be read keeps it. */
static void
recompress_row(Recompression *run, Oid relid, int64 block, OffsetNumber offset)
{
	ErrorData  *error = recompress_rows(run, relid, block, offset, block, offset + 1);

	if (error == NULL)
		return;
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		note_locked_row(run, relid, block, offset);
		return;
	}
	ereport(WARNING,
			(errmsg("row (%u,%u) of \"%s\" keeps its value: %s", (BlockNumber) block, offset,
					get_rel_name(relid), error->message)));
	if (run->failure == NULL)
		run->failure = error;
}

/* A row of the block has a value that cannot be read, or is locked: do the others, one by one. */
static void
recompress_one_by_one(Recompression *run, Oid relid, int64 block)
{
	for (OffsetNumber offset = 1; offset <= MaxHeapTuplesPerPage; offset++)
	{
		CHECK_FOR_INTERRUPTS();
		recompress_row(run, relid, block, offset);
	}
}

/*
 * Store the values of a range of blocks anew, and commit.  New versions of rows may lie in blocks
 * that are visited later, where nothing is due for them.  The table is looked up each time, because
 * nothing is locked between two transactions.
 */
static bool
recompress_blocks(Recompression *run, Oid relid, int64 from_block, int64 to_block)
{
	if (get_rel_name(relid) == NULL)
		return false;
	blob_batch_require_updates(relid);
	if (recompress_rows(run, relid, from_block, 0, to_block, 0) != NULL)
	{
		for (int64 block = from_block; block < to_block; block++)
			if (recompress_rows(run, relid, block, 0, block + 1, 0) != NULL)
				recompress_one_by_one(run, relid, block);
	}
	blob_batch_next();
	return true;
}

static void
recompress_table(Recompression *run, Oid relid)
{
	int64		blocks = count_blocks(relid);

	for (int64 block = 0; block < blocks; block += run->batch_pages)
	{
		CHECK_FOR_INTERRUPTS();
		if (!recompress_blocks(run, relid, block, Min(block + run->batch_pages, blocks)))
			return;
	}
}

/*
 * Rows that were locked, each in a transaction of its own, until none is locked in its place; or an
 * ERROR, when no lock was released for lock_timeout.
 */
static void
recompress_locked_rows(Recompression *run)
{
	TimestampTz since = GetCurrentTimestamp();
	long		milliseconds = 10;

	while (run->locked_count > 0)
	{
		LockedRow  *rows = run->locked;
		int			count = run->locked_count;

		if (LockTimeout > 0 &&
			TimestampDifferenceExceeds(since, GetCurrentTimestamp(), LockTimeout))
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("rows that other transactions keep locked have their old values: %d",
							count),
					 errdetail("No lock was released for lock_timeout. All other rows are done."),
					 errhint("Call blobext_recompress() again later.")));
		blob_clock_sleep(milliseconds); /* no row is locked */
		milliseconds = Min(milliseconds * 2, 1000);
		run->locked = NULL;
		run->locked_count = run->locked_room = 0;
		for (int i = 0; i < count; i++)
		{
			if (get_rel_name(rows[i].relid) == NULL)
				continue;
			blob_batch_require_updates(rows[i].relid);
			recompress_row(run, rows[i].relid, ItemPointerGetBlockNumber(&rows[i].tid),
						   ItemPointerGetOffsetNumber(&rows[i].tid));
			blob_batch_next();
		}
		if (run->locked_count < count)
			since = GetCurrentTimestamp();
		pfree(rows);
	}
}

/*
 * blobext_recompress(relation, column, batch_pages, INOUT changed): UPDATE, with the rights of the
 * caller, in transactions of some pages of the table each.  Values that cannot be read stay as they
 * are; they are an ERROR when all others are done.
 */
Datum
blobext_recompress(PG_FUNCTION_ARGS)
{
	Recompression run = {0};
	MemoryContext context = fcinfo->flinfo->fn_mcxt;
	MemoryContext caller_context = MemoryContextSwitchTo(context);
	bool		is_atomic = fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic;
	Oid			relid;
	List	   *tables;
	ListCell   *cell;
	TupleDesc	result_type;
	Datum		result[1];
	bool		nulls[1] = {false};
	bool		has_locked;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2) || PG_GETARG_INT32(2) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("table, column and a number of pages of at least 1 are needed")));
	if (is_atomic)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("blobext_recompress() cannot run inside a transaction block"),
				 errdetail("It commits after each batch.")));
	relid = PG_GETARG_OID(0);
	run.column = text_to_cstring(PG_GETARG_TEXT_PP(1));
	run.batch_pages = PG_GETARG_INT32(2);
	run.context = context;
	blob_column_label_require_relation(relid);
	(void) blob_column_label_number(relid, run.column, false);
	tables = find_all_inheritors(relid, NoLock, NULL);
	if (get_call_result_type(fcinfo, NULL, &result_type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	result_type = BlessTupleDesc(CreateTupleDescCopy(result_type));
	MemoryContextSwitchTo(caller_context);

	SPI_connect_ext(SPI_OPT_NONATOMIC);
	blob_batch_next();
	do
	{
		foreach(cell, tables)
			recompress_table(&run, lfirst_oid(cell));
		/* A row that was locked may have a new version by now, in any place. */
		has_locked = run.locked_count > 0;
		recompress_locked_rows(&run);
	} while (has_locked);
	/* The other rows are committed. */
	if (run.failure != NULL)
		ReThrowError(run.failure);
	SPI_finish();
	result[0] = Int64GetDatum((int64) run.changed_rows);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(result_type, result, nulls)));
}
