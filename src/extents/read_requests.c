/*
 * extents/read_requests.c
 *	  The requests of a read, see extents/read_requests.h.
 */
#include "postgres.h"

#include "core/memory.h"
#include "extents/layout.h"
#include "extents/read_requests.h"
#include "io/engine.h"
#include "io/segment.h"
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

typedef struct PendingRead
{
	BlobIoRequest request;
	BlobPageNo	first_page;
	int			part_count;		/* 0: not in use */
	BlobReadPart	parts[MAX_PARTS];
	BlobSummedPages summed[MAX_PARTS];	/* of each part: the pages for which the map has a sum */
	uint32		sums[BLOB_SUMS_MAX_PAGES];	/* of all of these, as the map has them */
	uint32		sum_count;
} PendingRead;

/* Static, like the buffers: the kernel may still look at a request after an error. */
static PendingRead pending[BLOB_IO_BUFFER_COUNT];

/* ---- requests ---- */

/*
 * Note an error of the device.  It is reported after the second look: an extent that was freed
 * meanwhile may have lost its file, and then the file is not damaged.
 */
static void
note_error(BlobReadState *state, BlobPageNo page, int error)
{
	if (state->error != 0)
		return;
	state->error = error;
	state->error_page = page;
}

/* A page does not have its checksum, or the map has none: an error, unless the reader notes it. */
static bool
accept_damage(BlobReadState *state, BlobPageNo page, int error)
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
 * The bytes of [from, to) of a part, counted from its start, that one of the asked parts has.
 * Returns their number, and the first one.
 */
static uint32
find_asked(const BlobReadPart *part, const BlobStoredPart *asked, uint32 from, uint32 to,
		   uint32 *first)
{
	uint64		start = part->stored_offset + Max(from, part->skip);
	uint64		end = part->stored_offset + Min(to, part->valid);

	start = Max(start, asked->offset);
	end = Min(end, asked->offset + asked->length);
	*first = (uint32) (start - part->stored_offset);
	return start < end ? (uint32) (end - start) : 0;
}

/* Whether the page_no-th page of a part has bytes that were asked for. */
static bool
is_asked(const BlobReadPart *part, uint32 page_no)
{
	uint32		start = page_no * BLOB_PAGE_SIZE;
	uint32		first;

	for (int i = 0; i < part->asked_count; i++)
	{
		if (find_asked(part, &part->asked[i], start, start + BLOB_PAGE_SIZE, &first) > 0)
			return true;
	}
	return false;
}

/*
 * Whether pages of a part that were asked for have their checksums, or may be taken without.  If
 * another page does not, the buffer does not get the part.  now: the checksums that they have,
 * sums: those in the map.
 */
static bool
is_intact(BlobReadState *state, BlobReadPart *part, const BlobSummedPages *pages,
		  const uint32 *now, const uint32 *sums)
{
	uint32		from = 0;
	int			found;

	while ((found = blob_sums_find_damage(now + from, sums + from, pages->pages - from)) >= 0)
	{
		uint32		page_no = from + found;

		if (is_asked(part, page_no))
			return accept_damage(state, pages->first_page + page_no, EBADMSG);
		part->is_withheld = true;
		from = page_no + 1;
	}
	return !part->lacks_sums;
}

/* Copy the bytes of a part that were asked for to their targets. */
static void
copy_asked(const BlobReadPart *part)
{
	for (int i = 0; i < part->asked_count; i++)
	{
		const BlobStoredPart *asked = &part->asked[i];
		uint32		first;
		uint32		bytes = find_asked(part, asked, 0, part->length, &first);

		if (bytes > 0)
			memcpy(asked->target + (part->stored_offset + first - asked->offset),
				   part->memory + first, bytes);
	}
}

/*
 * Copy the bytes that were asked for, and make the part available in the buffer: end its fill, or
 * put a copy there.
 */
static void
finish_part(const BlobReadState *state, const BlobReadPart *part, bool is_failed)
{
	bool		is_offered = !is_failed && !part->is_withheld;

	if (!is_failed)
		copy_asked(part);
	if (part->fill_no >= 0)
		blob_buffer_end_fill(part->fill_no, part->extent_offset % part->chunk_bytes,
							 is_offered ? part->valid : 0);
	else if (state->use == BLOB_BUFFER_KEEP && is_offered)
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
finish_read(BlobReadState *state, int buffer_no)
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
		BlobReadPart *part = &read->parts[i];

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
	const BlobReadPart *first = &read->parts[0];
	const BlobReadPart *last = &read->parts[read->part_count - 1];
	const BlobStoredPart *asked_end = last->asked + last->asked_count;

	/* Parts of one request follow each other, unless the buffer had one between. */
	for (const BlobStoredPart *asked = first->asked; asked < asked_end; asked++)
	{
		uint64		start = Max(first->stored_offset + first->skip, asked->offset) - asked->offset;
		uint64		end = Min(last->stored_offset + last->length - asked->offset, asked->length);

		if (start < end)
			blob_memory_populate(asked->target + start, end - start);
	}
}

/* Takes the next buffer in turn, whose request is finished first. */
void
blob_read_start(BlobReadState *state)
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
continues(const PendingRead *read, BlobPageNo first_page, const BlobReadPart *part)
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
place_part(const BlobReadState *state, BlobReadPart *part, uint32 buffer_offset)
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
 * Get the checksum of each page of a part, of which some are lacking.  Returns the number in the
 * part of the first one that was asked for and lacks it, or -1.
 */
static int
get_each_sum(BlobReadState *state, const BlobExtent *extent, BlobReadPart *part, uint32 *sums)
{
	uint64		first_no = part->extent_offset / BLOB_PAGE_SIZE;

	for (uint32 i = 0; i < part->length / BLOB_PAGE_SIZE; i++)
	{
		if (blob_map_get_sums(state->store.map, extent, first_no + i, 1, &sums[i]) ==
			BLOB_SUMS_FOUND)
			continue;
		if (is_asked(part, i))
			return (int) i;
		sums[i] = BLOB_SUM_UNKNOWN;
		part->is_withheld = true;
	}
	return -1;
}

/*
 * Get the checksums of the last part's pages from the map.  An extent that was freed since the
 * first look may have lost them: that counts after the second look only, as damage does.
 */
static void
get_sums(BlobReadState *state, const BlobExtent *extent, PendingRead *read)
{
	BlobReadPart *part = &read->parts[read->part_count];
	uint64		page_no = part->extent_offset / BLOB_PAGE_SIZE;
	uint32		pages = part->length / BLOB_PAGE_SIZE;
	BlobSumsLook look = BLOB_SUMS_NONE;
	int			lacking = -1;

	/* Content that is lacking has other checksums: heal/ sorts that out. */
	if (!state->stored->skips_sums && (!state->stored->may_lack || state->stored->notes_damage))
		look = blob_map_get_sums(state->store.map, extent, page_no, pages,
								 read->sums + read->sum_count);
	if (look == BLOB_SUMS_DAMAGED)
		lacking = get_each_sum(state, extent, part, read->sums + read->sum_count);
	if (lacking >= 0)
		part->lacks_sums = !accept_damage(state, extent->first_page + page_no + lacking, EILSEQ);
	else if (look == BLOB_SUMS_DAMAGED)
		look = BLOB_SUMS_FOUND;
	read->summed[read->part_count] = (BlobSummedPages) {
		part->generation, extent->first_page + page_no, part->memory,
		look == BLOB_SUMS_FOUND ? pages : 0
	};
	read->sum_count += read->summed[read->part_count].pages;
}

void
blob_read_add(BlobReadState *state, BlobPageNo first_page, const BlobExtent *extent,
			  const BlobReadPart *part)
{
	PendingRead *read = &pending[state->current];
	BlobReadPart *added;

	if (!continues(read, first_page, part))
	{
		blob_read_start(state);
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

void
blob_read_begin(BlobReadState *state)
{
	state->rewrites = blob_buffer_rewrites();
	state->joined.stored = NULL;
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		pending[i].part_count = 0;
}

void
blob_read_finish_all(BlobReadState *state)
{
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		finish_read(state, (state->current + i) % BLOB_IO_BUFFER_COUNT);
}
