/*
 * sql/administration/space_view.c
 *	  View blobext_space: what the pages of each segment are used for.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "store/map.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(blobext_space_usage);

#define TAIL BLOB_TIER_COUNT	/* of the counters below */
#define COLUMN_COUNT 7			/* SQL objects before 0.4.0 do without the last one */

typedef struct Counter
{
	uint64		extents;		/* that begin in the segment */
	uint64		pages;			/* in the segment */
	uint64		sum_pages;		/* of these in extents with checksums */
} Counter;

/* Segments are done one by one, in order; an extent may reach into later ones. */
typedef struct Usage
{
	ReturnSetInfo *result;
	BlobStore	store;
	BlobPageNo	segment_start;	/* of the segment that is being counted */
	BlobPageNo	reserved_pages;
	Counter		counters[BLOB_TIER_COUNT + 1];
	uint64		absent_pages;
	uint64		punched_pages;
} Usage;

/* tier, extent_count: -1 where there is none; with an extent_count: sum_pages of them. */
static void
put_row(Usage *usage, const char *state, int tier, int64 extent_count, uint64 pages,
		uint64 sum_pages)
{
	Datum		values[COLUMN_COUNT];
	bool		nulls[COLUMN_COUNT] = {0};

	if (pages == 0 && extent_count <= 0)
		return;
	values[0] = Int32GetDatum((int32) blob_segment_of(usage->segment_start));
	values[1] = CStringGetTextDatum(state);
	values[2] = Int32GetDatum(tier);
	values[3] = Int64GetDatum(extent_count);
	values[4] = Int64GetDatum((int64) pages);
	values[5] = Int64GetDatum((int64) (pages * BLOB_PAGE_SIZE));
	values[6] = Int64GetDatum((int64) (sum_pages * BLOB_PAGE_SIZE));
	nulls[2] = tier < 0;
	nulls[3] = nulls[6] = extent_count < 0;
	tuplestore_putvalues(usage->result->setResult, usage->result->setDesc, values, nulls);
}

/* Show what was counted, and go on to the next segment. */
static void
finish_segment(Usage *usage)
{
	BlobPageNo	end_page = Min(usage->segment_start + BLOB_SEGMENT_PAGES, usage->reserved_pages);
	uint64		left = end_page - usage->segment_start;
	uint64		pending;

	for (int i = 0; i <= BLOB_TIER_COUNT; i++)
	{
		const Counter *counter = &usage->counters[i];

		put_row(usage, i == TAIL ? "tail" : "tier", i == TAIL ? -1 : i,
				(int64) counter->extents, counter->pages, counter->sum_pages);
		left -= Min(left, counter->pages);
	}
	put_row(usage, "absent", -1, -1, usage->absent_pages, 0);
	put_row(usage, "punched", -1, -1, usage->punched_pages, 0);
	left -= Min(left, usage->absent_pages + usage->punched_pages);
	/* Others go on meanwhile: never show more than there is. */
	pending = Min(left, blob_store_pending_pages(&usage->store, usage->segment_start, end_page));
	put_row(usage, "pending", -1, -1, pending, 0);
	put_row(usage, "free", -1, -1, left - pending, 0);

	memset(usage->counters, 0, sizeof(usage->counters));
	usage->absent_pages = usage->punched_pages = 0;
	usage->segment_start += BLOB_SEGMENT_PAGES;
}

/*
 * Add an entry of the map to the counters of its segments, which it may cross; entries come in the
 * order of their pages, so a segment is finished when an entry lies behind it.
 */
static void
count_entry(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	Usage	   *usage = context;
	BlobPageNo	end_page = Min(first_page + blob_map_entry_pages(entry), usage->reserved_pages);
	BlobMapState state = blob_map_entry_state(entry);
	int			tier = state == BLOB_MAP_TAIL ? TAIL :
		(int) (entry->measure >> BLOB_MAP_HIGH_WATER_BITS);
	BlobPageNo	page = first_page;

	while (page < end_page)
	{
		BlobPageNo	stop;

		while (page >= usage->segment_start + BLOB_SEGMENT_PAGES)
			finish_segment(usage);
		stop = Min(end_page, usage->segment_start + BLOB_SEGMENT_PAGES);
		if (state == BLOB_MAP_ABSENT)
			usage->absent_pages += stop - page;
		else if (state == BLOB_MAP_PUNCHED)
			usage->punched_pages += stop - page;
		else
		{
			usage->counters[tier].pages += stop - page;
			usage->counters[tier].extents += page == first_page;
			if (blob_map_entry_has_sums(entry))
				usage->counters[tier].sum_pages += stop - page;
		}
		page = stop;
	}
}

/* Rows (segment, state, tier, extents, pages, bytes, checksummed_bytes).  Reads the whole map. */
Datum
blobext_space_usage(PG_FUNCTION_ARGS)
{
	Usage	   *usage = palloc0(sizeof(Usage));
	BlobMapMeta meta;

	InitMaterializedSRF(fcinfo, 0);
	usage->result = (ReturnSetInfo *) fcinfo->resultinfo;
	blob_store_open(&usage->store, AccessShareLock);
	blob_map_read_meta(usage->store.map, &meta);
	usage->reserved_pages = meta.reserved_pages;
	blob_map_visit_all(usage->store.map, count_entry, usage);
	while (usage->segment_start < usage->reserved_pages)
		finish_segment(usage);
	blob_store_close(&usage->store);
	return (Datum) 0;
}
