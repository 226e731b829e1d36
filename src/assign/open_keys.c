/*
 * assign/open_keys.c
 *	  Columns whose digests may be open are no keys, see assign/open_keys.h.
 *
 * A look opens and locks catalogs only.  It is made with SnapshotSelf, because the object access
 * hook is called before the rows of a new object are visible to others.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "catalog/index.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_partitioned_table.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "assign/assign.h"
#include "assign/column_storage.h"
#include "assign/open_keys.h"
#include "containers/walk.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"

/* ---- keys ---- */

/*
 * Whether an expression that is a key gives values that can hold blobstate, made of a column.  One
 * of another type, such as sha256(column), reads the content when the key is made.
 */
static bool
is_made_of(Node *expression, AttrNumber column)
{
	Bitmapset  *columns = NULL;

	if (!blob_walk_type_holds(exprType(expression)))
		return false;
	pull_varattnos(expression, 1, &columns);
	return bms_is_member(column - FirstLowInvalidHeapAttributeNumber, columns) ||
		bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, columns);
}

/* Whether a column is among numbers, or an expression of a list is made of it. */
static bool
is_among(const int16 *numbers, int count, Datum expressions, bool has_expressions,
		 AttrNumber column)
{
	ListCell   *cell;

	for (int i = 0; i < count; i++)
		if (numbers[i] == column)
			return true;
	if (!has_expressions)
		return false;
	foreach(cell, castNode(List, stringToNode(TextDatumGetCString(expressions))))
		if (is_made_of(lfirst(cell), column))
			return true;
	return false;
}

/* An index of a table that has a column as a key, or NULL.  INCLUDE columns are no keys. */
static char *
find_index(Oid table, AttrNumber column)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(IndexRelationId, SnapshotSelf,
												 IndexIndrelidIndexId,
												 Anum_pg_index_indrelid, table);
	char	   *found = NULL;
	HeapTuple	tuple;

	while (found == NULL && (tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_index index = (Form_pg_index) GETSTRUCT(tuple);
		bool		is_null;
		Datum		expressions = heap_getattr(tuple, Anum_pg_index_indexprs,
											   RelationGetDescr(scan.catalog), &is_null);

		if (is_among(index->indkey.values, index->indnkeyatts, expressions, !is_null, column))
		{
			char	   *name = get_rel_name(index->indexrelid);

			found = name == NULL ? pstrdup("a new index") : psprintf("index \"%s\"", name);
		}
	}
	blob_catalog_scan_end(&scan);
	return found;
}

static char *
find_partition_key(Oid table, AttrNumber column)
{
	HeapTuple	tuple = SearchSysCache1(PARTRELID, ObjectIdGetDatum(table));
	Form_pg_partitioned_table form;
	Datum		expressions;
	bool		is_null;
	bool		found;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	form = (Form_pg_partitioned_table) GETSTRUCT(tuple);
	expressions = SysCacheGetAttr(PARTRELID, tuple, Anum_pg_partitioned_table_partexprs, &is_null);
	found = is_among(form->partattrs.values, form->partnatts, expressions, !is_null, column);
	ReleaseSysCache(tuple);
	return found ? psprintf("the partition key of \"%s\"", get_rel_name(table)) : NULL;
}

/* Whether a constraint is a foreign key of a column. */
static bool
is_foreign_key_of(HeapTuple tuple, TupleDesc description, AttrNumber column)
{
	bool		is_null;
	Datum		keys = heap_getattr(tuple, Anum_pg_constraint_conkey, description, &is_null);
	Datum	   *numbers;
	int			count;

	if (((Form_pg_constraint) GETSTRUCT(tuple))->contype != CONSTRAINT_FOREIGN || is_null)
		return false;
	deconstruct_array(DatumGetArrayTypeP(keys), INT2OID, sizeof(int16), true, TYPALIGN_SHORT,
					  &numbers, NULL, &count);
	for (int i = 0; i < count; i++)
		if (DatumGetInt16(numbers[i]) == column)
			return true;
	return false;
}

/* A foreign key of a table that has a column, or NULL. */
static char *
find_foreign_key(Oid table, AttrNumber column)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(ConstraintRelationId, SnapshotSelf,
												 ConstraintRelidTypidNameIndexId,
												 Anum_pg_constraint_conrelid, table);
	char	   *found = NULL;
	HeapTuple	tuple;

	while (found == NULL && (tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		if (is_foreign_key_of(tuple, RelationGetDescr(scan.catalog), column))
			found = psprintf("foreign key \"%s\"",
							 NameStr(((Form_pg_constraint) GETSTRUCT(tuple))->conname));
	}
	blob_catalog_scan_end(&scan);
	return found;
}

/*
 * The partition key of a table, or of one above it: rows are routed by that, whatever the label of
 * the column in the partition says.
 */
static char *
find_partition_key_above(Oid table, AttrNumber column)
{
	const char *name = get_attname(table, column, false);
	char	   *key = find_partition_key(table, column);

	while (key == NULL && get_rel_relispartition(table))
	{
		table = get_partition_parent(table, true);
		column = get_attnum(table, name);
		if (column > 0)
			key = find_partition_key(table, column);
	}
	return key;
}

/* An object that has a column as a key, for messages, or NULL. */
static char *
find_key(Oid table, AttrNumber column)
{
	char	   *key = find_index(table, column);

	if (key == NULL)
		key = find_partition_key_above(table, column);
	return key != NULL ? key : find_foreign_key(table, column);
}

/* ---- before a column opts in ---- */

void
blob_open_keys_require_none(Oid relation, AttrNumber column)
{
	const char *name = get_attname(relation, column, false);
	ListCell   *cell;

	if (getBaseType(get_atttype(relation, column)) != blob_assign_type())
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("digests of column \"%s\" of table \"%s\" cannot be deferred", name,
						get_rel_name(relation)),
				 errdetail("It is not of type blobstate.")));
	/*
	 * SECURITY LABEL locks the table that it names, against CREATE INDEX, ATTACH and the like.  The
	 * tables below are locked here.  A key that is made after that sees the label.
	 */
	foreach(cell, find_all_inheritors(relation, ShareUpdateExclusiveLock, NULL))
	{
		Oid			table = lfirst_oid(cell);
		AttrNumber	number = get_attnum(table, name);
		char	   *key = number > 0 ? find_key(table, number) : NULL;

		if (key != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("digests of column \"%s\" of table \"%s\" cannot be deferred", name,
							get_rel_name(relation)),
					 errdetail("The column is a key of %s, which compares or hashes its contents.",
							   key),
					 errhint("An index on sha256(%s) is possible.", quote_identifier(name))));
	}
}

/* ---- keys of a column that has opted in ---- */

static void
refuse_key(Oid table, const char *column, const char *key)
{
	const char *literal = quote_literal_cstr(blob_catalog_relation_name(table));
	const char *column_literal = quote_literal_cstr(column);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("column \"%s\" of table \"%s\" cannot be a key of %s", column,
					get_rel_name(table), key),
			 errdetail("It has, or inherits, the label \"digest deferred\": digests of its values "
					   "may be open."),
			 errhint("SELECT blobext_set_digest(%s, %s, 'sealed') and CALL blobext_seal(%s, %s) "
					 "before, or use an index on sha256(%s).", literal, column_literal, literal,
					 column_literal, quote_identifier(column))));
}

/* Refuse keys of all columns of a table that may be open. */
static void
check_table(Oid table)
{
	BlobCatalogScan scan;
	HeapTuple	tuple;

	scan = blob_catalog_scan_oid(AttributeRelationId, SnapshotSelf, AttributeRelidNumIndexId,
								 Anum_pg_attribute_attrelid, table);
	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_attribute column = (Form_pg_attribute) GETSTRUCT(tuple);
		char	   *key;

		if (column->attnum <= 0 || column->attisdropped ||
			!blob_assign_is_blob_type(column->atttypid, blob_assign_type()) ||
			!blob_column_storage_may_be_open(table, column->attnum))
			continue;
		key = find_key(table, column->attnum);
		if (key != NULL)
			refuse_key(table, NameStr(column->attname), key);
	}
}

/* The table of an index that is new, which caches may not see yet; InvalidOid: it is no index. */
static Oid
get_index_table(Oid index)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(IndexRelationId, SnapshotSelf, IndexRelidIndexId,
												 Anum_pg_index_indexrelid, index);
	HeapTuple	tuple = blob_catalog_scan_next(&scan);
	Oid			table = tuple == NULL ? InvalidOid : ((Form_pg_index) GETSTRUCT(tuple))->indrelid;

	blob_catalog_scan_end(&scan);
	return table;
}

/* While pg_upgrade runs, all is as the old server had it. */
void
blob_open_keys_check_index(Oid relation)
{
	Oid			table = IsBinaryUpgrade ? InvalidOid : get_index_table(relation);

	if (OidIsValid(table))
		check_table(table);
}

void
blob_open_keys_check_hierarchy(Oid table)
{
	ListCell   *cell;

	if (IsBinaryUpgrade)
		return;
	foreach(cell, find_all_inheritors(table, NoLock, NULL))
		check_table(lfirst_oid(cell));
}

void
blob_open_keys_check_constraint(Oid constraint)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(ConstraintRelationId, SnapshotSelf,
												 ConstraintOidIndexId, Anum_pg_constraint_oid,
												 constraint);
	HeapTuple	tuple = blob_catalog_scan_next(&scan);
	Oid			table = InvalidOid;

	if (tuple != NULL && ((Form_pg_constraint) GETSTRUCT(tuple))->contype == CONSTRAINT_FOREIGN)
		table = ((Form_pg_constraint) GETSTRUCT(tuple))->conrelid;
	blob_catalog_scan_end(&scan);
	if (OidIsValid(table) && !IsBinaryUpgrade)
		check_table(table);
}
