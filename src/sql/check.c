/*
 * sql/check.c
 *	  blobext_check(): compares every value with the extent map, the files and its digest.
 *
 * Reports, never repairs, and writes nothing, so it runs on a standby as well.  The map is checked
 * by itself (check_map.c), each value that the statement sees against the map (all its extents are
 * allocated, none later than the value, and claimed as far as the value goes) and against its
 * digest, each key of a B-tree against the map (check_index.c).  Together these exclude that two
 * values use the same page for different content.  Bounds and keys of partitioned tables must refer
 * to no extents (check_partition.c).  Extents that nothing refers to are no problem, but work for
 * the collector; its dry run counts them.
 *
 * A relation, an index, a value: each is checked in a subtransaction, so that every error
 * there becomes a row of the result and the check goes on.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "blob/blob.h"
#include "blob/reader.h"
#include "blob/walk.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "store/map.h"
#include "store/store.h"
#include "sql/check.h"
#include "sql/progress.h"
#include "sql/value.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(blobext_check);
PG_FUNCTION_INFO_V1(blobext_check_state);

/* Content is read and hashed in steps of this size. */
#define STEP_BYTES (UINT64CONST(1024) * 1024)

/* Columns of view blobext_check_progress. */
enum
{
	RELATIONS_DONE,
	RELATIONS_TOTAL,
	VALUES_DONE,
	BYTES_READ,
	COUNTERS
};

/* Where we are. */
typedef struct RowCheck
{
	BlobCheck  *check;
	Relation	relation;
	ItemPointer tid;
	const char *column;
} RowCheck;

/* ---- values ---- */

/*
 * Compare the content of a value in extents, as the files have it, with its descriptor.  Returns
 * the problem, or NULL.  Leaves memory in the current context.
 */
static char *
check_content(const BlobValue *value)
{
	const BlobDescriptor *descriptor = &value->descriptor;
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		state[BLOB_DIGEST_BYTES];
	char	   *buffer = palloc(Min(value->size_bytes, STEP_BYTES));
	uint64		done = 0;
	uint64		length;
	BlobReader	reader;
	BlobDigest	digest;

	blob_digest_begin(&digest);
	blob_reader_begin(&reader, value, BLOB_READER_UNCACHED);
	while ((length = blob_reader_next(&reader, buffer, STEP_BYTES)) > 0)
	{
		if (done == 0 && memcmp(buffer, descriptor->prefix, Min(length, BLOB_PREFIX_BYTES)) != 0)
			return pstrdup("the content does not begin with the descriptor's prefix");
		blob_digest_update(&digest, buffer, length);
		done += length;
	}
	blob_reader_end(&reader);
	blob_digest_finish(&digest, sha256, state);
	if (memcmp(sha256, descriptor->sha256, sizeof(sha256)) != 0)
		return psprintf("content of " UINT64_FORMAT " bytes from page " UINT64_FORMAT
						" does not match its SHA-256 digest", value->size_bytes,
						blob_descriptor_extent(descriptor, 0).first_page);
	if (memcmp(state, descriptor->state, sizeof(state)) != 0)
		return pstrdup("the digest's intermediate state is not that of the content");
	return NULL;
}

/* A BlobCheckFinder: the problem of a value (a Datum), or NULL.  Errors of reading are thrown. */
static char *
find_problem(void *datum)
{
	BlobValue	value = blob_sql_unpack(*(Datum *) datum);
	char	   *problem;

	blob_progress_add(VALUES_DONE, 1);
	blob_progress_add(BYTES_READ, value.is_inline ? 0 : value.size_bytes);
	if (value.is_inline)
		return NULL;
	problem = blob_check_references(&value.descriptor);
	return problem != NULL ? problem : check_content(&value);
}

static void
check_value(Datum datum, void *context)
{
	RowCheck   *row = context;
	char	   *problem = blob_check_find(find_problem, &datum);

	if (problem != NULL)
		blob_check_report(row->check, RelationGetRelid(row->relation), row->tid, row->column,
						  problem);
}

/* All values of a row, in containers too; works in a context that is reset for each row. */
static void
check_row(BlobCheck *check, Relation relation, TupleTableSlot *slot)
{
	TupleDesc	row_type = RelationGetDescr(relation);
	RowCheck	row = {.check = check, .relation = relation, .tid = &slot->tts_tid};

	slot_getallattrs(slot);
	for (int i = 0; i < row_type->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		if (slot->tts_isnull[i] || column->attisdropped ||
			!blob_walk_type_holds(column->atttypid))
			continue;
		row.column = NameStr(column->attname);
		blob_walk_datum(slot->tts_values[i], column->atttypid, check_value, &row);
	}
}

/* ---- relations ---- */

/* The rows that the active snapshot sees. */
static void
check_table(BlobCheck *check, Relation relation)
{
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	TableScanDesc scan = blob_table_beginscan(relation, GetActiveSnapshot());

	blob_progress_relation(RelationGetRelid(relation));
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext old_context = MemoryContextSwitchTo(check->row_context);

		CHECK_FOR_INTERRUPTS();
		check_row(check, relation, slot);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(check->row_context);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}

/* Whether this relation has rows, and this process can read them. */
static bool
is_readable(Relation relation)
{
	if (relation->rd_rel->relkind != RELKIND_RELATION &&
		relation->rd_rel->relkind != RELKIND_MATVIEW)
		return false;
	/* Unlogged tables have no file on a standby. */
	return !RELATION_IS_OTHER_TEMP(relation) &&
		!(RecoveryInProgress() && !RelationIsPermanent(relation));
}

/* A table and its indexes. Keeps AccessShareLock on tables with values until transaction end. */
static void
check_relation(BlobCheck *check, Oid relid)
{
	Relation	relation = try_relation_open(relid, AccessShareLock);
	bool		holds;

	if (relation == NULL)
		return;					/* dropped since we listed it */
	blob_check_partition(check, relation);
	if (!is_readable(relation))
	{
		relation_close(relation, AccessShareLock);
		return;
	}
	blob_check_method(check, relation);
	holds = blob_walk_row_holds(RelationGetDescr(relation)) &&
		!blob_catalog_is_map_method(relation->rd_rel->relam);
	if (holds)
		check_table(check, relation);
	blob_check_indexes(check, relation);
	relation_close(relation, holds ? NoLock : AccessShareLock);
}

/* All tables, materialized views and partitions of the database, ordered by oid. */
static List *
list_relations(void)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(pg_class, 0, NULL);
	List	   *relations = NIL;
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		if (class->relkind == RELKIND_RELATION || class->relkind == RELKIND_MATVIEW ||
			class->relkind == RELKIND_PARTITIONED_TABLE ||
			(class->relkind == RELKIND_FOREIGN_TABLE && class->relispartition))
			relations = lappend_oid(relations, class->oid);
	}
	table_endscan(scan);
	table_close(pg_class, AccessShareLock);
	list_sort(relations, list_oid_cmp);
	return relations;
}

static void
check_relations(BlobCheck *check, List *relations)
{
	ListCell   *cell;

	blob_progress_set(RELATIONS_TOTAL, list_length(relations));
	foreach(cell, relations)
	{
		CHECK_FOR_INTERRUPTS();
		blob_check_safely(check, check_relation, lfirst_oid(cell));
		blob_progress_add(RELATIONS_DONE, 1);
	}
}

/*
 * blobext_check(regclass): rows (relation, row, column, problem).  NULL: the map and all relations;
 * else a table with all its partitions and children.  Holds AccessShareLock on tables with values
 * until the end of the transaction.
 */
Datum
blobext_check(PG_FUNCTION_ARGS)
{
	BlobCheck	check = {.result = (ReturnSetInfo *) fcinfo->resultinfo};

	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	check.row_context = AllocSetContextCreate(CurrentMemoryContext, "blobext check row",
											  ALLOCSET_DEFAULT_SIZES);
	blob_progress_begin(BLOB_PROGRESS_CHECK);
	PG_TRY();
	{
		if (PG_ARGISNULL(0))
		{
			blob_check_map(&check);
			check_relations(&check, list_relations());
		}
		else
			check_relations(&check, find_all_inheritors(PG_GETARG_OID(0), AccessShareLock, NULL));
	}
	PG_FINALLY();
	{
		blob_progress_end();
	}
	PG_END_TRY();
	MemoryContextDelete(check.row_context);
	return (Datum) 0;
}

/* Rows (pid, relation, relations_done, relations_total, values_done, bytes_read). */
Datum
blobext_check_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_CHECK, COUNTERS);
}
