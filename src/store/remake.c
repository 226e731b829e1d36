/*
 * store/remake.c
 *	  Segment files that were lost are made anew, see store/store.h.
 */
#include "postgres.h"

#include "io/segment.h"
#include "store/store_internal.h"
#include "storage/bufmgr.h"

/* The first absent page of [first_page, end_page), or end_page. */
static BlobPageNo
find_absent(Relation map, BlobPageNo first_page, BlobPageNo end_page)
{
	BlockNumber end_block = blob_map_block_of(end_page - 1);

	for (BlockNumber block = blob_map_block_of(first_page); block <= end_block; block++)
	{
		BlobPageNo	page = Max(first_page, blob_map_page_at(block, 0));
		Buffer		buffer = blob_map_lock_entry(map, page, InvalidBuffer);
		BlobPageNo	stop = Min(end_page, blob_map_page_at(block, BLOB_MAP_ENTRIES - 1) + 1);

		if (!BufferIsValid(buffer))
			continue;
		for (; page < stop; page++)
		{
			BlobMapEntry entry = blob_map_locked_entry(buffer, page);

			if (blob_map_entry_state(&entry) == BLOB_MAP_ABSENT)
				break;
		}
		UnlockReleaseBuffer(buffer);
		if (page < stop)
			return page;
	}
	return end_page;
}

uint64
blob_store_segment_pages(BlobStore *store, uint32 segment_no)
{
	BlobPageNo	first_page = segment_no * BLOB_SEGMENT_PAGES;
	BlobPageNo	end_page;
	BlobMapMeta meta;

	blob_map_read_meta(store->map, &meta);
	end_page = Min(first_page + BLOB_SEGMENT_PAGES, meta.reserved_pages);
	if (end_page <= first_page)
		return 0;
	return find_absent(store->map, first_page, end_page) - first_page;
}

void
blob_store_remake_segment(BlobStore *store, uint32 segment_no)
{
	BlobStoreShared *shared = blob_store_shared(&store->id);
	BlobPageNo	first_page = segment_no * BLOB_SEGMENT_PAGES;
	uint64		pages;

	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	pages = blob_store_segment_pages(store, segment_no);
	if (pages > 0)
	{
		blob_segment_make_dir(&store->id);
		blob_segment_reserve(&store->id, first_page, first_page + pages);
	}
	LWLockRelease(&shared->growth_lock);
}
