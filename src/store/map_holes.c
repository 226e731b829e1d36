/*
 * store/map_holes.c
 *	  Entries of the extent map for free pages that have no file, or no blocks in it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "store/map.h"
#include "store/map_internal.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "wal/insert.h"

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
		blocks->blocks[blocks->count].buffer = blob_map_pin_block(map, block);
		blocks->blocks[blocks->count].changes = &blocks->changes[i];
		blocks->blocks[blocks->count].change_count = 1;
		blocks->count++;
	}
	blob_wal_prepare_alloc(blocks->count + 1);	/* perhaps the meta page, too */
}

/*
 * Lock the meta page if a REMOVE up to end_page is about the last segment, and that is reserved in
 * part only; else InvalidBuffer.
 */
static Buffer
lock_meta_of_last(Relation map, BlobMapMeta *meta, BlobPageNo end_page)
{
	Buffer		buffer = blob_map_lock_meta(map, meta);

	if (meta->reserved_pages < end_page)
		return buffer;
	UnlockReleaseBuffer(buffer);
	return InvalidBuffer;
}

/*
 * Change entries and log REMOVE, RESTORE or PUNCH (info) of these runs, one unless it is PUNCH.
 * With REMOVE of the last segment the limit of reserved pages rises to its end, in the same record.
 * Returns the record's end.
 */
static XLogRecPtr
log_entries(Relation map, uint8 info, const BlobWalRun *runs, int run_count,
			const EntryChange *changes, int count)
{
	BlobStoreId store = blob_map_store_id(map);
	BlobPageNo	end_page = runs[0].first_page + runs[0].pages;
	EntryBlocks blocks;
	BlobMapMeta meta;
	Buffer		meta_buffer = InvalidBuffer;
	XLogRecPtr	lsn;

	pin_changes(map, changes, count, &blocks);
	if (info == BLOB_WAL_REMOVE)
		meta_buffer = lock_meta_of_last(map, &meta, end_page);	/* it is the first block */
	for (int i = 0; i < blocks.count; i++)
		LockBuffer(blocks.blocks[i].buffer, BUFFER_LOCK_EXCLUSIVE);
	START_CRIT_SECTION();
	for (int i = 0; i < blocks.count; i++)
		blob_map_apply_block(&blocks.blocks[i]);
	if (BufferIsValid(meta_buffer))
	{
		meta.reserved_pages = end_page;
		blob_map_page_update_meta(BufferGetPage(meta_buffer), &meta);
		MarkBufferDirty(meta_buffer);
	}
	if (info == BLOB_WAL_PUNCH)
		lsn = blob_wal_log_punch(&store, runs, run_count, blocks.blocks, blocks.count);
	else
		lsn = blob_wal_log_absence(&store, info, runs[0].first_page, end_page, blocks.blocks,
								   blocks.count, meta_buffer);
	END_CRIT_SECTION();
	for (int i = 0; i < blocks.count; i++)
		UnlockReleaseBuffer(blocks.blocks[i].buffer);
	if (BufferIsValid(meta_buffer))
		UnlockReleaseBuffer(meta_buffer);
	pfree(blocks.changes);
	return lsn;
}

/* Entries of hollow pages of a range, in page order. */
typedef struct HollowEntries
{
	int			count;
	int			block_count;	/* in which they lie */
	int			room;
	EntryChange *entries;
} HollowEntries;

/* Called for each entry of a range: keep those of hollow pages. */
static void
add_hollow(BlobPageNo page, const BlobMapEntry *entry, void *context)
{
	HollowEntries *hollow = context;

	if (!blob_map_entry_is_hollow(entry))
		return;
	if (hollow->count == hollow->room)
	{
		hollow->room *= 2;
		hollow->entries = repalloc(hollow->entries, sizeof(EntryChange) * hollow->room);
	}
	if (hollow->count == 0 ||
		blob_map_block_of(hollow->entries[hollow->count - 1].page) != blob_map_block_of(page))
		hollow->block_count++;
	hollow->entries[hollow->count].page = page;
	hollow->entries[hollow->count].state = blob_map_entry_state(entry);
	hollow->entries[hollow->count++].pages = entry->measure;
}

static void
find_hollow(Relation map, BlobPageNo first_page, BlobPageNo end_page, HollowEntries *hollow)
{
	hollow->count = hollow->block_count = 0;
	hollow->room = 64;
	hollow->entries = palloc(sizeof(EntryChange) * hollow->room);
	blob_map_visit_entries(map, first_page, end_page, BLOB_VISIT_HOLLOW, NULL, add_hollow, hollow);
}

/* Whether REMOVE of their segment can change these entries. */
static bool
fit_into_remove(const HollowEntries *hollow)
{
	return hollow->block_count + 1 <= MAX_ENTRY_BLOCKS; /* and that of the segment's first page */
}

int
blob_map_list_hollow(Relation map, uint32 segment_no, BlobPageRun **runs, bool *are_many)
{
	BlobPageNo	first_page = segment_no * BLOB_SEGMENT_PAGES;
	HollowEntries hollow;

	find_hollow(map, first_page, first_page + BLOB_SEGMENT_PAGES, &hollow);
	*runs = palloc(sizeof(BlobPageRun) * (hollow.count + 1));
	for (int i = 0; i < hollow.count; i++)
	{
		(*runs)[i].first_page = hollow.entries[i].page;
		(*runs)[i].pages = hollow.entries[i].pages;
	}
	*are_many = !fit_into_remove(&hollow);
	pfree(hollow.entries);
	return hollow.count;
}

bool
blob_map_is_absent(Relation map, uint32 segment_no)
{
	BlobMapEntry entry = blob_map_lookup(map, segment_no * BLOB_SEGMENT_PAGES);

	return blob_map_entry_state(&entry) == BLOB_MAP_ABSENT;
}

BlobPageNo
blob_map_absent_page(Relation map, uint32 segment_no)
{
	BlobPageNo	first_page = segment_no * BLOB_SEGMENT_PAGES;
	BlobPageNo	end_page = first_page + BLOB_SEGMENT_PAGES;
	HollowEntries hollow;

	find_hollow(map, first_page, end_page, &hollow);
	if (hollow.count > 0 && hollow.entries[hollow.count - 1].state == BLOB_MAP_ABSENT)
		end_page = hollow.entries[hollow.count - 1].page;
	pfree(hollow.entries);
	return end_page;
}

XLogRecPtr
blob_map_set_absent(Relation map, uint32 segment_no)
{
	BlobWalRun	all = {segment_no * BLOB_SEGMENT_PAGES, BLOB_SEGMENT_PAGES};
	HollowEntries hollow;
	EntryChange *changes;
	int			count = 0;
	XLogRecPtr	lsn;

	find_hollow(map, all.first_page, all.first_page + all.pages, &hollow);
	if (!fit_into_remove(&hollow))
		elog(ERROR, "segment %u of the extent map has too many holes", segment_no);
	changes = palloc0(sizeof(EntryChange) * (hollow.count + 1));
	changes[count++] = (EntryChange) {all.first_page, BLOB_MAP_ABSENT, all.pages};
	for (int i = 0; i < hollow.count; i++)
	{
		if (hollow.entries[i].page > all.first_page)
			changes[count++].page = hollow.entries[i].page;
	}
	lsn = log_entries(map, BLOB_WAL_REMOVE, &all, 1, changes, count);
	pfree(changes);
	pfree(hollow.entries);
	return lsn;
}

XLogRecPtr
blob_map_punch(Relation map, const BlobPageRun *runs, int count)
{
	EntryChange changes[BLOB_MAP_PUNCH_MAX_RUNS];
	BlobWalRun	logged[BLOB_MAP_PUNCH_MAX_RUNS];

	Assert(count > 0 && count <= BLOB_MAP_PUNCH_MAX_RUNS);
	for (int i = 0; i < count; i++)
	{
		logged[i] = (BlobWalRun) {runs[i].first_page, runs[i].pages};
		changes[i] = (EntryChange) {runs[i].first_page, BLOB_MAP_PUNCHED, runs[i].pages};
	}
	return log_entries(map, BLOB_WAL_PUNCH, logged, count, changes, count);
}

/* Join punched entries of neighbouring pages in the first one of them. */
static void
join_punched(Relation map, EntryChange *entries, int count)
{
	const EntryChange *last = &entries[count - 1];
	BlobWalRun	run = {entries[0].page, last->page + last->pages - entries[0].page};

	if (count == 1)
		return;
	entries[0].pages = run.pages;
	for (int i = 1; i < count; i++)
		entries[i] = (EntryChange) {entries[i].page, BLOB_MAP_FREE, 0};
	(void) log_entries(map, BLOB_WAL_PUNCH, &run, 1, entries, count);
}

void
blob_map_join_punched(Relation map, uint32 segment_no)
{
	HollowEntries hollow;
	int			first = 0;

	find_hollow(map, segment_no * BLOB_SEGMENT_PAGES, blob_map_absent_page(map, segment_no),
				&hollow);
	/* Entries of as many blocks as a record may have; the last one may end behind them. */
	for (int i = 0; i < hollow.count; i++)
	{
		Assert(i == first || hollow.entries[i].page ==
			   hollow.entries[i - 1].page + hollow.entries[i - 1].pages);
		if (i + 1 < hollow.count &&
			blob_map_block_of(hollow.entries[i + 1].page) -
			blob_map_block_of(hollow.entries[first].page) < MAX_ENTRY_BLOCKS)
			continue;
		join_punched(map, hollow.entries + first, i + 1 - first);
		first = i + 1;
	}
	pfree(hollow.entries);
}

BlobMapEntry
blob_map_hollow_entry(Relation map, BlobPageNo first_page)
{
	BlobMapEntry entry = blob_map_lookup(map, first_page);

	if (!blob_map_entry_is_hollow(&entry))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the pages from " UINT64_FORMAT " on have blocks, by the extent map",
						first_page)));
	return entry;
}

BlobPageNo
blob_map_fill(Relation map, BlobPageNo first_page, BlobPageNo end_page)
{
	BlobMapEntry entry = blob_map_hollow_entry(map, first_page);
	BlobPageNo	entry_end = first_page + blob_map_entry_pages(&entry);
	BlobPageNo	stop = Min(end_page, entry_end);
	BlobWalRun	run = {first_page, stop - first_page};
	EntryChange changes[2] = {
		{first_page, BLOB_MAP_FREE, 0},
		{stop, blob_map_entry_state(&entry), entry_end - stop}
	};

	(void) log_entries(map, BLOB_WAL_RESTORE, &run, 1, changes, stop < entry_end ? 2 : 1);
	return stop;
}
