/*
 * store/bounds.c
 *	  Partition bounds of type blobstate.
 *
 * PostgreSQL evaluates a bound once, when the partition is attached, and keeps the result in
 * pg_class.  A descriptor there would break the table as soon as its extents are collected.  So the
 * length coercion is told to return content (blob_store_suppressed()), and since a function could
 * still return a descriptor of its own, a bound of this type must be a literal.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_partitioned_table.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "store/store.h"

/*
 * Types of the partition key's columns.  Without a lock: the statement itself takes a stronger one
 * than we could hold without inviting deadlocks, and a key never changes.
 */
static List *
partition_key_types(RangeVar *parent)
{
	Oid			relid = RangeVarGetRelid(parent, NoLock, true);
	HeapTuple	tuple;
	Form_pg_partitioned_table form;
	List	   *exprs = NIL;
	List	   *types = NIL;
	ListCell   *next_expr;
	Datum		datum;
	bool		isnull;

	if (!OidIsValid(relid))
		return NIL;
	tuple = SearchSysCache1(PARTRELID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return NIL;

	form = (Form_pg_partitioned_table) GETSTRUCT(tuple);
	datum = SysCacheGetAttr(PARTRELID, tuple, Anum_pg_partitioned_table_partexprs, &isnull);
	if (!isnull)
		exprs = castNode(List, stringToNode(TextDatumGetCString(datum)));

	next_expr = list_head(exprs);
	for (int i = 0; i < form->partnatts; i++)
	{
		AttrNumber	attno = form->partattrs.values[i];

		if (attno != 0)
			types = lappend_oid(types, get_atttype(relid, attno));
		else
		{
			types = lappend_oid(types, exprType((Node *) lfirst(next_expr)));
			next_expr = lnext(exprs, next_expr);
		}
	}
	ReleaseSysCache(tuple);
	return types;
}

/* MINVALUE and MAXVALUE look like column names here. */
static bool
is_literal(Node *raw)
{
	while (IsA(raw, TypeCast))
		raw = ((TypeCast *) raw)->arg;
	return IsA(raw, A_Const) || IsA(raw, ColumnRef);
}

static void
check_datum(Node *raw, Oid key_type, Oid blob_type)
{
	if (blob_store_is_blob_type(key_type, blob_type) && !is_literal(raw))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("partition bound of type %s must be a literal",
						format_type_be(key_type)),
				 errdetail("Partition bounds are kept in a system catalog, which must not refer "
						   "to stored content.")));
}

/* A range bound has one value for each key column. */
static void
check_range(List *datums, List *key_types, Oid blob_type)
{
	ListCell   *datum;
	ListCell   *key_type;

	forboth(datum, datums, key_type, key_types)
		check_datum((Node *) lfirst(datum), lfirst_oid(key_type), blob_type);
}

static void
check_bound(PartitionBoundSpec *bound, RangeVar *parent)
{
	Oid			blob_type = blob_store_type();
	List	   *key_types = partition_key_types(parent);
	ListCell   *lc;

	if (key_types == NIL)
		return;
	foreach(lc, bound->listdatums)
		check_datum((Node *) lfirst(lc), linitial_oid(key_types), blob_type);
	check_range(bound->lowerdatums, key_types, blob_type);
	check_range(bound->upperdatums, key_types, blob_type);
}

bool
blob_store_check_bounds(Node *statement)
{
	bool		has_bounds = false;

	if (IsA(statement, CreateStmt) || IsA(statement, CreateForeignTableStmt))
	{
		CreateStmt *create = (CreateStmt *) statement;

		if (create->partbound && create->inhRelations != NIL)
		{
			check_bound(create->partbound, linitial_node(RangeVar, create->inhRelations));
			has_bounds = true;
		}
	}
	else if (IsA(statement, AlterTableStmt))
	{
		AlterTableStmt *alter = (AlterTableStmt *) statement;
		ListCell   *lc;

		foreach(lc, alter->cmds)
		{
			AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

			if (cmd->subtype == AT_AttachPartition &&
				castNode(PartitionCmd, cmd->def)->bound != NULL)
			{
				check_bound(castNode(PartitionCmd, cmd->def)->bound, alter->relation);
				has_bounds = true;
			}
		}
	}
	return has_bounds;
}
