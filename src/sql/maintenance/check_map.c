/*
 * sql/maintenance/check_map.c
 *	  blobext_check(): the extent map by itself, and the segment files.
 *
 * Every entry must be well-formed and agree with the meta page, no two extents may overlap, every
 * page with a file must have one that is long enough.  Blocks are copied one after the other while
 * others go on, so a problem is reported after a second look only: generations never
 * come back, so an entry that is the same then was there all the time.
 */
#include "postgres.h"

#include "io/segment.h"
#include "miscadmin.h"
#include "sql/maintenance/check.h"
#include "store/map.h"
#include "store/map_sums.h"
#include "store/store.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

typedef struct MapCheck
{
	BlobCheck  *check;
	BlobStore	store;
	BlobMapMeta meta;			/* as it was when the check began, or later */
	BlobPageNo	last_page;		/* first page of the entry that reaches furthest so far */
	BlobMapEntry last_entry;
	BlobPageNo	next_page;		/* its end */
	BlobPageNo	segments_end;	/* files are looked at up to here */
	BlobPageNo *file_end;		/* by segment: pages from here on have no file */
	uint64		pages;			/* of extents */
	uint64		sum_pages;		/* of these with checksums */
} MapCheck;

static void report(MapCheck *map_check, const char *format,...) pg_attribute_printf(2, 3);

static void
report(MapCheck *map_check, const char *format,...)
{
	char		text[256 + MAXPGPATH];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	blob_check_report(map_check->check, RelationGetRelid(map_check->store.map), NULL, NULL, text);
}

/* Whether an entry says now what it said; it may have a higher mark now, or checksums. */
static bool
is_still_there(MapCheck *map_check, BlobPageNo first_page, const BlobMapEntry *entry)
{
	BlobMapEntry now = blob_map_lookup(map_check->store.map, first_page);

	return blob_map_entry_state(&now) == blob_map_entry_state(entry) &&
		blob_map_entry_generation(&now) == blob_map_entry_generation(entry) &&
		(blob_map_entry_state(entry) == BLOB_MAP_TIER ||
		 blob_map_entry_pages(&now) == blob_map_entry_pages(entry));
}

/* Whether the entry of an extent with checksums has bits that say nothing. */
static bool
has_stray_bits(const BlobMapEntry *entry)
{
	bool		is_single = blob_map_entry_pages(entry) == 1;

	if (!blob_map_entry_has_sums(entry))
		return false;
	if (blob_map_entry_state(entry) == BLOB_MAP_TAIL)
		return !is_single && entry->measure >> BLOB_MAP_TAIL_SUM_SHIFT != 0;
	return is_single && (entry->measure & BLOB_MAP_HIGH_WATER_MASK) >>
		(BLOB_MAP_TIER_SUM_SHIFT + 32) != 0;
}

/* The problem of an entry by itself, or NULL: then its pages can be computed. */
static const char *
find_malformation(BlobPageNo first_page, const BlobMapEntry *entry)
{
	BlobPageNo	segment_end = blob_segment_end(first_page);

	switch (blob_map_entry_state(entry))
	{
		case BLOB_MAP_FREE:
			return entry->generation_state != 0 || entry->measure != 0 ? "is not zero" : NULL;
		case BLOB_MAP_TIER:
			if (entry->measure >> BLOB_MAP_HIGH_WATER_BITS >= BLOB_TIER_COUNT)
				return "has an unknown tier";
			if (blob_map_entry_high_water(entry) > blob_map_entry_pages(entry) * BLOB_PAGE_SIZE)
				return "is filled beyond its end";
			break;
		case BLOB_MAP_TAIL:
			if (blob_map_entry_pages(entry) == 0 || blob_map_entry_pages(entry) > BLOB_MAX_PAGE_NO)
				return "has an impossible length";
			break;
		case BLOB_MAP_SUMS:
			return blob_sums_have_more(entry) ? "has bits besides its checksums" : NULL;
		case BLOB_MAP_ABSENT:
			return entry->measure == segment_end - first_page ? NULL :
				"marks absent pages that do not end with their segment";
		case BLOB_MAP_PUNCHED:
			return entry->measure > 0 && entry->measure <= segment_end - first_page ? NULL :
				"marks punched pages that do not lie in one segment";
		default:
			return "has an unknown state";
	}
	if (has_stray_bits(entry))
		return "has bits besides its length and checksum";
	return blob_map_entry_generation(entry) == BLOB_INVALID_GENERATION ? "has no generation" : NULL;
}

/* The meta page's limits only grow: look again before calling something too large. */
static void
check_limits(MapCheck *map_check, BlobPageNo first_page, const BlobMapEntry *entry)
{
	BlobPageNo	end_page = first_page + blob_map_entry_pages(entry);
	BlobMapMeta *meta = &map_check->meta;

	if (end_page > meta->reserved_pages ||
		blob_map_entry_generation(entry) >= meta->generation_limit)
		blob_map_read_meta(map_check->store.map, meta);
	if (end_page > meta->reserved_pages)
		report(map_check, "the extent at page " UINT64_FORMAT " ends at page " UINT64_FORMAT
			   ", the store at page " UINT64_FORMAT, first_page, end_page, meta->reserved_pages);
	if (blob_map_entry_generation(entry) >= meta->generation_limit)
		report(map_check, "the extent at page " UINT64_FORMAT " has generation " UINT64_FORMAT
			   ", numbers were given below " UINT64_FORMAT, first_page,
			   blob_map_entry_generation(entry), meta->generation_limit);
}

/*
 * An extent without checksums must have none in the entry behind its own: else it has lost the mark
 * that it has some.  (It may get them while the check looks.)
 */
static void
check_hidden_sums(MapCheck *map_check, BlobPageNo first_page, const BlobMapEntry *entry)
{
	Relation	map = map_check->store.map;
	BlobExtent	extent = {
		.first_page = first_page,
		.pages = blob_map_entry_pages(entry),
		.generation = blob_map_entry_generation(entry),
		.has_sums = blob_map_entry_has_sums(entry)
	};
	uint32		sum;

	if (blob_map_hides_sums(map, &extent) &&
		blob_map_get_sums(map, &extent, 0, 1, &sum) == BLOB_SUMS_DAMAGED &&
		is_still_there(map_check, first_page, entry))
		report(map_check, "the entry of page " UINT64_FORMAT " does not say that its extent has "
			   "checksums, which are there", first_page);
}

/*
 * Check one entry: its form, the limits of the meta page, and that it begins behind the end of the
 * entry that reaches furthest so far.  Entries come in the order of their pages.
 */
static void
check_entry(MapCheck *map_check, BlobPageNo first_page, const BlobMapEntry *entry)
{
	const char *malformation = find_malformation(first_page, entry);

	if (malformation != NULL)
	{
		report(map_check, "the entry of page " UINT64_FORMAT " %s", first_page, malformation);
		return;
	}
	if (blob_map_entry_is_vacant(entry))
		return;
	if (blob_map_entry_is_extent(entry))
	{
		map_check->pages += blob_map_entry_pages(entry);
		if (blob_map_entry_has_sums(entry))
			map_check->sum_pages += blob_map_entry_pages(entry);
		check_hidden_sums(map_check, first_page, entry);
	}
	if (first_page < map_check->next_page &&
		is_still_there(map_check, map_check->last_page, &map_check->last_entry))
		report(map_check, "the extent at page " UINT64_FORMAT " overlaps the one at page "
			   UINT64_FORMAT, first_page, map_check->last_page);
	if (blob_map_entry_state(entry) != BLOB_MAP_ABSENT)
		check_limits(map_check, first_page, entry);
	else if (first_page < map_check->segments_end)
		map_check->file_end[blob_segment_of(first_page)] = first_page;
	if (first_page + blob_map_entry_pages(entry) > map_check->next_page)
	{
		map_check->last_page = first_page;
		map_check->last_entry = *entry;
		map_check->next_page = first_page + blob_map_entry_pages(entry);
	}
}

/* All entries of the map, block by block, each block as a copy made under its share lock. */
static void
check_blocks(MapCheck *map_check)
{
	Relation	map = map_check->store.map;
	BlockNumber block_count = RelationGetNumberOfBlocks(map);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	PGAlignedBlock copy;

	for (BlockNumber block = BLOB_MAP_META_BLOCK + 1; block < block_count; block++)
	{
		CHECK_FOR_INTERRUPTS();
		blob_map_copy_block(map, block, strategy, (Page) copy.data);
		if (PageIsNew((Page) copy.data))
			continue;
		for (uint32 slot = 0; slot < BLOB_MAP_ENTRIES; slot++)
			check_entry(map_check, blob_map_page_at(block, slot),
						&blob_map_page_entries((Page) copy.data)[slot]);
	}
	FreeAccessStrategy(strategy);
}

/* The file of each segment must be as long as its pages with a file need. */
static void
check_segments(MapCheck *map_check)
{
	const BlobStoreId *store = &map_check->store.id;

	for (BlobPageNo page = 0; page < map_check->segments_end; page += BLOB_SEGMENT_PAGES)
	{
		uint64		pages = map_check->file_end[blob_segment_of(page)] - page;
		int64		bytes = blob_segment_file_bytes(store, blob_segment_of(page));
		char		path[MAXPGPATH];

		CHECK_FOR_INTERRUPTS();
		if (pages == 0 || bytes >= (int64) (pages * BLOB_PAGE_SIZE))
			continue;
		/* It may have been removed since its part of the map was read. */
		if (blob_map_is_absent(map_check->store.map, blob_segment_of(page)))
			continue;
		blob_segment_path(path, sizeof(path), store, blob_segment_of(page));
		if (bytes < 0)
			report(map_check, "segment file \"%s\" is missing", path);
		else
			report(map_check, "segment file \"%s\" has " INT64_FORMAT " bytes instead of "
				   UINT64_FORMAT, path, bytes, pages * BLOB_PAGE_SIZE);
	}
}

/* A NOTICE if extents have no checksums. */
static void
report_sums(const MapCheck *map_check)
{
	if (map_check->sum_pages == map_check->pages)
		return;
	ereport(NOTICE,
			(errmsg("%llu of %llu bytes in extents have no checksums",
					(unsigned long long) ((map_check->pages - map_check->sum_pages) *
										  BLOB_PAGE_SIZE),
					(unsigned long long) (map_check->pages * BLOB_PAGE_SIZE)),
			 map_check->meta.version >= BLOB_MAP_VERSION_3 ?
			 errhint("CALL blobext_add_checksums() gives them to old values.") :
			 errhint("blobext_enable_checksums() gives them to new values.")));
}

void
blob_check_map(BlobCheck *check)
{
	MapCheck	map_check = {.check = check};
	uint64		segment_count;

	blob_store_open(&map_check.store, AccessShareLock);
	blob_map_read_meta(map_check.store.map, &map_check.meta);
	map_check.segments_end = map_check.meta.reserved_pages;
	segment_count = (map_check.segments_end + BLOB_SEGMENT_PAGES - 1) / BLOB_SEGMENT_PAGES;
	map_check.file_end = palloc(sizeof(BlobPageNo) * (segment_count + 1));
	for (uint64 i = 0; i < segment_count; i++)
		map_check.file_end[i] = Min((i + 1) * BLOB_SEGMENT_PAGES, map_check.segments_end);
	check_blocks(&map_check);
	check_segments(&map_check);
	report_sums(&map_check);
	pfree(map_check.file_end);
	blob_store_close(&map_check.store);
}
