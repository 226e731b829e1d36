/*
 * sql/maintenance/check_index.c
 *	  blobext_check(): the keys of B-trees.
 *
 * Keys are compared for as long as they exist, those of rows that are gone too, so the extents of
 * each must be allocated.  Contents are not read: the rows' are, and order is amcheck's part.
 *
 * Pages are copied in physical order, so keys that a split moves meanwhile may be missed.  A key
 * may go away, and its extents after it, between the copy and the look into the map: where
 * something is wrong the page is read again, and counts if it has not changed.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/itup.h"
#include "access/nbtree.h"
#include "catalog/pg_am.h"
#include "commands/vacuum.h"
#include "containers/sound.h"
#include "containers/walk.h"
#include "core/compat.h"
#include "miscadmin.h"
#include "sql/maintenance/check.h"
#include "sql/maintenance/progress.h"
#include "sql/value.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

typedef struct KeyProblem
{
	ItemPointerData place;		/* block and item of the index */
	const char *column;
	char	   *text;
} KeyProblem;

typedef struct IndexCheck
{
	BlobCheck  *check;
	Relation	index;
	KeyProblem	current;		/* where we are */
	List	   *problems;		/* of the page, as KeyProblem */
} IndexCheck;

static void
note_problem(IndexCheck *index_check, char *text)
{
	KeyProblem *problem = palloc(sizeof(KeyProblem));

	*problem = index_check->current;
	problem->text = text;
	index_check->problems = lappend(index_check->problems, problem);
}

/* A key whose content is missing is fetched, whether or not a row has it. */
static void
fetch_key(IndexCheck *index_check, const BlobValue *value)
{
	BlobCheck  *check = index_check->check;
	char	   *problem = blob_check_repair(check, value,
											"the content of a key is missing on this server");

	if (problem != NULL)
		note_problem(index_check, problem);
	else if (check->shows_repaired)
		blob_check_report(check, RelationGetRelid(index_check->index),
						  &index_check->current.place, index_check->current.column, NULL);
}

/* A BlobWalkVisitor: check a value of a key. */
static void
check_key(Datum datum, void *context)
{
	IndexCheck *index_check = context;
	BlobCheck  *check = index_check->check;
	BlobValue	value = blob_sql_unpack(datum);
	char	   *text;

	if (!value.is_inline && check->visit != NULL)
		check->visit(check, &value, index_check->index, index_check->current.column);
	if (value.is_inline || check->visit != NULL)
		return;
	text = blob_check_references(&value.descriptor);
	if (text != NULL)
		note_problem(index_check, text);
	else if (check->heal != NULL && blob_heal_lacks(check->heal, &value.descriptor))
		fetch_key(index_check, &value);
}

/* A value of a key, or what contains values. */
typedef struct KeyValue
{
	IndexCheck *index_check;
	Datum		datum;
	Oid			type;
} KeyValue;

/* A BlobCheckFinder. */
static char *
walk_key(void *context)
{
	KeyValue   *key = context;

	blob_walk_datum(key->datum, key->type, check_key, key->index_check);
	return NULL;
}

/* All values of one index tuple; inner tuples may have fewer attributes. */
static void
check_values(IndexCheck *index_check, IndexTuple item)
{
	TupleDesc	row_type = RelationGetDescr(index_check->index);
	int			attribute_count = BTreeTupleGetNAtts(item, index_check->index);

	for (int i = 0; i < attribute_count; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);
		KeyValue	key = {.index_check = index_check, .type = column->atttypid};
		bool		is_null;
		char	   *problem;

		key.datum = index_getattr(item, i + 1, row_type, &is_null);
		if (is_null || !blob_walk_type_holds(column->atttypid))
			continue;
		index_check->current.column = NameStr(column->attname);
		problem = blob_check_find(walk_key, &key);
		if (problem != NULL)
			note_problem(index_check, psprintf("the key cannot be read: %s", problem));
	}
}

/* One item: its lengths first, since nothing else keeps a reader within it. */
static void
check_item(IndexCheck *index_check, Page page, ItemId item)
{
	IndexTuple	tuple = (IndexTuple) PageGetItem(page, item);
	char	   *problem = blob_sound_line(page, item, sizeof(IndexTupleData));

	if (problem == NULL)
		problem = blob_sound_key(tuple, ItemIdGetLength(item), index_check->index);
	if (problem == NULL)
		check_values(index_check, tuple);
	else
		note_problem(index_check, psprintf("the key cannot be read: %s", problem));
}

/* A page of items; meta, new and deleted ones have none. */
static void
check_page(IndexCheck *index_check, Page page, BlockNumber block)
{
	BTPageOpaque opaque;
	char	   *problem;

	index_check->problems = NIL;
	if (PageIsNew(page))
		return;
	index_check->current.column = NULL;
	ItemPointerSet(&index_check->current.place, block, InvalidOffsetNumber);
	problem = blob_sound_btree_page(page);
	if (problem != NULL)
	{
		note_problem(index_check, problem);
		return;
	}
	opaque = BTPageGetOpaque(page);
	if (P_ISMETA(opaque) || P_ISDELETED(opaque))
		return;
	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page); offset++)
	{
		ItemId		item = PageGetItemId(page, offset);

		if (!ItemIdHasStorage(item))
			continue;
		ItemPointerSet(&index_check->current.place, block, offset);
		index_check->current.column = NULL;
		check_item(index_check, page, item);
	}
}

static void
copy_page(Relation index, BlockNumber block, BufferAccessStrategy strategy, Page copy)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM, block, RBM_NORMAL, strategy);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(copy, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
}

/*
 * Check a copy of a page until two looks at it agree, or it has no problem: keys, and then their
 * extents, may go away between the copy and the look into the map.
 */
static void
check_block(IndexCheck *index_check, BlockNumber block, BufferAccessStrategy strategy)
{
	PGAlignedBlock copy;
	PGAlignedBlock again;
	ListCell   *cell;

	copy_page(index_check->index, block, strategy, (Page) copy.data);
	for (;;)
	{
		check_page(index_check, (Page) copy.data, block);
		if (index_check->problems == NIL)
			return;
		CHECK_FOR_INTERRUPTS();
		copy_page(index_check->index, block, strategy, (Page) again.data);
		if (memcmp(copy.data, again.data, BLCKSZ) == 0)
			break;
		copy = again;
	}
	foreach(cell, index_check->problems)
	{
		KeyProblem *problem = lfirst(cell);

		blob_check_report(index_check->check, RelationGetRelid(index_check->index),
						  &problem->place, problem->column, problem->text);
	}
}

/* All pages in physical order; the memory of each is freed before the next. */
static void
check_btree(IndexCheck *index_check)
{
	BlobCheck  *check = index_check->check;
	BlockNumber block_count = RelationGetNumberOfBlocks(index_check->index);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);

	for (BlockNumber block = 0; block < block_count; block++)
	{
		MemoryContext old_context = MemoryContextSwitchTo(check->row_context);

		blob_delay_point();
		check_block(index_check, block, strategy);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(check->row_context);
	}
	FreeAccessStrategy(strategy);
}

/*
 * One that is not ready belongs to CREATE INDEX CONCURRENTLY, which writes past the shared buffers,
 * so that reading it would leave wrong pages there.
 */
static void
check_one_index(BlobCheck *check, Oid relid)
{
	Relation	index = index_open(relid, AccessShareLock);
	IndexCheck	index_check = {.check = check, .index = index};

	blob_check_method(check, index);
	if (index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisready &&
		blob_walk_row_holds(RelationGetDescr(index)))
	{
		blob_progress_relation(RelationGetRelid(index));
		check_btree(&index_check);
	}
	index_close(index, AccessShareLock);
}

void
blob_check_indexes(BlobCheck *check, Relation table)
{
	List	   *indexes = RelationGetIndexList(table);
	ListCell   *cell;

	foreach(cell, indexes)
		blob_check_safely(check, check_one_index, lfirst_oid(cell));
	list_free(indexes);
}
