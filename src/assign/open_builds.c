/*
 * assign/open_builds.c
 *	  No index is made over open values, see assign/open_keys.h.
 *
 * Labels say which columns have opted in now.  Open values are left by a label that has changed,
 * and come in by rows that call no function of ours.  So the rows are read.  Only columns are
 * looked at: an expression is the user's code, which is not run here.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "assign/assign.h"
#include "assign/open_keys.h"
#include "containers/walk.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"
#include "core/compat.h"
#include "core/descriptor.h"

/* Columns of a table that are keys of an index and can hold values. */
typedef struct KeyColumns
{
	Oid			table;
	int			count;
	AttrNumber	numbers[INDEX_MAX_KEYS];
} KeyColumns;

/* None if the index is gone.  Its row may be of this command, which caches do not see. */
static void
find_key_columns(Oid index, KeyColumns *keys)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(IndexRelationId, SnapshotSelf, IndexRelidIndexId,
												 Anum_pg_index_indexrelid, index);
	HeapTuple	tuple = blob_catalog_scan_next(&scan);

	keys->count = 0;
	if (tuple != NULL)
	{
		Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);

		keys->table = form->indrelid;
		for (int i = 0; i < form->indnkeyatts; i++)
		{
			AttrNumber	number = form->indkey.values[i];

			if (number > 0 && blob_walk_type_holds(get_atttype(keys->table, number)))
				keys->numbers[keys->count++] = number;
		}
	}
	blob_catalog_scan_end(&scan);
}

/* A BlobWalkVisitor; context: bool, set if the value is open. */
static void
look_at_value(Datum datum, void *context)
{
	BlobValue	value;

	if (blob_datum_is_inline(datum))
		return;
	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), &value);
	*(bool *) context |= value.descriptor.is_open;
}

/* The key column of a row that has an open value, or InvalidAttrNumber. */
static AttrNumber
find_open(TupleTableSlot *slot, const KeyColumns *keys)
{
	for (int i = 0; i < keys->count; i++)
	{
		AttrNumber	number = keys->numbers[i];
		bool		is_null;
		Datum		datum = slot_getattr(slot, number, &is_null);
		bool		is_open = false;

		if (!is_null)
			blob_walk_datum(datum, TupleDescAttr(slot->tts_tupleDescriptor, number - 1)->atttypid,
							look_at_value, &is_open);
		if (is_open)
			return number;
	}
	return InvalidAttrNumber;
}

/* Only columns of the type itself that statements can change are sealed by the procedure. */
static void
refuse_build(Relation table, AttrNumber number)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(table), number - 1);
	char	   *name = blob_catalog_relation_name(RelationGetRelid(table));
	const char *quoted = quote_identifier(NameStr(column->attname));
	bool		is_plain = column->attgenerated == '\0' &&
		blob_assign_is_blob_type(column->atttypid, blob_assign_type());

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("digests of values in column \"%s\" of table \"%s\" are open",
					NameStr(column->attname), RelationGetRelationName(table)),
			 errdetail("Open values are no keys of a new index."),
			 is_plain ?
			 errhint("CALL blobext_seal(%s, %s) before.", quote_literal_cstr(name),
					 quote_literal_cstr(NameStr(column->attname))) :
			 errhint("Assign the values again before: UPDATE %s SET %s = %s.", name, quoted,
					 quoted)));
}

/* Rows that others can see.  Versions that are dead and still seen may be open (README.md). */
static void
look_at_rows(Relation table, const KeyColumns *keys)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(table, NULL);
	TableScanDesc scan = blob_table_beginscan(table, snapshot);
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext, "blobext row",
													  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller_context = MemoryContextSwitchTo(row_context);
	AttrNumber	open = InvalidAttrNumber;

	while (open == InvalidAttrNumber && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		open = find_open(slot, keys);
		MemoryContextReset(row_context);
	}
	MemoryContextSwitchTo(caller_context);
	MemoryContextDelete(row_context);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	if (open != InvalidAttrNumber)
		refuse_build(table, open);
}

void
blob_open_keys_check_build(Oid index)
{
	KeyColumns	keys;
	Relation	table;

	if (IsBinaryUpgrade)
		return;
	find_key_columns(index, &keys);
	if (keys.count == 0)
		return;
	table = table_open(keys.table, AccessShareLock);
	if (table->rd_rel->relkind == RELKIND_RELATION || table->rd_rel->relkind == RELKIND_MATVIEW)
		look_at_rows(table, &keys);
	table_close(table, NoLock);
}
