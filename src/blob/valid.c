/*
 * blob/valid.c
 *	  Whether the extents of a descriptor are still its own, see blob/blob.h.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/mapping.h"
#include "extents/verify.h"
#include "store/map.h"
#include "store/store.h"

void
blob_require_extent(const BlobDescriptor *descriptor, int extent_no)
{
	BlobStore	store;
	BlobExtent	extent = blob_descriptor_extent(descriptor, extent_no);

	blob_store_open(&store, AccessShareLock);
	if (!blob_verify_extent(store.map, &extent, descriptor->generation))
		blob_verify_report_stale(extent_no, descriptor->size_bytes);
	blob_store_close(&store);
}

/* The number of the first wanted extent (is_wanted NULL: of all) that is stale, or -1. */
static int
find_stale(const BlobDescriptor *descriptor, const bool *is_wanted, int count)
{
	int			stale = -1;
	BlobStore	store;

	Assert(count <= blob_descriptor_extent_count(descriptor));

	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < count && stale < 0; i++)
	{
		BlobExtent	extent = blob_descriptor_extent(descriptor, i);

		if ((is_wanted == NULL || is_wanted[i]) &&
			!blob_verify_extent(store.map, &extent, descriptor->generation))
			stale = i;
	}
	blob_store_close(&store);
	return stale;
}

void
blob_require_extents(const BlobDescriptor *descriptor, const bool *is_wanted, int count)
{
	int			stale = find_stale(descriptor, is_wanted, count);

	if (stale >= 0)
		blob_verify_report_stale(stale, descriptor->size_bytes);
}

void
blob_require_valid(const BlobDescriptor *descriptor)
{
	blob_require_extents(descriptor, NULL, blob_descriptor_extent_count(descriptor));
}

int
blob_find_stale_extent(const BlobDescriptor *descriptor)
{
	return find_stale(descriptor, NULL, blob_descriptor_extent_count(descriptor));
}

int
blob_find_unclaimed_extent(const BlobDescriptor *descriptor)
{
	BlobStore	store;
	uint64		start = 0;
	int			unclaimed = -1;

	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < blob_descriptor_extent_count(descriptor) && unclaimed < 0; i++)
	{
		BlobStoredExtent stored;
		BlobMapEntry entry;

		blob_mapping_extent(descriptor, i, start, &stored);
		entry = blob_map_lookup(store.map, stored.extent.first_page);
		if (blob_map_entry_high_water(&entry) < stored.bytes)
			unclaimed = i;
		start += stored.bytes;
	}
	blob_store_close(&store);
	return unclaimed;
}
