/*
 * extents/range.c
 *	  Extents of a range of a value, see extents/range.h.
 */
#include "postgres.h"

#include "extents/range.h"
#include "store/map.h"

BlobRange
blob_range_find(const BlobDescriptor *descriptor, uint64 offset_bytes, uint64 length_bytes)
{
	int			extent_count = blob_descriptor_extent_count(descriptor);
	BlobRange	range = {.first_no = -1};
	uint64		start = 0;

	range.extents = palloc(sizeof(BlobExtent) * extent_count);
	range.content_bytes = palloc(sizeof(uint64) * extent_count);
	for (int i = 0; i < extent_count && start < offset_bytes + length_bytes; i++)
	{
		uint64		bytes = blob_descriptor_extent_bytes(descriptor, i, start);
		uint64		end = start + bytes;

		if (end > offset_bytes)
		{
			if (range.first_no < 0)
			{
				range.first_no = i;
				range.first_start = start;
			}
			range.extents[range.count] = blob_descriptor_extent(descriptor, i);
			range.content_bytes[range.count++] = bytes;
		}
		start = end;
	}
	return range;
}

void
blob_range_free(BlobRange *range)
{
	pfree(range->extents);
	pfree(range->content_bytes);
}

bool
blob_extent_is_valid(Relation map, const BlobDescriptor *descriptor, BlobExtent *extent)
{
	BlobMapEntry entry = blob_map_lookup(map, extent->first_page);
	BlobMapState expected = extent->is_tail ? BLOB_MAP_TAIL : BLOB_MAP_TIER;

	extent->generation = blob_map_entry_generation(&entry);
	return blob_map_entry_state(&entry) == expected &&
		blob_map_entry_pages(&entry) == extent->pages &&
		extent->generation <= descriptor->generation;
}
