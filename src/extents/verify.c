/*
 * extents/verify.c
 *	  Looks into the extent map, see extents/verify.h.
 */
#include "postgres.h"

#include "extents/verify.h"
#include "io/stat.h"
#include "store/map.h"
#include "store/unlogged.h"

/* Whether an entry of the map is that of the extent; sets extent->generation. */
static bool
is_entry_of(const BlobMapEntry *entry, BlobExtent *extent, BlobGeneration max_generation)
{
	BlobMapState expected = extent->is_tail ? BLOB_MAP_TAIL : BLOB_MAP_TIER;

	extent->generation = blob_map_entry_generation(entry);
	extent->has_sums = blob_map_entry_has_sums(entry);
	return blob_map_entry_state(entry) == expected &&
		blob_map_entry_pages(entry) == extent->pages &&
		extent->generation <= max_generation;
}

bool
blob_verify_extent(Relation map, BlobExtent *extent, BlobGeneration max_generation)
{
	BlobMapEntry entry = blob_map_lookup(map, extent->first_page);

	return is_entry_of(&entry, extent, max_generation);
}

bool
blob_verify_locked(Buffer buffer, BlobStored *stored, int extent_no, BlobGeneration *generation)
{
	BlobExtent *seen = &stored->extents[extent_no].extent;
	BlobExtent	now = *seen;
	BlobMapEntry entry = blob_map_locked_entry(buffer, now.first_page);

	if (!is_entry_of(&entry, &now, stored->max_generation))
		return false;
	*generation = now.generation;
	seen->has_sums = now.has_sums;
	return seen->generation == BLOB_INVALID_GENERATION || seen->generation == now.generation;
}

void
blob_verify_report_stale(int extent_no, uint64 value_bytes)
{
	blob_stat_count_in_database(stale_reads, 1);
	ereport(ERROR,
			(errcode(ERRCODE_BLOB_STALE),
			 errmsg("stale blobstate value: its content does not exist any more"),
			 errdetail("Extent %d of a value of " UINT64_FORMAT " bytes has been freed or reused.",
					   extent_no, value_bytes),
			 errhint("Read the value again from its table.")));
}

/*
 * ERROR XB002: an extent has unlogged content.  The file holds zeros there, or bytes of an earlier
 * value.
 */
static void
report_unlogged(uint64 value_bytes)
{
	ereport(ERROR,
			(errcode(ERRCODE_BLOB_UNLOGGED),
			 errmsg("content of a blobstate value is missing on this server"),
			 errdetail("The value of " UINT64_FORMAT " bytes was stored by a server that "
					   "did not write content to the WAL, or its segment file was lost.",
					   value_bytes),
			 errhint("Get it with blobext_fetch() from a server that has it. Set "
					 "blobext.wal_content to \"auto\" there before standbys and backups are "
					 "made.")));
}

/*
 * Prefetch the map's blocks that have the entries of these extents.  Those of a large value are in
 * several blocks; so the blocks that are not in shared buffers are read at the same time.
 */
static void
prefetch_entries(Relation map, const BlobStoredExtent *extents, int count)
{
	if (count == 0 || blob_map_block_of(extents[0].extent.first_page) ==
		blob_map_block_of(extents[count - 1].extent.first_page))
		return;
	for (int i = 0; i < count; i++)
		if (i == 0 || blob_map_block_of(extents[i].extent.first_page) !=
			blob_map_block_of(extents[i - 1].extent.first_page))
			blob_map_prefetch(map, extents[i].extent.first_page);
}

bool
blob_verify_note(const BlobStore *store, BlobStored *stored, int extent_no,
				 BlobGeneration generation)
{
	BlobExtent *extent = &stored->extents[extent_no].extent;

	if (extent->generation != BLOB_INVALID_GENERATION)
		return true;
	if (!stored->may_lack && blob_unlogged_contains(&store->id, generation))
		return false;
	extent->generation = generation;
	return true;
}

void
blob_verify_before(BlobStore *store, BlobStored *stored, int first_no, int end_no)
{
	/* Mostly the extents that were looked up before come first: skip them. */
	while (first_no < end_no &&
		   stored->extents[first_no].extent.generation != BLOB_INVALID_GENERATION)
		first_no++;
	prefetch_entries(store->map, stored->extents + first_no, end_no - first_no);
	for (int i = first_no; i < end_no; i++)
	{
		BlobExtent	seen = stored->extents[i].extent;

		if (seen.generation != BLOB_INVALID_GENERATION)
			continue;
		if (!blob_verify_extent(store->map, &seen, stored->max_generation))
			blob_verify_report_stale(i, stored->value_bytes);
		stored->extents[i].extent.has_sums = seen.has_sums;
		if (!blob_verify_note(store, stored, i, seen.generation))
			report_unlogged(stored->value_bytes);
	}
}

void
blob_verify_after(BlobStore *store, const BlobStored *stored, int first_no, int end_no)
{
	for (int i = first_no; i < end_no; i++)
	{
		const BlobExtent *seen = &stored->extents[i].extent;
		BlobExtent	now = *seen;

		if (!blob_verify_extent(store->map, &now, stored->max_generation) ||
			now.generation != seen->generation)
			blob_verify_report_stale(i, stored->value_bytes);
		/* Its file may have been lost, and made anew, since the first look. */
		if (!stored->may_lack && blob_unlogged_contains(&store->id, now.generation))
			report_unlogged(stored->value_bytes);
	}
}
