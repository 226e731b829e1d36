/*
 * store/map_get_sums.c
 *	  Getting checksums of pages from the extent map, see store/map_sums.h.
 */
#include "postgres.h"

#include "store/map.h"
#include "store/map_internal.h"
#include "store/map_sums.h"

bool
blob_map_hides_sums(Relation map, const BlobExtent *extent)
{
	BlobMapEntry entry;

	if (extent->has_sums || extent->pages > UINT32_MAX)
		return false;
	entry = blob_map_lookup(map, extent->first_page + (extent->pages > 1));
	return extent->pages > 1 ? blob_map_entry_state(&entry) == BLOB_MAP_SUMS :
		blob_map_entry_is_extent(&entry) && blob_map_entry_high_water(&entry) > BLOB_PAGE_SIZE;
}

/* Copy count sums from a place on, all in one block; false if an entry has none. */
static bool
copy_sums(Page page, const BlobSumPlace *place, uint64 count, uint32 *sums)
{
	uint32		slot = blob_map_slot_of(place->entry_page);
	int			sum_no = place->sum_no;

	for (uint64 i = 0; i < count; i++)
	{
		const BlobMapEntry *entry = &blob_map_page_entries(page)[slot];

		if (!blob_sums_have(entry, sum_no))
			return false;
		sums[i] = blob_sum_get(entry, sum_no);
		blob_sums_advance(&slot, &sum_no);
	}
	return true;
}

/*
 * Of an extent that hides its sums as it was looked up: whether it has got them since.  The flag
 * and the first sums come in one change, so the flag is looked at after these.
 */
static bool
has_got_sums(Relation map, const BlobExtent *extent)
{
	BlobMapEntry entry = blob_map_lookup(map, extent->first_page);

	return blob_map_entry_has_sums(&entry) &&
		blob_map_entry_generation(&entry) == extent->generation;
}

BlobSumsLook
blob_map_get_sums(Relation map, const BlobExtent *extent, uint64 page_no, uint64 count,
				  uint32 *sums)
{
	Buffer		buffer = InvalidBuffer;
	bool		are_there = true;

	if (!extent->has_sums)
	{
		if (!blob_map_hides_sums(map, extent))
			return BLOB_SUMS_NONE;
		if (!has_got_sums(map, extent))
			return BLOB_SUMS_DAMAGED;
	}

	for (uint64 done = 0; done < count && are_there;)
	{
		BlobSumPlace place = blob_sum_place(extent, page_no + done);
		uint64		part = blob_sums_in_block(&place, count - done);

		buffer = blob_map_lock_entry(map, place.entry_page, buffer);
		are_there = BufferIsValid(buffer) &&
			copy_sums(BufferGetPage(buffer), &place, part, sums + done);
		done += part;
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	return are_there ? BLOB_SUMS_FOUND : BLOB_SUMS_DAMAGED;
}
