/*
 * heal/lost_files.c
 *	  Segment files that are gone, see "Lost files" in the README.
 */
#include "postgres.h"

#include "heal/heal_internal.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "store/store.h"
#include "store/unlogged.h"
#include "utils/memutils.h"

/* Pages that have no file, and the generations of the extents there. */
typedef struct Loss
{
	BlobPageNo	first_page;
	BlobPageNo	end_page;
	BlobGenerationRange *ranges;
	int			count;
	int			capacity;
} Loss;

/* A BlobMapVisitor. */
static void
note_loss(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	Loss	   *loss = context;
	BlobGeneration generation = blob_map_entry_generation(entry);

	if (!blob_map_entry_is_extent(entry) || first_page >= loss->end_page ||
		first_page + blob_map_entry_pages(entry) <= loss->first_page)
		return;
	if (loss->count == loss->capacity)
	{
		loss->capacity *= 2;
		loss->ranges = repalloc_huge(loss->ranges, loss->capacity * sizeof(*loss->ranges));
	}
	loss->ranges[loss->count++] = (BlobGenerationRange) {generation, generation};
}

/* Note the extents of the lost pages durably; only then is the file made. */
static void
remake(BlobHeal *heal, BlobStore *store, uint32 segment_no, uint64 file_pages, uint64 pages)
{
	BlobPageNo	start = segment_no * BLOB_SEGMENT_PAGES;
	Loss		loss = {
		.first_page = start + file_pages,
		.end_page = start + pages,
		.capacity = 1024
	};
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), &store->id, segment_no);
	blob_segment_note_loss();
	loss.ranges = palloc(loss.capacity * sizeof(*loss.ranges));
	blob_map_visit_damaged_too(store->map, note_loss, &loss);
	if (loss.count > 0)
		blob_unlogged_add(&store->id, loss.ranges, loss.count);
	blob_store_remake_segment(store, segment_no);
	ereport(LOG,
			(errmsg("blob segment file \"%s\" was lost and has been made anew", path),
			 errdetail("%d extents lack their content until it is fetched.", loss.count)));
	heal->totals.remade_files++;
	pfree(loss.ranges);
}

void
blob_lost_files_remake(BlobHeal *heal)
{
	BlobStore	store;
	BlobMapMeta meta;

	blob_store_open(&store, RowExclusiveLock);
	blob_map_read_meta(store.map, &meta);
	for (BlobPageNo page = 0; page < meta.reserved_pages; page += BLOB_SEGMENT_PAGES)
	{
		uint32		segment_no = blob_segment_of(page);
		uint64		pages = Min(BLOB_SEGMENT_PAGES, meta.reserved_pages - page);
		int64		bytes = Max(blob_segment_file_bytes(&store.id, segment_no), 0);

		CHECK_FOR_INTERRUPTS();
		if ((uint64) bytes >= pages * BLOB_PAGE_SIZE)
			continue;
		pages = blob_store_segment_pages(&store, segment_no);
		if ((uint64) bytes < pages * BLOB_PAGE_SIZE)
			remake(heal, &store, segment_no, bytes / BLOB_PAGE_SIZE, pages);
	}
	blob_store_close(&store);
}
