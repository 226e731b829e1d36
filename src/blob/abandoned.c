/*
 * blob/abandoned.c
 *	  Frees the extents that failed stores have allocated, see blob/abandoned.h.
 *
 * This runs on behalf of a statement that did not allocate these extents.  So if something is
 * locked, the drafts are left for the next statement.  Other failures (I/O on the map, memory) are
 * reported by one statement only: a draft is taken off the list before its extents are freed.
 * Extents that are not freed then are left to the collector.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "blob/abandoned.h"
#include "extents/durability.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "store/store.h"

static int
compare_extents(const void *a, const void *b)
{
	BlobPageNo	left = ((const BlobFreedExtent *) a)->first_page;
	BlobPageNo	right = ((const BlobFreedExtent *) b)->first_page;

	return left < right ? -1 : left > right;
}

/*
 * List the extents of a draft that still belong to it, sorted by first page.  The collector may
 * have freed others, and their pages may belong to another value now; or an error kept them from
 * being allocated.  The lock on freeing keeps other processes from freeing meanwhile.
 */
static int
list_owned(BlobStore *store, const BlobDraft *draft, BlobFreedExtent *owned)
{
	int			count = 0;

	if (!blob_store_id_equals(&draft->store, &store->id))
		return 0;
	for (int i = 0; i < draft->count; i++)
	{
		BlobFreedExtent extent = draft->extents[i];
		BlobMapEntry entry = blob_map_lookup(store->map, extent.first_page);
		BlobPageNo	last_page;

		extent.pages = blob_map_entry_pages(&entry);
		if (!blob_map_entry_is_extent(&entry) ||
			blob_map_entry_generation(&entry) != extent.generation ||
			!blob_store_may_free(store, extent.first_page, extent.pages, true))
			continue;
		owned[count++] = extent;
		last_page = extent.first_page + extent.pages - 1;
		for (uint32 segment_no = blob_segment_of(extent.first_page);
			 segment_no <= blob_segment_of(last_page); segment_no++)
			blob_durability_give_up(&store->id, segment_no);
	}
	qsort(owned, count, sizeof(*owned), compare_extents);
	return count;
}

/* Free the extents of one draft, as a whole.  Returns the number of pages freed. */
static uint64
free_draft(BlobStore *store, BlobDraft *draft)
{
	BlobFreedExtent *owned = palloc(sizeof(BlobFreedExtent) * (draft->count + 1));
	int			count = list_owned(store, draft, owned);
	uint64		pages = 0;

	HOLD_INTERRUPTS();
	blob_draft_forget(draft);
	if (count > 0)
		blob_store_free_abandoned(store, owned, count, &pages);
	RESUME_INTERRUPTS();
	blob_stat_count(abandoned_freed_bytes, pages * BLOB_PAGE_SIZE);
	pfree(owned);
	return pages;
}

/* Free all abandoned drafts of this process; give back disk space if that was much. */
static void
free_all(BlobStore *store)
{
	uint64		pages = 0;

	while (!dlist_is_empty(&blob_drafts_abandoned))
	{
		CHECK_FOR_INTERRUPTS();
		pages += free_draft(store, dlist_head_element(BlobDraft, node, &blob_drafts_abandoned));
	}
	/*
	 * Enough for the file of a segment: disk space may be what other sessions lack.  Holes are left
	 * to the collector: a statement waits here, and so does the collector for the freeing lock.
	 */
	if (pages >= BLOB_SEGMENT_PAGES)
		(void) blob_store_reclaim(store, NULL, NULL);
}

/*
 * Forget all drafts: the store is gone, and its files go with it.  If the drop is rolled back, the
 * extents are left to the collector.
 */
static void
forget_all(void)
{
	while (!dlist_is_empty(&blob_drafts_abandoned))
		blob_draft_forget(dlist_head_element(BlobDraft, node, &blob_drafts_abandoned));
}

void
blob_abandoned_free(void)
{
	BlobStore	store;
	bool		exists;

	if (!blob_abandoned_exists())
		return;
	if (!IsTransactionState() || XactReadOnly || RecoveryInProgress() || IsInParallelMode() ||
		InterruptHoldoffCount > 0)
		return;
	if (!blob_store_try_open(&store, RowExclusiveLock, &exists))
	{
		if (!exists)
			forget_all();
		return;
	}
	if (blob_store_lock_freeing(&store, ShareLock, false))
	{
		free_all(&store);
		blob_store_unlock_freeing(&store, ShareLock);
	}
	blob_store_close(&store);
}
