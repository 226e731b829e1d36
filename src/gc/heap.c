/*
 * gc/heap.c
 *	  Marks what tables, materialized views and system catalogs refer to.
 *
 * Every normal item is a root.  Pages are copied under a share lock and looked at without lock or
 * pin: tuples that matter do not go away, see README.md.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tupdesc_details.h"
#include "containers/bound.h"
#include "containers/sound.h"
#include "containers/walk.h"
#include "core/attempt.h"
#include "core/catalog_scan.h"
#include "core/compat.h"
#include "catalog/pg_class.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_statistic_ext_data.h"
#include "catalog/pg_type.h"
#include "gc/gc_internal.h"
#include "gc/notes.h"
#include "miscadmin.h"
#include "statistics/extended_stats_internal.h"
#include "statistics/statistics.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* After this many unchanged pages, which take no time, the round looks whether it is in the way. */
#define UNCHANGED_PAGES 512

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

/* ---- tuples that cannot be read ---- */

/*
 * Whether the tuple of which this is a copy is gone, or dead.  A tuple that matters stays where it
 * is, so another one in its place means that it was dead.
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
		HeapTupleData tuple;

		blob_gc_set_tuple(&tuple, round, buffer, offset);
		if (blob_sound_line(page, PageGetItemId(page, offset), SizeofHeapTupleHeader) != NULL)
			dead = false;		/* nothing says so */
		else if (HeapTupleHeaderGetRawXmin(tuple.t_data) == HeapTupleHeaderGetRawXmin(copy->t_data))
			dead = blob_gc_kept_is_dead(round, &tuple, horizon, buffer);
	}
	UnlockReleaseBuffer(buffer);
	return dead;
}

/* Where a page's items are marked: the tuple is a copy on the copied page. */
typedef struct PageMark
{
	BlobGcRound *round;
	Page		page;
	TupleMarker mark;
	OffsetNumber offset;		/* of the item that comes next, or has failed */
	HeapTupleData tuple;
	bool		is_tuple;		/* whether the line pointer leads to one */
} PageMark;

static void
refuse(const char *problem)
{
	if (problem != NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg_internal("%s", problem)));
}

/* Mark one normal item; ERROR if its lengths lead out of it, or its values cannot be read. */
static void
mark_item(PageMark *mark, ItemId item)
{
	BlobGcRound *round = mark->round;

	mark->is_tuple = false;
	refuse(blob_sound_line(mark->page, item, SizeofHeapTupleHeader));
	mark->tuple.t_len = ItemIdGetLength(item);
	mark->tuple.t_data = (HeapTupleHeader) PageGetItem(mark->page, item);
	mark->is_tuple = true;
	refuse(blob_sound_row(mark->tuple.t_data, mark->tuple.t_len,
						  RelationGetDescr(round->relation)));
	mark->mark(round, &mark->tuple);
}

/* Mark the normal items from mark->offset on.  The memory of each is reset. */
static void
mark_items(void *argument)
{
	PageMark   *mark = argument;

	for (; mark->offset <= PageGetMaxOffsetNumber(mark->page); mark->offset++)
	{
		ItemId		item = PageGetItemId(mark->page, mark->offset);
		MemoryContext old_context;

		if (!ItemIdIsNormal(item))
			continue;
		ItemPointerSetOffsetNumber(&mark->tuple.t_self, mark->offset);
		mark->round->is_kept = mark->offset <= MaxHeapTuplesPerPage &&
			mark->round->keeps[mark->offset];
		old_context = MemoryContextSwitchTo(mark->round->row_context);
		mark_item(mark, item);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(mark->round->row_context);
	}
}

/* Mark items until one fails with an error of its content, which is returned; NULL at the end. */
static ErrorData *
try_items(PageMark *mark)
{
	ErrorData  *error = blob_attempt(mark_items, mark);

	if (error != NULL && !blob_gc_is_content_error(error->sqlerrcode))
		ReThrowError(error);
	return error;
}

/* ---- pages ---- */

/*
 * Mark all normal items of a copy of a page, whatever their visibility.  One that cannot be read
 * ends the round, unless it is dead: its values in TOAST may be gone, or belong to another value by
 * now, and a transaction that rolled back may have had other columns.
 */
static void
mark_page(BlobGcRound *round, BlockNumber block, Page page, TupleMarker mark)
{
	PageMark	state = {.round = round, .page = page, .mark = mark, .offset = FirstOffsetNumber};
	ErrorData  *error;
	char	   *problem = blob_sound_page(page);

	state.tuple.t_tableOid = RelationGetRelid(round->relation);
	ItemPointerSet(&state.tuple.t_self, block, FirstOffsetNumber);
	if (problem != NULL)
		blob_gc_report_damage(round, &state.tuple.t_self, problem);
	while ((error = try_items(&state)) != NULL)
	{
		if (!state.is_tuple || !is_dead(round, &state.tuple))
			blob_gc_report_damage(round, &state.tuple.t_self, error->message);
		FreeErrorData(error);
		MemoryContextReset(round->row_context);
		blob_gc_notes_drop_page(round->notes);
		state.offset++;
	}
	round->is_kept = false;
}

/* PostgreSQL's pruning relies on this: a line pointer out of the page would be a PANIC there. */
static bool
are_lines_sound(Page page)
{
	if (PageIsNew(page) || blob_sound_page(page) != NULL ||
		PageGetMaxOffsetNumber(page) > MaxHeapTuplesPerPage)
		return false;
	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page); offset++)
	{
		ItemId		item = PageGetItemId(page, offset);

		if (ItemIdIsNormal(item) && blob_sound_line(page, item, SizeofHeapTupleHeader) != NULL)
			return false;
	}
	return true;
}

/*
 * Whether a row of the page was inserted by a transaction that did not commit.  Such rows are dead
 * to all, whatever the horizon is; but PostgreSQL notes on a page only deletions, for pruning.
 * Rows whose inserter is known to have committed, nearly all, are passed over without a look into
 * the commit log.  The page is locked, and its lines are sound.
 */
static bool
has_aborted_row(BlobGcRound *round, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);

	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page); offset++)
	{
		HeapTupleData tuple;
		TransactionId deleter;

		if (!ItemIdIsNormal(PageGetItemId(page, offset)))
			continue;
		blob_gc_set_tuple(&tuple, round, buffer, offset);
		if (!HeapTupleHeaderXminCommitted(tuple.t_data) &&
			HeapTupleSatisfiesVacuumHorizon(&tuple, buffer, &deleter) == HEAPTUPLE_DEAD)
			return true;
	}
	return false;
}

/*
 * Remove versions of rows that no snapshot sees any more, so that their values need not wait for
 * VACUUM.  A reader does the same to a page that is nearly full, under the same horizon; so make it
 * look full, by a hint that an UPDATE leaves, too, which did not find room there.  Where rows of
 * aborted transactions are to go, and nothing else, the page is also given the hint that something
 * can be removed by now.  Pruning makes both hints exact.
 */
static void
prune(BlobGcRound *round, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);
	TransactionId oldest;
	bool		is_due;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	oldest = ((PageHeader) page)->pd_prune_xid;
	is_due = TransactionIdIsValid(oldest) && TransactionIdPrecedes(oldest, round->horizon);
	if (!are_lines_sound(page))
		is_due = false;
	else if (!is_due && has_aborted_row(round, buffer))
	{
		oldest = round->horizon;
		TransactionIdRetreat(oldest);
		is_due = true;
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (!is_due)
		return;
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	PageSetPrunable(page, oldest);
	PageSetFull(page);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	blob_prune_page(round->relation, buffer);
}

/* Mark what a page refers to; is_table: it is one of users, not of a catalog. */
static void
read_page(BlobGcRound *round, BlockNumber block, TupleMarker mark, bool is_table)
{
	Buffer		buffer = ReadBufferExtended(round->relation, MAIN_FORKNUM, block, RBM_NORMAL,
											round->strategy);
	PGAlignedBlock copy;

	if (is_table && !round->options.dry_run)
		prune(round, buffer);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memset(round->keeps, 0, sizeof(round->keeps));
	if (is_table && are_lines_sound(BufferGetPage(buffer)))
		blob_gc_kept_note(round, buffer);
	memcpy(copy.data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	if (PageIsNew((Page) copy.data))
		return;
	blob_gc_notes_begin_page(round, block, is_table && PageIsAllVisible((Page) copy.data));
	mark_page(round, block, (Page) copy.data, mark);
	blob_gc_notes_end_page(round);
}

#ifdef USE_ASSERT_CHECKING

/* Read a page whose note is taken, and compare, unless the page has just been changed. */
static void
assert_note(BlobGcRound *round, BlockNumber block, const BlobGcNote *note, TupleMarker mark)
{
	Buffer		buffer = ReadBuffer(round->relation, block);
	PGAlignedBlock copy;
	bool		holds;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	holds = blob_gc_notes_holds(round, block);
	Assert(!holds || PageIsAllVisible(BufferGetPage(buffer)));
	memcpy(copy.data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	if (!holds)
		return;
	round->note = note;
	memset(round->keeps, 0, sizeof(round->keeps));
	mark_page(round, block, (Page) copy.data, mark);
	round->note = NULL;
}

#else
#define assert_note(round, block, note, mark) ((void) 0)
#endif							/* USE_ASSERT_CHECKING */

/* False: the page has no note, or has changed since. */
static bool
take_note(BlobGcRound *round, BlockNumber block, TupleMarker mark)
{
	BlobGcNote	note;

	if (!blob_gc_notes_find(round, block, &note))
		return false;
	assert_note(round, block, &note, mark);
	blob_gc_mark_noted(round, &note);
	blob_gc_status_page_unchanged();
	return true;
}

/* All pages of the relation.  False ends the round. */
static bool
scan(BlobGcRound *round, TupleMarker mark, bool is_table)
{
	BlockNumber block_count = RelationGetNumberOfBlocks(round->relation);
	bool		may_go_on = true;

	round->horizon = GetOldestNonRemovableTransactionId(round->relation);
	blob_gc_notes_begin_table(round, is_table);
	for (BlockNumber block = 0; may_go_on && block < block_count; block++)
	{
		if (take_note(round, block, mark))
			may_go_on = block % UNCHANGED_PAGES != 0 || blob_gc_may_go_on(round);
		else
		{
			read_page(round, block, mark, is_table);
			may_go_on = blob_gc_page_done(round);
		}
	}
	blob_gc_notes_end_table(round);
	return may_go_on;
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
	return scan(round, mark_tuple, true);
}

/* ---- statistics ---- */

/* An array of which only its header says what it is of. */
static void
mark_any_array(BlobGcRound *round, Datum datum)
{
	ArrayType  *array = DatumGetArrayTypeP(datum);
	Oid			element;

	refuse(blob_sound_array_header(array));
	element = ARR_ELEMTYPE(array);
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
	ArrayIterator iterator;
	Datum		element;
	bool		is_null;

	refuse(blob_sound_array(array, -1, TYPALIGN_DOUBLE));
	iterator = array_create_iterator(array, 0, NULL);
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
		refuse(blob_sound_row(header, tuple.t_len, RelationGetDescr(catalog)));
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

/* The same of extended statistics. */
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

/* What rows of a catalog refer to counts for the catalog. */
static void
note_referring(BlobGcRound *round, Oid catalog)
{
	if (round->refers)
		blob_gc_referring_add(&round->result->referring, catalog);
	round->refers = false;
}

static bool
mark_catalog(BlobGcRound *round, Oid catalog, TupleMarker mark)
{
	bool		complete;

	round->lock_mode = AccessShareLock;
	round->refers = false;
	round->relation = table_open(catalog, round->lock_mode);
	blob_gc_status_totals(1, RelationGetNumberOfBlocks(round->relation));
	complete = scan(round, mark, false);
	note_referring(round, catalog);
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
	BlobCatalogScan scan = blob_catalog_scan(RelationRelationId, NULL);
	HeapTuple	tuple;

	round->refers = false;
	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		MemoryContext old_context = MemoryContextSwitchTo(round->row_context);
		bool		is_null;
		Datum		datum = heap_getattr(tuple, Anum_pg_class_relpartbound,
										 RelationGetDescr(scan.catalog), &is_null);

		CHECK_FOR_INTERRUPTS();
		if (!is_null)
			blob_bound_walk(TextDatumGetCString(datum), mark_bound_value, round);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(round->row_context);
	}
	note_referring(round, RelationRelationId);
}

bool
blob_gc_mark_catalogs(BlobGcRound *round)
{
	mark_bounds(round);
	return mark_catalog(round, StatisticRelationId, mark_statistics_tuple) &&
		mark_catalog(round, StatisticExtDataRelationId, mark_extended_statistics_tuple);
}
