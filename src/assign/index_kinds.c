/*
 * assign/index_kinds.c
 *	  Which access methods may index what holds blobstate: those whose items the collector reads.
 *
 * A btree's items, on all levels, are found through its sibling links; a hash index stores
 * integers.  GIN never deletes a key, BRIN, GiST and SP-GiST widen theirs over rows long gone, and
 * what an unknown access method does nobody knows: those are refused for every type that can hold
 * blobstate, whatever statement asks for them.  An index on sha256(column) stores bytea, and may
 * be of any kind.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "blob/walk.h"
#include "assign/assign.h"

static void
refuse(Form_pg_class index, const char *column_name, Oid type)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("access method \"%s\" does not support values of type blobstate",
					get_am_name(index->relam)),
			 errdetail("Column \"%s\" of index \"%s\" would keep values of type %s, and could "
					   "refer to stored content for ever.", column_name,
					   NameStr(index->relname), format_type_be_qualified(type)),
			 errhint("Use a btree or hash index, or index an expression of another type, such as "
					 "length(), sha256() or blob_prefix() of the value.")));
}

/* The type of a column or expression of the table, of an index that this very command made. */
static Oid
indexed_type(Oid index, AttrNumber attnum)
{
	Relation	indexes = table_open(IndexRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			type = InvalidOid;

	ScanKeyInit(&key, Anum_pg_index_indexrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(index));
	scan = systable_beginscan(indexes, IndexRelidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);
		const int16 *keys = form->indkey.values;

		if (keys[attnum - 1] != 0)
			type = get_atttype(form->indrelid, keys[attnum - 1]);
		else
		{
			bool		isnull;
			Datum		datum = heap_getattr(tuple, Anum_pg_index_indexprs,
											 RelationGetDescr(indexes), &isnull);
			int			expression_no = 0;

			for (int i = 0; i < attnum - 1; i++)
				expression_no += keys[i] == 0;
			type = exprType(list_nth(stringToNode(TextDatumGetCString(datum)), expression_no));
		}
	}
	systable_endscan(scan);
	table_close(indexes, AccessShareLock);
	return type;
}

/*
 * Refuse the index if one of its columns, INCLUDE columns too, reaches the inner type.  The
 * column's type is what the operator class says that it stores.  Only GIN makes its keys anew from
 * what is indexed, others may store that as it is; and where the operator class says no more than
 * anyrange, say, it may be any.
 */
static void
check_columns(Form_pg_class index, Oid inner)
{
	Relation	attributes = table_open(AttributeRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_attribute_attrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(index->oid));
	scan = systable_beginscan(attributes, AttributeRelidNumIndexId, true, SnapshotSelf, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_attribute column = (Form_pg_attribute) GETSTRUCT(tuple);
		Oid			type = column->atttypid;

		if (blob_walk_type_reaches(type, inner))
			refuse(index, NameStr(column->attname), type);
		if (index->relam == GIN_AM_OID && get_typtype(type) != TYPTYPE_PSEUDO)
			continue;
		type = indexed_type(index->oid, column->attnum);
		if (blob_walk_type_reaches(type, inner))
			refuse(index, NameStr(column->attname), type);
	}
	systable_endscan(scan);
	table_close(attributes, AccessShareLock);
}

/* The index with this OID (or no index), or all with InvalidOid. */
static void
check_indexes(Oid relid, Oid inner)
{
	Relation	classes = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(classes, ClassOidIndexId, OidIsValid(relid), SnapshotSelf,
							  OidIsValid(relid) ? 1 : 0, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class relation = (Form_pg_class) GETSTRUCT(tuple);

		if ((relation->relkind == RELKIND_INDEX ||
			 relation->relkind == RELKIND_PARTITIONED_INDEX) &&
			relation->relam != BTREE_AM_OID && relation->relam != HASH_AM_OID)
			check_columns(relation, inner);
	}
	systable_endscan(scan);
	table_close(classes, AccessShareLock);
}

void
blob_assign_check_index(Oid relid)
{
	check_indexes(relid, blob_assign_type());
}

void
blob_assign_check_indexes_of_type(Oid row_type)
{
	check_indexes(InvalidOid, row_type);
}
