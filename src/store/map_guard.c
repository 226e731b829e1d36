/*
 * store/map_guard.c
 *	  Refuses DDL that would damage the extent map: every descriptor depends on its file and on its
 *	  name.  Moving it to another tablespace, its owner and its storage parameters are harmless.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "core/catalog.h"
#include "nodes/parsenodes.h"
#include "store/store.h"

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
blob_store_guard_map(Node *statement)
{
	if (would_damage(statement))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot alter the extent map of blobext"),
				 errdetail("Values of type blobstate depend on it.")));
}
