/*
 * hooks/hooks.c
 *	  The server's hooks, one function each: which folders take part, and in which order.
 *
 * A hook that was installed before ours is called where the server's own function would be.  So for
 * other extensions this library is one link of the chain, at the place that its position in
 * shared_preload_libraries gives it.
 *
 * Where parts of several folders surround a call of the server, each of them begins in the order
 * that is written here and ends in the opposite one, also after an error.  The state of a part
 * lies in the hook's frame, so calls may nest; it is zeroed first, and a part that did not begin
 * does not end.
 */
#include "postgres.h"

#include "assign/hooks.h"
#include "autogc/dropped.h"
#include "blob/abandoned.h"
#include "catalog/pg_database.h"
#include "client/array_parameters.h"
#include "client/rows.h"
#include "client/upload_copy.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "executor/executor.h"
#include "gc/blank.h"
#include "gc/holders.h"
#include "hooks/hooks.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "recovery/replay_origin.h"
#include "sql/operators/named_operators.h"

/* As in libpq/auth.h, which needs the headers of GSSAPI where PostgreSQL was built with it. */
struct Port;
typedef void (*AuthenticationHook) (struct Port *, int);
extern PGDLLIMPORT AuthenticationHook ClientAuthentication_hook;

static post_parse_analyze_hook_type previous_post_parse_analyze;
static planner_hook_type previous_planner;
static blob_relation_info_hook_type previous_relation_info;
static ExecutorRun_hook_type previous_executor_run;
static ExecutorFinish_hook_type previous_executor_finish;
static ProcessUtility_hook_type previous_process_utility;
static object_access_hook_type previous_object_access;
static AuthenticationHook previous_authentication;

/* ---- planning ---- */

/*
 * The parameters' types first, because the query may be exchanged for it.  Both come before other
 * extensions look at the query.
 */
static pg_attribute_hot void
post_parse_analyze(ParseState *pstate, Query *query, BLOB_JUMBLE_STATE *jstate)
{
	blob_array_parameters_choose(pstate, query, &jstate);
	blob_assign_label_query(pstate, query);
	if (previous_post_parse_analyze)
		previous_post_parse_analyze(pstate, query, jstate);
}

static pg_attribute_hot PlannedStmt *
plan_next(Query *parse, const char *query_string, int cursor_options,
		  ParamListInfo params BLOB_PLAN_EXTRA_PARAMETER)
{
	if (previous_planner)
		return previous_planner(parse, query_string, cursor_options,
								params BLOB_PLAN_EXTRA_ARGUMENT);
	return standard_planner(parse, query_string, cursor_options, params BLOB_PLAN_EXTRA_ARGUMENT);
}

/*
 * While the planner runs, nothing may turn into a descriptor: a function that its owner calls
 * IMMUTABLE is evaluated here, and its result lives as long as the plan is cached, which is longer
 * than the collector knows of it.
 */
static PlannedStmt *
plan(Query *parse, const char *query_string, int cursor_options,
	 ParamListInfo params BLOB_PLAN_EXTRA_PARAMETER)
{
	PlannedStmt *result;
	bool		was_planning;

	if (!blob_assign_prepare_query(parse))
		return plan_next(parse, query_string, cursor_options, params BLOB_PLAN_EXTRA_ARGUMENT);
	blob_named_operators_replace(parse);

	was_planning = blob_assign_set_planning(true);
	PG_TRY();
	{
		result = plan_next(parse, query_string, cursor_options, params BLOB_PLAN_EXTRA_ARGUMENT);
	}
	PG_FINALLY();
	{
		blob_assign_set_planning(was_planning);
	}
	PG_END_TRY();
	return result;
}

/* Other extensions may add indexes, or change those that there are. */
static void
relation_info(BLOB_RELATION_INFO_PARAMETERS)
{
	if (previous_relation_info)
		previous_relation_info(BLOB_RELATION_INFO_ARGUMENTS);
	if (blob_is_relation_info())
		blob_named_operators_replace_in_relation(root, info);
}

/* ---- running ---- */

static pg_attribute_hot void
executor_run_next(QueryDesc *query_desc, ScanDirection direction,
				  uint64 count BLOB_RUN_EXTRA_PARAMETER)
{
	if (previous_executor_run)
		previous_executor_run(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
	else
		standard_ExecutorRun(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
}

/*
 * Whether no part has anything to do for a run.  That holds for most runs of most servers, so the
 * look is cheap.  What it reads changes while a query runs only within runs and statements that
 * begin and end inside of it, and that put it back.
 */
static inline bool
is_run_without_parts(const QueryDesc *query_desc)
{
	return !blob_rows_may_begin(query_desc) && !blob_abandoned_exists() &&
		!blob_assign_plan_is_target(query_desc->plannedstmt) &&
		!blob_assign_redirect_is_due(query_desc);
}

static void
executor_run_end(BlobRowsRun *rows, BlobAssignTarget *target, BlobAssignRedirect *redirect)
{
	blob_assign_redirect_end(redirect);
	blob_assign_end_target(target);
	blob_rows_end(rows);
}

/*
 * The order:
 *
 * 1. The client's receiver, because it is chosen by the destination that the portal has given
 *	  to the query.
 * 2. Extents of stores that failed are freed before the query allocates more.
 * 3. The target is entered before the query can insert a key: pending content is made crash-safe.
 * 4. The redirection is next to the executor: it lets values be stored again where DDL has
 *	  suppressed that, which is for the query alone.  Its destinations are not those of 1.
 */
static void
executor_run_with_parts(QueryDesc *query_desc, ScanDirection direction,
						uint64 count BLOB_RUN_EXTRA_PARAMETER)
{
	BlobRowsRun rows = {0};
	BlobAssignTarget target = {0};
	BlobAssignRedirect redirect = {0};

	PG_TRY();
	{
		blob_rows_begin(&rows, query_desc);
		blob_abandoned_free();
		blob_assign_enter_plan(&target, query_desc->plannedstmt);
		blob_assign_redirect_begin(&redirect, query_desc);
		executor_run_next(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
		blob_assign_leave_target(&target);
	}
	PG_CATCH();
	{
		executor_run_end(&rows, &target, &redirect);
		PG_RE_THROW();
	}
	PG_END_TRY();
	executor_run_end(&rows, &target, &redirect);
	blob_rows_forget(&rows);
}

static pg_attribute_hot void
executor_run(QueryDesc *query_desc, ScanDirection direction, uint64 count BLOB_RUN_EXTRA_PARAMETER)
{
	blob_gc_blank_assert_seen();
	if (likely(is_run_without_parts(query_desc)))
		executor_run_next(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
	else
		executor_run_with_parts(query_desc, direction, count BLOB_RUN_EXTRA_ARGUMENT);
}

static pg_attribute_hot void
executor_finish_next(QueryDesc *query_desc)
{
	if (previous_executor_finish)
		previous_executor_finish(query_desc);
	else
		standard_ExecutorFinish(query_desc);
}

/* The target is entered again, as for a run. */
static void
executor_finish_target(QueryDesc *query_desc)
{
	BlobAssignTarget target = {0};

	PG_TRY();
	{
		blob_assign_enter_plan(&target, query_desc->plannedstmt);
		executor_finish_next(query_desc);
		blob_assign_leave_target(&target);
	}
	PG_CATCH();
	{
		blob_assign_end_target(&target);
		PG_RE_THROW();
	}
	PG_END_TRY();
	blob_assign_end_target(&target);
}

/* Statements that modify data in WITH run to their end here; AFTER triggers run, too. */
static pg_attribute_hot void
executor_finish(QueryDesc *query_desc)
{
	if (likely(!blob_assign_plan_is_target(query_desc->plannedstmt)))
		executor_finish_next(query_desc);
	else
		executor_finish_target(query_desc);
}

static void
process_utility_next(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
					 ProcessUtilityContext context, ParamListInfo params,
					 QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	if (previous_process_utility)
		previous_process_utility(pstmt, query_string, read_only_tree, context, params, query_env,
								 dest, qc);
	else
		standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params, query_env,
								dest, qc);
}

static void
process_utility_end(BlobGcHolderStatement *holder, BlobAssignTarget *target,
					BlobAssignStatement *statement)
{
	blob_assign_statement_end(statement);
	blob_assign_end_target(target);
	blob_gc_holders_statement_end(holder);
}

/*
 * An error context callback, for statements of the extension's scripts: an object that is in the
 * way is never taken into the extension: its owner, or the operator, decides about it.
 */
static void
explain_object_in_the_way(void *argument)
{
	int			code = geterrcode();

	if (code == ERRCODE_DUPLICATE_FUNCTION || code == ERRCODE_DUPLICATE_OBJECT ||
		code == ERRCODE_DUPLICATE_TABLE)
		errhint("The schema of extension \"blobext\" has an object of that name that does not "
				"belong to it.  Find out who made it and why, rename or drop it, and run the "
				"command again.");
}

/*
 * The order:
 *
 * 1. Blank transactions and holders: a transaction is not blank, and a procedure is registered
 *	  with the collector, before it can have a value, and until everything else about the
 *	  statement is done.
 * 2. The target is entered before the statement can insert a key: pending content is made
 *	  crash-safe.
 * 3. Extents of stores that failed are freed before the statement allocates more.
 * 4. The statement's tree is next to the server, because it may be exchanged for a copy, which
 *	  may be changed.  The checks of its result (bounds, keys, statistics) still belong to the
 *	  target and the holder.
 * 5. COPY of pieces to uploads takes the place of the server's COPY.
 */
static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *query_env,
				DestReceiver *dest, QueryCompletion *qc)
{
	BlobGcBlankStatement blank = {0};
	BlobGcHolderStatement holder = {0};
	BlobAssignTarget target = {0};
	BlobAssignStatement statement = {0};
	ErrorContextCallback explain = {
		.previous = error_context_stack,
		.callback = explain_object_in_the_way
	};

	PG_TRY();
	{
		if (blob_catalog_in_script())
			error_context_stack = &explain;
		blob_gc_blank_statement_begin(&blank, pstmt, context);
		blob_gc_holders_statement_begin(&holder, pstmt, context);
		blob_assign_enter_utility(&target, pstmt->utilityStmt);
		blob_abandoned_free();
		blob_assign_statement_begin(&statement, &pstmt, query_string, &read_only_tree, context);
		if (!read_only_tree)
			blob_named_operators_replace_in_statement(pstmt->utilityStmt);
		if (!blob_upload_copy(pstmt, context, qc))
			process_utility_next(pstmt, query_string, read_only_tree, context, params, query_env,
								 dest, qc);
		blob_assign_statement_done(&statement);
		blob_assign_leave_target(&target);
		error_context_stack = explain.previous;
	}
	PG_CATCH();
	{
		process_utility_end(&holder, &target, &statement);
		PG_RE_THROW();
	}
	PG_END_TRY();
	process_utility_end(&holder, &target, &statement);
	blob_gc_holders_statement_done(&holder);
	blob_gc_blank_statement_done(&blank);
}

/* ---- others ---- */

/* Other extensions may refuse the object first. */
static pg_attribute_hot void
object_access(ObjectAccessType access, Oid class_oid, Oid object_oid, int sub_id, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, class_oid, object_oid, sub_id, arg);
	if (access == OAT_DROP && class_oid == DatabaseRelationId)
		blob_autogc_database_drops(object_oid);
	/* Most calls are for functions that are about to be executed. */
	if (access == OAT_POST_CREATE || access == OAT_POST_ALTER)
		blob_assign_object_accessed(access, class_oid, object_oid, sub_id, arg);
}

static void
authenticated(struct Port *port, int status)
{
	if (previous_authentication)
		previous_authentication(port, status);
	blob_replay_origin_warn_walsender(status);
}

void
blob_hooks_install(void)
{
	previous_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = post_parse_analyze;
	previous_planner = planner_hook;
	planner_hook = plan;
	previous_relation_info = BLOB_RELATION_INFO_HOOK;
	BLOB_RELATION_INFO_HOOK = relation_info;
	previous_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = executor_run;
	previous_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = executor_finish;
	previous_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	previous_object_access = object_access_hook;
	object_access_hook = object_access;
	previous_authentication = ClientAuthentication_hook;
	ClientAuthentication_hook = authenticated;
}
