/*
 * store/map.c
 *	  Entries of the extent map: looking them up, allocating, growing and freeing extents, see
 *	  store/map.h and the README of this folder.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "store/map.h"
#include "store/map_internal.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "wal/insert.h"

/* Whether the map has this block; asks the file only if the cached bound is too low. */
static bool
has_block(Relation map, BlockNumber block)
{
	BlobMapCache *cache = blob_map_cache(map);

	if (block >= cache->block_count)
		cache->block_count = RelationGetNumberOfBlocks(map);
	return block < cache->block_count;
}

Buffer
blob_map_lock_entry(Relation map, BlobPageNo first_page, Buffer previous)
{
	BlockNumber block = blob_map_block_of(first_page);
	Buffer		buffer;

	if (BufferIsValid(previous))
	{
		if (BufferGetBlockNumber(previous) == block)
			return previous;
		UnlockReleaseBuffer(previous);
	}
	if (!has_block(map, block))
		return InvalidBuffer;
	buffer = ReadBuffer(map, block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (!PageIsNew(BufferGetPage(buffer)))
		return buffer;
	UnlockReleaseBuffer(buffer);
	return InvalidBuffer;
}

BlobMapEntry
blob_map_locked_entry(Buffer buffer, BlobPageNo first_page)
{
	return blob_map_page_entries(BufferGetPage(buffer))[blob_map_slot_of(first_page)];
}

BlobMapEntry
blob_map_lookup_lsn(Relation map, BlobPageNo first_page, XLogRecPtr *lsn)
{
	BlobMapEntry entry = {0};
	Buffer		buffer = blob_map_lock_entry(map, first_page, InvalidBuffer);

	*lsn = InvalidXLogRecPtr;
	if (BufferIsValid(buffer))
	{
		entry = blob_map_locked_entry(buffer, first_page);
		*lsn = PageGetLSN(BufferGetPage(buffer));
		UnlockReleaseBuffer(buffer);
	}
	return entry;
}

BlobMapEntry
blob_map_lookup(Relation map, BlobPageNo first_page)
{
	XLogRecPtr	lsn;

	return blob_map_lookup_lsn(map, first_page, &lsn);
}

void
blob_map_prefetch(Relation map, BlobPageNo first_page)
{
	BlockNumber block = blob_map_block_of(first_page);

	if (has_block(map, block))
		(void) PrefetchBuffer(map, MAIN_FORKNUM, block);
}

/* Extend the map up to this block, unless it has it. */
static void
require_block(Relation map, BlockNumber block)
{
	if (has_block(map, block))
		return;
	LockRelationForExtension(map, ExclusiveLock);
	for (BlockNumber next = RelationGetNumberOfBlocks(map); next <= block; next++)
	{
		Buffer		buffer = ReadBuffer(map, P_NEW);

		Assert(BufferGetBlockNumber(buffer) == next);
		ReleaseBuffer(buffer);
	}
	UnlockRelationForExtension(map, ExclusiveLock);
}

void
blob_map_extend(Relation map, BlobPageNo end_page)
{
	require_block(map, blob_map_block_of(end_page - 1));
}

Buffer
blob_map_pin_block(Relation map, BlockNumber block)
{
	require_block(map, block);
	return ReadBuffer(map, block);
}

/* The change of one extent's entry, with its block. */
typedef struct ExtentChange
{
	BlockNumber block;
	BlobWalMapChange change;
} ExtentChange;

static int
compare_changes(const void *a, const void *b)
{
	const ExtentChange *left = a;
	const ExtentChange *right = b;

	if (left->block != right->block)
		return left->block < right->block ? -1 : 1;
	return (int) left->change.slot - (int) right->change.slot;
}

/*
 * The entries of these extents, sorted by block.  *left_bytes of content fill the extents in turn,
 * and *left_bytes becomes the content that is left.
 */
static void
make_changes(const BlobExtent *extents, int extent_count, int first_extent_no,
			 uint64 *left_bytes, ExtentChange *changes)
{
	for (int i = 0; i < extent_count; i++)
	{
		const BlobExtent *extent = &extents[i];
		uint64		extent_bytes = extent->pages * BLOB_PAGE_SIZE;
		uint64		fill = Min(*left_bytes, extent_bytes);
		uint64		tier = Min(first_extent_no + i, BLOB_TIER_COUNT - 1);
		uint32		state = (extent->is_tail ? BLOB_MAP_TAIL : BLOB_MAP_TIER) |
			(extent->has_sums ? BLOB_MAP_HAS_SUMS : 0);

		Assert(!extent->has_sums || extent->pages <= UINT32_MAX || !extent->is_tail);
		*left_bytes -= fill;
		memset(&changes[i], 0, sizeof(changes[i]));
		changes[i].block = blob_map_block_of(extent->first_page);
		changes[i].change.slot = blob_map_slot_of(extent->first_page);
		changes[i].change.generation_state = extent->generation << 8 | state;
		changes[i].change.measure = extent->is_tail ? extent->pages :
			tier << BLOB_MAP_HIGH_WATER_BITS | fill;
	}
	qsort(changes, extent_count, sizeof(*changes), compare_changes);
}

void
blob_map_apply_block(BlobWalMapBlock *block)
{
	Page		page = BufferGetPage(block->buffer);

	block->is_new = PageIsNew(page);
	if (block->is_new)
		blob_map_page_init(page);
	for (int i = 0; i < block->change_count; i++)
	{
		BlobMapEntry entry = {
			.generation_state = block->changes[i].generation_state,
			.measure = block->changes[i].measure
		};

		blob_map_page_set(page, block->changes[i].slot, &entry);
	}
	MarkBufferDirty(block->buffer);
}

/*
 * Apply and log the changes of at most BLOB_WAL_ALLOC_MAX_BLOCKS extents, which are sorted by
 * block.  All that can fail comes before the first buffer is locked.  Buffers are locked in
 * ascending order, so that two allocations cannot deadlock.
 */
static void
allocate_batch(Relation map, const BlobStoreId *store, const BlobExtent *extents,
			   const ExtentChange *sorted, int count)
{
	BlobWalMapBlock blocks[BLOB_WAL_ALLOC_MAX_BLOCKS];
	BlobWalMapChange changes[BLOB_WAL_ALLOC_MAX_BLOCKS];
	int			block_count = 0;

	for (int i = 0; i < count; i++)
	{
		changes[i] = sorted[i].change;
		if (i > 0 && sorted[i].block == sorted[i - 1].block)
			blocks[block_count - 1].change_count++;
		else
		{
			blocks[block_count].buffer = blob_map_pin_block(map, sorted[i].block);
			blocks[block_count].changes = &changes[i];
			blocks[block_count].change_count = 1;
			block_count++;
		}
	}
	blob_wal_prepare_alloc(block_count);

	for (int i = 0; i < block_count; i++)
		LockBuffer(blocks[i].buffer, BUFFER_LOCK_EXCLUSIVE);
	START_CRIT_SECTION();
	for (int i = 0; i < block_count; i++)
		blob_map_apply_block(&blocks[i]);
	blob_wal_log_alloc(store, blocks, block_count, extents, count);
	END_CRIT_SECTION();
	for (int i = 0; i < block_count; i++)
		UnlockReleaseBuffer(blocks[i].buffer);
}

void
blob_map_allocate(Relation map, const BlobStoreId *store, const BlobExtent *extents,
				  int extent_count, int first_extent_no, uint64 size_bytes,
				  int *logged_count)
{
	ExtentChange changes[BLOB_WAL_ALLOC_MAX_BLOCKS];
	uint64		left_bytes = size_bytes;

	*logged_count = 0;
	while (*logged_count < extent_count)
	{
		int			count = Min(extent_count - *logged_count, BLOB_WAL_ALLOC_MAX_BLOCKS);
		const BlobExtent *batch = extents + *logged_count;

		make_changes(batch, count, first_extent_no + *logged_count, &left_bytes, changes);
		allocate_batch(map, store, batch, changes, count);
		*logged_count += count;
	}
}

/* ---- growth ---- */

/*
 * Lock the block of an extent exclusively, to change its entry, and read the entry.  InvalidBuffer
 * if the map has no such block.
 */
static Buffer
lock_entry(Relation map, const BlobExtent *extent, BlobMapEntry *entry)
{
	BlockNumber block = blob_map_block_of(extent->first_page);
	Buffer		buffer;

	memset(entry, 0, sizeof(*entry));
	if (!has_block(map, block))
		return InvalidBuffer;
	buffer = ReadBuffer(map, block);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	if (!PageIsNew(BufferGetPage(buffer)))
		*entry = blob_map_page_entries(BufferGetPage(buffer))
			[blob_map_slot_of(extent->first_page)];
	return buffer;
}

/* Set an entry of a locked block, and log CLAIM or TRIM (info). */
static void
change_entry(Relation map, uint8 info, Buffer buffer, const BlobExtent *extent,
			 const BlobMapEntry *entry, uint64 from_bytes, uint64 to_bytes)
{
	BlobStoreId store = blob_map_store_id(map);
	BlobWalClaim record = {
		.first_page = extent->first_page,
		.generation = blob_map_entry_generation(entry),
		.from_bytes = from_bytes,
		.to_bytes = to_bytes
	};
	BlobWalMapChange change = {
		.slot = blob_map_slot_of(extent->first_page),
		.generation_state = entry->generation_state,
		.measure = entry->measure
	};

	START_CRIT_SECTION();
	blob_map_page_set(BufferGetPage(buffer), change.slot, entry);
	MarkBufferDirty(buffer);
	blob_wal_log_claim(&store, info, &record, buffer, &change);
	END_CRIT_SECTION();
}

/*
 * Whether an extent of several pages has checksums, and its entry, in a buffer that is locked, does
 * not say so (blob_map_hides_sums()).
 */
static bool
hides_sums(Relation map, Buffer buffer, const BlobExtent *extent, const BlobMapEntry *entry)
{
	BlobPageNo	next = extent->first_page + 1;
	BlobMapEntry next_entry;

	if (blob_map_entry_has_sums(entry) || extent->pages == 1)
		return false;
	next_entry = blob_map_block_of(next) == BufferGetBlockNumber(buffer) ?
		blob_map_locked_entry(buffer, next) : blob_map_lookup(map, next);
	return blob_map_entry_state(&next_entry) == BLOB_MAP_SUMS;
}

BlobClaimResult
blob_map_claim(Relation map, BlobExtent *extent, BlobGeneration max_generation,
			   uint64 from_bytes, uint64 to_bytes)
{
	BlobMapEntry entry;
	Buffer		buffer;
	BlobClaimResult result;

	Assert(from_bytes < to_bytes && to_bytes <= extent->pages * BLOB_PAGE_SIZE);

	(void) blob_map_store_id(map);	/* may read the meta page, so not under the lock */
	buffer = lock_entry(map, extent, &entry);
	if (blob_map_entry_state(&entry) != BLOB_MAP_TIER ||
		blob_map_entry_pages(&entry) != extent->pages ||
		blob_map_entry_generation(&entry) > max_generation)
		result = BLOB_CLAIM_STALE;
	else if (blob_map_entry_high_water(&entry) != from_bytes ||
			 hides_sums(map, buffer, extent, &entry))
		result = BLOB_CLAIM_LOST;
	else
	{
		entry.measure += to_bytes - from_bytes;
		change_entry(map, BLOB_WAL_CLAIM, buffer, extent, &entry, from_bytes, to_bytes);
		extent->generation = blob_map_entry_generation(&entry);
		extent->has_sums = blob_map_entry_has_sums(&entry);
		result = BLOB_CLAIM_WON;
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	return result;
}

void
blob_map_trim(Relation map, const BlobExtent *extent, uint64 pages, uint32 sum)
{
	BlobMapEntry entry;
	Buffer		buffer;

	Assert(pages > 0 && pages < extent->pages);

	(void) blob_map_store_id(map);
	buffer = lock_entry(map, extent, &entry);
	if (!blob_map_entry_is_extent(&entry) ||
		blob_map_entry_generation(&entry) != extent->generation ||
		blob_map_entry_pages(&entry) != extent->pages)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the extent at page " UINT64_FORMAT " is not what was allocated",
						extent->first_page)));
	entry.generation_state = extent->generation << 8 | BLOB_MAP_TAIL |
		(entry.generation_state & BLOB_MAP_HAS_SUMS);
	entry.measure = pages | (uint64) sum << BLOB_MAP_TAIL_SUM_SHIFT;
	change_entry(map, BLOB_WAL_TRIM, buffer, extent, &entry, extent->pages * BLOB_PAGE_SIZE,
				 pages * BLOB_PAGE_SIZE);
	UnlockReleaseBuffer(buffer);
}

/* ---- freeing ---- */

int
blob_map_free_batch(const BlobFreedExtent *extents, int count)
{
	int			block_count = 1;

	Assert(count > 0);
	for (int i = 1; i < count; i++)
	{
		if (i == BLOB_WAL_FREE_MAX_EXTENTS)
			return i;
		if (blob_map_block_of(extents[i].first_page) !=
			blob_map_block_of(extents[i - 1].first_page) &&
			++block_count > BLOB_WAL_FREE_MAX_BLOCKS)
			return i;
	}
	return count;
}

/* ERROR for an extent to be freed whose entry is not the expected one. */
static void
report_unexpected(const BlobFreedExtent *expected, const BlobMapEntry *entry)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("cannot free the extent at page " UINT64_FORMAT, expected->first_page),
			 errdetail("It should have generation " UINT64_FORMAT " and " UINT64_FORMAT " pages, "
					   "the extent map says " UINT64_FORMAT " and " UINT64_FORMAT " (state %d).",
					   expected->generation, expected->pages, blob_map_entry_generation(entry),
					   blob_map_entry_pages(entry), blob_map_entry_state(entry)),
			 errhint("Run blobext_check() to see which values are affected.")));
}

/*
 * Pin the blocks of the extents, which are sorted; returns their number.  ERROR if the map lacks
 * one.
 */
static int
pin_free_blocks(Relation map, const BlobFreedExtent *extents, int count, uint16 *slots,
				BlobWalFreeBlock *blocks)
{
	static const BlobMapEntry no_entry;
	int			block_count = 0;

	for (int i = 0; i < count; i++)
	{
		BlockNumber block = blob_map_block_of(extents[i].first_page);

		Assert(i == 0 || extents[i].first_page > extents[i - 1].first_page);
		slots[i] = (uint16) blob_map_slot_of(extents[i].first_page);
		if (i > 0 && block == blob_map_block_of(extents[i - 1].first_page))
		{
			blocks[block_count - 1].slot_count++;
			continue;
		}
		if (!has_block(map, block))
			report_unexpected(&extents[i], &no_entry);
		blocks[block_count].buffer = ReadBuffer(map, block);
		blocks[block_count].slots = &slots[i];
		blocks[block_count].slot_count = 1;
		block_count++;
	}
	return block_count;
}

/*
 * Compare the entries of a locked block with the extents to be freed; ERROR if one differs.
 */
static void
check_free_block(const BlobWalFreeBlock *block, const BlobFreedExtent *extents)
{
	Page		page = BufferGetPage(block->buffer);
	static const BlobMapEntry no_entry;

	for (int i = 0; i < block->slot_count; i++)
	{
		const BlobMapEntry *entry = PageIsNew(page) ? &no_entry :
			&blob_map_page_entries(page)[block->slots[i]];

		if (!blob_map_entry_is_extent(entry) ||
			blob_map_entry_generation(entry) != extents[i].generation ||
			blob_map_entry_pages(entry) != extents[i].pages)
			report_unexpected(&extents[i], entry);
	}
}

XLogRecPtr
blob_map_free(Relation map, const BlobFreedExtent *extents, int count, TransactionId horizon,
			  BlobWalReuse reuse)
{
	BlobStoreId store = blob_map_store_id(map);
	static const BlobMapEntry no_entry;
	BlobWalFree record = {.extent_count = count, .horizon = horizon, .reuse = reuse};
	BlobWalFreeBlock blocks[BLOB_WAL_FREE_MAX_BLOCKS];
	uint16		slots[BLOB_WAL_FREE_MAX_EXTENTS];
	int			block_count = pin_free_blocks(map, extents, count, slots, blocks);
	int			checked = 0;
	XLogRecPtr	lsn;

	blob_wal_prepare_alloc(block_count);
	for (int i = 0; i < block_count; i++)
		LockBuffer(blocks[i].buffer, BUFFER_LOCK_EXCLUSIVE);
	for (int i = 0; i < block_count; i++)
	{
		check_free_block(&blocks[i], extents + checked);
		checked += blocks[i].slot_count;
	}
	Assert(checked == count);
	record.first_page = extents[0].first_page;
	for (int i = 0; i < count; i++)
	{
		record.page_count += extents[i].pages;
		record.generation = Max(record.generation, extents[i].generation);
	}

	START_CRIT_SECTION();
	for (int i = 0; i < block_count; i++)
	{
		for (int k = 0; k < blocks[i].slot_count; k++)
			blob_map_page_set(BufferGetPage(blocks[i].buffer), blocks[i].slots[k], &no_entry);
		MarkBufferDirty(blocks[i].buffer);
	}
	lsn = blob_wal_log_free(&store, &record, blocks, block_count);
	END_CRIT_SECTION();
	for (int i = 0; i < block_count; i++)
		UnlockReleaseBuffer(blocks[i].buffer);
	return lsn;
}

/* ---- looking at extents ---- */

void
blob_map_copy_block(Relation map, BlockNumber block, BufferAccessStrategy strategy, Page copy)
{
	Buffer		buffer = ReadBufferExtended(map, MAIN_FORKNUM, block, RBM_NORMAL, strategy);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(copy, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
}

static bool
is_visited(const BlobMapEntry *entry, BlobMapVisited visited)
{
	if (blob_map_entry_is_vacant(entry))
		return false;
	if (blob_map_entry_is_damaged(entry))
		return visited == BLOB_VISIT_DAMAGED;
	return visited != BLOB_VISIT_EXTENTS || blob_map_entry_is_extent(entry);
}

void
blob_map_visit_entries(Relation map, BlobPageNo first_page, BlobPageNo end_page,
					   BlobMapVisited visited, BufferAccessStrategy strategy, BlobMapVisitor visit,
					   void *context)
{
	BlockNumber block_count = RelationGetNumberOfBlocks(map);
	PGAlignedBlock copy;

	if (first_page >= end_page)
		return;
	for (BlockNumber block = blob_map_block_of(first_page);
		 block < block_count && blob_map_page_at(block, 0) < end_page; block++)
	{
		CHECK_FOR_INTERRUPTS();
		blob_map_copy_block(map, block, strategy, (Page) copy.data);
		if (PageIsNew((Page) copy.data))
			continue;
		for (uint32 slot = 0; slot < BLOB_MAP_ENTRIES; slot++)
		{
			BlobPageNo	page = blob_map_page_at(block, slot);
			BlobMapEntry *entry = &blob_map_page_entries((Page) copy.data)[slot];

			if (page >= first_page && page < end_page && is_visited(entry, visited))
				visit(page, entry, context);
		}
	}
}

void
blob_map_visit_range(Relation map, BlobPageNo first_page, BlobPageNo end_page,
					 BufferAccessStrategy strategy, BlobMapVisitor visit, void *context)
{
	blob_map_visit_entries(map, first_page, end_page, BLOB_VISIT_EXTENTS, strategy, visit, context);
}

static void
visit_map(Relation map, BlobMapVisited visited, BlobMapVisitor visit, void *context)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);

	blob_map_visit_entries(map, 0, BLOB_MAX_PAGE_NO + 1, visited, strategy, visit, context);
	FreeAccessStrategy(strategy);
}

void
blob_map_visit_all(Relation map, BlobMapVisitor visit, void *context)
{
	visit_map(map, BLOB_VISIT_HOLLOW, visit, context);
}

void
blob_map_visit_damaged_too(Relation map, BlobMapVisitor visit, void *context)
{
	visit_map(map, BLOB_VISIT_DAMAGED, visit, context);
}
