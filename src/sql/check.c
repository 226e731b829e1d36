/*
 * sql/check.c
 *	  blobext_check(): compares every value with the extent map, the files and its digest.
 *
 * Reports, never repairs.  The map is checked by itself (no two extents overlap, none lies outside
 * of the store, every segment file has its size), each value against the map (all its extents are
 * allocated, none later than the value) and against its digest.  Together these exclude that two
 * values use the same page for different content.
 *
 * A value is checked in a subtransaction, so that whatever goes wrong with it becomes a row of the
 * result and the check goes on.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "blob/blob.h"
#include "blob/walk.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "core/catalog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "sql/value.h"
#include "space/map.h"
#include "space/space.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(blobext_check);

/* Content is read and hashed in steps of this size. */
#define STEP_BYTES (UINT64CONST(1024) * 1024)

typedef struct Check
{
	ReturnSetInfo *result;
	MemoryContext row_context;	/* reset for each row */
	Relation	relation;		/* being scanned */
	ItemPointerData tid;
	const char *column;
	BlobPageNo	next_page;		/* pages below belong to extents seen so far */
	BlobPageNo	reserved_pages;
	BlobPageNo *file_end;		/* by segment: pages from here on have no file */
} Check;

static void
report(Check *check, Oid relation, bool has_row, const char *problem)
{
	Datum		values[4] = {0};
	bool		nulls[4] = {false, !has_row, !has_row, false};
	NameData	column;

	values[0] = ObjectIdGetDatum(relation);
	if (has_row)
	{
		namestrcpy(&column, check->column);
		values[1] = PointerGetDatum(&check->tid);
		values[2] = NameGetDatum(&column);
	}
	values[3] = CStringGetTextDatum(problem);
	tuplestore_putvalues(check->result->setResult, check->result->setDesc, values, nulls);
}

/* ---- values ---- */

/* Null, or what is wrong with the value. Throws what reading throws. */
static char *
find_problem(Datum datum)
{
	BlobValue	value = blob_sql_unpack(datum);
	BlobDigest	digest;
	uint8		sha256[BLOB_DIGEST_BYTES];
	char	   *buffer;
	uint8		state[BLOB_DIGEST_BYTES];
	int			stale;
	int			unclaimed;

	if (value.is_inline)
		return NULL;
	stale = blob_find_stale_extent(&value.descriptor);
	if (stale >= 0)
		return psprintf("extent %d at page " UINT64_FORMAT " is not allocated to this value", stale,
						blob_descriptor_extent(&value.descriptor, stale).first_page);

	unclaimed = blob_find_unclaimed_extent(&value.descriptor);
	if (unclaimed >= 0)
		return psprintf("content in extent %d at page " UINT64_FORMAT
						" goes beyond the extent's fill mark", unclaimed,
						blob_descriptor_extent(&value.descriptor, unclaimed).first_page);

	buffer = palloc(Min(value.size_bytes, STEP_BYTES));
	blob_digest_begin(&digest);
	for (uint64 offset = 0; offset < value.size_bytes; offset += STEP_BYTES)
	{
		uint64		length = Min(STEP_BYTES, value.size_bytes - offset);

		CHECK_FOR_INTERRUPTS();
		blob_read_uncached(&value, offset, length, buffer);
		blob_digest_update(&digest, buffer, length);
		if (offset == 0 && memcmp(buffer, value.descriptor.prefix,
								  Min(length, BLOB_PREFIX_BYTES)) != 0)
			return pstrdup("the content does not begin with the descriptor's prefix");
	}
	blob_digest_finish(&digest, sha256, state);
	if (memcmp(sha256, value.descriptor.sha256, sizeof(sha256)) != 0)
		return psprintf("content of " UINT64_FORMAT " bytes from page " UINT64_FORMAT
						" does not match its SHA-256 digest", value.size_bytes,
						blob_descriptor_extent(&value.descriptor, 0).first_page);
	if (memcmp(state, value.descriptor.state, sizeof(state)) != 0)
		return pstrdup("the digest's intermediate state is not that of the content");
	return NULL;
}

/* Cancellation and shutdown are no property of a value. */
static bool
is_operator_intervention(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_OPERATOR_INTERVENTION;
}

static char *
find_problem_safely(Datum datum)
{
	MemoryContext old_context = CurrentMemoryContext;
	ResourceOwner old_owner = CurrentResourceOwner;
	char	   *volatile problem = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(old_context);
	PG_TRY();
	{
		problem = find_problem(datum);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old_context);
		error = CopyErrorData();
		if (is_operator_intervention(error->sqlerrcode))
			PG_RE_THROW();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		problem = error->message;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	CurrentResourceOwner = old_owner;
	return problem;
}

static void
check_value(Datum datum, void *context)
{
	Check	   *check = context;
	char	   *problem = find_problem_safely(datum);

	if (problem != NULL)
		report(check, RelationGetRelid(check->relation), true, problem);
}

static void
check_row(Check *check, TupleTableSlot *slot)
{
	TupleDesc	row_type = RelationGetDescr(check->relation);

	slot_getallattrs(slot);
	check->tid = slot->tts_tid;
	for (int i = 0; i < row_type->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		if (slot->tts_isnull[i] || column->attisdropped ||
			!blob_walk_type_holds(column->atttypid))
			continue;
		check->column = NameStr(column->attname);
		blob_walk_datum(slot->tts_values[i], column->atttypid, check_value, check);
	}
}

/* ---- relations ---- */

/* Check the rows that the active snapshot sees. Keeps AccessShareLock until transaction end. */
static void
check_relation(Check *check, Oid relid)
{
	Relation	relation = try_relation_open(relid, AccessShareLock);
	TableScanDesc scan;
	TupleTableSlot *slot;

	if (relation == NULL)
		return;					/* dropped since we listed it */
	if ((relation->rd_rel->relkind != RELKIND_RELATION &&
		 relation->rd_rel->relkind != RELKIND_MATVIEW) ||
		RELATION_IS_OTHER_TEMP(relation) ||
		!blob_walk_row_holds(RelationGetDescr(relation)))
	{
		relation_close(relation, AccessShareLock);
		return;
	}

	check->relation = relation;
	slot = table_slot_create(relation, NULL);
	scan = table_beginscan(relation, GetActiveSnapshot(), 0, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext old_context = MemoryContextSwitchTo(check->row_context);

		CHECK_FOR_INTERRUPTS();
		check_row(check, slot);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(check->row_context);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	relation_close(relation, NoLock);
}

/* All tables and materialized views of the database. */
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

		if (class->relkind == RELKIND_RELATION || class->relkind == RELKIND_MATVIEW)
			relations = lappend_oid(relations, class->oid);
	}
	table_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return relations;
}

/* ---- the map ---- */

static void
check_extent(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	Check	   *check = context;
	BlobPageNo	end_page = first_page + blob_map_entry_pages(entry);

	if (first_page < check->next_page)
		report(check, RelationGetRelid(check->relation), false,
			   psprintf("the extent at page " UINT64_FORMAT " overlaps the one before it",
						first_page));
	if (end_page > check->reserved_pages)
		report(check, RelationGetRelid(check->relation), false,
			   psprintf("the extent at page " UINT64_FORMAT " ends at page " UINT64_FORMAT
						", the store at page " UINT64_FORMAT, first_page, end_page,
						check->reserved_pages));
	else if (blob_map_entry_state(entry) == BLOB_MAP_ABSENT)
		check->file_end[blob_segment_of(first_page)] = first_page;
	check->next_page = Max(check->next_page, end_page);
}

static void
check_segments(Check *check, const BlobSpaceId *space)
{
	for (BlobPageNo page = 0; page < check->reserved_pages; page += BLOB_SEGMENT_PAGES)
	{
		uint64		pages = check->file_end[blob_segment_of(page)] - page;
		int64		bytes = blob_segment_file_bytes(space, blob_segment_of(page));
		char		path[MAXPGPATH];

		if (pages == 0)
			continue;			/* removed */
		blob_segment_path(path, sizeof(path), space, blob_segment_of(page));
		if (bytes < 0)
			report(check, RelationGetRelid(check->relation), false,
				   psprintf("segment file \"%s\" is missing", path));
		else if ((uint64) bytes < pages * BLOB_PAGE_SIZE)
			report(check, RelationGetRelid(check->relation), false,
				   psprintf("segment file \"%s\" has " INT64_FORMAT " bytes instead of "
							UINT64_FORMAT, path, bytes, pages * BLOB_PAGE_SIZE));
	}
}

static void
check_map(Check *check)
{
	BlobSpace	space;
	BlobMapMeta meta;
	uint64		segment_count;

	blob_space_open(&space, AccessShareLock);
	blob_map_read_meta(space.map, &meta);
	check->relation = space.map;
	check->next_page = 0;
	check->reserved_pages = meta.reserved_pages;
	segment_count = (meta.reserved_pages + BLOB_SEGMENT_PAGES - 1) / BLOB_SEGMENT_PAGES;
	check->file_end = palloc(sizeof(BlobPageNo) * (segment_count + 1));
	for (uint64 i = 0; i < segment_count; i++)
		check->file_end[i] = Min((i + 1) * BLOB_SEGMENT_PAGES, meta.reserved_pages);
	blob_map_visit_all(space.map, check_extent, check);
	check_segments(check, &space.id);
	blob_space_close(&space);
}

Datum
blobext_check(PG_FUNCTION_ARGS)
{
	Check		check = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	List	   *relations;
	ListCell   *cell;

	blob_space_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	check.row_context = AllocSetContextCreate(CurrentMemoryContext, "blobext check row",
											  ALLOCSET_DEFAULT_SIZES);
	if (PG_ARGISNULL(0))
	{
		check_map(&check);
		relations = list_relations();
	}
	else
		relations = find_all_inheritors(PG_GETARG_OID(0), AccessShareLock, NULL);

	foreach(cell, relations)
		check_relation(&check, lfirst_oid(cell));
	MemoryContextDelete(check.row_context);
	return (Datum) 0;
}
