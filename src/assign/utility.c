/*
 * assign/utility.c
 *	  Utility statements: prepares DDL that declares blobstate columns, views or partition bounds,
 *	  and checks the objects that it has made.
 */
#include "postgres.h"

#include "assign/assign.h"
#include "assign/hooks.h"
#include "catalog/namespace.h"

/* Statements that prepare_statement() changes, or that may take notes (assign.h). */
static bool
is_of_interest(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
		case T_AlterTableStmt:
		case T_CompositeTypeStmt:
		case T_CreateDomainStmt:
		case T_CreateTableAsStmt:
		case T_RefreshMatViewStmt:
		case T_ViewStmt:
		case T_CreateFunctionStmt:
		case T_AlterFunctionStmt:
			return true;
		default:
			return false;
	}
}

/*
 * With data, the executor's receiver takes care of the new table's columns (receiver.c).
 */
static void
label_create_table_as(CreateTableAsStmt *statement)
{
	Query	   *query = castNode(Query, statement->query);

	if (statement->into->skipData && statement->into->viewQuery == NULL &&
		query->commandType == CMD_SELECT)
		blob_assign_label_target_list(query->targetList, blob_assign_type());
}

/* Change the statement's tree, which must be a private copy, and return the state that it needs. */
static void
prepare_statement(Node *statement, const char *query_string, BlobAssignStatement *state)
{
	if (IsA(statement, ViewStmt))
		state->view_source = query_string;
	else if (IsA(statement, CreateTableAsStmt))
		label_create_table_as((CreateTableAsStmt *) statement);
	else if (IsA(statement, RefreshMatViewStmt))
		state->refreshed = RangeVarGetRelid(((RefreshMatViewStmt *) statement)->relation, NoLock,
											true);
	else
	{
		blob_assign_label_statement(statement);
		state->bounding = blob_assign_evaluates_bounds(statement);
		state->is_rewrite = IsA(statement, AlterTableStmt);
	}
}

/*
 * The states hold for this statement alone: a statement that it runs in turn (an event trigger's,
 * for instance) gets states of its own.
 */
static void
set_state(BlobAssignStatement *state)
{
	bool		bounding = state->bounding;
	const char *view_source = state->view_source;

	state->notes.context = CurrentMemoryContext;
	state->outer_notes = blob_assign_take_notes(&state->notes);
	state->bounding = blob_assign_set_bounding(bounding);
	state->view_source = blob_assign_set_view_source(view_source);
	state->refreshed = blob_assign_set_refreshed(state->refreshed);
	state->rewrite.context = CurrentMemoryContext;
	state->outer_rewrite = blob_assign_set_rewrite(state->is_rewrite ? &state->rewrite : NULL);
	state->is_set = true;
}

/*
 * A cached statement's tree is copied before it is changed.  The map is guarded whatever the
 * statement is.
 */
void
blob_assign_statement_begin(BlobAssignStatement *state, PlannedStmt **pstmt,
							const char *query_string, bool *read_only_tree,
							ProcessUtilityContext context)
{
	bool		prepare = is_of_interest((*pstmt)->utilityStmt) && OidIsValid(blob_assign_type());

	blob_assign_note_template((*pstmt)->utilityStmt);

	/* Left by a statement that failed. */
	if (context == PROCESS_UTILITY_TOPLEVEL)
		blob_assign_forget_relations();

	if (OidIsValid(blob_assign_type()))
		blob_assign_guard_map((*pstmt)->utilityStmt);
	if (prepare)
	{
		if (*read_only_tree)
			*pstmt = copyObject(*pstmt);
		*read_only_tree = false;
		prepare_statement((*pstmt)->utilityStmt, query_string, state);
	}

	/* Any statement within one with partition bounds, or a rewrite, must not see its state. */
	if (prepare || blob_assign_suppressed() || blob_assign_is_rewriting())
		set_state(state);
}

void
blob_assign_statement_done(BlobAssignStatement *state)
{
	if (state->is_set)
		blob_assign_finish_notes(&state->notes);
	blob_assign_statement_end(state);
	blob_assign_clear_statistics_targets();
}

void
blob_assign_statement_end(BlobAssignStatement *state)
{
	if (!state->is_set)
		return;
	state->is_set = false;
	blob_assign_take_notes(state->outer_notes);
	blob_assign_set_bounding(state->bounding);
	blob_assign_set_view_source(state->view_source);
	(void) blob_assign_set_refreshed(state->refreshed);
	(void) blob_assign_set_rewrite(state->outer_rewrite);
}
