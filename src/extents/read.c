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
 *
 * A read may have several ranges ("parts that were asked for").  They are read in the order of
 * their place, not of their targets, by one use of the engine and with two looks for each extent.
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

/* A read of several parts with fewer bytes reads exactly the pages that cover them. */
#define MIN_JOINED_BYTES (128 * 1024)

/* ---- parts ---- */

/* Add the pages [start, end) of an extent to the requests, which have bytes from offset on. */
static void
add_pages(BlobReadState *state, const BlobStoredExtent *stored, uint64 start, uint64 end,
		  uint64 offset, int first_no, int end_no)
{
	BlobReadPart part = {
		.generation = stored->extent.generation,
		.extent_offset = start,
		.length = (uint32) (end - start),
		.valid = (uint32) Min(end - start, stored->bytes - start),
		.skip = (uint32) (offset - start),
		.stored_offset = stored->start + start,
		.asked = &state->asked[first_no],
		.asked_count = end_no - first_no,
		.chunk_bytes = blob_buffer_chunk_bytes(stored->extent.pages)
	};

	blob_read_add(state, stored->extent.first_page + start / BLOB_PAGE_SIZE, &stored->extent,
				  &part);
}

/* The first page of [offset, offset + length), and the end of its last one; in bytes. */
static uint64
pages_start(uint64 offset)
{
	return offset / BLOB_PAGE_SIZE * BLOB_PAGE_SIZE;
}

static uint64
pages_end(uint64 end)
{
	return blob_pages_for(end) * BLOB_PAGE_SIZE;
}

/*
 * Request the pages that have [offset, offset + wanted) of an extent, as far as the device may be
 * asked for them (device_bytes, from the page of offset on).  In a sequence the part goes on to the
 * end of the chunk, because requests ahead begin with the next chunk.  Returns how many of the
 * wanted bytes were requested.
 */
static uint32
request_part(BlobReadState *state, const BlobStoredExtent *stored, uint64 offset, uint32 wanted,
			 uint64 chunk_end, uint32 device_bytes)
{
	uint64		start = pages_start(offset);
	uint64		end = pages_end(offset + wanted);

	if (state->window != NULL && state->window->is_open)
		end = pages_end(Min(chunk_end, stored->bytes));
	end = Min(end, start + device_bytes);
	add_pages(state, stored, start, end, offset, state->asked_no, state->asked_no + 1);
	return (uint32) Min(wanted, end - offset);
}

/* ---- parts that are joined ---- */

/* Request the part that was joined, if there is one. */
static void
request_joined(BlobReadState *state)
{
	BlobReadJoined *joined = &state->joined;

	if (joined->stored != NULL)
		add_pages(state, joined->stored, joined->start, joined->end, joined->start,
				  joined->first_no, joined->end_no);
	joined->stored = NULL;
}

/*
 * Begin a part with the page of an offset; it may grow up to limit.  The buffer keeps one range of
 * a chunk.  So a part that it shall keep begins where that range ends, or ends where it begins; or
 * it begins with the chunk, if the buffer has nothing.  None of these pages is dirty, and none has
 * yet to be written: before the pieces of a tree in a chunk are pages of older versions of it alone
 * (blob/slot_writer.c).
 */
static void
begin_joined(BlobReadState *state, const BlobStoredExtent *stored, uint64 offset, uint64 limit)
{
	uint32		chunk_bytes = blob_buffer_chunk_bytes(stored->extent.pages);
	uint64		chunk_start = offset / chunk_bytes * chunk_bytes;
	BlobPageNo	page = stored->extent.first_page + offset / BLOB_PAGE_SIZE;
	uint64		in_segment = page % BLOB_SEGMENT_PAGES * BLOB_PAGE_SIZE;
	uint64		first = Max(chunk_start, pages_start(offset) - Min(pages_start(offset),
																   in_segment));
	BlobReadJoined *joined = &state->joined;
	uint32		kept_start;
	uint32		kept_end;

	joined->stored = stored;
	joined->first_no = state->asked_no;
	joined->start = joined->end = pages_start(offset);
	joined->limit = limit;
	if (state->use != BLOB_BUFFER_KEEP)
		return;
	if (!blob_buffer_get_range(&state->store.id, stored->extent.generation, chunk_bytes, offset,
							   &kept_start, &kept_end))
		joined->start = first;
	else if (offset >= chunk_start + kept_end)
		joined->start = Max(first, Min(pages_end(chunk_start + kept_end), joined->start));
	else if (offset < chunk_start + kept_start)
		joined->end = joined->limit = Min(joined->limit, chunk_start + kept_start);
}

/*
 * The same as request_part(), but later, as one part with other bytes of the same chunk that were
 * asked for, and the pages between.  The part ends before the first dirty page behind its
 * beginning: the device may not have that yet, and a caller may have its bytes from the buffer.
 */
static uint32
join_part(BlobReadState *state, const BlobStoredExtent *stored, uint64 offset, uint32 wanted,
		  uint64 chunk_end, uint32 device_bytes)
{
	BlobReadJoined *joined = &state->joined;
	uint64		device_end = pages_start(offset) + device_bytes;
	uint64		end = Min(pages_end(offset + wanted), device_end);

	if (joined->stored != stored || offset < joined->start || offset >= joined->limit)
	{
		request_joined(state);
		begin_joined(state, stored, offset, Min(pages_end(chunk_end), device_end));
	}
	end = Min(end, joined->limit);
	joined->end = Max(joined->end, end);
	joined->end_no = state->asked_no + 1;
	return (uint32) Min(wanted, end - offset);
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
		uint64		segment_end = pages_start(offset) +
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
		if (got == 0 && state->joins)
			got = join_part(state, stored, offset, wanted, end, device_bytes);
		else if (got == 0)
			got = request_part(state, stored, offset, wanted, end, device_bytes);
		offset += got;
		target += got;
		length -= got;
	}
}

/* ---- ranges ---- */

/* Read one of the parts that were asked for. */
static void
read_asked(BlobReadState *state, const BlobStoredPart *asked)
{
	uint64		offset = asked->offset;
	uint64		end = asked->offset + asked->length;

	for (int i = blob_stored_find(state->stored, offset); offset < end; i++)
	{
		const BlobStoredExtent *stored = &state->stored->extents[i];
		uint64		part = Min(end, stored->start + stored->bytes) - offset;

		read_extent(state, stored, offset - stored->start, part,
					asked->target + (offset - asked->offset));
		offset += part;
	}
}

/*
 * Read all parts that were asked for.  Requests ahead are started before these are copied if they
 * were themselves requested ahead; otherwise after their own requests.
 */
static void
read_all(BlobReadState *state)
{
	bool		starts_ahead = state->window != NULL && state->window->is_expected;

	if (starts_ahead)
		blob_readahead_start(&state->store, state->stored, state->window);
	for (state->asked_no = 0; state->asked_no < state->asked_count; state->asked_no++)
		read_asked(state, &state->asked[state->asked_no]);
	request_joined(state);
	blob_read_start(state);
	if (!starts_ahead)
	{
		blob_io_submit();
		blob_readahead_start(&state->store, state->stored, state->window);
	}
	blob_read_finish_all(state);
}

/*
 * Read within a use of the engine.  No request of the read is in flight when this returns or
 * throws.
 */
static void
read_in_use(BlobReadState *state)
{
	blob_io_begin();
	blob_read_begin(state);
	PG_TRY();
	{
		read_all(state);
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
	BlobMapEntry entry;

	if (page < extent->first_page || page >= extent->first_page + extent->pages)
		return false;
	entry = blob_map_lookup(state->store.map, extent->first_page);
	return (page - extent->first_page) * BLOB_PAGE_SIZE < blob_map_entry_high_water(&entry);
}

/*
 * A page did not have its checksum, twice, and the extents with parts were looked up since: it
 * comes into the list.  For heal/ the content may be lacking.
 */
static void
list_damage(BlobReadState *state)
{
	BlobStored *stored = state->stored;
	BlobPageNo	page = state->has_damage ? state->damaged_page : state->error_page;

	for (int i = 0; i < stored->count && !stored->may_lack; i++)
	{
		const BlobExtent *extent = &stored->extents[i].extent;

		if (extent->generation == BLOB_INVALID_GENERATION ||
			!can_have_content(state, extent, page))
			continue;
		state->error_generation = extent->generation;
		blob_damaged_page_note(&state->store.id, extent, page,
							   stored->notes_damage ? BLOB_DAMAGE_CHECK : BLOB_DAMAGE_READ);
	}
	if (state->has_damage && !stored->has_damage)
		stored->damaged_page = page;
	stored->has_damage |= state->has_damage;
}

/* A look into the map for each extent that has a part, before or after the read. */
static void
look_up(BlobReadState *state, bool is_after)
{
	BlobStored *stored = state->stored;
	int			done = 0;		/* extents before this one were looked up, or have no part */

	for (int i = 0; i < state->asked_count; i++)
	{
		const BlobStoredPart *asked = &state->asked[i];
		int			first_no = Max(done, blob_stored_find(stored, asked->offset));

		done = Max(done, blob_stored_find(stored, asked->offset + asked->length - 1) + 1);
		if (is_after)
			blob_verify_after(&state->store, stored, first_no, done);
		else
			blob_verify_before(&state->store, stored, first_no, done);
	}
}

/* Read with a look into the map before and after that. */
static void
read_verified(BlobReadState *state)
{
	look_up(state, false);
	read_in_use(state);
	look_up(state, true);
	if (found_damage(state))
	{
		/* A page that is being repaired, or came wrong over a cable, is right the second time. */
		state->error = 0;
		state->has_damage = false;
		read_in_use(state);
		look_up(state, true);
	}
	if (found_damage(state))
		list_damage(state);
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

/*
 * Copy the first of the parts that were asked for from the buffer, as far as that may be done and
 * has the bytes.  Returns how many were copied.
 */
static uint64
copy_buffered(BlobReadState *state, const BlobStoredPart *asked)
{
	if (!may_copy_first(state, asked->offset, asked->length))
		return 0;
	return blob_buffered_copy(&state->store, state->stored, asked->offset, asked->length,
							  asked->target);
}

/* The end of a read of some bytes; is_missing: the buffer lacked some. */
static void
end_read(BlobReadState *state, uint64 length_bytes, bool is_missing)
{
	if (state->use == BLOB_BUFFER_KEEP)
		blob_neighbours_note(&state->store, state->stored, length_bytes, is_missing);
	blob_store_close(&state->store);

	blob_stat_count_in_database(content_reads, 1);
	blob_stat_count_in_database(content_read_bytes, length_bytes);
}

void
blob_stored_read(BlobStored *stored, BlobAheadWindow *window, bool use_buffer, uint64 offset_bytes,
				 uint64 length_bytes, char *target)
{
	BlobStoredPart asked = {offset_bytes, length_bytes, target};
	BlobReadState state = {
		.stored = stored,
		.window = window,
		.use = use_buffer ? blob_buffer_use_for(stored->value_bytes) : BLOB_BUFFER_BYPASS,
		.asked = &asked,
		.asked_count = 1
	};
	uint64		copied;

	Assert(offset_bytes + length_bytes <= blob_stored_known_end(stored));

	blob_store_open(&state.store, AccessShareLock);
	copied = copy_buffered(&state, &asked);
	asked = (BlobStoredPart) {offset_bytes + copied, length_bytes - copied, target + copied};
	if (asked.length > 0)
		read_verified(&state);
	end_read(&state, length_bytes, asked.length > 0);
}

/* ---- several parts ---- */

/* Take the parts out that can be copied from the buffer at once.  Returns how many are left. */
static int
copy_parts(BlobReadState *state, BlobStoredPart *parts, int count)
{
	int			left = 0;

	for (int i = 0; i < count; i++)
	{
		if (copy_buffered(state, &parts[i]) < parts[i].length)
			parts[left++] = parts[i];
	}
	return left;
}

void
blob_stored_read_parts(BlobStored *stored, bool use_buffer, BlobStoredPart *parts, int count)
{
	BlobReadState state = {
		.stored = stored,
		.use = use_buffer ? blob_buffer_use_for(stored->value_bytes) : BLOB_BUFFER_BYPASS,
		.asked = parts,
		.asked_count = count
	};
	uint64		length = 0;

	for (int i = 0; i < count; i++)
	{
		Assert(parts[i].length > 0 &&
			   parts[i].offset + parts[i].length <= blob_stored_known_end(stored));
		length += parts[i].length;
	}
	state.joins = length >= MIN_JOINED_BYTES;
	blob_stored_sort_parts(parts, count);
	blob_store_open(&state.store, AccessShareLock);
	if (length <= BLOB_BUFFERED_MAX_BYTES)
		state.asked_count = copy_parts(&state, parts, count);
	if (state.asked_count > 0)
		read_verified(&state);
	end_read(&state, length, state.asked_count > 0);
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
