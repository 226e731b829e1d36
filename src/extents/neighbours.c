/*
 * extents/neighbours.c
 *	  Reading neighbours, see extents/neighbours.h.
 *
 * The state of a scan belongs to the process, as the values of a scan have no common reader.  A
 * scan is noticed by the places of values alone.  It may skip values, or read a part of each; then
 * fewer of the pages that were requested are read, and beyond MAX_REQUESTED of them for each page
 * no more are requested.
 *
 * Requests begin when a value was missing in the buffer, and end when one has found nothing to
 * bring: a scan of what the buffer has looks for nothing, and one that follows a scan of another
 * process, which has requested its values, leaves that to it.
 *
 * A request has whatever extents the map shows in its range: those of other tables, and those of
 * values that are not complete.  io/README.md has the argument ("Neighbours").
 */
#include "postgres.h"

#include "extents/ahead.h"
#include "extents/neighbours.h"
#include "io/engine.h"
#include "io/write_counts.h"
#include "store/map.h"
#include "store/unlogged.h"

/* The largest request and value, and how far the next value of a scan may lie from the last one. */
#define MAX_WINDOW_PAGES (BLOB_IO_BUFFER_BYTES / BLOB_PAGE_SIZE)

/* At most one of this number of parts of the buffer is requested at once. */
#define BUFFER_PARTS 32

/* A scan is certain after this many values. */
#define MIN_VALUES 3

/* Pages requested for each page that is read, at most. */
#define MAX_REQUESTED 8

typedef struct Scan
{
	BlobStoreId store;
	BlobPageNo	first_page;		/* of the last value */
	BlobPageNo	end_page;
	int			direction;		/* 1: it ascends; -1: it descends */
	uint64		values;			/* read in this direction */
	uint64		read_pages;
	uint64		requested_pages;
	BlobPageNo	ahead_page;		/* requested from the last value up, or down, to here */
	bool		is_missing;		/* the buffer lacks values of it, as far as is known */
} Scan;

static Scan scan;

/* 1 if pages lie behind those of the last value, and near; -1 if they lie before; otherwise 0. */
static int
get_direction(BlobPageNo first_page, BlobPageNo end_page)
{
	if (first_page >= scan.end_page && first_page - scan.end_page <= MAX_WINDOW_PAGES)
		return 1;
	if (end_page <= scan.first_page && scan.first_page - end_page <= MAX_WINDOW_PAGES)
		return -1;
	return 0;
}

/* Note the place of a value that was read; false if it is no part of a certain scan. */
static bool
note_value(const BlobStoreId *store, BlobPageNo first_page, BlobPageNo end_page)
{
	int			direction = 0;

	if (blob_store_id_equals(&scan.store, store))
		direction = get_direction(first_page, end_page);
	if (direction == 0 || direction != scan.direction)
	{
		scan.store = *store;
		scan.direction = direction;
		scan.values = scan.read_pages = scan.requested_pages = 0;
		scan.ahead_page = direction >= 0 ? end_page : first_page;
	}
	scan.first_page = first_page;
	scan.end_page = end_page;
	return scan.direction != 0 && ++scan.values >= MIN_VALUES;
}

/*
 * Set the pages that are to be requested now; false if none are.  Up to two windows are requested
 * ahead of the scan: while it reads one, the device brings the other.  They lie in the map block of
 * the last value: a damaged one fails no read of values that have their entries elsewhere.
 */
static bool
find_due(BlobPageNo *first_page, BlobPageNo *end_page)
{
	uint64		window = Min(2 * scan.read_pages, MAX_WINDOW_PAGES);
	BlockNumber block = blob_map_block_of(scan.first_page);
	uint64		distance;

	window = Min(window, blob_buffer_bytes() / BLOB_PAGE_SIZE / BUFFER_PARTS);
	if (scan.direction > 0)
	{
		*first_page = Max(scan.ahead_page, scan.end_page);
		*end_page = Min(*first_page + window, blob_map_page_at(block + 1, 0));
		distance = *first_page - scan.end_page;
	}
	else
	{
		*end_page = Min(scan.ahead_page, scan.first_page);
		*first_page = Max(*end_page - Min(window, *end_page), blob_map_page_at(block, 0));
		distance = scan.first_page - *end_page;
	}
	if (distance >= window || *first_page >= *end_page ||
		scan.requested_pages > MAX_REQUESTED * scan.read_pages)
		return false;
	scan.ahead_page = scan.direction > 0 ? *end_page : *first_page;
	return true;
}

/* ---- requests ---- */

typedef struct Request
{
	const BlobStore *store;
	BlobBufferUse use;
	BlobAheadRead *read;
} Request;

/* Whether pages lie in one region, and so have one count of writes. */
static bool
are_in_one_region(BlobPageNo first_page, uint64 pages)
{
	return first_page / BLOB_WRITE_REGION_PAGES ==
		(first_page + pages - 1) / BLOB_WRITE_REGION_PAGES;
}

/* A BlobMapVisitor: add the chunks of an extent, as far as they belong to values. */
static void
add_extent(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	Request    *request = context;
	uint64		bytes = Min(blob_map_entry_high_water(entry),
							blob_map_entry_pages(entry) * BLOB_PAGE_SIZE);	/* damaged: more */
	uint32		chunk_bytes;
	BlobExtent	extent = {
		.first_page = first_page,
		.pages = blob_map_entry_pages(entry),
		.generation = blob_map_entry_generation(entry),
		.is_tail = blob_map_entry_state(entry) == BLOB_MAP_TAIL,
		.has_sums = blob_map_entry_has_sums(entry)
	};

	/* Reads of larger ones have large requests of their own; unlogged content is not read. */
	if (extent.pages > MAX_WINDOW_PAGES ||
		blob_unlogged_contains(&request->store->id, extent.generation))
		return;
	chunk_bytes = blob_buffer_chunk_bytes(extent.pages);
	for (uint64 offset = 0; offset < bytes; offset += chunk_bytes)
	{
		uint64		pages = blob_pages_for(Min(chunk_bytes, bytes - offset));

		if (!are_in_one_region(first_page + offset / BLOB_PAGE_SIZE, pages))
			continue;
		request->read = blob_ahead_add(request->read, request->store, &extent, offset,
									   (uint32) (pages * BLOB_PAGE_SIZE), true, request->use);
	}
	scan.requested_pages += blob_pages_for(bytes);
}

/*
 * A scan has a share of the buffer, as a large value has.  Beyond that it takes free memory, and
 * then few slabs again and again.
 */
static BlobBufferUse
get_use(void)
{
	if (!blob_buffer_is_full())
		return BLOB_BUFFER_KEEP;
	return blob_buffer_use_for(scan.requested_pages * BLOB_PAGE_SIZE);
}

/* Request the extents that begin in a range of pages. */
static void
request_pages(BlobStore *store, BlobPageNo first_page, BlobPageNo end_page)
{
	Request		request = {.store = store, .use = get_use()};

	uint64		unfinished;

	blob_ahead_process_begins();
	blob_io_begin_vectors();
	PG_TRY();
	{
		blob_ahead_make_room();
		unfinished = blob_ahead_unfinished_bytes();
		blob_map_visit_range(store->map, first_page, end_page, NULL, add_extent, &request);
		scan.is_missing = blob_ahead_unfinished_bytes() > unfinished;
		blob_ahead_start(request.read);
		if (!blob_io_is_asynchronous())
			blob_ahead_finish_arrived();
	}
	PG_FINALLY();
	{
		blob_io_end();
	}
	PG_END_TRY();
}

/*
 * A value has the place of its first extent: it may have grown elsewhere, and its other extents are
 * in the buffer, and so left out of a request.  Further reads of the same value say nothing of the
 * next one.
 */
void
blob_neighbours_note(BlobStore *store, const BlobStored *stored, uint64 length_bytes,
					 bool is_missing)
{
	const BlobExtent *extent = &stored->extents[0].extent;
	BlobPageNo	first_page = extent->first_page;
	BlobPageNo	end_page = first_page + extent->pages;
	bool		is_certain;

	if (stored->total_bytes > MAX_WINDOW_PAGES * BLOB_PAGE_SIZE || first_page == scan.first_page)
		return;
	is_certain = note_value(&store->id, first_page, end_page);
	scan.read_pages += blob_pages_for(length_bytes);
	scan.is_missing |= is_missing;
	if (is_certain && scan.is_missing && find_due(&first_page, &end_page))
		request_pages(store, first_page, end_page);
}
