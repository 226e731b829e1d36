/*
 * store/map.c
 *	  Reading and changing the extent map, see store/map.h and the README of this folder.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "store/map.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "wal/insert.h"

/* See first_generation().  A generation has 56 bits in the map. */
#define NUMBERS_PER_BYTE 16
#define MAX_FIRST_GENERATION (UINT64CONST(1) << 55)

/* The content of rd_amcache; PostgreSQL frees it with the relation's cache entry. */
typedef struct MapCache
{
	BlobStoreId store;
	BlockNumber block_count;	/* a lower bound: maps never shrink */
} MapCache;

/*
 * The first generation of a new store: it is larger than all that earlier stores of this database
 * have drawn.  A process may still have a value of such a store in memory, if the extension was
 * dropped and created again meanwhile.  The same pages belong to other values now, and a reader
 * notices that by their generations, as ever.
 *
 * The numbers follow the position in the WAL, times NUMBERS_PER_BYTE.  A number that is drawn takes
 * 24 bytes of WAL (ALLOC).  A start gives up at most GENERATION_BATCH (8,192) reserved numbers,
 * that is 512 bytes of WAL, and takes more: checkpoint, META, ALLOC with the image of a map page,
 * commit.  CREATE EXTENSION writes some hundred thousand bytes besides.  So no store's numbers
 * overtake the position.  Beyond 2 PiB of WAL new stores begin at one number, and lose this.
 */
static BlobGeneration
first_generation(void)
{
	return Min(GetXLogInsertRecPtr(), MAX_FIRST_GENERATION / NUMBERS_PER_BYTE) * NUMBERS_PER_BYTE;
}

static void
fill_new_meta(BlobMapMeta *meta)
{
	memset(meta, 0, sizeof(*meta));
	meta->magic = BLOB_MAP_MAGIC;
	meta->version = BLOB_MAP_VERSION_1;
	meta->dboid = MyDatabaseId;
	meta->page_bytes = BLOB_PAGE_SIZE;
	meta->segment_pages = BLOB_SEGMENT_PAGES;
	meta->tiers_per_level = BLOB_TIERS_PER_LEVEL;
	meta->tier_levels = BLOB_TIER_LEVELS;
	meta->generation_limit = first_generation();
	if (!pg_strong_random(&meta->incarnation, sizeof(meta->incarnation)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a random number")));
}

void
blob_map_create(Relation map)
{
	BlobMapMeta meta;
	BlobStoreId store;
	Buffer		buffer;

	if (RelationGetNumberOfBlocks(map) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extent map \"%s\" exists already", RelationGetRelationName(map))));

	fill_new_meta(&meta);
	store.dboid = meta.dboid;
	store.incarnation = meta.incarnation;
	buffer = ReadBufferExtended(map, MAIN_FORKNUM, P_NEW, RBM_ZERO_AND_LOCK, NULL);
	Assert(BufferGetBlockNumber(buffer) == BLOB_MAP_META_BLOCK);

	START_CRIT_SECTION();
	blob_map_page_init(BufferGetPage(buffer));
	blob_map_page_set_meta(BufferGetPage(buffer), &meta, sizeof(meta));
	MarkBufferDirty(buffer);
	blob_wal_log_meta(&store, buffer, true, &meta, sizeof(meta), meta.generation_limit);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/* ERROR unless the meta page is that of a map that this library can use in this database. */
static void
check_meta(Relation map, const BlobMapMeta *meta)
{
	if (meta->magic != BLOB_MAP_MAGIC)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("relation \"%s\" is not an extent map", RelationGetRelationName(map))));
	if (meta->version < BLOB_MAP_VERSION_1 || meta->version > BLOB_MAP_VERSION_2 ||
		meta->page_bytes != BLOB_PAGE_SIZE ||
		meta->segment_pages != BLOB_SEGMENT_PAGES ||
		meta->tiers_per_level != BLOB_TIERS_PER_LEVEL || meta->tier_levels != BLOB_TIER_LEVELS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extent store was written by an incompatible build of blobext"),
				 errdetail("Store: format %u, pages of %u bytes, %u tiers per level, %u levels; "
						   "library: formats %u and %u, pages of %u bytes, %u tiers per level, "
						   "%u levels.",
						   meta->version, meta->page_bytes, meta->tiers_per_level,
						   meta->tier_levels, BLOB_MAP_VERSION_1, BLOB_MAP_VERSION_2,
						   BLOB_PAGE_SIZE,
						   BLOB_TIERS_PER_LEVEL, BLOB_TIER_LEVELS)));
	if (meta->dboid != MyDatabaseId && meta->reserved_pages > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extent store of this database belongs to another database"),
				 errdetail("The store was made for the database with OID %u, this one has OID %u.",
						   meta->dboid, MyDatabaseId),
				 errhint("The database was copied from a template that holds blobs. Drop and "
						 "create the extension here.")));
}

/* (A map of format 1 has zeros there.) */
static void
require_default_place(const BlobMapMetaV2 *meta)
{
	if (meta->place_run_count == 0 && meta->reserved == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the extent store has segments in other storage places"),
			 errdetail("This version of blobext knows the default place only."),
			 errhint("Install the version of blobext that was used before, or a later one, and "
					 "restart the server.")));
}

XLogRecPtr
blob_map_read_meta_lsn(Relation map, BlobMapMeta *meta)
{
	Buffer		buffer = ReadBuffer(map, BLOB_MAP_META_BLOCK);
	BlobMapMetaV2 page_meta;
	XLogRecPtr	lsn;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(&page_meta, PageGetContents(BufferGetPage(buffer)), sizeof(page_meta));
	lsn = PageGetLSN(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	*meta = page_meta.v1;
	check_meta(map, meta);
	if (meta->version == BLOB_MAP_VERSION_2)
		require_default_place(&page_meta);
	return lsn;
}

void
blob_map_read_meta(Relation map, BlobMapMeta *meta)
{
	(void) blob_map_read_meta_lsn(map, meta);
}

static MapCache *
get_cache(Relation map)
{
	if (map->rd_amcache == NULL)
	{
		BlobMapMeta meta;
		MapCache   *cache;

		blob_map_read_meta(map, &meta);
		cache = MemoryContextAllocZero(CacheMemoryContext, sizeof(*cache));
		cache->store.dboid = MyDatabaseId;
		cache->store.incarnation = meta.incarnation;
		map->rd_amcache = cache;
	}
	return map->rd_amcache;
}

BlobStoreId
blob_map_store_id(Relation map)
{
	return get_cache(map)->store;
}

/* Lock the meta page exclusively, and read its present content. */
static Buffer
lock_meta(Relation map, BlobMapMeta *meta)
{
	Buffer		buffer = ReadBuffer(map, BLOB_MAP_META_BLOCK);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(meta, PageGetContents(BufferGetPage(buffer)), sizeof(*meta));
	return buffer;
}

void
blob_map_set_generation_limit(Relation map, BlobGeneration limit)
{
	BlobStoreId store = blob_map_store_id(map);
	BlobMapMeta meta;
	Buffer		buffer = lock_meta(map, &meta);

	Assert(limit > meta.generation_limit);

	START_CRIT_SECTION();
	meta.generation_limit = limit;
	blob_map_page_update_meta(BufferGetPage(buffer), &meta);
	MarkBufferDirty(buffer);
	blob_wal_log_meta(&store, buffer, false, PageGetContents(BufferGetPage(buffer)),
					  blob_map_page_meta_bytes(BufferGetPage(buffer)), limit);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

void
blob_map_set_reserved(Relation map, BlobPageNo end_page)
{
	BlobStoreId store = blob_map_store_id(map);
	BlobMapMeta meta;
	Buffer		buffer = lock_meta(map, &meta);
	BlobPageNo	first_page = meta.reserved_pages;

	Assert(end_page > first_page);

	START_CRIT_SECTION();
	meta.reserved_pages = end_page;
	meta.dboid = MyDatabaseId;	/* an empty store may come from a template */
	blob_map_page_update_meta(BufferGetPage(buffer), &meta);
	MarkBufferDirty(buffer);
	blob_wal_log_segment(&store, buffer, PageGetContents(BufferGetPage(buffer)),
						 blob_map_page_meta_bytes(BufferGetPage(buffer)), first_page, end_page);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/* Whether the map has this block; asks the file only if the cached bound is too low. */
static bool
has_block(Relation map, BlockNumber block)
{
	MapCache   *cache = get_cache(map);

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

/*
 * Pin a map block for a change, extending the relation up to it.  New blocks stay zero until a
 * process initialises them under the buffer's lock.
 */
static Buffer
pin_block(Relation map, BlockNumber block)
{
	if (!has_block(map, block))
	{
		LockRelationForExtension(map, ExclusiveLock);
		for (BlockNumber next = RelationGetNumberOfBlocks(map); next <= block; next++)
		{
			Buffer		buffer = ReadBuffer(map, P_NEW);

			Assert(BufferGetBlockNumber(buffer) == next);
			ReleaseBuffer(buffer);
		}
		UnlockRelationForExtension(map, ExclusiveLock);
	}
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
		BlobMapState state = extent->is_tail ? BLOB_MAP_TAIL : BLOB_MAP_TIER;

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

/* Apply the changes of one pinned and locked block.  Inside of the critical section. */
static void
apply_block(BlobWalMapBlock *block)
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
			blocks[block_count].buffer = pin_block(map, sorted[i].block);
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
		apply_block(&blocks[i]);
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
	else if (blob_map_entry_high_water(&entry) != from_bytes)
		result = BLOB_CLAIM_LOST;
	else
	{
		entry.measure += to_bytes - from_bytes;
		change_entry(map, BLOB_WAL_CLAIM, buffer, extent, &entry, from_bytes, to_bytes);
		extent->generation = blob_map_entry_generation(&entry);
		result = BLOB_CLAIM_WON;
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	return result;
}

void
blob_map_trim(Relation map, const BlobExtent *extent, uint64 pages)
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
	entry.generation_state = extent->generation << 8 | BLOB_MAP_TAIL;
	entry.measure = pages;
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
			 errdetail("Its generation should be " UINT64_FORMAT ", the extent map says "
					   UINT64_FORMAT " (state %d).", expected->generation,
					   blob_map_entry_generation(entry), blob_map_entry_state(entry)),
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
 * Compare the entries of a locked block with the extents to be freed.  pages[] gets their lengths;
 * ERROR if one differs.
 */
static void
check_free_block(const BlobWalFreeBlock *block, const BlobFreedExtent *extents, uint64 *pages)
{
	Page		page = BufferGetPage(block->buffer);
	static const BlobMapEntry no_entry;

	for (int i = 0; i < block->slot_count; i++)
	{
		const BlobMapEntry *entry = PageIsNew(page) ? &no_entry :
			&blob_map_page_entries(page)[block->slots[i]];

		if (!blob_map_entry_is_extent(entry) ||
			blob_map_entry_generation(entry) != extents[i].generation)
			report_unexpected(&extents[i], entry);
		pages[i] = blob_map_entry_pages(entry);
	}
}

XLogRecPtr
blob_map_free(Relation map, const BlobFreedExtent *extents, int count, TransactionId horizon,
			  BlobWalReuse reuse, uint64 *pages)
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
		check_free_block(&blocks[i], extents + checked, pages + checked);
		checked += blocks[i].slot_count;
	}
	Assert(checked == count);
	record.first_page = extents[0].first_page;
	for (int i = 0; i < count; i++)
	{
		record.page_count += pages[i];
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

/*
 * Call visit for the entries in [first_page, end_page) that are those of extents, or with
 * with_absent of any state but free.  Works on copies of the blocks, so that no lock is held during
 * visit.
 */
static void
visit_entries(Relation map, BlobPageNo first_page, BlobPageNo end_page, bool with_absent,
			  BufferAccessStrategy strategy, BlobMapVisitor visit, void *context)
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

			if (blob_map_entry_state(entry) != BLOB_MAP_FREE && page >= first_page &&
				page < end_page && (with_absent || blob_map_entry_is_extent(entry)))
				visit(page, entry, context);
		}
	}
}

void
blob_map_visit_range(Relation map, BlobPageNo first_page, BlobPageNo end_page,
					 BufferAccessStrategy strategy, BlobMapVisitor visit, void *context)
{
	visit_entries(map, first_page, end_page, false, strategy, visit, context);
}

void
blob_map_visit_all(Relation map, BlobMapVisitor visit, void *context)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);

	visit_entries(map, 0, BLOB_MAX_PAGE_NO + 1, true, strategy, visit, context);
	FreeAccessStrategy(strategy);
}

/* ---- pages without a file, or without blocks ---- */

/* The blocks of one record, besides the meta page. */
#define MAX_ENTRY_BLOCKS (BLOB_WAL_ALLOC_MAX_BLOCKS - 1)

StaticAssertDecl(BLOB_MAP_PUNCH_MAX_RUNS <= MAX_ENTRY_BLOCKS, "a run may need a block of its own");

/* What the entry of a page shall say: state and pages; BLOB_MAP_FREE and 0 for a zero entry. */
typedef struct EntryChange
{
	BlobPageNo	page;
	BlobMapState state;
	uint64		pages;
} EntryChange;

/* The changes of one record, with their blocks, which are pinned. */
typedef struct EntryBlocks
{
	int			count;
	BlobWalMapBlock blocks[MAX_ENTRY_BLOCKS];
	BlobWalMapChange *changes;
} EntryBlocks;

/* Pin the blocks of changes, which are in page order and lie in at most MAX_ENTRY_BLOCKS blocks. */
static void
pin_changes(Relation map, const EntryChange *changes, int count, EntryBlocks *blocks)
{
	blocks->count = 0;
	blocks->changes = palloc0(sizeof(BlobWalMapChange) * count);
	for (int i = 0; i < count; i++)
	{
		BlockNumber block = blob_map_block_of(changes[i].page);

		blocks->changes[i].slot = blob_map_slot_of(changes[i].page);
		blocks->changes[i].generation_state = changes[i].state;
		blocks->changes[i].measure = changes[i].pages;
		if (i > 0 && block == blob_map_block_of(changes[i - 1].page))
		{
			blocks->blocks[blocks->count - 1].change_count++;
			continue;
		}
		Assert(blocks->count < MAX_ENTRY_BLOCKS);
		blocks->blocks[blocks->count].buffer = pin_block(map, block);
		blocks->blocks[blocks->count].changes = &blocks->changes[i];
		blocks->blocks[blocks->count].change_count = 1;
		blocks->count++;
	}
	blob_wal_prepare_alloc(blocks->count + 1);	/* perhaps the meta page, too */
}

static void
lock_changes(const EntryBlocks *blocks)
{
	for (int i = 0; i < blocks->count; i++)
		LockBuffer(blocks->blocks[i].buffer, BUFFER_LOCK_EXCLUSIVE);
}

static void
apply_changes(EntryBlocks *blocks)
{
	for (int i = 0; i < blocks->count; i++)
		apply_block(&blocks->blocks[i]);
}

static void
release_changes(EntryBlocks *blocks)
{
	for (int i = 0; i < blocks->count; i++)
		UnlockReleaseBuffer(blocks->blocks[i].buffer);
	pfree(blocks->changes);
}

/*
 * Raise the limit of reserved pages to end_page on the locked meta page, in the critical section of
 * the record that says that the pages up to there are absent.
 */
static void
raise_reserved(Buffer meta_buffer, BlobMapMeta *meta, BlobPageNo end_page)
{
	meta->reserved_pages = end_page;
	blob_map_page_update_meta(BufferGetPage(meta_buffer), meta);
	MarkBufferDirty(meta_buffer);
}

/*
 * Change entries and log REMOVE of a segment.  If the segment is the last one, and reserved in part
 * only, the limit of reserved pages rises to its end.  Returns the record's end.
 */
static XLogRecPtr
log_remove(Relation map, BlobPageNo first_page, const EntryChange *changes, int count)
{
	BlobStoreId store = blob_map_store_id(map);
	BlobPageNo	end_page = first_page + BLOB_SEGMENT_PAGES;
	EntryBlocks blocks;
	BlobMapMeta meta;
	Buffer		meta_buffer;
	bool		is_last;
	XLogRecPtr	lsn;

	pin_changes(map, changes, count, &blocks);
	meta_buffer = lock_meta(map, &meta);	/* before the others: it is the first block */
	is_last = meta.reserved_pages < end_page;
	if (!is_last)
	{
		UnlockReleaseBuffer(meta_buffer);
		meta_buffer = InvalidBuffer;
	}
	lock_changes(&blocks);
	START_CRIT_SECTION();
	apply_changes(&blocks);
	if (is_last)
		raise_reserved(meta_buffer, &meta, end_page);
	lsn = blob_wal_log_absence(&store, BLOB_WAL_REMOVE, first_page, end_page, blocks.blocks,
							   blocks.count, meta_buffer);
	END_CRIT_SECTION();
	release_changes(&blocks);
	if (is_last)
		UnlockReleaseBuffer(meta_buffer);
	return lsn;
}

/* Change entries and log RESTORE of these pages. */
static void
log_restore(Relation map, BlobPageNo first_page, BlobPageNo end_page, const EntryChange *changes,
			int count)
{
	BlobStoreId store = blob_map_store_id(map);
	EntryBlocks blocks;

	pin_changes(map, changes, count, &blocks);
	lock_changes(&blocks);
	START_CRIT_SECTION();
	apply_changes(&blocks);
	(void) blob_wal_log_absence(&store, BLOB_WAL_RESTORE, first_page, end_page, blocks.blocks,
								blocks.count, InvalidBuffer);
	END_CRIT_SECTION();
	release_changes(&blocks);
}

/* Change entries and log PUNCH of these runs; returns the record's end. */
static XLogRecPtr
log_punch(Relation map, const BlobWalRun *runs, int run_count, const EntryChange *changes,
		  int count)
{
	BlobStoreId store = blob_map_store_id(map);
	EntryBlocks blocks;
	XLogRecPtr	lsn;

	pin_changes(map, changes, count, &blocks);
	lock_changes(&blocks);
	START_CRIT_SECTION();
	apply_changes(&blocks);
	lsn = blob_wal_log_punch(&store, runs, run_count, blocks.blocks, blocks.count);
	END_CRIT_SECTION();
	release_changes(&blocks);
	return lsn;
}

/* Punched entries of a range, in page order. */
typedef struct PunchedEntries
{
	int			count;
	int			block_count;	/* in which they lie */
	int			room;
	EntryChange *entries;
} PunchedEntries;

/* Called for each entry of a range: keep the punched ones. */
static void
add_punched(BlobPageNo page, const BlobMapEntry *entry, void *context)
{
	PunchedEntries *punched = context;

	if (blob_map_entry_state(entry) != BLOB_MAP_PUNCHED)
		return;
	if (punched->count == punched->room)
	{
		punched->room *= 2;
		punched->entries = repalloc(punched->entries, sizeof(EntryChange) * punched->room);
	}
	if (punched->count == 0 ||
		blob_map_block_of(punched->entries[punched->count - 1].page) != blob_map_block_of(page))
		punched->block_count++;
	punched->entries[punched->count].page = page;
	punched->entries[punched->count].state = BLOB_MAP_PUNCHED;
	punched->entries[punched->count++].pages = entry->measure;
}

static void
find_punched(Relation map, BlobPageNo first_page, BlobPageNo end_page, PunchedEntries *punched)
{
	punched->count = punched->block_count = 0;
	punched->room = 64;
	punched->entries = palloc(sizeof(EntryChange) * punched->room);
	visit_entries(map, first_page, end_page, true, NULL, add_punched, punched);
}

/* Whether REMOVE of their segment can change these entries. */
static bool
fit_into_remove(const PunchedEntries *punched)
{
	/* Two more blocks: that of the segment's first page, and that of the absent ones. */
	return punched->block_count + 2 <= MAX_ENTRY_BLOCKS;
}

int
blob_map_list_punched(Relation map, BlobPageNo first_page, BlobPageNo end_page, BlobPageRun **runs,
					  bool *are_many)
{
	PunchedEntries punched;

	find_punched(map, first_page, end_page, &punched);
	*runs = palloc(sizeof(BlobPageRun) * (punched.count + 1));
	for (int i = 0; i < punched.count; i++)
	{
		(*runs)[i].first_page = punched.entries[i].page;
		(*runs)[i].pages = punched.entries[i].pages;
	}
	*are_many = !fit_into_remove(&punched);
	pfree(punched.entries);
	return punched.count;
}

XLogRecPtr
blob_map_set_absent(Relation map, uint32 segment_no, BlobPageNo absent_page)
{
	BlobPageNo	first_page = segment_no * BLOB_SEGMENT_PAGES;
	BlobPageNo	end_page = first_page + BLOB_SEGMENT_PAGES;
	PunchedEntries punched;
	EntryChange *changes;
	int			count = 0;
	XLogRecPtr	lsn;

	Assert(absent_page > first_page && absent_page <= end_page);
	find_punched(map, first_page, absent_page, &punched);
	if (!fit_into_remove(&punched))
		elog(ERROR, "segment %u of the extent map has too many holes", segment_no);
	changes = palloc0(sizeof(EntryChange) * (punched.count + 2));
	changes[count].page = first_page;
	changes[count].state = BLOB_MAP_ABSENT;
	changes[count++].pages = BLOB_SEGMENT_PAGES;
	for (int i = 0; i < punched.count; i++)
	{
		if (punched.entries[i].page > first_page)
			changes[count++].page = punched.entries[i].page;
	}
	if (absent_page < end_page)
		changes[count++].page = absent_page;
	lsn = log_remove(map, first_page, changes, count);
	pfree(changes);
	pfree(punched.entries);
	return lsn;
}

void
blob_map_set_restored(Relation map, BlobPageNo first_page, BlobPageNo end_page)
{
	BlobPageNo	segment_end = (blob_segment_of(first_page) + 1) * BLOB_SEGMENT_PAGES;
	EntryChange changes[2] = {
		{first_page, BLOB_MAP_FREE, 0},
		{end_page, BLOB_MAP_ABSENT, segment_end - end_page}
	};

	Assert(end_page > first_page && end_page <= segment_end);
	log_restore(map, first_page, end_page, changes, end_page < segment_end ? 2 : 1);
}

void
blob_map_raise_format(Relation map)
{
	BlobStoreId store = blob_map_store_id(map);
	BlobMapMeta meta;
	Buffer		buffer = lock_meta(map, &meta);
	BlobMapMetaV2 raised;

	if (meta.version == BLOB_MAP_VERSION_1)
	{
		memset(&raised, 0, sizeof(raised));
		raised.v1 = meta;
		raised.v1.version = BLOB_MAP_VERSION_2;
		START_CRIT_SECTION();
		blob_map_page_set_meta(BufferGetPage(buffer), &raised, sizeof(raised));
		MarkBufferDirty(buffer);
		blob_wal_log_meta(&store, buffer, false, &raised, sizeof(raised), meta.generation_limit);
		END_CRIT_SECTION();
	}
	UnlockReleaseBuffer(buffer);
}

XLogRecPtr
blob_map_punch(Relation map, const BlobPageRun *runs, int count)
{
	EntryChange changes[BLOB_MAP_PUNCH_MAX_RUNS];
	BlobWalRun	logged[BLOB_MAP_PUNCH_MAX_RUNS];

	Assert(count > 0 && count <= BLOB_MAP_PUNCH_MAX_RUNS);
	for (int i = 0; i < count; i++)
	{
		logged[i].first_page = changes[i].page = runs[i].first_page;
		logged[i].pages = changes[i].pages = runs[i].pages;
		changes[i].state = BLOB_MAP_PUNCHED;
	}
	return log_punch(map, logged, count, changes, count);
}

/* Join the punched entries of a range whose pages are all punched, in one entry. */
static void
join_punched(Relation map, BlobPageNo first_page, BlobPageNo end_page)
{
	PunchedEntries punched;
	BlobWalRun	run = {first_page, end_page - first_page};

	find_punched(map, first_page, end_page, &punched);
	if (punched.count > 1 && punched.entries[0].page == first_page)
	{
		for (int i = 0; i < punched.count; i++)
		{
			punched.entries[i].state = i == 0 ? BLOB_MAP_PUNCHED : BLOB_MAP_FREE;
			punched.entries[i].pages = i == 0 ? run.pages : 0;
		}
		(void) log_punch(map, &run, 1, punched.entries, punched.count);
	}
	pfree(punched.entries);
}

void
blob_map_join_punched(Relation map, BlobPageNo first_page, BlobPageNo end_page)
{
	PunchedEntries punched;
	int			first = 0;

	/* Entries of as many blocks as a record may have; the last one may end behind them. */
	find_punched(map, first_page, end_page, &punched);
	for (int i = 0; i < punched.count; i++)
	{
		BlobPageNo	end = punched.entries[i].page + punched.entries[i].pages;

		if (i + 1 < punched.count &&
			blob_map_block_of(punched.entries[i + 1].page) -
			blob_map_block_of(punched.entries[first].page) < MAX_ENTRY_BLOCKS)
			continue;
		join_punched(map, punched.entries[first].page, end);
		first = i + 1;
	}
	pfree(punched.entries);
}

BlobPageNo
blob_map_fill(Relation map, BlobPageNo first_page, BlobPageNo end_page)
{
	BlobMapEntry entry = blob_map_lookup(map, first_page);
	BlobPageNo	entry_end = first_page + blob_map_entry_pages(&entry);
	EntryChange changes[2];

	if (blob_map_entry_state(&entry) != BLOB_MAP_PUNCHED)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the pages from " UINT64_FORMAT " on are not punched in the extent map",
						first_page)));
	end_page = Min(end_page, entry_end);
	changes[0] = (EntryChange) {first_page, BLOB_MAP_FREE, 0};
	changes[1] = (EntryChange) {end_page, BLOB_MAP_PUNCHED, entry_end - end_page};
	log_restore(map, first_page, end_page, changes, end_page < entry_end ? 2 : 1);
	return end_page;
}
