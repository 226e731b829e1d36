/*
 * sql/operators/named_operators.c
 *	  Operators that are named with the extension's schema give way to those of pg_catalog.
 *
 * The operators that indexes, joins and sorts know are in pg_catalog, where SQL finds them whatever
 * the search_path is.  Dumps of versions before 0.4.0 and statements of users name them with the
 * schema where they were: OPERATOR(public.=).  There is a second operator of each under that name,
 * of the same function.  Nothing of the planner knows the second one, so the first takes its place:
 *
 * In a query, before it is planned, in all nodes that have an operator; and when the planner has
 * looked a relation up for it, in the relation's indexes and statistics objects, and in the query's
 * conditions once more: functions have been inlined there.
 *
 * Elsewhere in the planner's simplification: constraints, partition keys and the conditions of ON
 * CONFLICT pass no hook.  The support function of the functions behind the operators makes an
 * operator of each call.  The planner does not ask it about "b = ANY (array)", so ON CONFLICT does
 * not find an index with that in its predicate, if a dump of an older version has made it.
 *
 * An exclusion constraint takes no operator but one of the index's family.  So its statement is
 * changed, where it names columns; of an expression the type is not known.
 *
 * With objects before 0.4.0 there is one operator of each, in the extension's schema, and nothing
 * is replaced.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "core/catalog.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "parser/parse_oper.h"
#include "sql/operators/named_operators.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(blob_operator_support);

/* Functions of operators, by name. */
static const struct
{
	const char *function;
	const char *operator;
}			operator_names[] = {
	{"blob_eq", "="}, {"blob_ne", "<>"}, {"blob_lt", "<"}, {"blob_le", "<="},
	{"blob_gt", ">"}, {"blob_ge", ">="}, {"blob_like", "~~"}, {"blob_not_like", "!~~"},
};

/*
 * The operator of this name and these operands in pg_catalog, if it has this function; else
 * InvalidOid.  Two operators of one function differ in nothing but what the planner knows of them.
 */
static Oid
look_up(const char *name, Oid left, Oid right, Oid function)
{
	Oid			operator = GetSysCacheOid4(OPERNAMENSP, Anum_pg_operator_oid,
										   CStringGetDatum(name), ObjectIdGetDatum(left),
										   ObjectIdGetDatum(right),
										   ObjectIdGetDatum(PG_CATALOG_NAMESPACE));

	return OidIsValid(operator) && get_opcode(operator) == function ? operator : InvalidOid;
}

/* Whether the operator has another one in its place now. */
static bool
replace_operator(Oid *operator, Oid blob_type)
{
	HeapTuple	tuple;
	Form_pg_operator form;
	Oid			other = InvalidOid;

	if (*operator < FirstNormalObjectId)
		return false;
	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(*operator));
	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_operator) GETSTRUCT(tuple);
	if (form->oprnamespace != PG_CATALOG_NAMESPACE &&
		(form->oprleft == blob_type || form->oprright == blob_type))
		other = look_up(NameStr(form->oprname), form->oprleft, form->oprright, form->oprcode);
	ReleaseSysCache(tuple);
	if (!OidIsValid(other))
		return false;
	*operator = other;
	return true;
}

/* The parser has found each operator in a family. */
static void
replace_in_rows(RowCompareExpr *comparison, Oid blob_type)
{
	ListCell   *operator;
	ListCell   *family;

	forboth(operator, comparison->opnos, family, comparison->opfamilies)
		if (replace_operator(&lfirst_oid(operator), blob_type))
			lfirst_oid(family) = get_opclass_family(GetDefaultOpClass(blob_type, BTREE_AM_OID));
}

static void
replace_in_sort(SortGroupClause *clause, Oid blob_type)
{
	replace_operator(&clause->sortop, blob_type);
	if (replace_operator(&clause->eqop, blob_type))
		clause->hashable = op_hashjoinable(clause->eqop, blob_type);
}

/* In all nodes of a query or an expression that have an operator. */
static bool
replace_walker(Node *node, void *blob_type)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Query:
			return query_tree_walker((Query *) node, replace_walker, blob_type,
									 QTW_EXAMINE_SORTGROUP);
		case T_OpExpr:
		case T_DistinctExpr:	/* the same struct */
		case T_NullIfExpr:
			replace_operator(&((OpExpr *) node)->opno, *(Oid *) blob_type);
			break;
		case T_ScalarArrayOpExpr:
			replace_operator(&((ScalarArrayOpExpr *) node)->opno, *(Oid *) blob_type);
			break;
		case T_RowCompareExpr:
			replace_in_rows((RowCompareExpr *) node, *(Oid *) blob_type);
			break;
		case T_SortGroupClause:
			replace_in_sort((SortGroupClause *) node, *(Oid *) blob_type);
			break;
		default:
			break;
	}
	return expression_tree_walker(node, replace_walker, blob_type);
}

void
blob_named_operators_replace(Query *query)
{
	Oid			blob_type = blob_catalog_type();

	if (OidIsValid(blob_type))
		replace_walker((Node *) query, &blob_type);
}

void
blob_named_operators_replace_in_relation(PlannerInfo *root, RelOptInfo *relation)
{
	Oid			blob_type = blob_catalog_type();
	ListCell   *lc;

	if (!OidIsValid(blob_type))
		return;
	replace_walker((Node *) root->parse->jointree, &blob_type);
	foreach(lc, relation->indexlist)
	{
		replace_walker((Node *) lfirst_node(IndexOptInfo, lc)->indexprs, &blob_type);
		replace_walker((Node *) lfirst_node(IndexOptInfo, lc)->indpred, &blob_type);
	}
	foreach(lc, relation->statlist)
		replace_walker((Node *) lfirst_node(StatisticExtInfo, lc)->exprs, &blob_type);
}

/* An element of an exclusion constraint: *name is the name of its operator. */
static void
replace_in_exclusion(Oid relation, const IndexElem *element, List **name, Oid blob_type)
{
	AttrNumber	column = element->name == NULL ? InvalidAttrNumber :
		get_attnum(relation, element->name);
	Oid			operator;

	if (column <= 0 || getBaseType(get_atttype(relation, column)) != blob_type)
		return;
	operator = LookupOperName(NULL, *name, blob_type, blob_type, true, -1);
	if (replace_operator(&operator, blob_type))
		*name = list_make2(makeString("pg_catalog"), llast(*name));
}

/* Only ADD CONSTRAINT has them: a column that ALTER TABLE adds is not there yet. */
static void
replace_in_new_constraints(const AlterTableStmt *statement, Oid blob_type)
{
	Oid			relation = RangeVarGetRelid(statement->relation, NoLock, true);
	ListCell   *command;
	ListCell   *element;

	foreach(command, statement->cmds)
	{
		const AlterTableCmd *cmd = lfirst_node(AlterTableCmd, command);

		if (cmd->subtype != AT_AddConstraint)
			continue;
		foreach(element, castNode(Constraint, cmd->def)->exclusions)
			replace_in_exclusion(relation, linitial(lfirst(element)),
								 (List **) &lsecond(lfirst(element)), blob_type);
	}
}

static void
replace_in_index(const IndexStmt *statement, Oid blob_type)
{
	ListCell   *element;
	ListCell   *name;

	forboth(element, statement->indexParams, name, statement->excludeOpNames)
		replace_in_exclusion(RangeVarGetRelid(statement->relation, NoLock, true),
							 lfirst(element), (List **) &lfirst(name), blob_type);
}

void
blob_named_operators_replace_in_statement(Node *statement)
{
	Oid			blob_type;

	if (!IsA(statement, AlterTableStmt) && !IsA(statement, IndexStmt))
		return;
	blob_type = blob_catalog_type();
	if (!OidIsValid(blob_type))
		return;
	if (IsA(statement, AlterTableStmt))
		replace_in_new_constraints((AlterTableStmt *) statement, blob_type);
	else
		replace_in_index((IndexStmt *) statement, blob_type);
}

/* The operator of pg_catalog for this function, or InvalidOid. */
static Oid
operator_of_function(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	Oid			operator = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	for (size_t i = 0; i < lengthof(operator_names) && form->pronargs == 2; i++)
		if (strcmp(NameStr(form->proname), operator_names[i].function) == 0)
			operator = look_up(operator_names[i].operator, form->proargtypes.values[0],
							   form->proargtypes.values[1], function);
	ReleaseSysCache(tuple);
	return operator;
}

/*
 * blob_operator_support(internal) returns internal
 *
 * For an operator the planner asks the function behind it, and does not ask again about the result.
 */
Datum
blob_operator_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	const FuncExpr *call;
	Oid			operator;
	OpExpr	   *result;

	if (!IsA(request, SupportRequestSimplify))
		PG_RETURN_POINTER(NULL);
	call = ((SupportRequestSimplify *) request)->fcall;
	operator = operator_of_function(call->funcid);
	if (!OidIsValid(operator) || list_length(call->args) != 2)
		PG_RETURN_POINTER(NULL);
	result = (OpExpr *) make_opclause(operator, call->funcresulttype, false, linitial(call->args),
									  lsecond(call->args), call->funccollid, call->inputcollid);
	result->opfuncid = call->funcid;
	PG_RETURN_POINTER(result);
}
