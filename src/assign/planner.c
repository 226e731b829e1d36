/*
 * assign/planner.c
 *	  Wrap every expression that INSERT, UPDATE and MERGE assign to a blobstate column in
 *	  blob_store(), which is told the column: it has a method of compression.
 *
 * The length coercion that the hidden type modifier brings (columns.c) covers an assignment only
 * where the assigned expression does not carry that modifier already.  A column of another table,
 * of a view or of a function's row type carries it, whatever value it holds.  Columns that were
 * made while the library was not loaded have no modifier.  So each assignment that the planner sees
 * is wrapped here.  A coercion on top of it is replaced, because the coercion does not know its
 * column; so are those of the elements of an array, and of the rows of VALUES.
 *
 * This file changes the query and not the finished plan.  So the planner itself takes care of
 * everything that a changed target list entails: projection, volatility, plan invalidation when the
 * function is dropped.  The planner may scribble on its input, so this file may, too.  The
 * expression is evaluated at each execution of the plan, so no cached plan ever holds a descriptor.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "containers/walk.h"
#include "core/catalog.h"
#include "assign/assign.h"
#include "assign/hooks.h"

typedef struct StoreFunctions
{
	Oid			type;
	Oid			store;			/* blob_store(blobstate) */
	Oid			store_in_column;	/* the same for a column; invalid with objects before 0.3.0 */
	Oid			store_contained;	/* in arrays and rows; invalid with objects before 0.4.0 */
	Oid			coerce;			/* length coercion */
} StoreFunctions;

/* The column that an expression is assigned to. */
typedef struct StoreColumn
{
	const StoreFunctions *functions;
	Oid			relation;
	AttrNumber	number;
} StoreColumn;

static Oid
store_function(const StoreFunctions *functions)
{
	return OidIsValid(functions->store_in_column) ? functions->store_in_column : functions->store;
}

/*
 * A call of blob_store() for a value of type blobstate.  ERROR 55000 if the extension has no such
 * function: without it a value would be stored whose descriptor was not verified.
 */
static Expr *
make_store(Expr *value, const StoreColumn *column)
{
	const StoreFunctions *functions = column->functions;
	List	   *arguments = list_make1(value);

	if (OidIsValid(functions->store_in_column))
		arguments = list_make3(value,
							   makeConst(REGCLASSOID, -1, InvalidOid, sizeof(Oid),
										 ObjectIdGetDatum(column->relation), false, true),
							   makeConst(INT2OID, -1, InvalidOid, sizeof(int16),
										 Int16GetDatum(column->number), false, true));
	blob_catalog_require(store_function(functions), "function blob_store(blobstate)");
	return (Expr *) makeFuncExpr(store_function(functions), functions->type, arguments,
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/*
 * Replace the parser's coercion, on top of an expression or of the elements of an array, by a call
 * that knows the column.  It keeps the coercion's modifier, by which the parser has chosen the
 * nodes above it.
 */
static Expr *
replace_coercion(Expr *expr, const StoreColumn *column)
{
	if (expr == NULL || !OidIsValid(column->functions->store_in_column))
		return expr;
	if (IsA(expr, RelabelType))
		((RelabelType *) expr)->arg = replace_coercion(((RelabelType *) expr)->arg, column);
	else if (IsA(expr, CoerceToDomain))
		((CoerceToDomain *) expr)->arg = replace_coercion(((CoerceToDomain *) expr)->arg, column);
	else if (IsA(expr, ArrayCoerceExpr))
		((ArrayCoerceExpr *) expr)->elemexpr =
			replace_coercion(((ArrayCoerceExpr *) expr)->elemexpr, column);
	else if (IsA(expr, FuncExpr) && ((FuncExpr *) expr)->funcid == column->functions->coerce)
		return (Expr *) applyRelabelType((Node *) make_store(linitial(((FuncExpr *) expr)->args),
															 column),
										 column->functions->type, BLOB_ASSIGN_TYPMOD, InvalidOid,
										 COERCE_IMPLICIT_CAST, -1, false);
	return expr;
}

/* Is the expression certain to yield an externalized value or NULL? */
static bool
needs_no_store(Node *expr, const StoreFunctions *functions)
{
	while (IsA(expr, RelabelType) || IsA(expr, CoerceToDomain))
	{
		if (IsA(expr, RelabelType))
			expr = (Node *) ((RelabelType *) expr)->arg;
		else
			expr = (Node *) ((CoerceToDomain *) expr)->arg;
	}

	if (IsA(expr, Const))
		return ((Const *) expr)->constisnull;
	if (IsA(expr, FuncExpr))
	{
		Oid			funcid = ((FuncExpr *) expr)->funcid;

		return funcid == store_function(functions) || funcid == functions->coerce;
	}
	return false;
}

/*
 * A domain's value is relabelled to the base type and back, because the executor compares the types
 * of a plan's columns with those of the table.
 */
static Expr *
wrap_expression(Expr *expr, const StoreColumn *column)
{
	Oid			blob_type = column->functions->type;
	Oid			declared_type = exprType((Node *) expr);
	Node	   *result = (Node *) expr;

	if (declared_type != blob_type)
		result = applyRelabelType(result, blob_type, -1, InvalidOid, COERCE_IMPLICIT_CAST, -1,
								  false);
	result = (Node *) make_store((Expr *) result, column);
	if (declared_type != blob_type)
		result = applyRelabelType(result, declared_type, -1, InvalidOid,
								  COERCE_IMPLICIT_CAST, -1, false);
	return (Expr *) result;
}

/* In the rows of a VALUES list: INSERT of more than one row, which the parser coerces there. */
static void
replace_in_rows(const RangeTblEntry *rte, int column_no, const StoreColumn *column)
{
	ListCell   *row;

	foreach(row, rte->values_lists)
	{
		ListCell   *cell = list_nth_cell((List *) lfirst(row), column_no);

		lfirst(cell) = replace_coercion(lfirst(cell), column);
	}
}

/* Replace coercions in the rows of VALUES that an expression is a column of. */
static void
replace_in_values(const Query *query, Expr *expr, const StoreColumn *column)
{
	const RangeTblEntry *rte;

	while (IsA(expr, RelabelType))
		expr = ((RelabelType *) expr)->arg;
	if (query->commandType != CMD_INSERT || !IsA(expr, Var) || ((Var *) expr)->varlevelsup > 0)
		return;
	rte = rt_fetch(((Var *) expr)->varno, query->rtable);
	if (rte->rtekind == RTE_VALUES && ((Var *) expr)->varattno > 0)
		replace_in_rows(rte, ((Var *) expr)->varattno - 1, column);
}

/* Can values of this type hold blobstate? */
static bool
holds_values(Oid type)
{
	return type >= FirstNormalObjectId && blob_walk_type_holds(type);
}

/*
 * An array, a row or a range, with the descriptors inside of it as they are to be stored.  Elements
 * that an expression on top coerces one by one are stored by that.
 */
static Expr *
wrap_contained(Expr *expr, const StoreFunctions *functions)
{
	Oid			type = exprType((Node *) expr);

	if (IsA(expr, Const) || IsA(expr, ArrayCoerceExpr) || !OidIsValid(functions->store_contained))
		return expr;
	return (Expr *) makeFuncExpr(functions->store_contained, type, list_make1(expr), InvalidOid,
								 InvalidOid, COERCE_EXPLICIT_CALL);
}

/* Wrap the columns of a target list that can hold values and still need it. */
static void
wrap_target_list(const Query *query, List *target_list, const StoreFunctions *functions)
{
	Oid			relation = rt_fetch(query->resultRelation, query->rtable)->relid;
	ListCell   *lc;

	foreach(lc, target_list)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);
		StoreColumn column = {functions, relation, tle->resno};

		if (tle->resjunk || tle->expr == NULL || !holds_values(exprType((Node *) tle->expr)))
			continue;
		tle->expr = replace_coercion(tle->expr, &column);
		replace_in_values(query, tle->expr, &column);
		if (!blob_assign_is_blob_type(exprType((Node *) tle->expr), functions->type))
			tle->expr = wrap_contained(tle->expr, functions);
		else if (!needs_no_store((Node *) tle->expr, functions))
			tle->expr = wrap_expression(tle->expr, &column);
	}
}

/* Remove the parser's length coercion: another server gets the content, and stores it itself. */
static Expr *
unwrap_expression(Expr *expr, const StoreFunctions *functions)
{
	FuncExpr   *fexpr = (FuncExpr *) expr;

	if (!IsA(expr, FuncExpr) || fexpr->funcid != functions->coerce ||
		fexpr->funcformat != COERCE_IMPLICIT_CAST)
		return expr;
	return (Expr *) applyRelabelType(linitial(fexpr->args), functions->type,
									 BLOB_ASSIGN_TYPMOD, InvalidOid,
									 COERCE_IMPLICIT_CAST, -1, false);
}

static void
unwrap_target_list(List *target_list, const StoreFunctions *functions)
{
	ListCell   *lc;

	foreach(lc, target_list)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (!tle->resjunk && tle->expr != NULL)
			tle->expr = unwrap_expression(tle->expr, functions);
	}
}

/*
 * Remove the length coercion from all that is assigned to columns of a table whose rows are
 * elsewhere: a foreign table, or one that Citus distributes.
 */
static void
unwrap_query(Query *query, const StoreFunctions *functions)
{
	ListCell   *lc;

	unwrap_target_list(query->targetList, functions);
	if (query->onConflict)
		unwrap_target_list(query->onConflict->onConflictSet, functions);
	foreach(lc, query->mergeActionList)
		unwrap_target_list(lfirst_node(MergeAction, lc)->targetList, functions);

	/* INSERT of more than one row: the parser coerces inside the rows. */
	if (query->commandType != CMD_INSERT)
		return;
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		ListCell   *row;

		if (rte->rtekind != RTE_VALUES)
			continue;
		foreach(row, rte->values_lists)
		{
			ListCell   *cell;

			foreach(cell, (List *) lfirst(row))
				lfirst(cell) = unwrap_expression(lfirst(cell), functions);
		}
	}
}

/* Wrap the assignments of a query and of the data-modifying queries in its WITH clause. */
static void
wrap_query(Query *query, const StoreFunctions *functions)
{
	ListCell   *lc;

	/* Statements that modify data can be nested in WITH at the top level only. */
	foreach(lc, query->cteList)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

		if (IsA(cte->ctequery, Query))
			wrap_query((Query *) cte->ctequery, functions);
	}

	if (query->commandType != CMD_INSERT && query->commandType != CMD_UPDATE &&
		query->commandType != CMD_MERGE)
		return;

	switch (rt_fetch(query->resultRelation, query->rtable)->relkind)
	{
		case RELKIND_RELATION:
		case RELKIND_PARTITIONED_TABLE:
		case RELKIND_MATVIEW:	/* REFRESH ... CONCURRENTLY inserts with SQL */
			break;
		case RELKIND_FOREIGN_TABLE:
			unwrap_query(query, functions);
			return;
		default:
			return;				/* a view's INSTEAD OF trigger stores by statements of its own */
	}
	if (blob_assign_is_distributed(rt_fetch(query->resultRelation, query->rtable)->relid))
	{
		unwrap_query(query, functions);
		return;
	}

	if (query->commandType != CMD_MERGE)
		wrap_target_list(query, query->targetList, functions);
	if (query->onConflict)
		wrap_target_list(query, query->onConflict->onConflictSet, functions);
	foreach(lc, query->mergeActionList)
		wrap_target_list(query, lfirst_node(MergeAction, lc)->targetList, functions);
}

bool
blob_assign_prepare_query(Query *query)
{
	StoreFunctions functions;

	functions.type = blob_assign_type();
	if (!OidIsValid(functions.type))
		return false;
	if (query->commandType != CMD_SELECT || query->hasModifyingCTE)
	{
		functions.store = blob_catalog_function(BLOB_FUNCTION_STORE);
		functions.store_in_column =
			blob_catalog_function(BLOB_FUNCTION_STORE_IN_COLUMN);
		functions.store_contained = blob_catalog_function(BLOB_FUNCTION_STORE_CONTAINED);
		functions.coerce = blob_catalog_function(BLOB_FUNCTION_COERCE);
		wrap_query(query, &functions);
	}
	return true;
}
