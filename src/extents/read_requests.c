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
 * Whether pages of a part have their checksums, or may be taken without.  now: the checksums that
 * they have, sums: those in the map.
 */
static bool
is_intact(BlobReadState *state, const BlobReadPart *part, const BlobSummedPages *pages, const uint32 *now,
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
finish_part(const BlobReadState *state, const BlobReadPart *part, bool is_failed)
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
		BlobReadPart   *part = &read->parts[i];

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
	const BlobReadPart *last = &read->parts[read->part_count - 1];

	/* Parts of one request follow each other in the target, unless the buffer had one between. */
	blob_memory_populate(read->parts[0].target, last->target + last->wanted -
						 read->parts[0].target);
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
 * Get the checksums of the last part's pages from the map.  An extent that was freed since the
 * first look may have lost them: that counts after the second look only, as damage does.
 */
static void
get_sums(BlobReadState *state, const BlobExtent *extent, PendingRead *read)
{
	BlobReadPart   *part = &read->parts[read->part_count];
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

void
blob_read_add(BlobReadState *state, BlobPageNo first_page, const BlobExtent *extent, const BlobReadPart *part)
{
	PendingRead *read = &pending[state->current];
	BlobReadPart   *added;

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
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		pending[i].part_count = 0;
}

void
blob_read_finish_all(BlobReadState *state)
{
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		finish_read(state, (state->current + i) % BLOB_IO_BUFFER_COUNT);
}
