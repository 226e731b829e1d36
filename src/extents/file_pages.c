/*
 * extents/file_pages.c
 *	  Reads pages from their files and compares them, see extents/file_pages.h.
 *
 * Parts whose pages are adjacent share a request, so that a file of small extents is read as fast
 * as one of large ones.  As many requests as there are buffers are in flight.
 */
#include "postgres.h"

#include "extents/file_pages.h"
#include "extents/layout.h"
#include "extents/verify.h"
#include "io/buffer.h"
#include "io/engine.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "store/map_sums.h"
#include "store/unlogged.h"

StaticAssertDecl(BLOB_SUMS_MAX_PAGES == BLOB_IO_BUFFER_BYTES / BLOB_PAGE_SIZE,
				 "a request has room for the checksums of its pages");

/* A request, with the parts that it brings: [first_part, first_part + part_count). */
typedef struct PartsRead
{
	BlobIoRequest request;
	int			first_part;
	int			part_count;		/* 0: not in use */
	uint32		sums[BLOB_SUMS_MAX_PAGES];
} PartsRead;

/* Static, like the buffers: the kernel may still look at a request after an error. */
static PartsRead reads[BLOB_IO_BUFFER_COUNT];

typedef struct Comparison
{
	BlobStore  *store;
	BlobFilePart *parts;
	int			current;		/* request that is being filled, not yet started */
} Comparison;

static BlobPageNo
first_page_of(const BlobFilePart *part)
{
	return part->extent.first_page + part->page_no;
}

/* Whether pages of a part have another checksum than that in the map. */
static bool
is_damaged(const BlobFilePart *part, const char *data, const uint32 *sums)
{
	BlobSummedPages pages = {part->extent.generation, first_page_of(part), data, part->pages};
	uint32		now[BLOB_SUMS_MAX_PAGES];

	blob_page_sums(&pages, 1, now);
	return blob_sums_find_damage(now, sums, part->pages) >= 0;
}

/* Wait for a request, if there is one, and compare what it has brought. */
static void
finish_read(Comparison *comparison, int buffer_no)
{
	PartsRead  *read = &reads[buffer_no];
	int			part_count = read->part_count;
	uint32		page_no = 0;

	if (part_count == 0)
		return;
	blob_io_wait(&read->request);
	read->part_count = 0;
	for (int i = 0; i < part_count; i++)
	{
		BlobFilePart *part = &comparison->parts[read->first_part + i];
		const char *data = blob_io_buffer(buffer_no) + (size_t) page_no * BLOB_PAGE_SIZE;

		if (read->request.error != 0 || is_damaged(part, data, read->sums + page_no))
			part->is_suspect = true;
		page_no += part->pages;
	}
}

/* Start the request that is being filled, and take the next buffer in turn. */
static void
start_read(Comparison *comparison)
{
	PartsRead  *read = &reads[comparison->current];
	BlobFilePart *first = &comparison->parts[read->first_part];

	if (read->part_count == 0)
		return;
	read->request.fd = blob_segment_open(&comparison->store->id,
										 blob_segment_of(first_page_of(first)),
										 BLOB_SEGMENT_MISSING_OK);
	if (read->request.fd < 0)
	{
		for (int i = 0; i < read->part_count; i++)
			first[i].is_suspect = true;
		read->part_count = 0;
		return;
	}
	read->request.is_write = false;
	read->request.file_offset = blob_layout_file_offset(first_page_of(first));
	read->request.buffer_no = comparison->current;
	read->request.vector_count = 0;
	blob_io_start(&read->request);
	blob_io_submit();
	comparison->current = (comparison->current + 1) % BLOB_IO_BUFFER_COUNT;
	finish_read(comparison, comparison->current);
	CHECK_FOR_INTERRUPTS();
}

/* Whether a part is adjacent to the request that is being filled, and has room in it. */
static bool
continues(const Comparison *comparison, const BlobFilePart *part)
{
	const PartsRead *read = &reads[comparison->current];
	uint32		length = part->pages * BLOB_PAGE_SIZE;

	return read->part_count > 0 &&
		&comparison->parts[read->first_part + read->part_count] == part &&
		first_page_of(&comparison->parts[read->first_part]) +
		read->request.length / BLOB_PAGE_SIZE == first_page_of(part) &&
		first_page_of(part) % BLOB_SEGMENT_PAGES != 0 &&
		read->request.length + length <= BLOB_IO_BUFFER_BYTES;
}

/* Add a part to the request that is being filled, or begin another one with it. */
static void
add_part(Comparison *comparison, int part_no)
{
	BlobFilePart *part = &comparison->parts[part_no];
	uint32		sums[BLOB_SUMS_MAX_PAGES];
	PartsRead  *read;

	Assert(part->pages > 0 && part->pages <= BLOB_SUMS_MAX_PAGES);
	part->is_suspect = blob_map_get_sums(comparison->store->map, &part->extent, part->page_no,
										 part->pages, sums) != BLOB_SUMS_FOUND;
	if (part->is_suspect)
		return;
	part->unknown_pages = 0;
	for (uint32 i = 0; i < part->pages; i++)
		part->unknown_pages += sums[i] == BLOB_SUM_UNKNOWN;
	if (!continues(comparison, part))
	{
		start_read(comparison);
		reads[comparison->current].request.length = 0;
		reads[comparison->current].first_part = part_no;
	}
	read = &reads[comparison->current];
	memcpy(read->sums + read->request.length / BLOB_PAGE_SIZE, sums,
		   part->pages * sizeof(uint32));
	read->request.length += part->pages * BLOB_PAGE_SIZE;
	read->part_count++;
}

void
blob_file_pages_compare(BlobStore *store, BlobFilePart *parts, int part_count)
{
	Comparison	comparison = {.store = store, .parts = parts};

	blob_io_begin();
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		reads[i].part_count = 0;
	PG_TRY();
	{
		for (int i = 0; i < part_count; i++)
			add_part(&comparison, i);
		start_read(&comparison);
		for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
			finish_read(&comparison, i);
	}
	PG_FINALLY();
	{
		blob_io_drain();
		blob_io_end();
	}
	PG_END_TRY();
}

/* ---- as a reader sees a page ---- */

/*
 * Look an extent up, as it is in a descriptor of this generation.  False if it is another value's
 * by now, or has unlogged content; else its generation is set.
 */
static bool
look_up(BlobStore *store, BlobExtent *extent, BlobGeneration max_generation)
{
	return blob_verify_extent(store->map, extent, max_generation) &&
		!blob_unlogged_contains(&store->id, extent->generation);
}

/*
 * Whether a page is dirty in the buffer, or its file has it with its checksum.  A page that is
 * not dirty any more when it is looked for there has been written.
 */
static bool
is_there(BlobStore *store, const BlobExtent *extent, uint64 page_no)
{
	BlobFilePart part = {.extent = *extent, .page_no = page_no, .pages = 1};
	uint32		device_bytes;
	char		byte;

	if (blob_buffer_get(&store->id, extent->generation, blob_buffer_chunk_bytes(extent->pages),
						page_no * BLOB_PAGE_SIZE, 1, BLOB_BUFFER_BYPASS, &byte,
						&device_bytes) > 0)
		return true;
	blob_file_pages_compare(store, &part, 1);
	return !part.is_suspect;
}

bool
blob_file_page_is_damaged(BlobStore *store, const BlobExtent *extent,
						  BlobGeneration max_generation, uint64 page_no)
{
	BlobExtent	before = *extent;
	BlobExtent	after = *extent;

	if (!look_up(store, &before, max_generation) ||
		(!before.has_sums && !blob_map_hides_sums(store->map, &before)))
		return false;
	/* A page that is being repaired, or came wrong over a cable, is right the second time. */
	if (is_there(store, &before, page_no) || is_there(store, &before, page_no))
		return false;
	return look_up(store, &after, max_generation) && after.generation == before.generation;
}
