/*
 * gc/btree.c
 *	  Marks what the items of a B-tree refer to: from the leaves up, each level from left to right.
 *
 * README.md says why in this order.  Pages are copied under a share lock; a page that was deleted
 * after its link was read keeps its level and its link to the right, as long as this
 * round's snapshot is registered.
 */
#include "postgres.h"

#include "access/itup.h"
#include "access/nbtree.h"
#include "containers/sound.h"
#include "gc/gc_internal.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* A copy of a page. */
static void
read_page(BlobGcRound *round, BlockNumber block, Page copy)
{
	Buffer		buffer = ReadBufferExtended(round->relation, MAIN_FORKNUM, block, RBM_NORMAL,
											round->strategy);
	ItemPointerData place;
	char	   *problem;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	_bt_checkpage(round->relation, buffer);
	memcpy(copy, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	problem = blob_sound_btree_page(copy);
	if (problem != NULL)
	{
		ItemPointerSet(&place, block, InvalidOffsetNumber);
		blob_gc_report_damage(round, &place, problem);
	}
}

/* The tuple of an item that has storage; an ERROR names the item if the tuple leaves it. */
static IndexTuple
tuple_of(BlobGcRound *round, BlockNumber block, Page page, OffsetNumber offset)
{
	ItemId		item = PageGetItemId(page, offset);
	IndexTuple	tuple = (IndexTuple) PageGetItem(page, item);
	char	   *problem = blob_sound_line(page, item, sizeof(IndexTupleData));
	ItemPointerData place;

	if (problem == NULL)
		problem = blob_sound_key(tuple, ItemIdGetLength(item), round->relation);
	if (problem != NULL)
	{
		ItemPointerSet(&place, block, offset);
		blob_gc_report_damage(round, &place, problem);
	}
	return tuple;
}

static void
report_broken_index(BlobGcRound *round, BlockNumber block)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" is damaged at block %u", RelationGetRelationName(round->relation),
					block),
			 errhint("Please REINDEX it.")));
}

/* The root page and its level; false for an index that is empty. */
static bool
find_root(BlobGcRound *round, BlockNumber *root, uint32 *level)
{
	PGAlignedBlock copy;
	BTMetaPageData *meta;

	read_page(round, BTREE_METAPAGE, (Page) copy.data);
	meta = BTPageGetMeta((Page) copy.data);
	if (meta->btm_magic != BTREE_MAGIC || meta->btm_version < BTREE_MIN_VERSION ||
		meta->btm_version > BTREE_VERSION)
		report_broken_index(round, BTREE_METAPAGE);
	*root = meta->btm_root;
	*level = meta->btm_level;
	return meta->btm_root != P_NONE;
}

/* The leftmost page of a level that the root is at or above. */
static BlockNumber
find_leftmost(BlobGcRound *round, BlockNumber root, uint32 level)
{
	BlockNumber block = root;

	for (;;)
	{
		PGAlignedBlock copy;
		Page		page = (Page) copy.data;
		BTPageOpaque opaque;

		CHECK_FOR_INTERRUPTS();
		read_page(round, block, page);
		opaque = BTPageGetOpaque(page);
		if (P_IGNORE(opaque))
		{
			if (P_RIGHTMOST(opaque))
				report_broken_index(round, block);
			block = opaque->btpo_next;
			continue;
		}
		if (opaque->btpo_level == level)
			return block;
		if (opaque->btpo_level < level ||
			PageGetMaxOffsetNumber(page) < P_FIRSTDATAKEY(opaque))
			report_broken_index(round, block);
		block = BTreeTupleGetDownLink(tuple_of(round, block, page, P_FIRSTDATAKEY(opaque)));
	}
}

/* A key, and where it is. */
typedef struct Key
{
	IndexTuple	tuple;
	ItemPointerData place;
} Key;

/* The columns that the key has, and that can hold values. */
static void
mark_columns(BlobGcRound *round, IndexTuple tuple)
{
	TupleDesc	row_type = RelationGetDescr(round->relation);
	int			attribute_count = BTreeTupleGetNAtts(tuple, round->relation);

	for (int i = 0; i < round->column_count; i++)
	{
		bool		is_null;
		Datum		datum;

		if (round->columns[i].number > attribute_count)
			continue;			/* cut off */
		datum = index_getattr(tuple, round->columns[i].number, row_type, &is_null);
		if (!is_null)
			blob_gc_mark(round, datum, round->columns[i].type);
	}
}

/*
 * A key, with as many attributes as it has.  pages: counts what nothing has marked before.  An
 * error of its content becomes one that names the key.
 */
static void
mark_key(BlobGcRound *round, Key *key, uint64 *pages)
{
	MemoryContext old_context = MemoryContextSwitchTo(round->row_context);

	round->key_pages = pages;
	PG_TRY();
	{
		mark_columns(round, key->tuple);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old_context);
		error = CopyErrorData();
		if (!blob_gc_is_content_error(error->sqlerrcode))
			PG_RE_THROW();
		FlushErrorState();
		blob_gc_report_damage(round, &key->place, error->message);
	}
	PG_END_TRY();
	round->key_pages = NULL;
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(round->row_context);
}

/* The high key of the page to the left, if it was kept. */
static void
mark_high_key(BlobGcRound *round, Key *high_key)
{
	if (high_key->tuple == NULL)
		return;
	mark_key(round, high_key, &round->root->high_key_pages);
	pfree(high_key->tuple);
	high_key->tuple = NULL;
}

/*
 * All items: dead ones, high keys, and pivots.  The high key of a leaf is most often a copy of the
 * first item of the page to its right.  So that what such an item holds counts for the item, which
 * VACUUM removes, a high key is marked after these: the copy is kept in *high_key until then.
 */
static void
mark_page(BlobGcRound *round, BlockNumber block, Page page, Key *high_key)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);
	bool		is_leaf = P_ISLEAF(opaque);
	Key			next_high_key = {NULL};

	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page); offset++)
	{
		Key			key;

		if (!ItemIdHasStorage(PageGetItemId(page, offset)))
			continue;
		key.tuple = tuple_of(round, block, page, offset);
		ItemPointerSet(&key.place, block, offset);
		if (!is_leaf)
			mark_key(round, &key, &round->root->high_key_pages);
		else if (offset >= P_FIRSTDATAKEY(opaque))
			mark_key(round, &key, &round->root->dead_key_pages);
		else
		{
			next_high_key = key;
			next_high_key.tuple = CopyIndexTuple(key.tuple);
		}
	}
	mark_high_key(round, high_key);
	*high_key = next_high_key;
}

/*
 * Mark a level from its leftmost page along the links to the right.  A share lock on one page at a
 * time, for the time of a copy.  False ends the round; a page of another level, and links that come
 * back to where they were, are an ERROR.
 */
static bool
mark_level(BlobGcRound *round, BlockNumber leftmost, uint32 level)
{
	BlockNumber block = leftmost;
	BlockNumber count = 0;
	BlockNumber limit = 0;		/* pages of the index when that was last asked */
	Key			high_key = {NULL};	/* of the leaf to the left, not marked yet */

	while (block != P_NONE)
	{
		PGAlignedBlock copy;
		BTPageOpaque opaque;

		/* No page comes twice. */
		if (++count > limit)
			limit = RelationGetNumberOfBlocks(round->relation);
		if (count > limit)
			report_broken_index(round, block);
		read_page(round, block, (Page) copy.data);
		opaque = BTPageGetOpaque((Page) copy.data);
		if (opaque->btpo_level != level)
			report_broken_index(round, block);
		if (!P_ISDELETED(opaque))	/* a deleted page has no items */
			mark_page(round, block, (Page) copy.data, &high_key);
		block = opaque->btpo_next;
		if (!blob_gc_page_done(round))
			return false;
	}
	/* The last page has none; should it be a deleted one, this is its left neighbour's. */
	mark_high_key(round, &high_key);
	return true;
}

bool
blob_gc_mark_btree(BlobGcRound *round)
{
	BlockNumber root;
	uint32		root_level;

	/* The root is looked up again for each level: it may have been split. */
	for (uint32 level = 0; find_root(round, &root, &root_level) && level <= root_level; level++)
	{
		if (!mark_level(round, find_leftmost(round, root, level), level))
			return false;
	}
	return true;
}
