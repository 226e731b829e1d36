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

#include "core/memory.h"
#include "extents/ahead.h"
#include "extents/buffered.h"
#include "extents/damaged_pages.h"
#include "extents/layout.h"
#include "extents/neighbours.h"
#include "extents/read.h"
#include "extents/read_error.h"
#include "extents/verify.h"
#include "io/buffer.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "store/map_sums.h"

/* Chunks, or parts of them, that one request can cover. */
#define MAX_PARTS BLOB_IO_MAX_VECTORS

/*
 * Requests that reach the kernel in one call: on a virtual machine each call may cost an exit to
 * the host, which is dear compared with a request.
 */
#define SUBMIT_BATCH 4

StaticAssertDecl(BLOB_SUMS_MAX_PAGES == BLOB_IO_BUFFER_BYTES / BLOB_PAGE_SIZE,
				 "a request has room for the checksums of its pages");

/* The part of a request that lies in one chunk of one extent. */
typedef struct ReadPart
{
	BlobGeneration generation;
	uint64		extent_offset;	/* bytes from the extent's start, a multiple of the page */
	uint32		length;			/* bytes read, a multiple of the page */
	uint32		valid;			/* bytes of it that are content */
	uint32		skip;			/* bytes before the wanted ones */
	uint32		wanted;
	uint32		chunk_bytes;	/* of the buffer, for this extent */
	bool		lacks_sums;		/* has no checksums, and should: no reader gets the bytes */
	char	   *target;
	char	   *memory;			/* where the device puts it: in the I/O buffer, or in a slab */
	int			fill_no;		/* of the buffer, or -1 */
} ReadPart;

typedef struct PendingRead
{
	BlobIoRequest request;
	BlobPageNo	first_page;
	int			part_count;		/* 0: not in use */
	ReadPart	parts[MAX_PARTS];
	BlobSummedPages summed[MAX_PARTS];	/* of each part: the pages for which the map has a sum */
	uint32		sums[BLOB_SUMS_MAX_PAGES];	/* of all of these, as the map has them */
	uint32		sum_count;
} PendingRead;

/* Static, like the buffers: the kernel may still look at a request after an error. */
static PendingRead pending[BLOB_IO_BUFFER_COUNT];

/* A read under way. */
typedef struct ReadState
{
	BlobStore	store;
	BlobStored *stored;
	BlobAheadWindow *window;	/* NULL: nothing is read ahead */
	BlobBufferUse use;
	uint32		rewrites;		/* of the buffer, before the read */
	int			error;			/* first errno seen, or 0, and where */
	BlobPageNo	error_page;
	BlobGeneration error_generation;	/* of the damaged page's extent */
	bool		has_damage;		/* of a reader that notes it: a page without its checksum */
	BlobPageNo	damaged_page;	/* the first one */
	int			current;		/* request that is being filled, not yet started */
	int			started;		/* requests so far */
} ReadState;

/* ---- requests ---- */

/*
 * Note an error of the device.  It is reported after the second look: an extent that was freed
 * meanwhile may have lost its file, and then the file is not damaged.
 */
static void
note_error(ReadState *state, BlobPageNo page, int error)
{
	if (state->error != 0)
		return;
	state->error = error;
	state->error_page = page;
}

/* A page does not have its checksum, or the map has none: an error, unless the reader notes it. */
static bool
accept_damage(ReadState *state, BlobPageNo page, int error)
{
	if (!state->stored->notes_damage)
	{
		note_error(state, page, error);
		return false;
	}
	if (!state->has_damage)
		state->damaged_page = page;
	state->has_damage = true;
	return true;
}

/*
 * Whether pages of a part have their checksums, or may be taken without.  now: the checksums that
 * they have, sums: those in the map.
 */
static bool
is_intact(ReadState *state, const ReadPart *part, const BlobSummedPages *pages, const uint32 *now,
		  const uint32 *sums)
{
	int			page_no = blob_sums_find_damage(now, sums, pages->pages);

	return !part->lacks_sums &&
		(page_no < 0 || accept_damage(state, pages->first_page + page_no, EBADMSG));
}

/*
 * Copy a part to its target, and make it available in the buffer: end its fill, or put a copy
 * there.
 */
static void
finish_part(const ReadState *state, const ReadPart *part, bool is_failed)
{
	if (!is_failed)
		memcpy(part->target, part->memory + part->skip, part->wanted);
	if (part->fill_no >= 0)
		blob_buffer_end_fill(part->fill_no, part->extent_offset % part->chunk_bytes,
							 is_failed ? 0 : part->valid);
	else if (state->use == BLOB_BUFFER_KEEP && !is_failed)
		blob_buffer_put(&state->store.id, part->generation, part->chunk_bytes, part->extent_offset,
						part->memory, part->valid, state->rewrites);
}

/* An errno of the device, but for those that mean checksums here. */
static int
device_error(int error)
{
	return error == EBADMSG || error == EILSEQ ? EIO : error;
}

/* Wait for the request of a buffer, if there is one, and finish its parts. */
static void
finish_read(ReadState *state, int buffer_no)
{
	PendingRead *read = &pending[buffer_no];
	int			part_count = read->part_count;
	uint32		sum_no = 0;
	uint32		now[BLOB_SUMS_MAX_PAGES];

	if (part_count == 0)
		return;
	blob_io_wait(&read->request);
	read->part_count = 0;
	if (read->request.error != 0)
		note_error(state, read->first_page, device_error(read->request.error));
	else
		blob_page_sums(read->summed, part_count, now);
	for (int i = 0; i < part_count; i++)
	{
		ReadPart   *part = &read->parts[i];

		finish_part(state, part, read->request.error != 0 ||
					!is_intact(state, part, &read->summed[i], now + sum_no,
							   read->sums + sum_no));
		sum_no += read->summed[i].pages;
	}
}

/* Map the memory to which the parts of a request will be copied, while the device works. */
static void
prepare_targets(const PendingRead *read)
{
	const ReadPart *last = &read->parts[read->part_count - 1];

	/* Parts of one request follow each other in the target, unless the buffer had one between. */
	blob_memory_populate(read->parts[0].target, last->target + last->wanted -
						 read->parts[0].target);
}

/*
 * Start the request that is being filled, and take the next buffer in turn, whose request is
 * finished first.
 */
static void
start_read(ReadState *state)
{
	PendingRead *read = &pending[state->current];

	if (read->part_count == 0)
		return;
	read->request.is_write = false;
	read->request.fd = blob_segment_open(&state->store.id, blob_segment_of(read->first_page),
										 BLOB_SEGMENT_MISSING_OK);
	if (read->request.fd < 0)
	{
		note_error(state, read->first_page, ENOENT);
		for (int i = 0; i < read->part_count; i++)
			finish_part(state, &read->parts[i], true);
		read->part_count = 0;
		return;
	}
	read->request.file_offset = blob_layout_file_offset(read->first_page);
	read->request.buffer_no = state->current;
	blob_io_start(&read->request);
	/* Submit the first request at once: the device need not wait for a batch. */
	if (state->started++ % SUBMIT_BATCH == 0)
		blob_io_submit();
	prepare_targets(read);

	state->current = (state->current + 1) % BLOB_IO_BUFFER_COUNT;
	finish_read(state, state->current);
	CHECK_FOR_INTERRUPTS();
}

/* Whether the part at first_page can join the request that is being filled. */
static bool
continues(const PendingRead *read, BlobPageNo first_page, const ReadPart *part)
{
	return read->part_count > 0 && read->part_count < MAX_PARTS &&
		read->first_page + read->request.length / BLOB_PAGE_SIZE == first_page &&
		first_page % BLOB_SEGMENT_PAGES != 0 &&
		read->request.length + part->length <= BLOB_IO_BUFFER_BYTES;
}

/*
 * Choose where the device puts a part: in a slab of the buffer, from which it is copied out, or at
 * its place in the buffer.
 */
static void
place_part(const ReadState *state, ReadPart *part, uint32 buffer_offset)
{
	part->fill_no = -1;
	if (state->use != BLOB_BUFFER_BYPASS)
		part->fill_no = blob_buffer_begin_fill(&state->store.id, part->generation,
											   part->chunk_bytes, part->extent_offset,
											   state->use);
	if (part->fill_no >= 0)
		part->memory = blob_buffer_fill_memory(part->fill_no) +
			part->extent_offset % part->chunk_bytes;
	else
		part->memory = blob_io_buffer(state->current) + buffer_offset;
}

/*
 * Get the checksums of the last part's pages from the map.  An extent that was freed since the
 * first look may have lost them: that counts after the second look only, as damage does.
 */
static void
get_sums(ReadState *state, const BlobExtent *extent, PendingRead *read)
{
	ReadPart   *part = &read->parts[read->part_count];
	uint64		page_no = part->extent_offset / BLOB_PAGE_SIZE;
	uint32		pages = part->length / BLOB_PAGE_SIZE;
	BlobSumsLook look = BLOB_SUMS_NONE;

	/* Content that is lacking has other checksums: heal/ sorts that out. */
	if (!state->stored->skips_sums && (!state->stored->may_lack || state->stored->notes_damage))
		look = blob_map_get_sums(state->store.map, extent, page_no, pages,
								 read->sums + read->sum_count);
	if (look == BLOB_SUMS_DAMAGED)
		part->lacks_sums = !accept_damage(state, extent->first_page + page_no, EILSEQ);
	read->summed[read->part_count] = (BlobSummedPages) {
		part->generation, extent->first_page + page_no, part->memory,
		look == BLOB_SUMS_FOUND ? pages : 0
	};
	read->sum_count += read->summed[read->part_count].pages;
}

/* Add a part to the request that is being filled, or begin another one with it. */
static void
add_part(ReadState *state, BlobPageNo first_page, const BlobExtent *extent, const ReadPart *part)
{
	PendingRead *read = &pending[state->current];
	ReadPart   *added;

	if (!continues(read, first_page, part))
	{
		start_read(state);
		read = &pending[state->current];
		read->first_page = first_page;
		read->request.length = 0;
		read->sum_count = 0;
	}
	added = &read->parts[read->part_count];
	*added = *part;
	place_part(state, added, read->request.length);
	get_sums(state, extent, read);
	read->request.vectors[read->part_count].iov_base = added->memory;
	read->request.vectors[read->part_count].iov_len = added->length;
	read->request.vector_count = ++read->part_count;
	read->request.length += added->length;
}

/*
 * The part that has [offset, offset + wanted) of an extent, in whole pages.  In a sequence it goes
 * on to the end of the chunk, because requests ahead begin with the next chunk.
 */
static ReadPart
make_part(const ReadState *state, const BlobStoredExtent *stored, uint64 offset, uint32 wanted,
		  uint64 end, char *target)
{
	ReadPart	part = {
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
request_part(ReadState *state, const BlobStoredExtent *stored, uint64 offset, uint32 wanted,
			 uint64 end, uint32 device_bytes, char *target)
{
	ReadPart	part = make_part(state, stored, offset, wanted, end, target);

	if (part.length > device_bytes)
	{
		part.length = device_bytes;
		part.wanted = Min(part.wanted, part.length - part.skip);
	}
	part.valid = (uint32) Min(part.length, stored->bytes - part.extent_offset);
	add_part(state, stored->extent.first_page + offset / BLOB_PAGE_SIZE, &stored->extent, &part);
	return part.wanted;
}

/*
 * Read [offset, offset + length) of one extent, chunk by chunk, from the buffer or by requests.  A
 * chunk that crosses a segment's end is cut there.
 */
static void
read_extent(ReadState *state, const BlobStoredExtent *stored, uint64 offset, uint64 length,
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
read_range(ReadState *state, int first_no, uint64 offset, uint64 length, char *target)
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
	start_read(state);
	if (!starts_ahead)
	{
		blob_io_submit();
		blob_readahead_start(&state->store, state->stored, state->window);
	}
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		finish_read(state, (state->current + i) % BLOB_IO_BUFFER_COUNT);
}

/*
 * Read a range within a use of the engine.  No request of the range is in flight when this
 * returns or throws.
 */
static void
read_in_use(ReadState *state, int first_no, uint64 offset, uint64 length, char *target)
{
	blob_io_begin();
	state->rewrites = blob_buffer_rewrites();
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		pending[i].part_count = 0;
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
found_damage(const ReadState *state)
{
	return state->has_damage || state->error == EBADMSG || state->error == EILSEQ;
}

/* Whether values can have a page of an extent: one behind the mark only a forged value names. */
static bool
can_have_content(const ReadState *state, const BlobExtent *extent, BlobPageNo page)
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
list_damage(ReadState *state, int first_no, int end_no)
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
read_verified(ReadState *state, uint64 offset, uint64 length, char *target)
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
may_copy_first(const ReadState *state, uint64 offset, uint64 length)
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
	ReadState	state = {
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
