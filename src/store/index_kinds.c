/*
 * store/index_kinds.c
 *	  Which access methods may index what holds blobstate: those whose items the collector reads.
 *
 * What counts is the type that the index stores: pg_attribute has it, after operator classes with
 * a STORAGE type were resolved.  A hash index stores integers, an index on sha256(column) bytea.
 * A btree's items are found through its sibling links.  GIN never deletes a key, BRIN, GiST and
 * SP-GiST widen theirs over rows long gone, and what an unknown access method does nobody knows:
 * those are refused for every type that can hold blobstate, whatever statement asks for them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "blob/walk.h"
#include "store/store.h"

static bool
is_index(char relkind)
{
	return relkind == RELKIND_INDEX || relkind == RELKIND_PARTITIONED_INDEX;
}

static void
refuse(const char *index_name, Oid access_method, const char *column_name, Oid type)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("access method \"%s\" does not support values of type blobstate",
					get_am_name(access_method)),
			 errdetail("Column \"%s\" of index \"%s\" has type %s: the index could refer to stored "
					   "content for ever.", column_name, index_name, format_type_be(type)),
			 errhint("Use a btree or hash index, or index an expression of another type, such as "
					 "length(), sha256() or blob_prefix() of the value.")));
}

/* Refuse the index if one of its columns, INCLUDE columns too, can hold blobstate. */
static void
check_columns(Oid index, const char *index_name, Oid access_method)
{
	Relation	attributes = table_open(AttributeRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_attribute_attrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(index));
	scan = systable_beginscan(attributes, AttributeRelidNumIndexId, true, SnapshotSelf, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_attribute column = (Form_pg_attribute) GETSTRUCT(tuple);

		if (blob_walk_type_holds(column->atttypid))
			refuse(index_name, access_method, NameStr(column->attname), column->atttypid);
	}
	systable_endscan(scan);
	table_close(attributes, AccessShareLock);
}

void
blob_store_check_index(Oid relid)
{
	Relation	classes = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(classes, ClassOidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class relation = (Form_pg_class) GETSTRUCT(tuple);

		if (is_index(relation->relkind) && relation->relam != BTREE_AM_OID)
			check_columns(relid, NameStr(relation->relname), relation->relam);
	}
	systable_endscan(scan);
	table_close(classes, AccessShareLock);
}

/* A column that is about to hold blobstate, because a composite type inside of its type will. */
void
blob_store_check_index_column(Form_pg_attribute column)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(column->attrelid));
	Form_pg_class relation;

	if (!HeapTupleIsValid(tuple))
		return;
	relation = (Form_pg_class) GETSTRUCT(tuple);
	if (is_index(relation->relkind) && relation->relam != BTREE_AM_OID)
		refuse(NameStr(relation->relname), relation->relam, NameStr(column->attname),
			   column->atttypid);
	ReleaseSysCache(tuple);
}
