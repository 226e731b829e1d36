/*
 * assign/map_guard.c
 *	  Refuses DDL that would damage the extent map or hide it, and the map's access method for other
 *	  relations.
 *
 * Every descriptor depends on the map's file and on its name.  Changes of its tablespace, its owner
 * and its storage parameters are harmless.  The map and the type count as members of the extension
 * only (core/catalog.h), so they cannot be taken from it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_type.h"
#include "store/map_relation.h"
#include "assign/assign.h"
#include "utils/snapmgr.h"

/* Subcommands of ALTER TABLE that leave the map's file, columns and name as they are. */
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

/* Does this statement change the map's definition, or its name? */
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

/* Is this blobstate?  The grammar has a name, or a list of its parts. */
static bool
is_type(Node *object)
{
	TypeName   *name = IsA(object, TypeName) ? (TypeName *) object :
		makeTypeNameFromNameList(castNode(List, object));

	return LookupTypeNameOid(NULL, name, true) == blob_catalog_type();
}

/*
 * Would other processes not find the type or the map any more: taken from the extension, or under
 * another name?  The extension's own scripts may do so.
 */
static bool
would_hide(Node *statement)
{
	if (IsA(statement, RenameStmt))
		return ((RenameStmt *) statement)->renameType == OBJECT_TYPE &&
			is_type(((RenameStmt *) statement)->object);
	if (IsA(statement, AlterObjectSchemaStmt))
		return ((AlterObjectSchemaStmt *) statement)->objectType == OBJECT_TYPE &&
			is_type(((AlterObjectSchemaStmt *) statement)->object);
	if (IsA(statement, AlterExtensionContentsStmt))
	{
		AlterExtensionContentsStmt *alter = (AlterExtensionContentsStmt *) statement;

		if (alter->action >= 0 || strcmp(alter->extname, "blobext") != 0)
			return false;
		return alter->objtype == OBJECT_TYPE ? is_type(alter->object) :
			alter->objtype == OBJECT_TABLE &&
			is_map(makeRangeVarFromNameList(castNode(List, alter->object)));
	}
	return false;
}

void
blob_assign_guard_map(Node *statement)
{
	if (would_hide(statement) && !blob_catalog_in_script())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot rename type blobstate, or take it or the extent map from extension "
						"\"blobext\""),
				 errdetail("Values of type blobstate depend on them.")));
	if (would_damage(statement))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot alter the extent map of blobext"),
				 errdetail("Values of type blobstate depend on it.")));
}

/*
 * May this relation have the access method that its row of pg_class names?  A rewrite of the map
 * names the map in relrewrite, which only make_new_heap() can write.
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
 * The access method itself refuses where it makes a file (map_set_new_filelocator): before anything
 * is made, but also before there is a row of pg_class.  This function reads the row.  So it also
 * sees partitioned tables, which have no file, but an access method for their partitions.
 */
void
blob_assign_check_map_method(Oid relid, bool is_new)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(RelationRelationId, SnapshotSelf, ClassOidIndexId,
												 Anum_pg_class_oid, relid);
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		/* A relation that is there may exchange its file with a transient one. */
		if (!may_have_method(class) && (is_new || class->relkind == RELKIND_PARTITIONED_TABLE))
			blob_map_refuse_relation();
	}
}
