/*
 * heal/source.c
 *	  What this server gives to others that lack content, see heal/source.h.
 */
#include "postgres.h"

#include "extents/read.h"
#include "extents/verify.h"
#include "heal/source.h"
#include "store/store.h"

void
blob_source_store_name(const BlobStoreId *id, char *name)
{
	snprintf(name, BLOB_SOURCE_STORE_BYTES, "%u.%016llx", id->dboid,
			 (unsigned long long) id->incarnation);
}

static void
require_store(const BlobStoreId *id, const char *name)
{
	char		own_name[BLOB_SOURCE_STORE_BYTES];

	blob_source_store_name(id, own_name);
	if (strcmp(name, own_name) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the other server has another extent store in this database"),
				 errdetail("The stores are %s and %s.", name, own_name)));
}

/* ERROR unless the entry is that of the extent that is asked for, and may be given. */
static void
require_common(const BlobMapEntry *entry, const BlobSourceRequest *request, XLogRecPtr lsn)
{
	const BlobExtent *extent = &request->extent;

	if (extent->generation >= request->common_below ||
		(request->unchanged_since != InvalidXLogRecPtr && lsn > request->unchanged_since))
		ereport(ERROR,
				(errcode(ERRCODE_BLOB_FORKED),
				 errmsg("the extent at page " UINT64_FORMAT " lies beyond the fork of timelines",
						extent->first_page),
				 errdetail("Beyond the fork both servers use the same pages and numbers for "
						   "different content.")));
	if (blob_map_entry_state(entry) != (extent->is_tail ? BLOB_MAP_TAIL : BLOB_MAP_TIER) ||
		blob_map_entry_pages(entry) != extent->pages ||
		blob_map_entry_generation(entry) != extent->generation)
		ereport(ERROR,
				(errcode(ERRCODE_BLOB_STALE),
				 errmsg("the extent at page " UINT64_FORMAT " is not on the other server",
						extent->first_page),
				 errdetail("It was freed there, or is not there yet.")));
}

uint32
blob_source_read(const char *store_name, const BlobSourceRequest *request, char *target)
{
	BlobStore	store;
	BlobStoredExtent stored_extent = {.extent = request->extent};
	BlobStored	stored = {
		.extents = &stored_extent,
		.count = 1,
		.max_generation = request->extent.generation
	};
	BlobMapEntry entry;
	XLogRecPtr	lsn;
	uint32		length;

	blob_store_open(&store, AccessShareLock);
	require_store(&store.id, store_name);
	entry = blob_map_lookup_lsn(store.map, request->extent.first_page, &lsn);
	require_common(&entry, request, lsn);
	blob_store_close(&store);

	stored_extent.bytes = blob_pages_for(blob_map_entry_high_water(&entry)) * BLOB_PAGE_SIZE;
	stored.total_bytes = stored.value_bytes = stored_extent.bytes;
	if (request->start >= stored_extent.bytes)
		return 0;
	length = (uint32) Min(request->length_bytes, stored_extent.bytes - request->start);
	/* Looks the extent up again: it has this generation, or the read fails. */
	stored_extent.extent.generation = BLOB_INVALID_GENERATION;
	blob_stored_read(&stored, NULL, false, request->start, length, target);
	return length;
}
