/*
 * sql/maintenance/check.c
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
#include "access/tableam.h"
#include "access/xlog.h"
#include "blob/add_sums.h"
#include "blob/blob.h"
#include "blob/reader.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/vacuum.h"
#include "containers/rows.h"
#include "containers/walk.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"
#include "core/compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/maintenance/check.h"
#include "sql/maintenance/damaged_values.h"
#include "sql/maintenance/progress.h"
#include "store/map.h"
#include "store/store.h"
#include "sql/value.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(blobext_check);
PG_FUNCTION_INFO_V1(blobext_check_state);
PG_FUNCTION_INFO_V1(blobext_fetch_state);

/* Content is read and hashed in steps of this size. */
#define STEP_BYTES (UINT64CONST(1024) * 1024)

/* Columns of view blobext_check_progress, and those that only blobext_fetch_progress has. */
enum
{
	RELATIONS_DONE = BLOB_CHECK_RELATIONS_DONE,
	RELATIONS_TOTAL = BLOB_CHECK_RELATIONS_TOTAL,
	VALUES_DONE,
	BYTES_READ,
	COUNTERS,
	VALUES_REPAIRED = COUNTERS,
	BYTES_FETCHED,
	FETCH_COUNTERS
};

/* Where we are. */
typedef struct RowCheck
{
	BlobCheck  *check;
	Relation	relation;
	ItemPointer tid;
	const char *column;
	Datum		container;		/* the column's value, which may hold several */
	Oid			type;
	Datum		datum;			/* the value */
	bool		is_unpacked;
	BlobValue	value;
} RowCheck;

/* ---- values ---- */

/*
 * The problem of a value whose content is right, although a page does not have its checksum.
 * is_behind: the checksum is that of the value's bytes in the page.  Of a compressed value the page
 * may have bytes that the content does not need.
 */
static char *
describe_harmless(const BlobDescriptor *descriptor, BlobPageNo page, bool is_behind)
{
	if (descriptor->is_compressed)
		return psprintf("page " UINT64_FORMAT ", or its checksum in the extent map, is damaged; "
						"the content is right", page);
	if (is_behind)
		return psprintf("page " UINT64_FORMAT " is damaged behind the content, which is right",
						page);
	return psprintf("the extent map has a wrong checksum of page " UINT64_FORMAT
					", or of a page behind it; the content is right", page);
}

/*
 * The problem of a value whose digest is open, if a page does not have its checksum: only that
 * could say whether the content is right.
 */
static char *
describe_open(const BlobValue *value, BlobPageNo page)
{
	return psprintf("page " UINT64_FORMAT " of a value of " UINT64_FORMAT " bytes, whose digest is "
					"open, does not have its checksum", page, value->size_bytes);
}

/* The same, if a page has no checksum, which no change leaves. */
static char *
describe_unproven(const BlobValue *value)
{
	return psprintf("a value of " UINT64_FORMAT " bytes, whose digest is open, has pages without "
					"checksums", value->size_bytes);
}

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
	bool		has_damage;
	bool		is_behind;		/* the bytes of the value */
	BlobPageNo	damaged_page;
	BlobReader	reader;
	BlobDigest	digest;

	blob_digest_begin(&digest);
	blob_reader_begin(&reader, value, BLOB_READER_PAST_BUFFER | BLOB_READER_NOTES_DAMAGE);
	while ((length = blob_reader_next(&reader, buffer, STEP_BYTES)) > 0)
	{
		if (done == 0 && memcmp(buffer, descriptor->prefix, Min(length, BLOB_PREFIX_BYTES)) != 0)
			return pstrdup("the content does not begin with the descriptor's prefix");
		blob_digest_update(&digest, buffer, length);
		done += length;
	}
	has_damage = blob_reader_has_damage(&reader, &damaged_page);
	is_behind = has_damage && blob_reader_sum_fits(&reader, damaged_page);
	blob_reader_end(&reader);
	blob_digest_finish(&digest, sha256, state);
	if (descriptor->is_open && has_damage)
		return describe_open(value, damaged_page);
	if (descriptor->is_open)
		return blob_add_sums_has_all(value) ? NULL : describe_unproven(value);
	if (memcmp(sha256, descriptor->sha256, sizeof(sha256)) != 0)
		return psprintf("content of " UINT64_FORMAT " bytes from page " UINT64_FORMAT
						" does not match its SHA-256 digest", value->size_bytes,
						blob_descriptor_extent(descriptor, 0).first_page);
	if (has_damage)
		return describe_harmless(descriptor, damaged_page, is_behind);
	if (memcmp(state, descriptor->state, sizeof(state)) != 0)
		return pstrdup("the digest's intermediate state is not that of the content");
	return NULL;
}

/*
 * A BlobCheckFinder: the problem of a value, or NULL; unpacks it first.  Errors of reading are
 * thrown.
 */
static char *
find_problem(void *context)
{
	RowCheck   *row = context;
	const BlobDescriptor *descriptor = &row->value.descriptor;
	BlobHeal   *heal = row->check->heal;
	char	   *problem;

	row->value = blob_sql_unpack(row->datum);
	row->is_unpacked = true;
	if (row->value.is_inline)
		return NULL;
	if (row->check->visit != NULL)
	{
		row->check->visit(row->check, &row->value, row->relation, row->column);
		return NULL;
	}
	if (heal != NULL && blob_heal_lacks(heal, descriptor))
		return pstrdup("its content is missing on this server");
	if (row->check->skips_content)
		return NULL;
	/* Another value that shares extents with this one may have brought them. */
	if (heal != NULL && blob_heal_is_unfinished(heal, descriptor))
		blob_heal_flush(heal);
	blob_progress_add(BYTES_READ, row->value.size_bytes);
	problem = blob_check_references(descriptor);
	return problem != NULL ? problem : check_content(&row->value);
}

/* A BlobWalkVisitor: check a value, repair it if that is asked for, and report. */
static void
check_value(Datum datum, void *context)
{
	RowCheck   *row = context;
	BlobCheck  *check = row->check;
	char	   *problem;

	row->datum = datum;
	row->is_unpacked = false;
	blob_progress_add(VALUES_DONE, 1);
	problem = blob_check_find(find_problem, row);
	if (problem == NULL)
		return;
	if (row->is_unpacked && !row->value.is_inline)
		blob_damaged_values_name(&row->value.descriptor, row->relation, row->column);
	if (row->is_unpacked)
		problem = blob_check_repair(check, &row->value, problem);
	if (problem == NULL)
		blob_progress_add(VALUES_REPAIRED, 1);
	if (problem != NULL || check->shows_repaired)
		blob_check_report(check, RelationGetRelid(row->relation), row->tid, row->column, problem);
}

/* A BlobCheckFinder: checks the values of a column, and reports them by itself. */
static char *
walk_column(void *context)
{
	RowCheck   *row = context;

	blob_walk_datum(row->container, row->type, check_value, row);
	return NULL;
}

/* A BlobRowsVisitor: check all values of a column. */
static void
check_column(Form_pg_attribute column, Datum datum, void *context)
{
	RowCheck   *row = context;
	char	   *problem;

	row->column = NameStr(column->attname);
	row->container = datum;
	row->type = column->atttypid;
	if (row->type == blob_catalog_type())
	{
		check_value(datum, row);
		return;
	}
	problem = blob_check_find(walk_column, row);
	if (problem != NULL)
		blob_check_report(row->check, RelationGetRelid(row->relation), row->tid, row->column,
						  psprintf("the value cannot be read: %s", problem));
}

/* All values of a row, in containers too; works in a context that is reset for each row. */
static void
check_row(BlobCheck *check, Relation relation, TupleTableSlot *slot)
{
	RowCheck	row = {.check = check, .relation = relation, .tid = &slot->tts_tid};
	char	   *problem = blob_rows_visit(relation, slot, check_column, &row);

	if (problem != NULL)
		blob_check_report(check, RelationGetRelid(relation), row.tid, NULL,
						  psprintf("the row cannot be read: %s", problem));
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

		blob_delay_point();
		check_row(check, relation, slot);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(check->row_context);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}

bool
blob_check_is_readable(Relation relation)
{
	if (relation->rd_rel->relkind != RELKIND_RELATION &&
		relation->rd_rel->relkind != RELKIND_MATVIEW)
		return false;
	/* Unlogged tables have no file on a standby. */
	return !RELATION_IS_OTHER_TEMP(relation) &&
		!(RecoveryInProgress() && !RelationIsPermanent(relation));
}

void
blob_check_relation(BlobCheck *check, Oid relid)
{
	Relation	relation = try_relation_open(relid, AccessShareLock);
	bool		holds;

	if (relation == NULL)
		return;					/* dropped since we listed it */
	blob_check_partition(check, relation);
	if (!blob_check_is_readable(relation))
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

List *
blob_check_list_relations(void)
{
	BlobCatalogScan scan = blob_catalog_scan(RelationRelationId, NULL);
	List	   *relations = NIL;
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		if (class->relkind == RELKIND_RELATION || class->relkind == RELKIND_MATVIEW ||
			class->relkind == RELKIND_PARTITIONED_TABLE ||
			(class->relkind == RELKIND_FOREIGN_TABLE && class->relispartition))
			relations = lappend_oid(relations, class->oid);
	}
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
		blob_check_safely(check, blob_check_relation, lfirst_oid(cell));
		blob_progress_add(RELATIONS_DONE, 1);
	}
}

/* The map with the files, and all relations; or a table with all its partitions and children. */
static void
check_all(BlobCheck *check, Oid relid)
{
	if (OidIsValid(relid))
	{
		/* A number that is no relation's is an error, for nothing would be checked. */
		relation_close(blob_sql_open_relation(relid), AccessShareLock);
		check_relations(check, find_all_inheritors(relid, AccessShareLock, NULL));
		return;
	}
	if (!check->skips_content)
		blob_check_map(check);
	check_relations(check, blob_check_list_relations());
	if (check->heal != NULL)
		blob_heal_prune(check->heal);
}

/* A run's bytes, for the view. */
static void
track_bytes(uint64 bytes)
{
	blob_progress_add(BYTES_FETCHED, bytes);
}

static void
report_totals(const BlobHeal *heal)
{
	BlobHealTotals totals = blob_heal_totals(heal);

	ereport(NOTICE,
			(errmsg("%llu values were repaired, %llu bytes came from the other server",
					(unsigned long long) totals.values,
					(unsigned long long) totals.fetched_bytes),
			 totals.remade_files == 0 ? 0 :
			 errdetail("%llu segment files were lost and have been made anew.",
					   (unsigned long long) totals.remade_files)));
}

void
blob_check_run(FunctionCallInfo fcinfo, Oid relid, const char *conninfo, const BlobCheck *options)
{
	BlobCheck	check = *options;
	BlobHealOptions heal_options = {.conninfo = conninfo, .is_tracked = track_bytes};

	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	check.result = (ReturnSetInfo *) fcinfo->resultinfo;
	check.row_context = AllocSetContextCreate(CurrentMemoryContext, "blobext check row",
											  ALLOCSET_DEFAULT_SIZES);
	blob_progress_begin(conninfo == NULL ? BLOB_PROGRESS_CHECK : BLOB_PROGRESS_FETCH);
	PG_TRY();
	{
		if (conninfo != NULL)
			check.heal = blob_heal_begin(&heal_options);
		check_all(&check, relid);
		if (check.heal != NULL)
		{
			report_totals(check.heal);
			blob_heal_end(check.heal);
		}
	}
	PG_FINALLY();
	{
		blob_progress_end();
	}
	PG_END_TRY();
	MemoryContextDelete(check.row_context);
}

/*
 * blobext_check(regclass, repair): rows (relation, row, column, problem).  NULL: the map and all
 * relations; else a table with all its partitions and children.  Holds AccessShareLock on tables
 * with values until the end of the transaction.  With repair, problems of content are repaired from
 * the server of that connection string.  (The function of 0.2 has no second argument.)
 */
Datum
blobext_check(PG_FUNCTION_ARGS)
{
	bool		repairs = PG_NARGS() > 1 && !PG_ARGISNULL(1);
	BlobCheck	options = {0};

	blob_check_run(fcinfo, PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0),
				   repairs ? text_to_cstring(PG_GETARG_TEXT_PP(1)) : NULL, &options);
	return (Datum) 0;
}

/* Rows (pid, relation, relations_done, relations_total, values_done, bytes_read). */
Datum
blobext_check_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_CHECK, COUNTERS);
}

/* The same, and values_repaired, bytes_fetched. */
Datum
blobext_fetch_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_FETCH, FETCH_COUNTERS);
}
