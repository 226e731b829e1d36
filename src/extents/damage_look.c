/*
 * extents/damage_look.c
 *	  Another look at pages of the list of damaged ones, see extents/damage_look.h.
 */
#include "postgres.h"

#include "extents/damage_look.h"
#include "extents/read.h"
#include "miscadmin.h"
#include "store/map.h"

/* The extent of a page as the map has it now: a stream may have cut it off. */
static bool
find_extent(BlobStore *store, const BlobDamagedPage *damaged, BlobExtent *extent)
{
	BlobMapEntry entry;

	if (!blob_store_id_equals(&store->id, &damaged->store))
		return false;
	*extent = damaged->extent;
	entry = blob_map_lookup(store->map, extent->first_page);
	extent->pages = blob_map_entry_pages(&entry);
	extent->is_tail = blob_map_entry_state(&entry) == BLOB_MAP_TAIL;
	return blob_map_entry_is_extent(&entry) &&
		blob_map_entry_generation(&entry) == extent->generation &&
		damaged->page < extent->first_page + extent->pages;
}

BlobDamageLook
blob_damage_look(const BlobDamagedPage *damaged)
{
	BlobStoredExtent own = {0};
	BlobStored	stored = {.extents = &own, .count = 1, .notes_damage = true};
	char		page[BLOB_PAGE_SIZE];
	uint64		offset;
	BlobStore	store;
	bool		is_there;

	if (!blob_store_try_open(&store, AccessShareLock, &is_there))
	{
		if (!is_there)
			return BLOB_LOOK_GONE;	/* the extension was dropped */
		blob_store_open(&store, AccessShareLock);
	}
	is_there = find_extent(&store, damaged, &own.extent);
	blob_store_close(&store);
	if (!is_there)
		return BLOB_LOOK_GONE;
	/* The read makes a first look of its own, at an extent of at most this generation. */
	stored.max_generation = own.extent.generation;
	own.extent.generation = BLOB_INVALID_GENERATION;
	own.bytes = own.extent.pages * BLOB_PAGE_SIZE;
	stored.total_bytes = stored.value_bytes = own.bytes;
	offset = (damaged->page - own.extent.first_page) * BLOB_PAGE_SIZE;
	blob_stored_read(&stored, NULL, false, offset, BLOB_PAGE_SIZE, page);
	return stored.has_damage ? BLOB_LOOK_DAMAGED : BLOB_LOOK_RIGHT;
}

void
blob_damage_forget_freed(BlobStore *store)
{
	BlobDamagedPage *pages;
	int			count = blob_damaged_pages_get(MyDatabaseId, &pages);

	for (int i = 0; i < count; i++)
	{
		BlobExtent	extent;

		if (!find_extent(store, &pages[i], &extent))
			blob_damaged_page_forget(&pages[i]);
	}
	pfree(pages);
}
