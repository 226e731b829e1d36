/*
 * assign/utility.c
 *	  The utility hook: prepare DDL that declares blobstate columns, views or partition bounds, and
 *	  check the objects that it has made.
 */
#include "postgres.h"

#include "tcop/utility.h"

#include "blob/abandoned.h"
#include "assign/assign.h"

/* States of the process that a statement needs while it runs. */
typedef struct StatementState
{
	bool		bounding;		/* evaluates partition bounds */
	const char *view_source;	/* defines a view: source text of its query */
} StatementState;

static ProcessUtility_hook_type prev_process_utility_hook = NULL;

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
prepare_statement(Node *statement, const char *query_string, StatementState *state)
{
	if (IsA(statement, ViewStmt))
		state->view_source = query_string;
	else if (IsA(statement, CreateTableAsStmt))
		label_create_table_as((CreateTableAsStmt *) statement);
	else
	{
		blob_assign_label_statement(statement);
		state->bounding = blob_assign_evaluates_bounds(statement);
	}
}

static void
run_statement(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
			  ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *query_env,
			  DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_process_utility_hook)
		prev_process_utility_hook(pstmt, query_string, read_only_tree, context, params,
								  query_env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params,
								query_env, dest, qc);
}

/*
 * The states hold for this statement alone: a statement that it runs in turn (an event trigger's,
 * for instance) gets states of its own.
 */
static void
run_in_state(const StatementState *state, PlannedStmt *pstmt, const char *query_string,
			 bool read_only_tree, ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	StatementState previous;
	BlobAssignNotes notes = {.context = CurrentMemoryContext};
	BlobAssignNotes *previous_notes = blob_assign_take_notes(&notes);

	previous.bounding = blob_assign_set_bounding(state->bounding);
	previous.view_source = blob_assign_set_view_source(state->view_source);
	PG_TRY();
	{
		run_statement(pstmt, query_string, read_only_tree, context, params, query_env, dest, qc);
		blob_assign_finish_notes(&notes);
	}
	PG_FINALLY();
	{
		blob_assign_take_notes(previous_notes);
		blob_assign_set_bounding(previous.bounding);
		blob_assign_set_view_source(previous.view_source);
	}
	PG_END_TRY();
}

static void
store_process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
					  ProcessUtilityContext context, ParamListInfo params,
					  QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	StatementState state = {0};
	bool		prepare = is_of_interest(pstmt->utilityStmt) && OidIsValid(blob_assign_type());

	blob_abandoned_free();
	blob_assign_note_template(pstmt->utilityStmt);

	/* Left by a statement that failed. */
	if (context == PROCESS_UTILITY_TOPLEVEL)
		blob_assign_forget_relations();

	if (OidIsValid(blob_assign_type()))
		blob_assign_guard_map(pstmt->utilityStmt);
	if (prepare)
	{
		if (read_only_tree)
			pstmt = copyObject(pstmt);
		read_only_tree = false;
		prepare_statement(pstmt->utilityStmt, query_string, &state);
	}

	/* Any statement within one with partition bounds must not see that one's state. */
	if (prepare || blob_assign_suppressed())
		run_in_state(&state, pstmt, query_string, read_only_tree, context, params, query_env,
					 dest, qc);
	else
		run_statement(pstmt, query_string, read_only_tree, context, params, query_env, dest, qc);
	blob_assign_clear_statistics_targets();
}

void
blob_assign_install_utility_hook(void)
{
	prev_process_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = store_process_utility;
}
