/*
 * extents/readahead.c
 *	  Reading ahead, see extents/readahead.h.
 *
 * Sequences.  A sequence is noticed by its position alone: the next read of the same reader begins
 * where the last one ended.
 *
 * Windows.  At most half of a large window is in flight.  The device gets more requests as soon as
 * half of that has arrived, whether the reader has come to it or not: some devices (of virtual
 * machines) announce the completion of all requests at once, and are idle until they get others.
 */
#include "postgres.h"

#include "extents/ahead.h"
#include "extents/readahead.h"
#include "extents/verify.h"
#include "io/engine.h"
#include "store/unlogged.h"

/* Nothing is read ahead before this many bytes were read in sequence. */
#define MIN_SEQUENCE_BYTES (2 * BLOB_BUFFER_CHUNK_BYTES)

/* The largest window; at most one of BUFFER_PARTS parts of the buffer. */
#define MAX_WINDOW_BYTES (4 * 1024 * 1024)
#define BUFFER_PARTS 8

/* Windows up to this size are requested as a whole. */
#define WHOLE_WINDOW_BYTES (1024 * 1024)

/* ---- windows ---- */

void
blob_readahead_window_init(BlobAheadWindow *window, bool is_whole)
{
	memset(window, 0, sizeof(*window));
	window->is_whole = is_whole;
}

void
blob_readahead_note(BlobAheadWindow *window, uint64 offset_bytes, uint64 length_bytes)
{
	uint64		end = offset_bytes + length_bytes;

	if (offset_bytes != window->next_offset || offset_bytes == 0)
	{
		window->sequence_bytes = window->is_whole && offset_bytes == 0 ? MAX_WINDOW_BYTES : 0;
		window->ahead_end = 0;
	}
	window->is_whole = false;
	window->is_open = window->sequence_bytes > 0 &&
		window->sequence_bytes + length_bytes >= MIN_SEQUENCE_BYTES;
	window->is_expected = window->ahead_end > offset_bytes;
	window->sequence_bytes += length_bytes;
	window->next_offset = end;
	window->ahead_end = Max(window->ahead_end, end);
}

static uint64
get_window_bytes(const BlobAheadWindow *window)
{
	uint64		bytes = Min(window->sequence_bytes, MAX_WINDOW_BYTES);

	return Min(bytes, blob_buffer_bytes() / BUFFER_PARTS);
}

uint64
blob_readahead_reach(const BlobAheadWindow *window)
{
	return window->next_offset + (window->is_open ? get_window_bytes(window) : 0);
}

/* The bytes before limit_bytes that are to be requested now; start is end if none are. */
static void
find_due(const BlobAheadWindow *window, uint64 limit_bytes, uint64 *start, uint64 *end)
{
	uint64		window_bytes = get_window_bytes(window);
	uint64		at_once = Max(Min(window_bytes, WHOLE_WINDOW_BYTES), window_bytes / 2);
	uint64		unfinished = blob_ahead_unfinished_bytes();
	uint64		limit = Min(window->next_offset + window_bytes, limit_bytes);

	*start = *end = window->ahead_end;
	if (unfinished <= at_once / 2 && *start < limit)
		*end = Min(*start + at_once - unfinished, limit);
}

/* ---- requests ---- */

/*
 * Add the chunks of an extent that begin in the stored bytes [first, end).  A chunk that begins
 * before first is left to the read that comes to it.  If a chunk is added, sets *ahead_end to its
 * end, or to end if that is larger.
 */
static BlobAheadRead *
add_extent(BlobAheadRead *read, const BlobStore *store, const BlobExtent *extent,
		   const BlobStoredExtent *stored, uint64 first, uint64 end, BlobBufferUse use,
		   uint64 *ahead_end)
{
	uint32		chunk_bytes = blob_buffer_chunk_bytes(extent->pages);
	uint64		offset = TYPEALIGN64(chunk_bytes, first - Min(first, stored->start));

	for (; offset < stored->bytes && stored->start + offset < end; offset += chunk_bytes)
	{
		read = blob_ahead_add(read, store, extent, offset,
							  (uint32) Min(chunk_bytes, stored->bytes - offset), false, use);
		*ahead_end = Max(end, stored->start + Min(offset + chunk_bytes, stored->bytes));
	}
	return read;
}

/*
 * Start requests for the stored bytes [first, end); sets *ahead_end as add_extent() does.  Chunks
 * are kept under the generation that the map shows now, since extents behind the read need not have
 * been verified.  Unlogged content is left out: its slabs would outlive its replacement.
 */
static void
request_range(BlobStore *store, const BlobStored *stored, uint64 first, uint64 end,
			  uint64 *ahead_end)
{
	BlobAheadRead  *read = NULL;

	blob_ahead_process_begins();
	for (int i = blob_stored_find(stored, first); i < stored->count; i++)
	{
		const BlobStoredExtent *next = &stored->extents[i];
		BlobExtent	extent = next->extent;

		if (next->start >= end ||
			!blob_verify_extent(store->map, &extent, stored->max_generation) ||
			blob_unlogged_contains(&store->id, extent.generation))
			break;
		read = add_extent(read, store, &extent, next, first, end,
						  blob_buffer_use_for(stored->value_bytes), ahead_end);
	}
	blob_ahead_start(read);
}

void
blob_readahead_start(BlobStore *store, const BlobStored *stored, BlobAheadWindow *window)
{
	uint64		first;
	uint64		end;

	blob_ahead_finish_arrived();
	if (window == NULL || !window->is_open || !blob_io_is_asynchronous())
		return;
	find_due(window, blob_stored_known_end(stored), &first, &end);
	if (first == end)
		return;
	window->ahead_end = end;
	request_range(store, stored, first, end, &window->ahead_end);
}

void
blob_readahead_request(BlobStore *store, const BlobStored *stored, uint64 end)
{
	uint64		ahead_end = 0;

	blob_io_begin();
	PG_TRY();
	{
		blob_ahead_make_room();
		if (blob_io_is_asynchronous())
			request_range(store, stored, 0, Min(end, blob_stored_known_end(stored)), &ahead_end);
	}
	PG_FINALLY();
	{
		blob_io_end();
	}
	PG_END_TRY();
}

void
blob_readahead_due(const BlobAheadWindow *window, uint64 content_bytes, uint64 *start, uint64 *end)
{
	*start = *end = 0;
	if (window->is_open && blob_io_is_asynchronous())
		find_due(window, content_bytes, start, end);
}

/* Request the stored bytes [first, end), within a use of the I/O engine. */
static void
request_part(BlobStore *store, const BlobStored *stored, uint64 first, uint64 end)
{
	BlobAheadRead *read = NULL;

	for (int i = blob_stored_find(stored, first);
		 i < stored->count && stored->extents[i].start < end; i++)
	{
		BlobStoredExtent part = stored->extents[i];
		BlobExtent	extent = part.extent;
		uint64		in_extent = first - Min(first, part.start);
		uint64		ahead_end;

		if (!blob_verify_extent(store->map, &extent, stored->max_generation) ||
			blob_unlogged_contains(&store->id, extent.generation))
			break;
		in_extent -= in_extent % blob_buffer_chunk_bytes(extent.pages);
		part.bytes = Min(part.bytes, end - part.start);
		read = add_extent(read, store, &extent, &part, part.start + in_extent, end,
						  blob_buffer_use_for(stored->value_bytes), &ahead_end);
	}
	blob_ahead_start(read);
}

/* Where the chunk ends that has the last byte before a stored offset. */
static uint64
chunk_end(const BlobStored *stored, uint64 end)
{
	const BlobStoredExtent *last = &stored->extents[blob_stored_find(stored, end - 1)];
	uint32		chunk_bytes = blob_buffer_chunk_bytes(last->extent.pages);

	return Min(last->start + TYPEALIGN64(chunk_bytes, end - last->start),
			   last->start + last->bytes);
}

/*
 * No chunk is requested twice: of two parts that have bytes in one chunk one is made.  So a chunk
 * comes with all that was asked for.
 */
static void
request_parts(BlobStore *store, const BlobStored *stored, const BlobStoredPart *parts, int count)
{
	blob_ahead_process_begins();
	for (int i = 0; i < count;)
	{
		uint64		first = parts[i].offset;
		uint64		end = first;

		for (; i < count && (end == first || parts[i].offset < chunk_end(stored, end)); i++)
			end = Max(end, parts[i].offset + parts[i].length);
		request_part(store, stored, first, end);
	}
}

void
blob_readahead_request_parts(BlobStore *store, const BlobStored *stored, BlobStoredPart *parts,
							 int count)
{
	blob_stored_sort_parts(parts, count);
	blob_io_begin();
	PG_TRY();
	{
		blob_ahead_make_room();
		if (blob_io_is_asynchronous())
			request_parts(store, stored, parts, count);
	}
	PG_FINALLY();
	{
		blob_io_end();
	}
	PG_END_TRY();
}
