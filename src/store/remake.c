/*
 * store/remake.c
 *	  Segment files that were lost are made anew, see store/store.h.
 */
#include "postgres.h"

#include "io/segment.h"
#include "store/store_internal.h"

uint64
blob_store_segment_pages(BlobStore *store, uint32 segment_no)
{
	BlobPageNo	first_page = segment_no * BLOB_SEGMENT_PAGES;
	BlobPageNo	end_page;
	BlobMapMeta meta;

	/* First the limit: REMOVE may raise it, and has all pages absent then. */
	blob_map_read_meta(store->map, &meta);
	end_page = Min(blob_map_absent_page(store->map, segment_no), meta.reserved_pages);
	return end_page > first_page ? end_page - first_page : 0;
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
