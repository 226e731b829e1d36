/*
 * assign/relabel.c
 *	  Computed columns of views, of rows, and of tables made from queries get the hidden modifier.
 *
 * An expression such as blob_append(b, '\x00') has no type modifier, but a column has ours.
 * PostgreSQL demands equal modifiers in these places:
 *
 * CREATE OR REPLACE VIEW would refuse to "change" a column from blobstate to blobstate.  (pg_dump
 * replaces a placeholder "NULL::blobstate AS b" that way, where views depend on each other in a
 * circle.)
 *
 * A table made by CREATE TABLE AS ... WITH NO DATA could not be attached as a partition.
 *
 * A plpgsql function that returns rows of a table, and a trigger, could not RETURN ROW(...), nor a
 * record that was assigned such a row.
 *
 * A relabelling without a function gives all of them the modifier.  It costs nothing at run time; a
 * view's definition may show it as "::blobstate".
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parsetree.h"

#include "core/catalog.h"
#include "assign/assign.h"
#include "assign/hooks.h"


/*
 * Source text of the CREATE VIEW in progress: a parse of this very text is that of the view's
 * query.
 */
static const char *view_source = NULL;

const char *
blob_assign_set_view_source(const char *source)
{
	const char *previous = view_source;

	view_source = source;
	return previous;
}

/* The expression with the hidden modifier, if it is of type blobstate or blobstate[]. */
static Node *
label_expression(Node *expr, Oid blob_type)
{
	Oid			type = exprType(expr);

	if ((type != blob_type && type != blob_catalog_array_type()) ||
		exprTypmod(expr) == BLOB_ASSIGN_TYPMOD)
		return expr;
	if (IsA(expr, Const))
	{
		Const	   *labelled = copyObject((Const *) expr);

		labelled->consttypmod = BLOB_ASSIGN_TYPMOD;
		return (Node *) labelled;
	}
	return applyRelabelType(expr, type, BLOB_ASSIGN_TYPMOD, InvalidOid, COERCE_IMPLICIT_CAST, -1,
							false);
}

/* Label all columns of a query that will not be run. */
void
blob_assign_label_target_list(List *target_list, Oid blob_type)
{
	ListCell   *lc;

	foreach(lc, target_list)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (!tle->resjunk)
			tle->expr = (Expr *) label_expression((Node *) tle->expr, blob_type);
	}
}

/*
 * Label the computed columns of a view.  Columns of tables stay bare, or the view would no longer
 * be updatable.  Columns that the query sorts or groups by stay bare, too, because other parts of
 * the query may repeat them.
 */
static void
label_view_query(Query *query, Oid blob_type)
{
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (tle->resjunk || tle->ressortgroupref != 0)
			continue;
		if (IsA(tle->expr, Var) && query->setOperations == NULL &&
			rt_fetch(((Var *) tle->expr)->varno, query->rtable)->rtekind == RTE_RELATION)
			continue;
		tle->expr = (Expr *) label_expression((Node *) tle->expr, blob_type);
	}
}

/* Label the fields of rows that have no row type of their own: ROW(...). */
static bool
label_rows(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, label_rows, context, 0);
	if (IsA(node, RowExpr) && ((RowExpr *) node)->row_typeid == RECORDOID)
	{
		ListCell   *lc;

		foreach(lc, ((RowExpr *) node)->args)
			lfirst(lc) = label_expression(lfirst(lc), *(Oid *) context);
	}
	return expression_tree_walker(node, label_rows, context);
}

/*
 * Only the queries of functions can return a ROW(...) as a row of a table; they are recognized by
 * the hooks that let them refer to variables and parameters by name.
 */
void
blob_assign_label_query(ParseState *pstate, Query *query)
{
	bool		is_view = view_source != NULL && pstate->p_sourcetext == view_source &&
		query->commandType == CMD_SELECT;
	bool		is_of_function = pstate->p_post_columnref_hook != NULL;

	if (is_view || is_of_function)
	{
		Oid			blob_type = blob_assign_type();

		if (OidIsValid(blob_type) && is_view)
			label_view_query(query, blob_type);
		if (OidIsValid(blob_type) && is_of_function)
			label_rows((Node *) query, &blob_type);
	}
}
