/*
 * assign/partition_key.c
 *	  Partition keys fold to no descriptor.
 *
 * The relation cache folds constants in the expressions of a partition key outside of the planner,
 * and keeps the result as long as the relation is open.  If an IMMUTABLE function returned a
 * descriptor, the result would contain it, and it would become stale.  So a new table is refused
 * for two reasons:
 *
 *	- the key calls a function or operator of a user whose result can hold blobstate.  Its arguments
 *	  do not matter, because simplification can remove the columns from them;
 *	- the key folds to a descriptor all the same, out of the body of an SQL function that is
 *	  inlined.
 *
 * A key is checked again when a function that it calls is replaced or altered.  All keys are
 * checked again when a row type comes to hold blobstate.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_language.h"
#include "catalog/pg_partitioned_table.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "containers/walk.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"
#include "core/descriptor.h"
#include "assign/assign.h"

/* ---- calls ---- */

static Oid
language_of(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			language = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		language = ((Form_pg_proc) GETSTRUCT(tuple))->prolang;
		ReleaseSysCache(tuple);
	}
	return language;
}

/*
 * Is this function a user's?  The server's own functions, constructors of range types among them,
 * are not, nor are the extension's: the immutable ones of these keep no values.  Notes the function
 * in *context.
 */
static bool
is_of_user(Oid function, void *context)
{
	if (function < FirstNormalObjectId || language_of(function) == INTERNALlanguageId ||
		blob_catalog_is_member(ProcedureRelationId, function))
		return false;
	*(Oid *) context = function;
	return true;
}

static bool
result_holds(Node *call)
{
	Oid			type = exprType(call);
	TupleDesc	row_type;

	if (type == RECORDARRAYOID)
		return true;
	if (type != RECORDOID)
		return blob_walk_type_holds(type);
	row_type = get_expr_result_tupdesc(call, true);
	return row_type == NULL || blob_walk_row_holds(row_type);
}

/* An expression_tree_walker: finds a call that is refused, and notes its function in *context. */
static bool
find_call(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, is_of_user, context) && result_holds(node))
		return true;
	return expression_tree_walker(node, find_call, context);
}

/* ---- folded constants ---- */

static void
note_descriptor(Datum datum, void *context)
{
	BlobValue	value;

	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), &value);
	if (!value.is_inline)
		*(bool *) context = true;
}

static bool
find_descriptor(Node *node, void *context)
{
	Const	   *constant = (Const *) node;
	bool		found = false;

	if (node == NULL)
		return false;
	if (!IsA(node, Const))
		return expression_tree_walker(node, find_descriptor, context);
	if (!constant->constisnull && blob_walk_type_holds(constant->consttype))
		blob_walk_datum(constant->constvalue, constant->consttype, note_descriptor, &found);
	return found;
}

/* ---- keys ---- */

static Oid
relation_owner(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * The expressions of a partition key; NIL if there are none, or if the relation is not partitioned.
 */
static List *
key_expressions(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(PARTRELID, ObjectIdGetDatum(relid));
	List	   *expressions = NIL;
	bool		is_null;
	Datum		datum;

	if (!HeapTupleIsValid(tuple))
		return NIL;
	datum = SysCacheGetAttr(PARTRELID, tuple, Anum_pg_partitioned_table_partexprs, &is_null);
	if (!is_null)
		expressions = castNode(List, stringToNode(TextDatumGetCString(datum)));
	ReleaseSysCache(tuple);
	return expressions;
}

/*
 * Folding runs functions that the table's owner has chosen.  So they run as the owner, and such
 * that they leave nothing behind for the user who makes or checks the key.
 */
static Node *
fold_as_owner(Oid relid, Node *expressions)
{
	int			guc_level = NewGUCNestLevel();
	Node	   *folded;
	Oid			user;
	int			security;

	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(relation_owner(relid), security | SECURITY_RESTRICTED_OPERATION);
	folded = eval_const_expressions(NULL, expressions);
	AtEOXact_GUC(false, guc_level);
	SetUserIdAndSecContext(user, security);
	return folded;
}

char *
blob_assign_partition_key_problem(Oid relid)
{
	Node	   *expressions = (Node *) key_expressions(relid);
	Oid			function = InvalidOid;

	if (expressions == NULL)
		return NULL;
	if (find_call(expressions, &function))
		return psprintf("The key calls function %s, whose result can be a stored value.",
						format_procedure(function));
	if (find_descriptor(fold_as_owner(relid, expressions), NULL))
		return pstrdup("A function that the key calls is replaced by its body, and that folds to "
					   "a stored value.");
	return NULL;
}

void
blob_assign_check_partition_key(Oid relid)
{
	char	   *problem = blob_assign_partition_key_problem(relid);

	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("partition key of table \"%s\" could refer to stored content",
						get_rel_name(relid)),
				 errdetail("%s", problem),
				 errhint("Let functions in partition keys return other types than blobstate, and "
						 "use no stored values.")));
}

/* The row of a constraint that has just been made, which a look-up by OID does not see yet. */
static char *
constraint_expression(Oid constraint, char **name)
{
	BlobCatalogScan scan = blob_catalog_scan_oid(ConstraintRelationId, SnapshotSelf,
												 ConstraintOidIndexId, Anum_pg_constraint_oid,
												 constraint);
	HeapTuple	tuple = blob_catalog_scan_next(&scan);
	char	   *expression = NULL;
	bool		is_null = true;

	if (tuple != NULL)
	{
		Datum		datum = heap_getattr(tuple, Anum_pg_constraint_conbin,
										 RelationGetDescr(scan.catalog), &is_null);

		*name = pstrdup(NameStr(((Form_pg_constraint) GETSTRUCT(tuple))->conname));
		if (!is_null)
			expression = TextDatumGetCString(datum);
	}
	blob_catalog_scan_end(&scan);
	return expression;
}

void
blob_assign_check_constraint(Oid constraint)
{
	char	   *name;
	char	   *expression = constraint_expression(constraint, &name);

	if (expression != NULL && find_descriptor(stringToNode(expression), NULL))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("constraint \"%s\" would refer to stored content", name),
				 errdetail("A function in the partition key is declared IMMUTABLE and returns a "
						   "stored value."),
				 errhint("Detach the partition without CONCURRENTLY.")));
}

List *
blob_assign_partition_keys_using(Oid function)
{
	List	   *relations = NIL;
	ScanKeyData keys[2];
	BlobCatalogScan scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(ProcedureRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(function));
	scan = blob_catalog_scan_keys(DependRelationId, NULL, DependReferenceIndexId, 2, keys);
	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->classid == RelationRelationId &&
			get_rel_relkind(form->objid) == RELKIND_PARTITIONED_TABLE)
			relations = lappend_oid(relations, form->objid);
	}
	return relations;
}

List *
blob_assign_partition_keys(void)
{
	BlobCatalogScan scan = blob_catalog_scan(PartitionedRelationId, NULL);
	List	   *relations = NIL;
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		if (!heap_attisnull(tuple, Anum_pg_partitioned_table_partexprs,
							RelationGetDescr(scan.catalog)))
			relations = lappend_oid(relations,
									((Form_pg_partitioned_table) GETSTRUCT(tuple))->partrelid);
	}
	return relations;
}
