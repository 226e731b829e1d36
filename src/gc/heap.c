/*
 * gc/heap.c
 *	  Marks what tables, materialized views and system catalogs refer to.
 *
 * Every normal item is a root.  Pages are copied under a share lock and looked at without lock or
 * pin: tuples that matter do not go away, see README.md.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tupdesc_details.h"
#include "access/xact.h"
#include "blob/bound.h"
#include "blob/walk.h"
#include "core/compat.h"
#include "catalog/pg_class.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_statistic_ext_data.h"
#include "catalog/pg_type.h"
#include "gc/gc_internal.h"
#include "miscadmin.h"
#include "statistics/extended_stats_internal.h"
#include "statistics/statistics.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"

/* Mark the values of one tuple; ERROR where it cannot be read. */
typedef void (*TupleMarker) (BlobGcRound *round, HeapTuple tuple);

static void
mark_tuple(BlobGcRound *round, HeapTuple tuple)
{
	TupleDesc	row_type = RelationGetDescr(round->relation);

	for (int i = 0; i < round->column_count; i++)
	{
		bool		is_null;
		Datum		datum = heap_getattr(tuple, round->columns[i].number, row_type, &is_null);

		if (!is_null)
			blob_gc_mark(round, datum, round->columns[i].type);
	}
}

/* A tuple on a page, or on a copy of it. */
static void
set_tuple(HeapTuple tuple, BlobGcRound *round, Page page, BlockNumber block, OffsetNumber offset)
{
	ItemId		item = PageGetItemId(page, offset);

	tuple->t_len = ItemIdGetLength(item);
	tuple->t_tableOid = RelationGetRelid(round->relation);
	tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
	ItemPointerSet(&tuple->t_self, block, offset);
}

/* ---- tuples with values in TOAST ---- */

/*
 * Whether the tuple of which this is a copy is gone, or VACUUM would take it for dead.  A tuple
 * that matters stays where it is, so another one in its place means that it was dead.
 */
static bool
is_dead(BlobGcRound *round, HeapTuple copy)
{
	TransactionId horizon = GetOldestNonRemovableTransactionId(round->relation);
	OffsetNumber offset = ItemPointerGetOffsetNumber(&copy->t_self);
	Buffer		buffer = ReadBuffer(round->relation, ItemPointerGetBlockNumber(&copy->t_self));
	Page		page = BufferGetPage(buffer);
	bool		dead = true;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (offset <= PageGetMaxOffsetNumber(page) && ItemIdIsNormal(PageGetItemId(page, offset)))
	{
		ItemId		item = PageGetItemId(page, offset);
		HeapTupleData tuple = {
			.t_len = ItemIdGetLength(item),
			.t_self = copy->t_self,
			.t_tableOid = RelationGetRelid(round->relation),
			.t_data = (HeapTupleHeader) PageGetItem(page, item)
		};

		if (HeapTupleHeaderGetRawXmin(tuple.t_data) == HeapTupleHeaderGetRawXmin(copy->t_data))
			dead = HeapTupleSatisfiesVacuum(&tuple, horizon, buffer) == HEAPTUPLE_DEAD;
	}
	UnlockReleaseBuffer(buffer);
	return dead;
}

/* Only what a tuple's content can cause is put down to the tuple. */
static bool
is_content_error(int sqlstate)
{
	return sqlstate == ERRCODE_DATA_CORRUPTED || sqlstate == ERRCODE_INTERNAL_ERROR;
}

/*
 * TOAST chunks of a dead tuple may be gone, or belong to another value by now.  The subtransaction
 * cleans up after the error.
 */
static void
mark_toasted_tuple(BlobGcRound *round, HeapTuple tuple, TupleMarker mark)
{
	MemoryContext old_context = CurrentMemoryContext;
	ResourceOwner old_owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(old_context);
	PG_TRY();
	{
		mark(round, tuple);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old_context);
		error = CopyErrorData();
		if (!is_content_error(error->sqlerrcode))
			PG_RE_THROW();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(old_context);
		CurrentResourceOwner = old_owner;
		if (!is_dead(round, tuple))
			ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	CurrentResourceOwner = old_owner;
}

/* ---- pages ---- */

/*
 * Mark all normal items of a copy of a page, whatever their visibility.  The memory of each tuple
 * is reset.  A tuple that cannot be read is an ERROR, unless it is dead and has values in TOAST.
 */
static void
mark_page(BlobGcRound *round, BlockNumber block, Page page, TupleMarker mark)
{
	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page); offset++)
	{
		ItemId		item = PageGetItemId(page, offset);
		MemoryContext old_context;
		HeapTupleData tuple;

		if (!ItemIdIsNormal(item))
			continue;
		set_tuple(&tuple, round, page, block, offset);
		old_context = MemoryContextSwitchTo(round->row_context);
		if (HeapTupleHasExternal(&tuple))
			mark_toasted_tuple(round, &tuple, mark);
		else
			mark(round, &tuple);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(round->row_context);
	}
}

/*
 * Whether a row of the page was inserted by a transaction that did not commit.  Such rows are dead
 * to all, whatever the horizon is; but PostgreSQL notes on a page only deletions, for pruning.
 * Rows whose inserter is known to have committed, nearly all, are passed over without a look into
 * the commit log.
 */
static bool
has_aborted_row(BlobGcRound *round, BlockNumber block, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);
	bool		found = false;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	for (OffsetNumber offset = FirstOffsetNumber;
		 !PageIsNew(page) && !found && offset <= PageGetMaxOffsetNumber(page); offset++)
	{
		ItemId		item = PageGetItemId(page, offset);
		TransactionId deleter;
		HeapTupleData tuple;

		if (!ItemIdIsNormal(item))
			continue;
		set_tuple(&tuple, round, page, block, offset);
		found = !HeapTupleHeaderXminCommitted(tuple.t_data) &&
			HeapTupleSatisfiesVacuumHorizon(&tuple, buffer, &deleter) == HEAPTUPLE_DEAD;
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return found;
}

/*
 * Remove versions of rows that no snapshot sees any more, so that their values need not wait for
 * VACUUM.  A reader does the same to a page that is nearly full, under the same horizon; so make it
 * look full, by a hint that an UPDATE leaves, too, which did not find room there.  Where rows of
 * aborted transactions are to go, and nothing else, the page is also given the hint that something
 * can be removed by now.  Pruning makes both hints exact.
 */
static void
prune(BlobGcRound *round, BlockNumber block, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);
	TransactionId oldest = ((PageHeader) page)->pd_prune_xid;

	/* Looked at without a lock, as readers do.  A tuple that S1 keeps cannot be removed. */
	if (!TransactionIdIsValid(oldest) || !TransactionIdPrecedes(oldest, round->horizon))
	{
		if (!has_aborted_row(round, block, buffer))
			return;
		oldest = round->horizon;
		TransactionIdRetreat(oldest);
	}
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	PageSetPrunable(page, oldest);
	PageSetFull(page);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	blob_prune_page(round->relation, buffer);
}

/* may_prune: an ordinary table. */
static bool
scan(BlobGcRound *round, TupleMarker mark, bool may_prune)
{
	BlockNumber block_count = RelationGetNumberOfBlocks(round->relation);
	PGAlignedBlock copy;

	round->horizon = GetOldestNonRemovableTransactionId(round->relation);
	for (BlockNumber block = 0; block < block_count; block++)
	{
		Buffer		buffer = ReadBufferExtended(round->relation, MAIN_FORKNUM, block, RBM_NORMAL,
												round->strategy);

		if (may_prune)
			prune(round, block, buffer);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		memcpy(copy.data, BufferGetPage(buffer), BLCKSZ);
		UnlockReleaseBuffer(buffer);
		if (!PageIsNew((Page) copy.data))
			mark_page(round, block, (Page) copy.data, mark);
		if (!blob_gc_page_done(round))
			return false;
	}
	return true;
}

/* The values of columns in rows that are older than the column. */
static void
mark_missing_values(BlobGcRound *round)
{
	TupleDesc	row_type = RelationGetDescr(round->relation);

	if (row_type->constr == NULL || row_type->constr->missing == NULL)
		return;
	for (int i = 0; i < round->column_count; i++)
	{
		AttrMissing *missing = &row_type->constr->missing[round->columns[i].number - 1];

		if (missing->am_present)
			blob_gc_mark(round, missing->am_value, round->columns[i].type);
	}
}

bool
blob_gc_mark_heap(BlobGcRound *round)
{
	mark_missing_values(round);
	return scan(round, mark_tuple, !round->options.dry_run);
}

/* ---- statistics ---- */

/* An array of which only its header says what it is of. */
static void
mark_any_array(BlobGcRound *round, Datum datum)
{
	ArrayType  *array = DatumGetArrayTypeP(datum);
	Oid			element = ARR_ELEMTYPE(array);

	if (blob_walk_type_holds(element))
		blob_gc_mark(round, PointerGetDatum(array), get_array_type(element));
}

static void
mark_statistics(BlobGcRound *round, HeapTuple tuple, TupleDesc row_type)
{
	for (AttrNumber number = Anum_pg_statistic_stavalues1;
		 number < Anum_pg_statistic_stavalues1 + STATISTIC_NUM_SLOTS; number++)
	{
		bool		is_null;
		Datum		datum = heap_getattr(tuple, number, row_type, &is_null);

		if (!is_null)
			mark_any_array(round, datum);
	}
}

static void
mark_statistics_tuple(BlobGcRound *round, HeapTuple tuple)
{
	mark_statistics(round, tuple, RelationGetDescr(round->relation));
}

/* Statistics of expressions: an array of rows of pg_statistic. */
static void
mark_expressions(BlobGcRound *round, Datum datum)
{
	ArrayType  *array = DatumGetArrayTypeP(datum);
	Relation	catalog = table_open(StatisticRelationId, AccessShareLock);
	ArrayIterator iterator = array_create_iterator(array, 0, NULL);
	Datum		element;
	bool		is_null;

	while (array_iterate(iterator, &element, &is_null))
	{
		HeapTupleHeader header;
		HeapTupleData tuple;

		if (is_null)
			continue;
		header = DatumGetHeapTupleHeader(element);
		tuple.t_len = HeapTupleHeaderGetDatumLength(header);
		tuple.t_tableOid = InvalidOid;
		tuple.t_data = header;
		ItemPointerSetInvalid(&tuple.t_self);
		mark_statistics(round, &tuple, RelationGetDescr(catalog));
	}
	array_free_iterator(iterator);
	table_close(catalog, AccessShareLock);
}

static void
mark_common_values(BlobGcRound *round, Datum datum)
{
	MCVList    *list = statext_mcv_deserialize(DatumGetByteaP(datum));

	for (int dimension = 0; dimension < list->ndimensions; dimension++)
	{
		if (!blob_walk_type_holds(list->types[dimension]))
			continue;
		for (uint32 i = 0; i < list->nitems; i++)
		{
			if (!list->items[i].isnull[dimension])
				blob_gc_mark(round, list->items[i].values[dimension], list->types[dimension]);
		}
	}
}

static void
mark_extended_statistics_tuple(BlobGcRound *round, HeapTuple tuple)
{
	TupleDesc	row_type = RelationGetDescr(round->relation);
	bool		is_null;
	Datum		datum;

	datum = heap_getattr(tuple, Anum_pg_statistic_ext_data_stxdmcv, row_type, &is_null);
	if (!is_null)
		mark_common_values(round, datum);
	datum = heap_getattr(tuple, Anum_pg_statistic_ext_data_stxdexpr, row_type, &is_null);
	if (!is_null)
		mark_expressions(round, datum);
}

static bool
mark_catalog(BlobGcRound *round, Oid catalog, TupleMarker mark)
{
	bool		complete;

	round->lock_mode = AccessShareLock;
	round->relation = table_open(catalog, round->lock_mode);
	blob_gc_status_totals(1, RelationGetNumberOfBlocks(round->relation));
	complete = scan(round, mark, false);
	table_close(round->relation, round->lock_mode);
	round->relation = NULL;
	blob_gc_status_relation_done();
	return complete;
}

/* ---- partition bounds ---- */

static void
mark_bound_value(Datum datum, void *context)
{
	BlobGcRound *round = context;

	blob_gc_mark(round, datum, round->blob_type);
}

/*
 * Bounds are content, but an older library kept what a function returned.  Those are marked that a
 * fresh snapshot sees: nothing reads another, and the structure of a row type may have been changed
 * after the last one that uses it is gone.
 */
static void
mark_bounds(BlobGcRound *round)
{
	Relation	catalog = table_open(RelationRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		MemoryContext old_context = MemoryContextSwitchTo(round->row_context);
		bool		is_null;
		Datum		datum = heap_getattr(tuple, Anum_pg_class_relpartbound,
										 RelationGetDescr(catalog), &is_null);

		CHECK_FOR_INTERRUPTS();
		if (!is_null)
			blob_bound_walk(TextDatumGetCString(datum), mark_bound_value, round);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(round->row_context);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
}

bool
blob_gc_mark_catalogs(BlobGcRound *round)
{
	mark_bounds(round);
	return mark_catalog(round, StatisticRelationId, mark_statistics_tuple) &&
		mark_catalog(round, StatisticExtDataRelationId, mark_extended_statistics_tuple);
}
