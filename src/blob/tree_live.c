/*
 * blob/tree_live.c
 *	  Live bytes of a tree that is being made, see blob/tree_live.h.
 *
 * To which extents new stored bytes go is known when they are written, which is later.  So new ones
 * are kept as ranges, and divided at the end.
 */
#include "postgres.h"

#include "blob/mapping.h"
#include "blob/tree_live.h"
#include "utils/memutils.h"

void
blob_live_begin(BlobLive *live, const BlobDescriptor *base, uint64 new_start)
{
	uint64		start = 0;
	int			count = blob_descriptor_extent_count(base) - (base->has_remainder_page ? 1 : 0);

	Assert(count <= BLOB_TREE_MAX_SLOTS);
	memset(live, 0, sizeof(*live));
	live->context = CurrentMemoryContext;
	live->new_start = new_start;
	live->slot_count = count;
	for (int i = 0; i < count; i++)
	{
		BlobStoredExtent stored;

		blob_mapping_extent(base, i, start, &stored);
		start = stored.start + stored.bytes;
		live->slots[i].start = stored.start;
		live->slots[i].bytes = stored.bytes;
		if (base->is_tree)
			live->slots[i].live_bytes = blob_descriptor_slot(base, i).live_bytes;
	}
}

/* ERROR XX001: the directory contradicts the slots. */
static void
report_contradiction(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid blobstate value"),
			 errdetail("Its slots have other live bytes than its directory says.")));
}

/* Add stored bytes of the base, or take them. */
static void
change_slots(BlobLive *live, uint64 start, uint64 end, bool is_taken)
{
	for (int i = 0; i < live->slot_count && start < end; i++)
	{
		BlobLiveSlot *slot = &live->slots[i];
		uint64		slot_end = slot->start + slot->bytes;
		uint64		bytes;

		if (start >= slot_end)
			continue;
		if (start < slot->start)
			report_contradiction();
		bytes = Min(end, slot_end) - start;
		if (is_taken ? bytes > slot->live_bytes : bytes > slot->bytes - slot->live_bytes)
			report_contradiction();
		slot->live_bytes += is_taken ? -bytes : bytes;
		start += bytes;
	}
	if (start < end)
		report_contradiction();
}

/* Note new stored bytes, or that some of them are taken back. */
static void
add_range(BlobLive *live, uint64 start, uint64 bytes, bool is_taken_back)
{
	BlobLiveRange *last = live->range_count > 0 ? &live->ranges[live->range_count - 1] : NULL;

	if (last != NULL && !last->is_taken_back && !is_taken_back &&
		last->start + last->bytes == start)
	{
		last->bytes += bytes;
		return;
	}
	if (live->range_count == live->range_room)
	{
		live->range_room = Max(16, live->range_room * 2);
		live->ranges = live->ranges == NULL ?
			MemoryContextAlloc(live->context, sizeof(BlobLiveRange) * live->range_room) :
			repalloc_huge(live->ranges, sizeof(BlobLiveRange) * live->range_room);
	}
	live->ranges[live->range_count++] = (BlobLiveRange) {start, bytes, is_taken_back};
}

/* A run may begin in the base and go on in new bytes. */
static void
change(BlobLive *live, uint64 stored_offset, uint64 length_bytes, bool is_taken)
{
	uint64		end = stored_offset + length_bytes;
	uint64		middle = Max(stored_offset, Min(end, live->new_start));

	change_slots(live, stored_offset, middle, is_taken);
	if (middle < end)
		add_range(live, middle, end - middle, is_taken);
}

void
blob_live_add(BlobLive *live, uint64 stored_offset, uint64 length_bytes)
{
	change(live, stored_offset, length_bytes, false);
}

void
blob_live_take(BlobLive *live, uint64 stored_offset, uint64 length_bytes)
{
	change(live, stored_offset, length_bytes, true);
}

uint64
blob_live_bytes(const BlobLive *live, uint64 start, uint64 length_bytes)
{
	uint64		end = start + length_bytes;
	uint64		bytes = 0;

	for (int i = 0; i < live->slot_count; i++)
		if (live->slots[i].start == start)
			bytes = live->slots[i].live_bytes;
	for (int64 i = 0; i < live->range_count; i++)
	{
		const BlobLiveRange *range = &live->ranges[i];
		uint64		from = Max(start, range->start);
		uint64		to = Min(end, range->start + range->bytes);

		if (from < to)
			bytes += range->is_taken_back ? -(to - from) : to - from;
	}
	return bytes;
}

void
blob_live_end(BlobLive *live)
{
	if (live->ranges != NULL)
		pfree(live->ranges);
	live->ranges = NULL;
}
