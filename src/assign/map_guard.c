/*
 * assign/map_guard.c
 *	  Refuses DDL that would damage the extent map: every descriptor depends on its file and on its
 *	  name.  Moving it to another tablespace, its owner and its storage parameters are harmless.
 *	  Refuses its access method to other relations.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "core/catalog.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "store/map.h"
#include "assign/assign.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

static bool
is_harmless(AlterTableType subtype)
{
	switch (subtype)
	{
		case AT_SetTableSpace:
		case AT_ChangeOwner:
		case AT_SetRelOptions:
		case AT_ResetRelOptions:
		case AT_SetStatistics:
			return true;
		default:
			return false;
	}
}

static bool
is_map(RangeVar *relation)
{
	Oid			map = blob_catalog_map_relation_if_any();

	return relation != NULL && OidIsValid(map) &&
		RangeVarGetRelid(relation, NoLock, true) == map;
}

static bool
would_damage(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_AlterTableStmt:
			{
				AlterTableStmt *alter = (AlterTableStmt *) statement;
				ListCell   *cell;

				foreach(cell, alter->cmds)
				{
					if (!is_harmless(lfirst_node(AlterTableCmd, cell)->subtype))
						return is_map(alter->relation);
				}
				return false;
			}
		case T_RenameStmt:
			return is_map(((RenameStmt *) statement)->relation);
		case T_AlterObjectSchemaStmt:
			return is_map(((AlterObjectSchemaStmt *) statement)->relation);
		default:
			return false;
	}
}

void
blob_assign_guard_map(Node *statement)
{
	if (would_damage(statement))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot alter the extent map of blobext"),
				 errdetail("Values of type blobstate depend on it.")));
}

/*
 * Whether this relation may have the access method that its row of pg_class names.  A rewrite says
 * there what it rewrites, which only make_new_heap() can write.
 */
static bool
may_have_method(Form_pg_class class)
{
	if (!blob_catalog_is_map_method(class->relam) || IsBinaryUpgrade)
		return true;
	return blob_map_is_being_created(class) ||
		(OidIsValid(class->relrewrite) &&
		 class->relrewrite == blob_catalog_map_relation_if_any());
}

/*
 * The access method itself decides where it makes a file (map_set_new_filelocator): before anything
 * is made, but also before there is a row of pg_class.  This looks at the row, and so sees
 * partitioned tables as well, which have no file, but an access method for their partitions.
 */
void
blob_assign_check_map_method(Oid relid, bool is_new)
{
	Relation	classes = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(classes, ClassOidIndexId, true, SnapshotSelf, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		/* A relation that is there may exchange its file with a transient one. */
		if (!may_have_method(class) && (is_new || class->relkind == RELKIND_PARTITIONED_TABLE))
			blob_map_refuse_relation();
	}
	systable_endscan(scan);
	table_close(classes, AccessShareLock);
}
