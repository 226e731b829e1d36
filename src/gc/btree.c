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

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	_bt_checkpage(round->relation, buffer);
	memcpy(copy, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
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
		ItemId		item;

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
		item = PageGetItemId(page, P_FIRSTDATAKEY(opaque));
		block = BTreeTupleGetDownLink((IndexTuple) PageGetItem(page, item));
	}
}

/* A key, with as many attributes as it has.  pages: counts what nothing has marked before. */
static void
mark_key(BlobGcRound *round, IndexTuple tuple, uint64 *pages)
{
	TupleDesc	row_type = RelationGetDescr(round->relation);
	int			attribute_count = BTreeTupleGetNAtts(tuple, round->relation);
	MemoryContext old_context = MemoryContextSwitchTo(round->row_context);

	round->key_pages = pages;
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
	round->key_pages = NULL;
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(round->row_context);
}

/*
 * All items: dead ones, high keys, and pivots.  The high key of a leaf is most often a copy of the
 * first item of the page to its right.  So that what such an item holds counts for the item, which
 * VACUUM removes, a high key is marked after these: the copy is kept in *high_key until then.
 */
static void
mark_page(BlobGcRound *round, Page page, IndexTuple *high_key)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);
	bool		is_leaf = P_ISLEAF(opaque);
	IndexTuple	next_high_key = NULL;

	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page); offset++)
	{
		ItemId		item = PageGetItemId(page, offset);
		IndexTuple	tuple;

		if (!ItemIdHasStorage(item))
			continue;
		tuple = (IndexTuple) PageGetItem(page, item);
		if (!is_leaf)
			mark_key(round, tuple, &round->root->high_key_pages);
		else if (offset < P_FIRSTDATAKEY(opaque))
			next_high_key = CopyIndexTuple(tuple);
		else
			mark_key(round, tuple, &round->root->dead_key_pages);
	}
	if (*high_key != NULL)
	{
		mark_key(round, *high_key, &round->root->high_key_pages);
		pfree(*high_key);
	}
	*high_key = next_high_key;
}

/*
 * Mark a level from its leftmost page along the links to the right.  A share lock on one page at a
 * time, for the time of a copy.  False ends the round; a page of another level is an ERROR.
 */
static bool
mark_level(BlobGcRound *round, BlockNumber leftmost, uint32 level)
{
	BlockNumber block = leftmost;
	IndexTuple	high_key = NULL;	/* of the leaf to the left, not marked yet */

	while (block != P_NONE)
	{
		PGAlignedBlock copy;
		BTPageOpaque opaque;

		read_page(round, block, (Page) copy.data);
		opaque = BTPageGetOpaque((Page) copy.data);
		if (opaque->btpo_level != level)
			report_broken_index(round, block);
		if (!P_ISDELETED(opaque))	/* a deleted page has no items */
			mark_page(round, (Page) copy.data, &high_key);
		block = opaque->btpo_next;
		if (!blob_gc_page_done(round))
			return false;
	}
	/* The last page has none; should it be a deleted one, this is its left neighbour's. */
	if (high_key != NULL)
	{
		mark_key(round, high_key, &round->root->high_key_pages);
		pfree(high_key);
	}
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
