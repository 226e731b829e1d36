/*
 * extents/read.c
 *	  The requests of a read, see extents/read.h.
 *
 * Before and after the device is read, the map must say that each extent of the range is allocated,
 * by a generation no later than the value's.  An extent that was freed and given to another value
 * has drawn a later generation.  So a reader that overlaps with such a change notices it.
 *
 * The range is cut into chunks of the buffer.  Chunks that the buffer lacks are read from the
 * device, adjacent chunks joined into one request.  All requests of the range are in flight at
 * once, as far as there are buffers.
 */
#include "postgres.h"

#include "extents/ahead.h"
#include "extents/buffered.h"
#include "extents/damaged_pages.h"
#include "extents/layout.h"
#include "extents/neighbours.h"
#include "extents/read.h"
#include "extents/read_error.h"
#include "extents/read_requests.h"
#include "extents/verify.h"
#include "io/buffer.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"

/* ---- parts ---- */

/*
 * The part that has [offset, offset + wanted) of an extent, in whole pages.  In a sequence it goes
 * on to the end of the chunk, because requests ahead begin with the next chunk.
 */
static BlobReadPart
make_part(const BlobReadState *state, const BlobStoredExtent *stored, uint64 offset, uint32 wanted,
		  uint64 end, char *target)
{
	BlobReadPart	part = {
		.generation = stored->extent.generation,
		.wanted = wanted,
		.target = target,
		.chunk_bytes = blob_buffer_chunk_bytes(stored->extent.pages)
	};

	part.extent_offset = offset / BLOB_PAGE_SIZE * BLOB_PAGE_SIZE;
	part.skip = (uint32) (offset - part.extent_offset);
	part.length = (uint32) blob_pages_for(part.skip + wanted) * BLOB_PAGE_SIZE;
	if (state->window != NULL && state->window->is_open)
		part.length = (uint32) (blob_pages_for(Min(end, stored->bytes)) * BLOB_PAGE_SIZE -
								part.extent_offset);
	return part;
}

/*
 * Add the part that has [offset, offset + wanted) of an extent to the requests, as far as the
 * device may be asked for it (device_bytes, from the page of offset on).  Returns how many of the
 * wanted bytes that are.
 */
static uint32
request_part(BlobReadState *state, const BlobStoredExtent *stored, uint64 offset, uint32 wanted,
			 uint64 end, uint32 device_bytes, char *target)
{
	BlobReadPart	part = make_part(state, stored, offset, wanted, end, target);

	if (part.length > device_bytes)
	{
		part.length = device_bytes;
		part.wanted = Min(part.wanted, part.length - part.skip);
	}
	part.valid = (uint32) Min(part.length, stored->bytes - part.extent_offset);
	blob_read_add(state, stored->extent.first_page + offset / BLOB_PAGE_SIZE, &stored->extent, &part);
	return part.wanted;
}

/*
 * Read [offset, offset + length) of one extent, chunk by chunk, from the buffer or by requests.  A
 * chunk that crosses a segment's end is cut there.
 */
static void
read_extent(BlobReadState *state, const BlobStoredExtent *stored, uint64 offset, uint64 length,
			char *target)
{
	uint32		chunk_bytes = blob_buffer_chunk_bytes(stored->extent.pages);

	while (length > 0)
	{
		uint64		chunk_end = (offset / chunk_bytes + 1) * chunk_bytes;
		BlobPageNo	page = stored->extent.first_page + offset / BLOB_PAGE_SIZE;
		uint64		segment_end = offset / BLOB_PAGE_SIZE * BLOB_PAGE_SIZE +
			blob_layout_pages_left_in_segment(page) * BLOB_PAGE_SIZE;
		uint64		end = Min(chunk_end, segment_end);
		uint32		wanted = (uint32) Min(length, end - offset);
		uint32		device_bytes;
		uint32		got;

		/* More requests ahead may have arrived with this one: start others at once. */
		if (state->use != BLOB_BUFFER_BYPASS && blob_ahead_await(&state->store.id, page))
			blob_readahead_start(&state->store, state->stored, state->window);
		got = blob_buffer_get(&state->store.id, stored->extent.generation, chunk_bytes, offset,
							  wanted, state->use, target, &device_bytes);
		if (got == 0)
			got = request_part(state, stored, offset, wanted, end, device_bytes, target);
		offset += got;
		target += got;
		length -= got;
	}
}

/* ---- ranges ---- */

/*
 * Read a range that begins in the extent first_no.  Requests ahead are started before the range is
 * copied if it was itself requested ahead; otherwise after its own requests.
 */
static void
read_range(BlobReadState *state, int first_no, uint64 offset, uint64 length, char *target)
{
	bool		starts_ahead = state->window != NULL && state->window->is_expected;

	if (starts_ahead)
		blob_readahead_start(&state->store, state->stored, state->window);
	for (int i = first_no; length > 0; i++)
	{
		const BlobStoredExtent *stored = &state->stored->extents[i];
		uint64		part = Min(length, stored->start + stored->bytes - offset);

		read_extent(state, stored, offset - stored->start, part, target);
		offset += part;
		target += part;
		length -= part;
	}
	blob_read_start(state);
	if (!starts_ahead)
	{
		blob_io_submit();
		blob_readahead_start(&state->store, state->stored, state->window);
	}
	blob_read_finish_all(state);
}

/*
 * Read a range within a use of the engine.  No request of the range is in flight when this
 * returns or throws.
 */
static void
read_in_use(BlobReadState *state, int first_no, uint64 offset, uint64 length, char *target)
{
	blob_io_begin();
	blob_read_begin(state);
	PG_TRY();
	{
		read_range(state, first_no, offset, length, target);
	}
	PG_FINALLY();
	{
		blob_io_drain();
		blob_buffer_abandon();
		blob_io_end();
	}
	PG_END_TRY();
}

/* Whether a page did not have its checksum. */
static bool
found_damage(const BlobReadState *state)
{
	return state->has_damage || state->error == EBADMSG || state->error == EILSEQ;
}

/* Whether values can have a page of an extent: one behind the mark only a forged value names. */
static bool
can_have_content(const BlobReadState *state, const BlobExtent *extent, BlobPageNo page)
{
	BlobMapEntry entry = blob_map_lookup(state->store.map, extent->first_page);

	return page >= extent->first_page && page < extent->first_page + extent->pages &&
		(page - extent->first_page) * BLOB_PAGE_SIZE < blob_map_entry_high_water(&entry);
}

/*
 * A page did not have its checksum, twice, and all extents of [first_no, end_no) were looked up
 * since: it comes into the list.  For heal/ the content may be lacking.
 */
static void
list_damage(BlobReadState *state, int first_no, int end_no)
{
	BlobStored *stored = state->stored;
	BlobPageNo	page = state->has_damage ? state->damaged_page : state->error_page;

	for (int i = first_no; i < end_no && !stored->may_lack; i++)
	{
		const BlobExtent *extent = &stored->extents[i].extent;

		if (!can_have_content(state, extent, page))
			continue;
		state->error_generation = extent->generation;
		blob_damaged_page_note(&state->store.id, extent, page,
							   stored->notes_damage ? BLOB_DAMAGE_CHECK : BLOB_DAMAGE_READ);
	}
	if (state->has_damage && !stored->has_damage)
		stored->damaged_page = page;
	stored->has_damage |= state->has_damage;
}

/* Read a range with a look into the map before and after that. */
static void
read_verified(BlobReadState *state, uint64 offset, uint64 length, char *target)
{
	BlobStored *stored = state->stored;
	int			first_no = blob_stored_find(stored, offset);
	int			end_no = first_no + 1;

	while (end_no < stored->count && stored->extents[end_no].start < offset + length)
		end_no++;
	blob_verify_before(&state->store, stored, first_no, end_no);
	read_in_use(state, first_no, offset, length, target);
	blob_verify_after(&state->store, stored, first_no, end_no);
	if (found_damage(state))
	{
		/* A page that is being repaired, or came wrong over a cable, is right the second time. */
		state->error = 0;
		state->has_damage = false;
		read_in_use(state, first_no, offset, length, target);
		blob_verify_after(&state->store, stored, first_no, end_no);
	}
	if (found_damage(state))
		list_damage(state, first_no, end_no);
	if (state->error != 0)
		blob_read_report_error(&state->store.id, state->error_page, state->error_generation,
							   state->error);
}

/* Where a stored offset lies. */
static BlobPageNo
page_of(const BlobStored *stored, uint64 offset)
{
	const BlobStoredExtent *extent = &stored->extents[blob_stored_find(stored, offset)];

	return extent->extent.first_page + (offset - extent->start) / BLOB_PAGE_SIZE;
}

/*
 * Whether the beginning of a range may be copied from the buffer, if it is there, without a use of
 * the engine.  Requests ahead that have it, and those to be started, need the use.
 */
static bool
may_copy_first(const BlobReadState *state, uint64 offset, uint64 length)
{
	const BlobAheadWindow *window = state->window;

	return state->use == BLOB_BUFFER_KEEP && length <= BLOB_BUFFERED_MAX_BYTES &&
		(window == NULL || (!window->is_open && !window->is_expected)) &&
		!blob_ahead_covers(&state->store.id, page_of(state->stored, offset));
}

void
blob_stored_read(BlobStored *stored, BlobAheadWindow *window, bool use_buffer, uint64 offset_bytes,
				 uint64 length_bytes, char *target)
{
	BlobReadState	state = {
		.stored = stored,
		.window = window,
		.use = use_buffer ? blob_buffer_use_for(stored->value_bytes) : BLOB_BUFFER_BYPASS
	};
	uint64		copied = 0;

	Assert(offset_bytes + length_bytes <= blob_stored_known_end(stored));

	blob_store_open(&state.store, AccessShareLock);
	if (may_copy_first(&state, offset_bytes, length_bytes))
		copied = blob_buffered_copy(&state.store, stored, offset_bytes, length_bytes, target);
	if (copied < length_bytes)
		read_verified(&state, offset_bytes + copied, length_bytes - copied, target + copied);
	if (state.use == BLOB_BUFFER_KEEP)
		blob_neighbours_note(&state.store, stored, length_bytes, copied < length_bytes);
	blob_store_close(&state.store);

	blob_stat_count_in_database(content_reads, 1);
	blob_stat_count_in_database(content_read_bytes, length_bytes);
}

/* ---- before a read ---- */

/* ERROR unless the files exist and reach to the end of the stored bytes of an extent. */
static void
require_files(const BlobStoreId *store, const BlobStoredExtent *stored)
{
	BlobPageNo	page = stored->extent.first_page;
	uint64		left = blob_pages_for(stored->bytes);

	while (left > 0)
	{
		uint64		pages = Min(left, blob_layout_pages_left_in_segment(page));
		int64		bytes = blob_segment_file_bytes(store, blob_segment_of(page));

		if (bytes < 0)
			blob_read_report_error(store, page, BLOB_INVALID_GENERATION, ENOENT);
		if ((uint64) bytes < blob_layout_file_offset(page) + pages * BLOB_PAGE_SIZE)
			blob_read_report_error(store, page, BLOB_INVALID_GENERATION, ENODATA);
		page += pages;
		left -= pages;
	}
}

void
blob_stored_require_readable(BlobStored *stored)
{
	BlobStore	store;

	Assert(blob_stored_known_end(stored) == stored->total_bytes);
	blob_store_open(&store, AccessShareLock);
	blob_verify_before(&store, stored, 0, stored->count);
	for (int i = 0; i < stored->count; i++)
		require_files(&store.id, &stored->extents[i]);
	blob_store_close(&store);
}
