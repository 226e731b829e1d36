/*
 * blob/slot_writer.c
 *	  The extents of a tree that is being written, see blob/slot_writer.h, and "Trees of pieces" in
 *	  the README of this folder.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/complete.h"
#include "blob/mapping.h"
#include "blob/slot_writer.h"
#include "core/settings.h"
#include "extents/verify.h"
#include "io/chunk.h"
#include "store/disk_room.h"
#include "store/map_sums.h"
#include "store/store.h"

/* The smallest new extent. */
#define MIN_EXTENT_PAGES 64

/* From this number of slots on new extents are this many times what the change has written. */
#define MANY_SLOTS BLOB_SLOTS_BEFORE_CHANGE
#define MANY_SLOTS_FACTOR 16

/* ---- begin ---- */

/* List the extents of the base, without the page of its remainder. */
static void
share_extents(BlobPageWriter *writer)
{
	const BlobDescriptor *base = &writer->base.descriptor;
	int			count = blob_descriptor_extent_count(base) - (base->has_remainder_page ? 1 : 0);
	uint64		start = 0;
	int			tier = 0;

	for (int i = 0; i < count; i++)
	{
		BlobWriterExtent *added = blob_page_writer_add_extent(writer);
		BlobStoredExtent stored;

		blob_mapping_extent(base, i, start, &stored);
		start = stored.start + stored.bytes;
		added->extent = stored.extent;
		added->start_pages = stored.start / BLOB_PAGE_SIZE;
		added->used_pages = added->claimed_pages = blob_pages_for(stored.bytes);
		added->is_shared = true;
		added->base_no = i;
		added->is_closed = true;
		if (stored.extent.is_tail)
			added->tier = BLOB_SLOT_TAIL;
		else if (base->is_tree)
			added->tier = blob_descriptor_slot(base, i).tier;
		else
		{
			added->tier = (uint8) Min(tier, BLOB_TIER_COUNT - 1);
			tier++;
		}
		writer->has_tail |= stored.extent.is_tail;
	}
	writer->generation = base->generation;
}

/*
 * The pages of the last extent that belong to values; all of them if none can be claimed.  ERROR
 * XB001 if the base is stale.
 */
static uint64
find_mark(const BlobPageWriter *writer, const BlobWriterExtent *last)
{
	const BlobDescriptor *base = &writer->base.descriptor;
	BlobExtent	extent = last->extent;
	BlobMapEntry entry;
	BlobStore	store;
	bool		is_own;

	blob_store_open(&store, AccessShareLock);
	is_own = blob_verify_extent(store.map, &extent, base->generation);
	entry = blob_map_lookup(store.map, extent.first_page);
	blob_store_close(&store);
	if (!is_own)
		blob_verify_report_stale(last->base_no, base->size_bytes);
	if (blob_map_entry_high_water(&entry) % BLOB_PAGE_SIZE != 0)
		return extent.pages;
	return blob_map_entry_high_water(&entry) / BLOB_PAGE_SIZE;
}

/* ---- pages ---- */

/* The tier of a new extent for this number of pages, which are written at once. */
static int
choose_tier(const BlobPageWriter *writer, uint64 pages)
{
	uint64		written = writer->stored_bytes - writer->first_new;
	uint64		wanted = Max(writer->slot_room, written);
	int			tier = 0;

	if (writer->extent_count >= MANY_SLOTS)
		wanted = Max(wanted, written * MANY_SLOTS_FACTOR);
	wanted = Max(wanted / BLOB_PAGE_SIZE, MIN_EXTENT_PAGES);
	while (tier + 1 < BLOB_TIER_COUNT && blob_tier_pages(tier) < pages)
		tier++;
	while (tier + 1 < BLOB_TIER_COUNT && blob_tier_pages(tier + 1) <= wanted)
		tier++;
	return tier;
}

/* Add a new extent, in which this number of pages is claimed, or as many as it has. */
static void
allocate(BlobPageWriter *writer, BlobStore *store, uint64 next_page, uint64 pages)
{
	int			tier = choose_tier(writer, pages);
	BlobTierPlan plan = {
		.first_extent_no = tier,
		.extent_count = 1,
		.total_pages = blob_tier_pages(tier)
	};
	uint64		claimed = Min(pages, plan.total_pages);
	BlobWriterExtent *added;
	BlobExtent	extent[1];

	if (writer->extent_count == BLOB_TREE_MAX_SLOTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a change of a blobstate value needs too many extents"),
				 errhint("Store the new bytes as a value of their own, and append that.")));
	if (blob_wal_logs_content())
		blob_disk_room_require_for_wal(claimed * BLOB_PAGE_SIZE);
	(void) blob_store_allocate(store, &plan, claimed * BLOB_PAGE_SIZE, writer->draft, extent);
	added = blob_page_writer_add_extent(writer);
	added->extent = extent[0];
	added->claimed_pages = claimed;
	added->base_no = -1;
	added->tier = (uint8) tier;
	added->start_pages = next_page;
	writer->current = writer->extent_count - 1;
	writer->generation = Max(writer->generation, extent[0].generation);
}

/*
 * Pages of an extent that are left out for the sake of the buffer's chunks are never written, so no
 * checksum is compared with them.
 */
static void
leave_out(BlobStore *store, const BlobExtent *extent, uint64 page_no, uint64 end_no)
{
	uint32		sums[BLOB_BUFFER_CHUNK_BYTES / BLOB_PAGE_SIZE];
	BlobSumRun	run = {.extent = *extent, .page_no = page_no, .count = end_no - page_no,
		.sums = sums};

	Assert(run.count < lengthof(sums));
	if (run.count == 0 || !extent->has_sums)
		return;
	for (uint64 i = 0; i < run.count; i++)
		sums[i] = BLOB_SUM_UNKNOWN;
	blob_map_set_sums(store->map, &run, 1);
}

/*
 * Claim the current extent up to this number of pages, of which those from from_pages on will be
 * written; false if another version was faster.
 */
static bool
claim(BlobPageWriter *writer, BlobStore *store, uint64 from_pages, uint64 to_pages)
{
	BlobWriterExtent *current = &writer->extents[writer->current];
	BlobGeneration max_generation = current->is_shared ? writer->base.descriptor.generation :
		current->extent.generation;

	if (to_pages <= current->claimed_pages)
		return true;
	switch (blob_store_claim(store, &current->extent, max_generation,
							 current->claimed_pages * BLOB_PAGE_SIZE,
							 to_pages * BLOB_PAGE_SIZE))
	{
		case BLOB_CLAIM_WON:
			leave_out(store, &current->extent, current->claimed_pages, from_pages);
			current->claimed_pages = to_pages;
			return true;
		case BLOB_CLAIM_LOST:
			return false;
		case BLOB_CLAIM_STALE:
			break;
	}
	if (current->is_shared)
		blob_require_extent(&writer->base.descriptor, current->base_no);
	elog(ERROR, "extent %d of a value changed its state", writer->current);
}

/* A BlobPageTaker. */
static void
take_pages(BlobPageWriter *writer, BlobStore *store, uint64 pages)
{
	while (pages > 0)
	{
		BlobWriterExtent *current = &writer->extents[writer->current];
		uint64		next_page = writer->stored_bytes / BLOB_PAGE_SIZE +
			blob_page_writer_taken_pages(writer);
		uint64		in_extent = next_page - current->start_pages;
		uint64		taken;

		if (current->is_closed || in_extent >= current->extent.pages)
		{
			allocate(writer, store, next_page, pages);
			continue;
		}
		taken = Min(pages, current->extent.pages - in_extent);
		if (!claim(writer, store, in_extent, in_extent + taken))
		{
			current->is_closed = true;
			continue;
		}
		writer->lacks_sums |= !current->extent.has_sums;
		blob_page_writer_add_run(writer, &current->extent, in_extent, taken);
		current->used_pages = in_extent + taken;
		pages -= taken;
	}
}

void
blob_slot_writer_begin(BlobPageWriter *writer, uint64 room_bytes)
{
	BlobWriterExtent *last;
	uint64		chunk_pages;
	uint64		mark;
	uint64		from;			/* page of the last extent that is written first */

	writer->take = take_pages;
	writer->slot_room = room_bytes;
	share_extents(writer);
	writer->current = writer->extent_count - 1;
	last = &writer->extents[writer->current];
	chunk_pages = blob_buffer_chunk_bytes(last->extent.pages) / BLOB_PAGE_SIZE;
	mark = last->extent.is_tail ? last->extent.pages : find_mark(writer, last);
	from = last->used_pages;
	/*
	 * Pages that other versions have claimed may have yet to be written, or never are.  No chunk
	 * of the buffer has pages of theirs and of this one behind them.
	 */
	if (mark > from)
		from = TYPEALIGN64(chunk_pages, mark);
	if (mark >= last->used_pages && from < last->extent.pages)
	{
		last->is_closed = false;
		last->claimed_pages = mark;
	}
	else
		from = last->used_pages;
	writer->stored_bytes = (last->start_pages + from) * BLOB_PAGE_SIZE;
	writer->first_new = writer->stored_bytes;
}

/* ---- the end ---- */

/*
 * One that no other value has, though this one may have allocated nothing: an open value is known
 * by it ("Open digests").  It is larger than those of all extents.
 */
static BlobGeneration
draw_own_generation(const BlobPageWriter *writer)
{
	BlobGeneration generation;
	BlobStore	store;

	blob_store_open_same(&store, RowExclusiveLock, &writer->store);
	generation = blob_store_draw_generation(&store);
	blob_store_close(&store);
	Assert(generation > writer->generation);
	return generation;
}

struct varlena *
blob_slot_writer_complete(BlobPageWriter *writer, BlobDescriptor *descriptor, const BlobTree *tree)
{
	BlobSlot	slots[BLOB_TREE_MAX_SLOTS];
	int			base_nos[BLOB_TREE_MAX_SLOTS];
	int			count = 0;
	struct varlena *datum;

	/* The digest was left open before the first page was claimed, because all have checksums. */
	if (descriptor->is_open && writer->lacks_sums)
		elog(ERROR, "new pages of a value with an open digest have no checksums");
	for (int i = 0; i < writer->extent_count; i++)
	{
		BlobWriterExtent *extent = &writer->extents[i];
		BlobSlot	slot = {
			.extent = extent->extent,
			.tier = extent->tier,
			.start = extent->start_pages * BLOB_PAGE_SIZE,
			.bytes = extent->used_pages * BLOB_PAGE_SIZE
		};

		slot.live_bytes = blob_tree_live_bytes(tree, slot.start, slot.bytes);
		if (slot.live_bytes == 0)
		{
			extent->used_pages = 0; /* if it is new, the draft keeps it, to be freed */
			continue;
		}
		base_nos[count] = extent->base_no;
		slots[count++] = slot;
	}
	descriptor->generation = descriptor->is_open ? draw_own_generation(writer) :
		writer->generation;
	datum = blob_complete_tree(descriptor, slots, count, &writer->base.descriptor, base_nos);
	blob_page_writer_complete_draft(writer);
	return datum;
}
