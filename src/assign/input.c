/*
 * assign/input.c
 *	  When an input or receive function may externalize the value that it reads.
 *
 * Input functions also run at parse analysis, for literals, and their results become constants that
 * outlive the transaction.  No descriptor may become such a constant, so the default is no.  The
 * answer is yes in two places which call input functions for each row that they are about to store.
 * PostgreSQL's stack of error context callbacks identifies both.  The top of that stack tells which
 * code runs directly below us: code that parses or plans on behalf of a row (a trigger, a function
 * in a default expression) has pushed a callback of its own by then.
 *
 * 1. COPY FROM, also the initial copy of logical replication: its callback is on top.  A literal
 *	  always has the parser's on top (coerce_type() pushes it around the call).
 *
 *	  file_fdw reads foreign tables through COPY's code, under the same callback.  Its rows are
 *	  read, not stored.  The relation distinguishes the two: file_fdw's is a foreign table.
 *
 * 2. The apply worker of logical replication: its callback is the only one on the stack, and it is
 *	  not the parser's.  The worker's loop pushes one callback and converts columns directly under
 *	  it; triggers, and all other code that it runs, push more.  A parser's callback alone could
 *	  only come from outside that loop.  It is ruled out as well, in case other code resets the
 *	  stack.
 *
 * 3. The workers of pglogical that apply changes: the same, since its loop is built alike.  To the
 *	  server they are ordinary background workers; the library and the function that they were
 *	  started with tell them.  Queued DDL runs under one more callback.  Where pglogical.use_spi is
 *	  on, values are parameters of INSERT and UPDATE, and planner.c covers these.
 *
 * One case remains: the planner's CoerceViaIO may fold an input function directly under one of
 * these callbacks, in partition constraints and index expressions of partitions, which the relation
 * cache keeps.  The input functions are declared VOLATILE, so they are never folded.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "commands/copy.h"
#include "commands/copyfrom_internal.h"
#include "parser/parse_node.h"
#include "postmaster/bgworker.h"
#include "replication/logicalworker.h"
#include "utils/rel.h"

#include "assign/assign.h"
#include "assign/column_storage.h"
#include "core/settings.h"

/* The parser's callback is static, so its address is learned from a place that pushes it. */
static void *
parser_callback(void)
{
	static void *address = NULL;

	if (address == NULL)
	{
		ParseCallbackState state;

		setup_parser_errposition_callback(&state, NULL, -1);
		address = (void *) state.errcallback.callback;
		cancel_parser_errposition_callback(&state);
	}
	return address;
}

static bool
is_copy_into_table(void)
{
	CopyFromState copy;

	if (error_context_stack->callback != CopyFromErrorCallback)
		return false;
	copy = (CopyFromState) error_context_stack->arg;
	return copy != NULL && copy->rel != NULL &&
		copy->rel->rd_rel->relkind != RELKIND_FOREIGN_TABLE &&
		!blob_assign_is_distributed(RelationGetRelid(copy->rel));
}

/* A worker of pglogical that applies changes: all the time, or to bring one table up to date. */
static bool
is_pglogical_worker(void)
{
	return MyBgworkerEntry != NULL &&
		strcmp(MyBgworkerEntry->bgw_library_name, "pglogical") == 0 &&
		(strcmp(MyBgworkerEntry->bgw_function_name, "pglogical_apply_main") == 0 ||
		 strcmp(MyBgworkerEntry->bgw_function_name, "pglogical_sync_main") == 0);
}

static bool
is_logical_apply(void)
{
	return error_context_stack->previous == NULL &&
		(IsLogicalWorker() || is_pglogical_worker()) &&
		(void *) error_context_stack->callback != parser_callback();
}

bool
blob_assign_input_may_externalize(void)
{
	if (error_context_stack == NULL)
		return false;
	return is_copy_into_table() || is_logical_apply();
}

/* COPY notes the column for its error messages; of other sources the column is not known. */
BlobStorage
blob_assign_input_storage(void)
{
	CopyFromState copy;

	if (error_context_stack == NULL || !is_copy_into_table())
		return blob_storage_default();
	copy = (CopyFromState) error_context_stack->arg;
	return blob_column_storage_of_name(RelationGetRelid(copy->rel), copy->cur_attname);
}
