/*
 * sql/administration/files.c
 *	  Function blobext_files(): which files the store of this database has, by its extent map.
 *
 * For blobext_upgrade, which asks before the files are there; so nothing is loaded or changed.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "store/map.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(blobext_files);

#define COLUMN_COUNT 5			/* 4 in SQL objects before 0.3.0 */

/* Segments are shown in order, each when the next entry of the map lies behind it. */
typedef struct Listing
{
	ReturnSetInfo *result;
	BlobStore	store;
	BlobPageNo	segment_start;	/* of the segment that comes next */
	BlobPageNo	reserved_pages;
} Listing;

/* Show the segment that comes next: it has a file for its pages below end_page, if any. */
static void
put_segment(Listing *listing, BlobPageNo end_page)
{
	uint32		segment_no = blob_segment_of(listing->segment_start);
	uint64		pages = end_page - listing->segment_start;
	char		path[MAXPGPATH];
	int64		file_bytes;
	int64		disk_bytes;
	Datum		values[COLUMN_COUNT];
	bool		nulls[COLUMN_COUNT] = {0};

	CHECK_FOR_INTERRUPTS();
	listing->segment_start += BLOB_SEGMENT_PAGES;
	if (pages == 0)
		return;
	blob_segment_path(path, sizeof(path), &listing->store.id, segment_no);
	file_bytes = blob_segment_file_bytes(&listing->store.id, segment_no);
	values[0] = Int32GetDatum((int32) segment_no);
	values[1] = CStringGetTextDatum(path);
	values[2] = Int64GetDatum((int64) (pages * BLOB_PAGE_SIZE));
	values[3] = Int64GetDatum(file_bytes);
	nulls[3] = file_bytes < 0;
	disk_bytes = blob_segment_disk_bytes(&listing->store.id, segment_no);
	values[4] = Int64GetDatum(disk_bytes);
	nulls[4] = disk_bytes < 0;
	tuplestore_putvalues(listing->result->setResult, listing->result->setDesc, values, nulls);
}

/* Show the segments that end at or before this page: no page of them is absent. */
static void
put_segments_before(Listing *listing, BlobPageNo page)
{
	while (listing->segment_start + BLOB_SEGMENT_PAGES <= page)
		put_segment(listing, listing->segment_start + BLOB_SEGMENT_PAGES);
}

/* Absent pages reach to the end of their segment. */
static void
see_entry(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	Listing    *listing = context;

	if (blob_map_entry_state(entry) != BLOB_MAP_ABSENT || first_page >= listing->reserved_pages)
		return;
	put_segments_before(listing, first_page);
	put_segment(listing, first_page);
}

/* Rows (segment, file, bytes, file_bytes, disk_bytes).  Reads the whole map. */
Datum
blobext_files(PG_FUNCTION_ARGS)
{
	Listing    *listing = palloc0(sizeof(Listing));
	BlobMapMeta meta;

	InitMaterializedSRF(fcinfo, 0);
	listing->result = (ReturnSetInfo *) fcinfo->resultinfo;
	blob_store_open(&listing->store, AccessShareLock);
	blob_map_read_meta(listing->store.map, &meta);
	listing->reserved_pages = meta.reserved_pages;
	blob_map_visit_all(listing->store.map, see_entry, listing);
	put_segments_before(listing, listing->reserved_pages);
	if (listing->segment_start < listing->reserved_pages)
		put_segment(listing, listing->reserved_pages);
	blob_store_close(&listing->store);
	return (Datum) 0;
}
