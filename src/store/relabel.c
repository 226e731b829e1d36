/*
 * store/relabel.c
 *	  Let computed columns of views, and of tables made from queries, carry the hidden modifier.
 *
 * An expression such as blob_append(b, '\x00') has no type modifier, a column has ours.  The
 * difference shows where PostgreSQL demands equal modifiers: CREATE OR REPLACE VIEW would refuse
 * to "change" a column from blobstate to blobstate (and pg_dump replaces a placeholder
 * "NULL::blobstate AS b" that way, where views depend on each other in a circle); a table made by
 * CREATE TABLE AS ... WITH NO DATA could not be attached as a partition.  A relabelling without a
 * function, in implicit form, makes both carry it: it costs nothing at run time and is not shown
 * in a definition.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parsetree.h"

#include "core/catalog.h"
#include "store/store.h"

static post_parse_analyze_hook_type prev_post_parse_analyze_hook = NULL;

/* Source text of the CREATE VIEW in progress: the parse that has this one is the view's query. */
static const char *view_source = NULL;

const char *
blob_store_set_view_source(const char *source)
{
	const char *previous = view_source;

	view_source = source;
	return previous;
}

static void
label_target(TargetEntry *tle, Oid blob_type)
{
	Node	   *expr = (Node *) tle->expr;
	Oid			type = exprType(expr);

	if (tle->resjunk || exprTypmod(expr) == BLOB_STORE_TYPMOD)
		return;
	if (type == blob_type || type == blob_catalog_array_type())
		tle->expr = (Expr *) applyRelabelType(expr, type, BLOB_STORE_TYPMOD, exprCollation(expr),
											  COERCE_IMPLICIT_CAST, -1, false);
}

/* For a query that will not be run. */
void
blob_store_label_target_list(List *target_list, Oid blob_type)
{
	ListCell   *lc;

	foreach(lc, target_list)
		label_target(lfirst_node(TargetEntry, lc), blob_type);
}

/*
 * Columns of tables stay bare, or the view would no longer be updatable; so do columns that the
 * query sorts or groups by, which other parts of the query may repeat.
 */
static void
label_view_query(Query *query, Oid blob_type)
{
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (tle->ressortgroupref != 0)
			continue;
		if (IsA(tle->expr, Var) && query->setOperations == NULL &&
			rt_fetch(((Var *) tle->expr)->varno, query->rtable)->rtekind == RTE_RELATION)
			continue;
		label_target(tle, blob_type);
	}
}

static void
store_post_parse_analyze(ParseState *pstate, Query *query, JumbleState *jstate)
{
	if (view_source != NULL && pstate->p_sourcetext == view_source &&
		query->commandType == CMD_SELECT)
	{
		Oid			blob_type = blob_store_type();

		if (OidIsValid(blob_type))
			label_view_query(query, blob_type);
	}

	if (prev_post_parse_analyze_hook)
		prev_post_parse_analyze_hook(pstate, query, jstate);
}

void
blob_store_install_analyze_hook(void)
{
	prev_post_parse_analyze_hook = post_parse_analyze_hook;
	post_parse_analyze_hook = store_post_parse_analyze;
}
