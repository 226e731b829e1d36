/*
 * assign/index_kinds.c
 *	  Allows only access methods whose items the collector can read on types that can hold
 *	  blobstate.
 *
 * The collector reaches a btree's items, on all levels, through its sibling links.  A hash index
 * stores integers.  GIN never deletes a key; BRIN, GiST and SP-GiST widen their keys over rows that
 * are long gone; the keys of an unknown access method are unknown.  So these are refused for every
 * type that can hold blobstate, whatever statement asks for them.  An index on sha256(column)
 * stores bytea, and may be of any kind.
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

/* The type of the indexed column or expression, of an index that this very command made. */
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
 * Refuse the index if the type of one of its columns, INCLUDE columns too, contains the inner type.
 * The column's type is the operator class's storage type.  The indexed type counts as well, since
 * an access method may store values as they are; only GIN makes its keys anew from them.  If the
 * operator class declares a pseudo-type such as anyrange, the stored type may be any, so the
 * indexed type counts for GIN, too.
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

/* Check the relation with this OID, if it is an index; or all indexes, if it is InvalidOid. */
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
