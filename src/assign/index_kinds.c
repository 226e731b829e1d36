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

#include "access/htup_details.h"
#include "catalog/pg_am.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "containers/walk.h"
#include "core/catalog_scan.h"
#include "assign/assign.h"
#include "containers/walk.h"

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
	BlobCatalogScan scan = blob_catalog_scan_oid(IndexRelationId, SnapshotSelf, IndexRelidIndexId,
												 Anum_pg_index_indexrelid, index);
	HeapTuple	tuple = blob_catalog_scan_next(&scan);
	Oid			type = InvalidOid;

	if (tuple != NULL)
	{
		Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);
		const int16 *keys = form->indkey.values;

		if (keys[attnum - 1] != 0)
			type = get_atttype(form->indrelid, keys[attnum - 1]);
		else
		{
			bool		isnull;
			Datum		datum = heap_getattr(tuple, Anum_pg_index_indexprs,
											 RelationGetDescr(scan.catalog), &isnull);
			int			expression_no = 0;

			for (int i = 0; i < attnum - 1; i++)
				expression_no += keys[i] == 0;
			type = exprType(list_nth(stringToNode(TextDatumGetCString(datum)), expression_no));
		}
	}
	blob_catalog_scan_end(&scan);
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
	BlobCatalogScan scan = blob_catalog_scan_oid(AttributeRelationId, SnapshotSelf,
												 AttributeRelidNumIndexId,
												 Anum_pg_attribute_attrelid, index->oid);
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
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
}

/* Check the relation with this OID, if it is an index; or all indexes, if it is InvalidOid. */
static void
check_indexes(Oid relid, Oid inner)
{
	BlobCatalogScan scan = OidIsValid(relid) ?
		blob_catalog_scan_oid(RelationRelationId, SnapshotSelf, ClassOidIndexId,
							  Anum_pg_class_oid, relid) :
		blob_catalog_scan(RelationRelationId, SnapshotSelf);
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_class relation = (Form_pg_class) GETSTRUCT(tuple);

		if ((relation->relkind == RELKIND_INDEX ||
			 relation->relkind == RELKIND_PARTITIONED_INDEX) &&
			relation->relam != BTREE_AM_OID && relation->relam != HASH_AM_OID)
			check_columns(relation, inner);
	}
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
