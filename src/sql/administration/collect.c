/*
 * sql/administration/collect.c
 *	  blobext_gc() and the views blobext_gc_status and blobext_gc_databases.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/tuplestore.h"
#include "autogc/round.h"
#include "core/clock.h"
#include "core/settings.h"
#include "gc/status.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/params.h"
#include "nodes/plannodes.h"
#include "store/store.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/portal.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(blobext_gc);
PG_FUNCTION_INFO_V1(blobext_gc_state);
PG_FUNCTION_INFO_V1(blobext_gc_kept);

/*
 * Is this a statement of the client's, and not part of a function or of a DO block?  All of
 * PostgreSQL's languages, and SPI, say where they are when an error is reported.
 */
static bool
is_top_level(void)
{
	for (ErrorContextCallback *context = error_context_stack; context != NULL;
		 context = context->previous)
	{
		if (context->callback != ParamsErrorCallback)
			return false;
	}
	return true;
}

/* The expressions of a plan, as they are looked through. */
typedef struct CallSearch
{
	Oid			collector;		/* blobext_gc(boolean) */
	int			calls;			/* of it */
} CallSearch;

/* Can a call of this function have a value, or run what has?  Built-in, immutable ones cannot. */
static bool
is_other_function(Oid function, void *context)
{
	CallSearch *search = context;

	if (function == search->collector)
	{
		search->calls++;
		return false;
	}
	return function >= FirstNormalObjectId || func_volatile(function) != PROVOLATILE_IMMUTABLE;
}

/* No type of an extension, no domain over one, no record, nor an array of these. */
static bool
is_plain_type(Oid type)
{
	return type < FirstNormalObjectId && get_typtype(type) == TYPTYPE_BASE;
}

/*
 * Is there anything but the call, columns of its result, plain constants and parameters, and what
 * built-in functions make of these?  Kinds of nodes that are not listed count as something else.
 */
static bool
has_something_else(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Const:
			return !is_plain_type(((Const *) node)->consttype);
		case T_Param:
			return ((Param *) node)->paramkind != PARAM_EXTERN ||
				!is_plain_type(((Param *) node)->paramtype);
		case T_List:
		case T_TargetEntry:
		case T_Var:
		case T_FieldSelect:
		case T_FuncExpr:
		case T_OpExpr:
		case T_BoolExpr:
		case T_NullTest:
		case T_CoalesceExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
			break;
		default:
			return true;
	}
	return check_functions_in_node(node, is_other_function, context) ||
		expression_tree_walker(node, has_something_else, context);
}

/*
 * Is the plan one node, that has one call of the collector and nothing that could hold a value?
 * SELECT blobext_gc() is planned as a Result, SELECT ... FROM blobext_gc() as a FunctionScan.  All
 * that is evaluated before the call has been looked at here, all that comes after it works on its
 * result.  So no value comes into this statement before, during or after the round.
 */
static bool
is_bare_call(const PlannedStmt *statement, Oid collector)
{
	Plan	   *plan = statement->planTree;
	CallSearch	search = {.collector = collector};
	ListCell   *lc;

	if (statement->commandType != CMD_SELECT || statement->subplans != NIL ||
		plan->lefttree != NULL || plan->righttree != NULL || plan->initPlan != NIL)
		return false;
	if (IsA(plan, FunctionScan))
	{
		foreach(lc, ((FunctionScan *) plan)->functions)
		{
			if (has_something_else(lfirst_node(RangeTblFunction, lc)->funcexpr, &search))
				return false;
		}
	}
	else if (!IsA(plan, Result) ||
			 has_something_else(((Result *) plan)->resconstantqual, &search))
		return false;
	return !has_something_else((Node *) plan->targetlist, &search) &&
		!has_something_else((Node *) plan->qual, &search) && search.calls == 1;
}

/*
 * The statement that is being run is the innermost portal's: the client's, or what EXECUTE runs in
 * a portal of its own.  (A function's statements have none, but they have been refused before.)
 */
static bool
is_statement_of_its_own(Oid collector)
{
	return PortalIsValid(ActivePortal) && ActivePortal->strategy == PORTAL_ONE_SELECT &&
		list_length(ActivePortal->stmts) == 1 &&
		is_bare_call(linitial_node(PlannedStmt, ActivePortal->stmts), collector);
}

/*
 * The collector does not wait for its own transaction, so that one must not have values in memory:
 * neither from earlier statements or a calling function, nor stored or read by this statement.
 */
static void
check_caller(Oid collector)
{
	PreventCommandDuringRecovery("blobext_gc()");
	PreventCommandIfReadOnly("blobext_gc()");
	PreventCommandIfParallelMode("blobext_gc()");
	PreventInTransactionBlock(is_top_level(), "blobext_gc()");
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("blobext_gc() cannot run in a statement that writes"),
				 errhint("Use SELECT * FROM blobext_gc().")));
	if (PortalIsValid(ActivePortal) && (ActivePortal->cursorOptions & CURSOR_OPT_HOLD) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("blobext_gc() cannot run in a cursor")));
	if (!is_statement_of_its_own(collector))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("blobext_gc() must be all that its statement does"),
				 errdetail("The collector does not wait for values that its own statement holds."),
				 errhint("Use SELECT * FROM blobext_gc().")));
}

/* A complete round frees nothing of this, and is no less complete: so it is no reason. */
static void
notice_kept(const BlobGcKept *kept)
{
	if (kept->bytes == 0)
		return;
	ereport(NOTICE,
			(errmsg("the collector keeps " UINT64_FORMAT " bytes of " UINT64_FORMAT
					" values of deleted rows", kept->bytes, kept->blobs),
			 kept->by[0] == '\0' ? 0 :
			 errdetail("These rows may be visible to %s.", kept->by),
			 errhint("The next round frees what no snapshot can see any more.")));
}

/*
 * Rounds, until one is complete, or has a reason that does not go by itself, or
 * blobext.gc_wait_timeout has passed.  A round never queues for a lock, and gives way to all that
 * do, so commands that come one after the other could end each.  Returns the number of rounds.
 */
static int
collect(BlobGcOptions *options, BlobGcResult *result)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), blob_gc_wait_timeout_ms);
	int			rounds = 0;

	for (;;)
	{
		blob_autogc_run(options, result);
		rounds++;
		if (result->skipped_reason == NULL || !result->is_passing ||
			(result->freed_bytes > 0 && !options->dry_run) ||
			!blob_clock_is_before(GetCurrentTimestamp(), end, blob_gc_wait_timeout_ms))
			return rounds;
		if (rounds == 1)
			ereport(NOTICE,
					(errmsg("the collector starts again: %s", result->skipped_reason)));

		/* A process that waits for a lock gets it now. */
		blob_clock_sleep(Min(10 * rounds, 100));
	}
}

/*
 * blobext_gc(dry_run boolean): a round in this session; a row of counts, and the reason why the
 * round was not completed.  Live extents are counted by a complete round only.
 */
Datum
blobext_gc(PG_FUNCTION_ARGS)
{
	BlobGcOptions options = {.dry_run = PG_GETARG_BOOL(0)};
	BlobGcResult result;
	TupleDesc	row_type;
	Datum		values[5] = {0};
	bool		nulls[5] = {false, false, true, true, true};
	int			rounds;

	blob_store_require_preload();
	check_caller(fcinfo->flinfo->fn_oid);
	if (get_call_result_type(fcinfo, NULL, &row_type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	row_type = BlessTupleDesc(row_type);

	blob_gc_options_take_pace(&options);
	rounds = collect(&options, &result);
	values[0] = Int64GetDatum((int64) result.freed_blobs);
	values[1] = Int64GetDatum((int64) result.freed_bytes);
	if (result.counted)
	{
		values[2] = Int64GetDatum((int64) result.live_blobs);
		values[3] = Int64GetDatum((int64) result.live_bytes);
		nulls[2] = nulls[3] = false;
	}
	if (result.skipped_reason != NULL)
	{
		ereport(NOTICE,
				(errmsg("the collector did not complete its round: %s", result.skipped_reason),
				 rounds == 1 ? 0 : errdetail("It has begun %d times.", rounds)));
		values[4] = CStringGetTextDatum(result.skipped_reason);
		nulls[4] = false;
	}
	notice_kept(&result.kept);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(row_type, values, nulls)));
}

static const char *
phase_name(BlobGcPhase phase)
{
	switch (phase)
	{
		case BLOB_GC_WAITING:
			return "waiting";
		case BLOB_GC_MARKING:
			return "marking";
		case BLOB_GC_CHECKING:
			return "checking";
		case BLOB_GC_SWEEPING:
			return "sweeping";
		default:
			return "idle";
	}
}

/* A text, NULL if there is none, with a command before it. */
static void
put_name(const char *command, const char *name, Datum *value, bool *is_null)
{
	*is_null = name[0] == '\0';
	if (!*is_null)
		*value = CStringGetTextDatum(psprintf("%s%s", command, name));
}

/* Bytes that only keys hold: six columns. */
static void
put_keys(const BlobGcKeys *keys, Datum *values, bool *nulls)
{
	values[0] = Int64GetDatum((int64) keys->dead_bytes);
	put_name("", keys->dead_index, &values[1], &nulls[1]);
	put_name("VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) ", keys->dead_table, &values[2], &nulls[2]);
	values[3] = Int64GetDatum((int64) keys->high_bytes);
	put_name("", keys->high_index, &values[4], &nulls[4]);
	put_name(keys->high_is_exclusion ? "REINDEX INDEX " : "REINDEX INDEX CONCURRENTLY ",
			 keys->high_index, &values[5], &nulls[5]);
	nulls[0] = nulls[3] = !keys->is_known;
}

/* One row of blobext_gc_state(), in the order of the columns that its SQL declaration has. */
static void
put_status(ReturnSetInfo *result, const BlobGcStatus *status)
{
	Datum		values[26] = {0};
	bool		nulls[26] = {false};

	values[0] = ObjectIdGetDatum(status->database);
	values[1] = Int32GetDatum(status->pid);
	nulls[1] = status->pid == 0;
	values[2] = CStringGetTextDatum(phase_name(status->phase));
	values[3] = BoolGetDatum(status->automatic);
	values[4] = BoolGetDatum(status->dry_run);
	values[5] = TimestampTzGetDatum(status->started_at);
	values[6] = TimestampTzGetDatum(status->ended_at);
	nulls[6] = status->ended_at == 0;
	values[7] = CStringGetTextDatum(status->waiting_for);
	nulls[7] = status->waiting_for[0] == '\0';
	values[8] = Int64GetDatum((int64) status->relations_done);
	values[9] = Int64GetDatum((int64) status->relations_total);
	values[10] = Int64GetDatum((int64) status->pages_done);
	values[11] = Int64GetDatum((int64) status->pages_total);
	values[12] = Int64GetDatum((int64) status->freed_blobs);
	values[13] = Int64GetDatum((int64) status->freed_bytes);
	values[14] = Int64GetDatum((int64) status->live_blobs);
	values[15] = Int64GetDatum((int64) status->live_bytes);
	nulls[14] = nulls[15] = !status->counted;
	values[16] = CStringGetTextDatum(status->skipped_reason);
	nulls[16] = status->skipped_reason[0] == '\0';
	values[17] = Int64GetDatum((int64) status->rounds);
	values[18] = Int64GetDatum((int64) status->skipped_rounds);
	values[19] = TimestampTzGetDatum(status->completed_at);
	nulls[19] = status->completed_at == 0;
	put_keys(&status->keys, &values[20], &nulls[20]);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* All databases: the views choose. */
Datum
blobext_gc_state(PG_FUNCTION_ARGS)
{
	BlobGcStatus *statuses;
	int			count;

	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	count = blob_gc_status_get(&statuses);
	for (int i = 0; i < count; i++)
		put_status((ReturnSetInfo *) fcinfo->resultinfo, &statuses[i]);
	return (Datum) 0;
}

/* Rows (datid, kept_blobs, kept_bytes, kept_by, pages_unchanged), for the same views. */
Datum
blobext_gc_kept(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	BlobGcStatus *statuses;
	int			count;

	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	count = blob_gc_status_get(&statuses);
	for (int i = 0; i < count; i++)
	{
		const BlobGcKept *kept = &statuses[i].kept;
		Datum		values[5] = {ObjectIdGetDatum(statuses[i].database)};
		bool		nulls[5] = {false};

		values[1] = Int64GetDatum((int64) kept->blobs);
		values[2] = Int64GetDatum((int64) kept->bytes);
		nulls[1] = nulls[2] = !kept->is_known;
		put_name("", kept->by, &values[3], &nulls[3]);
		values[4] = Int64GetDatum((int64) statuses[i].pages_unchanged);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
