/*
 * store/map_sums.c
 *	  Checksums of pages in the extent map, see store/map_sums.h.
 *
 * The sums of one extent follow each other in the entries of the map, three in each, through any
 * number of blocks.  A *part* is a run of them in one block.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "store/map.h"
#include "store/map_internal.h"
#include "store/map_sums.h"
#include "wal/insert.h"

/* The parts of one record, with the blocks in which they lie. */
typedef struct SumsBatch
{
	Relation	map;
	const BlobExtent *guard;	/* to be left alone unless the map has it as follows; or NULL */
	bool		has_sums;		/* with sums */
	uint64		max_pages;		/* and with no page beyond this one below its high-water mark */
	bool		is_gone;		/* it has not */
	uint32	   *repaired;		/* the memory of a repair's sums: those that are not known become
								 * what the map has, and a record with nothing new is left out */
	BlobPageNo	entry_page;		/* of the first part */
	int			block_count;
	BlockNumber blocks[BLOB_WAL_SUMS_MAX_BLOCKS];	/* in ascending order */
	Buffer		buffers[BLOB_WAL_SUMS_MAX_BLOCKS];
	bool		are_new[BLOB_WAL_SUMS_MAX_BLOCKS];
	int			part_count;
	BlobWalSumsPart parts[BLOB_WAL_SUMS_MAX_PARTS];
} SumsBatch;

/* Whether a run that is about the entry of an extent itself fits it. */
static bool
fits_extent(const BlobMapEntry *entry, const BlobWalSumRun *run)
{
	bool		has_own = blob_map_entry_pages(entry) == 1;

	if (run->sum_no == BLOB_SUM_BEGIN)
		return blob_map_entry_is_extent(entry) && run->sum_count == (has_own ? 1 : 0);
	return run->sum_no == BLOB_SUM_OWN && run->sum_count == 1 &&
		blob_sum_fits(entry, BLOB_SUM_OWN);
}

/* Whether all sums of a run have a place in a page; a page that is new has places only. */
static bool
fits(Page page, const BlobWalSumRun *run)
{
	uint32		slot = run->slot;
	int			sum_no = run->sum_no;

	if (run->sum_no >= BLOB_SUM_OWN)
		return slot < BLOB_MAP_ENTRIES && fits_extent(&blob_map_page_entries(page)[slot], run);
	for (uint32 i = 0; i < run->sum_count; i++)
	{
		if (slot >= BLOB_MAP_ENTRIES ||
			!blob_sum_fits(&blob_map_page_entries(page)[slot], sum_no))
			return false;
		blob_sums_advance(&slot, &sum_no);
	}
	return true;
}

/* An extent has checksums from now on; sums: its own, if it has one page. */
static void
begin_sums(Page page, const BlobWalSumRun *run, const char *sums)
{
	BlobMapEntry entry = blob_map_page_entries(page)[run->slot];
	uint32		sum;

	if (blob_map_entry_has_sums(&entry) && run->sum_count == 0)
		return;
	entry.generation_state |= BLOB_MAP_HAS_SUMS;
	if (run->sum_count > 0)
	{
		memcpy(&sum, sums, sizeof(sum));
		blob_sum_set(&entry, BLOB_SUM_OWN, sum);
	}
	blob_map_page_set(page, run->slot, &entry);
}

/* Set the sums of a run that fits; they may be unaligned. */
static void
set_run(Page page, const BlobWalSumRun *run, const char *sums)
{
	uint32		slot = run->slot;
	int			sum_no = run->sum_no;

	if (sum_no == BLOB_SUM_BEGIN)
	{
		begin_sums(page, run, sums);
		return;
	}
	for (uint32 i = 0; i < run->sum_count; i++)
	{
		BlobMapEntry entry = blob_map_page_entries(page)[slot];
		uint32		sum;

		memcpy(&sum, sums + i * sizeof(sum), sizeof(sum));
		blob_sum_set(&entry, sum_no, sum);
		blob_map_page_set(page, slot, &entry);
		blob_sums_advance(&slot, &sum_no);
	}
}

bool
blob_map_page_apply_sums(Page page, const char *data, Size length)
{
	while (length > 0)
	{
		BlobWalSumRun run;
		Size		bytes;

		if (length < sizeof(run))
			return false;
		memcpy(&run, data, sizeof(run));	/* may be unaligned */
		bytes = sizeof(run) + run.sum_count * sizeof(uint32);
		if (length < bytes || !fits(page, &run))
			return false;
		set_run(page, &run, data + sizeof(run));
		data += bytes;
		length -= bytes;
	}
	return true;
}

/* Whether a page has the sums of a run, whose places fit; never if a flag comes with them. */
static bool
has_run(Page page, const BlobWalSumRun *run, const uint32 *sums)
{
	uint32		slot = run->slot;
	int			sum_no = run->sum_no;

	if (sum_no == BLOB_SUM_BEGIN)
		return false;
	for (uint32 i = 0; i < run->sum_count; i++)
	{
		const BlobMapEntry *entry = &blob_map_page_entries(page)[slot];

		if (!blob_sums_have(entry, sum_no) || blob_sum_get(entry, sum_no) != sums[i])
			return false;
		blob_sums_advance(&slot, &sum_no);
	}
	return true;
}

/* ---- setting ---- */

/* Whether the map has the guarded extent as it should be; its block is locked as the first one. */
static bool
has_guard(const SumsBatch *batch)
{
	BlobMapEntry entry;

	if (batch->guard == NULL)
		return true;
	if (batch->are_new[0])
		return false;
	entry = blob_map_locked_entry(batch->buffers[0], batch->guard->first_page);
	return blob_map_entry_is_extent(&entry) &&
		blob_map_entry_generation(&entry) == batch->guard->generation &&
		(blob_map_entry_has_sums(&entry) || !batch->has_sums) &&
		blob_pages_for(blob_map_entry_high_water(&entry)) <= batch->max_pages;
}

/*
 * Lock the blocks of a batch, in ascending order.  ERROR if the sums have no place there; false if
 * the guarded extent is gone.
 */
static bool
lock_blocks(SumsBatch *batch)
{
	for (int i = 0; i < batch->block_count; i++)
	{
		LockBuffer(batch->buffers[i], BUFFER_LOCK_EXCLUSIVE);
		batch->are_new[i] = PageIsNew(BufferGetPage(batch->buffers[i]));
	}
	if (!has_guard(batch))
		return false;
	for (int i = 0; i < batch->part_count; i++)
	{
		const BlobWalSumsPart *part = &batch->parts[i];

		if (!batch->are_new[part->block_no] &&
			!fits(BufferGetPage(batch->buffers[part->block_no]), &part->run))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("the extent map has no place for the checksums of an extent"),
					 errdetail("Block %u, entry %u.", batch->blocks[part->block_no],
							   part->run.slot),
					 errhint("Run blobext_check() to see which values are affected.")));
	}
	return true;
}

/* Whether the map has all sums of a batch, whose blocks are locked. */
static bool
has_all(const SumsBatch *batch)
{
	for (int i = 0; i < batch->part_count; i++)
	{
		const BlobWalSumsPart *part = &batch->parts[i];

		if (batch->are_new[part->block_no] ||
			!has_run(BufferGetPage(batch->buffers[part->block_no]), &part->run, part->sums))
			return false;
	}
	return true;
}

/* The sum that the map has in the place of the first one of a run; or BLOB_SUM_UNKNOWN. */
static uint32
known_sum(const BlobMapEntry *entry, int sum_no)
{
	if (sum_no != BLOB_SUM_BEGIN)
		return blob_sums_have(entry, sum_no) ? blob_sum_get(entry, sum_no) : BLOB_SUM_UNKNOWN;
	/* An extent of one page, which hides its sum unless it has none. */
	return blob_map_entry_has_sums(entry) || blob_map_entry_high_water(entry) > BLOB_PAGE_SIZE ?
		blob_sum_get(entry, BLOB_SUM_OWN) : BLOB_SUM_UNKNOWN;
}

/*
 * Never say again that a sum is not known which another process has set since it was looked for:
 * the blocks of the batch are locked now.
 */
static void
keep_known(SumsBatch *batch)
{
	for (int i = 0; i < batch->part_count; i++)
	{
		const BlobWalSumsPart *part = &batch->parts[i];
		uint32	   *sums = batch->repaired + (part->sums - batch->repaired);
		uint32		slot = part->run.slot;
		int			sum_no = part->run.sum_no;
		Page		page = BufferGetPage(batch->buffers[part->block_no]);

		for (uint32 no = 0; no < part->run.sum_count && !batch->are_new[part->block_no]; no++)
		{
			if (sums[no] == BLOB_SUM_UNKNOWN)
				sums[no] = known_sum(&blob_map_page_entries(page)[slot], sum_no);
			blob_sums_advance(&slot, &sum_no);
		}
	}
}

/* Set and log the sums of a batch, whose blocks are locked. */
static void
apply_batch(SumsBatch *batch, const BlobStoreId *store)
{
	START_CRIT_SECTION();
	for (int i = 0; i < batch->block_count; i++)
	{
		if (batch->are_new[i])
			blob_map_page_init(BufferGetPage(batch->buffers[i]));
		MarkBufferDirty(batch->buffers[i]);
	}
	for (int i = 0; i < batch->part_count; i++)
		set_run(BufferGetPage(batch->buffers[batch->parts[i].block_no]), &batch->parts[i].run,
				(const char *) batch->parts[i].sums);
	blob_wal_log_sums(store, batch->entry_page, batch->buffers, batch->are_new,
					  batch->block_count, batch->parts, batch->part_count);
	END_CRIT_SECTION();
}

/* Set and log the sums of a batch, and begin an empty one. */
static void
finish_batch(SumsBatch *batch)
{
	BlobStoreId store = blob_map_store_id(batch->map);

	if (batch->part_count == 0)
		return;
	for (int i = 0; i < batch->block_count; i++)
		batch->buffers[i] = blob_map_pin_block(batch->map, batch->blocks[i]);
	blob_wal_prepare_sums(batch->block_count, batch->part_count);
	if (!lock_blocks(batch))
		batch->is_gone = true;
	else
	{
		if (batch->repaired != NULL)
			keep_known(batch);
		if (batch->repaired == NULL || !has_all(batch))
			apply_batch(batch, &store);
	}
	for (int i = 0; i < batch->block_count; i++)
		UnlockReleaseBuffer(batch->buffers[i]);
	batch->block_count = batch->part_count = 0;
}

/* Add a part to a batch, which is finished before if the part does not fit. */
static void
add_part(SumsBatch *batch, const BlobSumPlace *place, uint32 count, const uint32 *sums)
{
	BlockNumber block = blob_map_block_of(place->entry_page);
	BlobWalSumsPart *part;

	if (batch->part_count == BLOB_WAL_SUMS_MAX_PARTS ||
		(batch->block_count > 0 && block < batch->blocks[batch->block_count - 1]) ||
		(batch->block_count == BLOB_WAL_SUMS_MAX_BLOCKS &&
		 block != batch->blocks[batch->block_count - 1]))
		finish_batch(batch);
	if (batch->part_count == 0)
		batch->entry_page = place->entry_page;
	if (batch->part_count == 0 && batch->guard != NULL)
		batch->blocks[batch->block_count++] = blob_map_block_of(batch->guard->first_page);
	if (batch->block_count == 0 || block != batch->blocks[batch->block_count - 1])
		batch->blocks[batch->block_count++] = block;
	part = &batch->parts[batch->part_count++];
	part->block_no = batch->block_count - 1;
	part->run.slot = (uint16) blob_map_slot_of(place->entry_page);
	part->run.sum_no = (uint16) place->sum_no;
	part->run.sum_count = count;
	part->sums = sums;
}

static void
add_run(SumsBatch *batch, const BlobSumRun *run)
{
	for (uint64 done = 0; done < run->count;)
	{
		BlobSumPlace place = blob_sum_place(&run->extent, run->page_no + done);
		uint64		count = blob_sums_in_block(&place, run->count - done);

		CHECK_FOR_INTERRUPTS();
		add_part(batch, &place, (uint32) count, run->sums + done);
		done += count;
	}
}

void
blob_map_set_sums(Relation map, const BlobSumRun *runs, int run_count)
{
	SumsBatch	batch = {.map = map};

	for (int i = 0; i < run_count; i++)
		add_run(&batch, &runs[i]);
	finish_batch(&batch);
}

/* Say again that an extent has sums, which hides them; false if it is gone. */
static bool
mend_flag(Relation map, const BlobSumRun *run)
{
	uint32		own_sum = run->extent.pages == 1 ? run->sums[0] : BLOB_SUM_UNKNOWN;
	SumsBatch	batch = {
		.map = map,
		.guard = &run->extent,
		.max_pages = UINT64_MAX,
		.repaired = &own_sum
	};
	BlobSumPlace place = {run->extent.first_page, BLOB_SUM_BEGIN};
	BlobMapEntry entry = blob_map_lookup(map, run->extent.first_page);

	if (blob_map_entry_has_sums(&entry))
		return true;			/* done before, or another extent's */
	add_part(&batch, &place, run->extent.pages == 1 ? 1 : 0, &own_sum);
	finish_batch(&batch);
	return !batch.is_gone;
}

bool
blob_map_repair_sums(Relation map, const BlobSumRun *run)
{
	Size		bytes = run->count * sizeof(uint32);
	uint32	   *sums = MemoryContextAllocHuge(CurrentMemoryContext, bytes);
	BlobSumRun	copy = {run->extent, run->page_no, run->count, memcpy(sums, run->sums, bytes)};
	SumsBatch	batch = {
		.map = map,
		.guard = &run->extent,
		.has_sums = true,
		.max_pages = UINT64_MAX,
		.repaired = sums
	};

	if (run->extent.has_sums || mend_flag(map, run))
	{
		add_run(&batch, &copy);
		finish_batch(&batch);
	}
	else
		batch.is_gone = true;
	pfree(sums);
	return !batch.is_gone;
}

/* ---- adding ---- */

/*
 * Which pages of an extent that has sums want those of sums[]: the map does not know them, or has a
 * damaged entry in their place, which is mended also where sums[] does not know them.  Or it has no
 * entry yet, because a writer has claimed the page: the sum that it sets meanwhile stays.
 */
static bool *
find_wanted(Relation map, const BlobExtent *extent, const uint32 *sums, uint64 count)
{
	bool	   *are_wanted = MemoryContextAllocHuge(CurrentMemoryContext, count);

	for (uint64 i = 0; i < count; i++)
	{
		uint32		known;

		CHECK_FOR_INTERRUPTS();
		are_wanted[i] = blob_map_get_sums(map, extent, i, 1, &known) != BLOB_SUMS_FOUND ||
			(known == BLOB_SUM_UNKNOWN && sums[i] != BLOB_SUM_UNKNOWN);
	}
	return are_wanted;
}

/* Set the sums that an extent wants. */
static bool
fill_in(Relation map, const BlobExtent *extent, const uint32 *sums, uint64 count, uint64 *added)
{
	bool	   *are_wanted = find_wanted(map, extent, sums, count);
	uint64		end;
	bool		is_there = true;

	for (uint64 i = 0; i < count && is_there; i = end)
	{
		BlobSumRun	run = {.extent = *extent, .page_no = i, .sums = sums + i};

		for (end = i; end < count && are_wanted[end]; end++)
			run.count++;
		if (run.count > 0)
			is_there = blob_map_repair_sums(map, &run);
		else
			end++;
		*added += is_there ? run.count : 0;
	}
	pfree(are_wanted);
	return is_there;
}

/*
 * Set the sums of pages of an extent that is not said to have any yet; but for those in the first
 * entry of sums, which come with the flag, and that of an extent of one page.
 */
static bool
set_before(Relation map, const BlobExtent *extent, uint64 page_no, uint64 end_no,
		   const uint32 *sums)
{
	SumsBatch	batch = {.map = map, .guard = extent, .max_pages = UINT64_MAX};
	uint64		first_no = Max(page_no, BLOB_SUMS_PER_ENTRY);
	BlobSumRun	run = {*extent, first_no, end_no - first_no, sums + first_no};

	if (first_no >= end_no)
		return true;
	add_run(&batch, &run);
	finish_batch(&batch);
	return !batch.is_gone;
}

bool
blob_map_begin_sums(Relation map, const BlobExtent *extent, uint64 pages, const uint32 *sums)
{
	SumsBatch	batch = {.map = map, .guard = extent, .max_pages = pages};
	BlobSumPlace place = {extent->first_page, BLOB_SUM_BEGIN};

	add_part(&batch, &place, extent->pages == 1 ? 1 : 0, sums);
	if (extent->pages > 1)
	{
		place = blob_sum_place(extent, 0);
		add_part(&batch, &place, (uint32) Min(extent->pages, BLOB_SUMS_PER_ENTRY), sums);
	}
	finish_batch(&batch);
	return !batch.is_gone;
}

/*
 * Whether an entry is that of the extent; *pages: how many it has below its high-water mark.  ERROR
 * XX001 if that is beyond its end.
 */
static bool
is_entry_of(const BlobMapEntry *entry, const BlobExtent *extent, uint64 *pages)
{
	*pages = blob_pages_for(blob_map_entry_high_water(entry));
	if (!blob_map_entry_is_extent(entry) ||
		blob_map_entry_generation(entry) != extent->generation ||
		blob_map_entry_pages(entry) != extent->pages)
		return false;
	if (*pages > extent->pages)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the extent map is damaged: the extent at page " UINT64_FORMAT
						" is filled beyond its end", extent->first_page),
				 errhint("Run blobext_check() to see which values are affected.")));
	return true;
}

static uint64
count_known(const uint32 *sums, uint64 count)
{
	uint64		known = 0;

	for (uint64 i = 0; i < count; i++)
		known += sums[i] != BLOB_SUM_UNKNOWN;
	return known;
}

/* The argument is in the README of this folder, "Checksums of values that exist". */
bool
blob_map_add_sums(Relation map, const BlobExtent *extent, const uint32 *sums, uint64 count,
				  uint64 *added)
{
	BlobMapEntry entry = blob_map_lookup(map, extent->first_page);
	BlobExtent	found = *extent;
	BlobSumRun	first = {*extent, 0, 1, sums};
	uint64		done = 0;
	uint64		known = count_known(sums, count);
	uint64		pages;
	uint32	   *all;
	bool		has_begun = false;

	found.has_sums = blob_map_entry_has_sums(&entry);
	if (blob_map_hides_sums(map, &found))
	{
		if (!mend_flag(map, &first))
			return false;
		entry = blob_map_lookup(map, extent->first_page);
	}
	if (!is_entry_of(&entry, extent, &pages))
		return false;
	found.has_sums = true;
	if (blob_map_entry_has_sums(&entry))
		return fill_in(map, &found, sums, count, added);
	if (known == 0 || extent->pages > UINT32_MAX)
		return true;			/* (the entry of so long a tail has no room for the mark) */
	all = MemoryContextAllocHuge(CurrentMemoryContext, extent->pages * sizeof(uint32));
	memcpy(all, sums, count * sizeof(uint32));
	memset(all + count, 0xFF, (extent->pages - count) * sizeof(uint32));
	/* Claims may raise the mark meanwhile: their writers set no sums before it has begun. */
	while (!has_begun && is_entry_of(&entry, extent, &pages))
	{
		CHECK_FOR_INTERRUPTS();
		pages = Max(pages, count);
		has_begun = set_before(map, extent, done, pages, all) &&
			blob_map_begin_sums(map, extent, pages, all);
		done = pages;
		entry = blob_map_lookup(map, extent->first_page);
	}
	pfree(all);
	*added += has_begun ? known : 0;
	return has_begun;
}
