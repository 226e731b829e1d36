/*
 * assign/target.c
 *	  Statements that write to indexes, and whether content must be crash-safe before it gets there.
 *
 * The rule: no descriptor enters an index that is ordered by content before its content is
 * crash-safe.  The README of this folder proves it.  In short, a stack of targets mirrors the
 * statements in progress, innermost first.  A target is strict if one of its tables has such an
 * index.  While the innermost target is strict, this process has nothing pending: all content that
 * it has written is crash-safe.  That holds because
 *
 *	- this process makes pending content crash-safe (it syncs) where it enters a strict target, or
 *	  returns to one;
 *	- while a strict target is innermost, it syncs before it returns a descriptor
 *	  (blob_durability_before_return());
 *	- if the relation cache reports a change of the tables of a target that is not strict, the
 *	  target may become strict.  Then this process syncs at once, because rows with pending values
 *	  may be on their way.
 *
 * Whether a target is strict is determined when the answer is needed first.  So statements that
 * write no content pay for an entry of the stack only.  A target that was strict once stays so.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "commands/copyfrom_internal.h"
#include "miscadmin.h"
#include "parser/parsetree.h"
#include "storage/ipc.h"
#include "utils/rel.h"

#include "extents/durability.h"
#include "core/compat.h"
#include "assign/assign.h"
#include "assign/hooks.h"

static BlobAssignTarget *innermost = NULL;

static bool
plan_is_strict(const PlannedStmt *plan)
{
	int			target = -1;

	while ((target = blob_plan_next_target(plan, target)) >= 0)
	{
		RangeTblEntry *entry = rt_fetch(blob_plan_target(plan, target), plan->rtable);

		if (blob_assign_has_content_index(entry->relid))
			return true;
	}
	return false;
}

/*
 * The table that COPY FROM fills; that may be the initial copy of a subscription.  InvalidOid
 * before the first row and after the last, when statement triggers run.  Callbacks from
 * outer_context on were there before: a trigger of one COPY may run another.  file_fdw reads
 * foreign tables through COPY's code; these do not count.
 */
static Oid
copied_table(const ErrorContextCallback *outer_context)
{
	for (ErrorContextCallback *entry = error_context_stack; entry != outer_context;
		 entry = entry->previous)
	{
		CopyFromState copy = (CopyFromState) entry->arg;

		if (entry->callback == CopyFromErrorCallback && copy != NULL && copy->rel != NULL &&
			copy->rel->rd_rel->relkind != RELKIND_FOREIGN_TABLE)
			return RelationGetRelid(copy->rel);
	}
	return InvalidOid;
}

/*
 * The rule outside of all targets: in expressions of procedures, in queries without a target, in
 * tables made from queries.  A client's session writes to indexes by statements only.  The apply
 * worker of logical replication writes to them by itself, and other processes may.
 */
static bool
base_is_strict(void)
{
	Oid			relid;

	if (MyBackendType == B_BACKEND)
		return false;
	relid = copied_table(NULL);
	return !OidIsValid(relid) || blob_assign_has_content_index(relid);
}

static bool
look_at_target(const BlobAssignTarget *target)
{
	if (target->plan != NULL)
		return plan_is_strict(target->plan);
	return !target->is_copy ||
		blob_assign_has_content_index(copied_table(target->outer_context));
}

bool
blob_assign_is_strict(void)
{
	BlobAssignTarget *target = innermost;
	uint64		changes = blob_assign_content_index_changes();

	if (target == NULL)
		return base_is_strict();
	if (target->is_copy && !OidIsValid(copied_table(target->outer_context)))
		return true;
	if (!target->is_strict && target->looked_at != changes)
	{
		target->is_strict = look_at_target(target);
		target->looked_at = changes;
	}
	return target->is_strict;
}

static void
sync_if_strict(void)
{
	if (blob_durability_is_pending() && blob_assign_is_strict())
		blob_durability_make_crash_safe();
}

/*
 * Called from the relation cache, where an error would keep the message from other caches of this
 * process.  So if the sync fails, this session ends.  During an abort no row is on its way.  A
 * process that writes without a statement, see base_is_strict(), has deferred syncs in the initial
 * copy of a subscription.
 */
void
blob_assign_content_index_changed(void)
{
	MemoryContext context = CurrentMemoryContext;
	bool		writes = innermost != NULL || MyBackendType != B_BACKEND;

	if (!writes || !blob_durability_is_pending() || !IsTransactionState())
		return;
	PG_TRY();
	{
		blob_durability_make_crash_safe();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		ereport(FATAL,
				(errmsg("could not make content durable before it is indexed")));
	}
	PG_END_TRY();
}

#ifdef USE_ASSERT_CHECKING
/* A statement that fails has left the stack before its transaction ends. */
static void
assert_left(XactEvent event, void *context)
{
	Assert(event != XACT_EVENT_ABORT || innermost == NULL || proc_exit_inprogress);
}

static void
watch_aborts(void)
{
	static bool is_watching = false;

	if (!is_watching)
		RegisterXactCallback(assert_left, NULL);
	is_watching = true;
}
#else
#define watch_aborts() ((void) 0)
#endif

/*
 * The target is on the stack before anything can fail, so the caller takes it off after an error.
 */
static void
enter(BlobAssignTarget *target)
{
	Assert(!target->is_entered && target != innermost);
	watch_aborts();
	target->outer = innermost;
	target->is_entered = true;
	innermost = target;
	sync_if_strict();
}

pg_attribute_hot bool
blob_assign_plan_is_target(const PlannedStmt *plan)
{
	return blob_plan_next_target(plan, -1) >= 0 && OidIsValid(blob_assign_type());
}

/* Statements that modify data in WITH, and AFTER triggers, run in ExecutorFinish. */
void
blob_assign_enter_plan(BlobAssignTarget *target, const PlannedStmt *plan)
{
	if (!blob_assign_plan_is_target(plan))
		return;
	target->plan = plan;
	enter(target);
}

/* Statements that write to indexes, but have no plan. */
static bool
is_target(const Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CopyStmt:
			return ((const CopyStmt *) statement)->is_from;
		case T_IndexStmt:
		case T_ReindexStmt:
		case T_RepackStmt:
		case T_VacuumStmt:
			return true;
		default:
			return false;
	}
}

void
blob_assign_enter_utility(BlobAssignTarget *target, const Node *statement)
{
	if (!is_target(statement))
		return;
	target->is_copy = IsA(statement, CopyStmt);
	target->outer_context = error_context_stack;
	enter(target);
}

void
blob_assign_leave_target(BlobAssignTarget *target)
{
	if (!target->is_entered)
		return;
	Assert(innermost == target);
	Assert(!target->is_strict || !blob_durability_is_unsafe());
	innermost = target->outer;
	sync_if_strict();
}

void
blob_assign_end_target(BlobAssignTarget *target)
{
	if (target->is_entered)
		innermost = target->outer;
}

/*
 * Called for a relation that was made or altered as a whole.  The same statement or transaction may
 * have written rows over which an index will be built.  A new index is announced before it is
 * built.  So is a table whose file has been exchanged (ALTER TABLE, REFRESH MATERIALIZED VIEW),
 * before its indexes are built anew.
 */
void
blob_assign_relation_changed(void)
{
	if (blob_durability_is_pending())
		blob_durability_make_crash_safe();
}
