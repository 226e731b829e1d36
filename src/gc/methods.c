/*
 * gc/methods.c
 *	  Relations of which access methods the collector can read: of B-trees, and of tables whose
 *	  rows heap's own functions read and write ("Access methods of tables" in README.md).
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "commands/defrem.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "gc/methods.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

/*
 * A copy of heap's routine counts, too, if all functions are heap's own but those that see no row:
 * that make the file, choose the table for TOAST, and estimate sizes for the planner.
 */
bool
blob_gc_is_heap(const TableAmRoutine *routine)
{
	const TableAmRoutine *heap = GetHeapamTableAmRoutine();
	const Size	start = offsetof(TableAmRoutine, slot_callbacks);
	TableAmRoutine copy;

	if (routine == heap)
		return true;
	copy = *routine;
	copy.relation_set_new_filelocator = heap->relation_set_new_filelocator;
	copy.relation_needs_toast_table = heap->relation_needs_toast_table;
	copy.relation_toast_am = heap->relation_toast_am;
	copy.relation_estimate_size = heap->relation_estimate_size;
	return memcmp((const char *) &copy + start, (const char *) heap + start,
				  sizeof(TableAmRoutine) - start) == 0;
}

typedef struct HandlerCall
{
	Oid			handler;
	const TableAmRoutine *routine;
} HandlerCall;

static void
call_handler(void *argument)
{
	HandlerCall *call = argument;

	call->routine = GetTableAmRoutine(call->handler);
}

/*
 * The strangeness of a table access method that is not heap; NULL: its routine is heap's.  The
 * handler is called, as each session does that opens a table of the method.  It may fail: its
 * library may be gone.  Cancellation, shutdown and lack of memory are thrown again.
 */
static char *
find_strange_routine(Oid access_method)
{
	HeapTuple	tuple = SearchSysCache1(AMOID, ObjectIdGetDatum(access_method));
	HandlerCall call = {0};
	ErrorData  *error;

	if (!HeapTupleIsValid(tuple))
		return "which does not exist";
	call.handler = ((Form_pg_am) GETSTRUCT(tuple))->amhandler;
	ReleaseSysCache(tuple);
	error = blob_attempt(call_handler, &call);
	if (error == NULL)
		return blob_gc_is_heap(call.routine) ? NULL :
			"which does not read and write rows by heap's functions alone";
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION ||
		ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_INSUFFICIENT_RESOURCES)
		ReThrowError(error);
	return psprintf("whose handler fails: %s", error->message);
}

static char *
strange_method(Oid access_method, const char *strangeness)
{
	char	   *name = get_am_name(access_method);

	return name == NULL ?
		psprintf("has access method %u, %s", access_method, strangeness) :
		psprintf("has access method \"%s\", %s", name, strangeness);
}

char *
blob_gc_find_strangeness(Form_pg_class class, bool holds)
{
	char	   *strangeness;

	if (class->relkind == RELKIND_INDEX)
		return class->relam == BTREE_AM_OID || !holds ? NULL :
			strange_method(class->relam, "which the collector does not know");
	if ((class->relkind != RELKIND_RELATION && class->relkind != RELKIND_MATVIEW) ||
		class->relam == HEAP_TABLE_AM_OID)
		return NULL;
	if (blob_catalog_is_map_method(class->relam))
		return class->oid == blob_catalog_map_relation_if_any() ? NULL :
			strange_method(class->relam, "which is for the extent map only");
	strangeness = holds ? find_strange_routine(class->relam) : NULL;
	return strangeness == NULL ? NULL : strange_method(class->relam, strangeness);
}
