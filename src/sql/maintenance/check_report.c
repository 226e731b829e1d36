/*
 * sql/maintenance/check_report.c
 *	  blobext_check(): rows of the result, and errors that become rows.
 *
 * The parts of the check call these functions, which call none of the parts.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "containers/walk.h"
#include "core/attempt.h"
#include "gc/methods.h"
#include "sql/maintenance/check.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

void
blob_check_report(BlobCheck *check, Oid relid, ItemPointer tid, const char *column,
				  const char *problem)
{
	Datum		values[4] = {0};
	bool		nulls[4] = {false, tid == NULL, column == NULL, problem == NULL};
	NameData	name;

	if (check->result == NULL)
		return;
	values[0] = ObjectIdGetDatum(relid);
	values[1] = PointerGetDatum(tid);
	if (column != NULL)
		namestrcpy(&name, column);
	values[2] = NameGetDatum(&name);
	if (problem != NULL)
		values[3] = CStringGetTextDatum(problem);
	tuplestore_putvalues(check->result->setResult, check->result->setDesc, values, nulls);
}

/* ---- errors become rows ---- */

/*
 * Cancellation, shutdown, locks that cannot be had, and the loss of the server that repairs say
 * nothing about the value checked.
 */
static bool
is_of_this_session(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_OPERATOR_INTERVENTION ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_CONNECTION_EXCEPTION ||
		sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
}

typedef struct FindCall
{
	BlobCheckFinder find;
	void	   *argument;
	char	   *problem;
} FindCall;

static void
call_finder(void *context)
{
	FindCall   *call = context;

	call->problem = call->find(call->argument);
}

/* The result lives in the context of the caller.  Errors of this session are thrown again. */
char *
blob_check_find(BlobCheckFinder find, void *argument)
{
	FindCall	call = {.find = find, .argument = argument};
	ErrorData  *error = blob_attempt(call_finder, &call);

	if (error == NULL)
		return call.problem;
	if (is_of_this_session(error->sqlerrcode))
		ReThrowError(error);
	return error->message;
}

typedef struct StepCall
{
	BlobCheck  *check;
	BlobCheckStep step;
	Oid			relid;
} StepCall;

/* The step reports what it finds by itself. */
static char *
call_step(void *context)
{
	StepCall   *call = context;

	call->step(call->check, call->relid);
	return NULL;
}

void
blob_check_safely(BlobCheck *check, BlobCheckStep step, Oid relid)
{
	StepCall	call = {check, step, relid};
	char	   *problem = blob_check_find(call_step, &call);

	if (problem != NULL)
		blob_check_report(check, relid, NULL, NULL, psprintf("cannot be read: %s", problem));
}

void
blob_check_method(BlobCheck *check, Relation relation)
{
	bool		holds = blob_walk_row_holds(RelationGetDescr(relation));
	char	   *strangeness = blob_gc_find_strangeness(relation->rd_rel, holds);

	if (strangeness != NULL)
		blob_check_report(check, RelationGetRelid(relation), NULL, NULL,
						  psprintf("the relation %s", strangeness));
}

char *
blob_check_references(const BlobDescriptor *descriptor)
{
	int			stale = blob_find_stale_extent(descriptor);
	int			unclaimed;

	if (stale >= 0)
		return psprintf("extent %d at page " UINT64_FORMAT " is not allocated to this value", stale,
						blob_descriptor_extent(descriptor, stale).first_page);
	unclaimed = blob_find_unclaimed_extent(descriptor);
	if (unclaimed >= 0)
		return psprintf("content in extent %d at page " UINT64_FORMAT
						" goes beyond the extent's high-water mark", unclaimed,
						blob_descriptor_extent(descriptor, unclaimed).first_page);
	return NULL;
}

typedef struct RepairCall
{
	BlobHeal   *heal;
	const BlobValue *value;
} RepairCall;

/* A BlobCheckFinder. */
static char *
call_repair(void *context)
{
	RepairCall *call = context;

	return blob_heal_value(call->heal, &call->value->descriptor);
}

char *
blob_check_repair(BlobCheck *check, const BlobValue *value, char *problem)
{
	RepairCall	call = {check->heal, value};
	char	   *reason;

	if (check->heal == NULL)
		return problem;
	reason = blob_check_find(call_repair, &call);
	return reason == NULL ? NULL : psprintf("%s; it was not repaired: %s", problem, reason);
}
