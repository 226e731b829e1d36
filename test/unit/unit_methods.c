/*
 * unit_methods.c
 *	  Which routines of table access methods pass for heap's (src/gc/methods.c); and handlers of
 *	  access methods, for t/gc_methods.pl: a copy of heap's routine, and one that stores elsewhere.
 */
#include "unit.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "core/compat.h"
#include "executor/tuptable.h"
#include "gc/methods.h"
#include "utils/memutils.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(unit_method_copy);
PG_FUNCTION_INFO_V1(unit_method_elsewhere);

/* ---- a function of the routine that is not heap's ---- */

/* Functions that see no row; all others read, write, move or remove rows, or measure the file. */
static bool
sees_no_row(Size member)
{
	return member == offsetof(TableAmRoutine, relation_set_new_filelocator) ||
		member == offsetof(TableAmRoutine, relation_needs_toast_table) ||
		member == offsetof(TableAmRoutine, relation_toast_am) ||
		member == offsetof(TableAmRoutine, relation_estimate_size);
}

static void
some_function(void)
{
}

UNIT_TEST(unit_methods)
{
	const TableAmRoutine *heap = GetHeapamTableAmRoutine();
	TableAmRoutine copy = *heap;

	CHECK(blob_gc_is_heap(heap), "heap's routine");
	CHECK(blob_gc_is_heap(&copy), "a copy of it");
	for (Size member = offsetof(TableAmRoutine, slot_callbacks); member < sizeof(TableAmRoutine);
		 member += sizeof(void *))
	{
		void		(*other) (void) = some_function;

		copy = *heap;
		memcpy((char *) &copy + member, &other, sizeof(other));
		CHECK(blob_gc_is_heap(&copy) == sees_no_row(member), "function at %d", (int) member);
	}
}

/* ---- a copy: a table with a column that may be toasted needs another method for TOAST ---- */

static Oid
toast_in_heap(Relation relation)
{
	return HEAP_TABLE_AM_OID;
}

Datum
unit_method_copy(PG_FUNCTION_ARGS)
{
	static TableAmRoutine routine;

	routine = *GetHeapamTableAmRoutine();
	routine.relation_toast_am = toast_in_heap;
	PG_RETURN_POINTER(&routine);
}

/* ---- rows of one table in the memory of the process, without snapshots; an empty file ---- */

static MinimalTuple rows[100];
static int	row_count;
static int	position;

static const TupleTableSlotOps *
elsewhere_slot_callbacks(Relation relation)
{
	return &TTSOpsMinimalTuple;
}

static bool
elsewhere_needs_toast_table(Relation relation)
{
	return false;
}

static void
elsewhere_insert(Relation relation, TupleTableSlot *slot, CommandId command,
				 BLOB_INSERT_OPTIONS options, struct BulkInsertStateData *state)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	if (row_count == lengthof(rows))
		elog(ERROR, "no room for more rows");
	rows[row_count++] = ExecCopySlotMinimalTuple(slot);
	MemoryContextSwitchTo(old_context);
}

static bool
elsewhere_next(TableScanDesc scan, ScanDirection direction, TupleTableSlot *slot)
{
	if (position == row_count)
	{
		position = 0;
		ExecClearTuple(slot);
		return false;
	}
	ExecStoreMinimalTuple(rows[position++], slot, false);
	return true;
}

Datum
unit_method_elsewhere(PG_FUNCTION_ARGS)
{
	static TableAmRoutine routine;

	routine = *GetHeapamTableAmRoutine();
	routine.slot_callbacks = elsewhere_slot_callbacks;
	routine.relation_needs_toast_table = elsewhere_needs_toast_table;
	routine.tuple_insert = elsewhere_insert;
	routine.scan_getnextslot = elsewhere_next;
	PG_RETURN_POINTER(&routine);
}
