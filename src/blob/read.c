/*
 * blob/read.c
 *	  Reading ranges of a value.
 *
 * Before and after the device is read, the map must say that each extent of the range is
 * allocated, by a generation no later than the descriptor's: an extent that was freed and given
 * to another value has drawn a later one, and a reader that overlapped with that finds out.
 *
 * The range is cut into chunks of the read cache.  What the cache does not hold is read with
 * neighbouring chunks joined into one request, all requests of the range being in flight as far
 * as there are buffers.
 */
#include "postgres.h"

#include "access/xact.h"
#include "blob/blob.h"
#include "extents/layout.h"
#include "extents/range.h"
#include "extents/readahead.h"
#include "core/memory.h"
#include "core/settings.h"
#include "io/deferred.h"
#include "io/cache.h"
#include "io/engine.h"
#include "io/unlogged.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "store/map.h"
#include "store/store.h"

/* Chunks, or parts of them, that one request can cover. */
#define MAX_PARTS BLOB_IO_MAX_VECTORS

/*
 * Requests that reach the kernel in one call: on a virtual machine each call may cost an exit to
 * the host, which is dear compared with a request.
 */
#define SUBMIT_BATCH 4

/* The part of a request that lies in one chunk of one extent. */
typedef struct ReadPart
{
	BlobGeneration generation;
	uint64		extent_offset;	/* bytes from the extent's start, a multiple of the page */
	uint32		length;			/* bytes read, a multiple of the page */
	uint32		valid;			/* bytes of it that are content */
	uint32		skip;			/* bytes before the wanted ones */
	uint32		wanted;
	uint32		chunk_bytes;	/* of the read cache, for this extent */
	char	   *target;
	char	   *memory;			/* where the device puts it: in the buffer, or in the cache */
	int			fill_no;		/* of the read cache, or -1 */
} ReadPart;

typedef struct PendingRead
{
	BlobIoRequest request;
	BlobPageNo	first_page;
	int			part_count;		/* 0: not in use */
	ReadPart	parts[MAX_PARTS];
} PendingRead;

/* Static, like the buffers: the kernel may still look at it after an error. */
static PendingRead pending[BLOB_IO_BUFFER_COUNT];

typedef struct Reader
{
	BlobStore  *store;
	const BlobDescriptor *descriptor;
	BlobAheadPlan ahead;
	bool		use_cache;
	int			error;			/* first errno seen, or 0, and where */
	BlobPageNo	error_page;
	int			current;		/* request that is being filled, not yet started */
	int			started;		/* requests so far */
} Reader;

/* ---- verification of the extents ---- */

static void
report_stale(const BlobDescriptor *descriptor, int extent_no)
{
	blob_stat_count(stale_reads, 1);
	ereport(ERROR,
			(errcode(ERRCODE_BLOB_STALE),
			 errmsg("stale blobstate value: its content does not exist any more"),
			 errdetail("Extent %d of a value of " UINT64_FORMAT " bytes has been freed or reused.",
					   extent_no, descriptor->size_bytes),
			 errhint("Read the value again from its table.")));
}

/*
 * On a copy of another server that did not log content, the file holds zeros, or what was there
 * before.
 */
static void
require_present(const BlobStoreId *store, const BlobDescriptor *descriptor,
				const BlobExtent *extents, int count)
{
	for (int i = 0; i < count; i++)
		if (blob_unlogged_contains(store, extents[i].generation))
			ereport(ERROR,
					(errcode(ERRCODE_BLOB_UNLOGGED),
					 errmsg("content of a blobstate value is missing on this server"),
					 errdetail("The value of " UINT64_FORMAT " bytes was stored by a server that "
							   "did not write content to the WAL.", descriptor->size_bytes),
					 errhint("Read it on that server. Set blobext.wal_content to \"auto\" there "
							 "before standbys and backups are made.")));
}

/*
 * Entries of a large value's extents are in several blocks of the map: have them read at the same
 * time, where they are not in shared buffers.
 */
static void
prefetch_entries(Relation map, const BlobExtent *extents, int count)
{
	if (count == 0 || blob_map_block_of(extents[0].first_page) ==
		blob_map_block_of(extents[count - 1].first_page))
		return;
	for (int i = 0; i < count; i++)
		if (i == 0 || blob_map_block_of(extents[i].first_page) !=
			blob_map_block_of(extents[i - 1].first_page))
			blob_map_prefetch(map, extents[i].first_page);
}

/* Extents [first_no, first_no + count): the last of them must still be what they were. */
static void
verify_extents(Relation map, const BlobDescriptor *descriptor, BlobExtent *extents, int first_no,
			   int count)
{
	for (int i = 0; i < count; i++)
	{
		BlobGeneration seen = extents[i].generation;

		if (!blob_extent_is_valid(map, descriptor, &extents[i]) ||
			(seen != BLOB_INVALID_GENERATION && seen != extents[i].generation))
			report_stale(descriptor, first_no + i);
	}
}

void
blob_require_extent(const BlobDescriptor *descriptor, int extent_no)
{
	BlobStore	store;
	BlobExtent	extent = blob_descriptor_extent(descriptor, extent_no);

	blob_store_open(&store, AccessShareLock);
	if (!blob_extent_is_valid(store.map, descriptor, &extent))
		report_stale(descriptor, extent_no);
	blob_store_close(&store);
}

/* The first of the wanted extents (NULL: all) that is not the descriptor's any more, or -1. */
static int
find_stale(const BlobDescriptor *descriptor, const bool *is_wanted, int count)
{
	int			stale = -1;
	BlobStore	store;

	Assert(count <= blob_descriptor_extent_count(descriptor));

	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < count && stale < 0; i++)
	{
		BlobExtent	extent = blob_descriptor_extent(descriptor, i);

		if ((is_wanted == NULL || is_wanted[i]) &&
			!blob_extent_is_valid(store.map, descriptor, &extent))
			stale = i;
	}
	blob_store_close(&store);
	return stale;
}

void
blob_require_extents(const BlobDescriptor *descriptor, const bool *is_wanted, int count)
{
	int			stale = find_stale(descriptor, is_wanted, count);

	if (stale >= 0)
		report_stale(descriptor, stale);
}

void
blob_require_valid(const BlobDescriptor *descriptor)
{
	blob_require_extents(descriptor, NULL, blob_descriptor_extent_count(descriptor));
}

int
blob_find_stale_extent(const BlobDescriptor *descriptor)
{
	return find_stale(descriptor, NULL, blob_descriptor_extent_count(descriptor));
}

int
blob_find_unclaimed_extent(const BlobDescriptor *descriptor)
{
	BlobStore	store;
	uint64		start = 0;
	int			unclaimed = -1;

	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < blob_descriptor_extent_count(descriptor) && unclaimed < 0; i++)
	{
		BlobExtent	extent = blob_descriptor_extent(descriptor, i);
		BlobMapEntry entry = blob_map_lookup(store.map, extent.first_page);
		uint64		bytes = blob_descriptor_extent_stored_bytes(descriptor, i, start);

		if (blob_map_entry_high_water(&entry) < bytes)
			unclaimed = i;
		start += bytes;
	}
	blob_store_close(&store);
	return unclaimed;
}

/* ---- requests ---- */

static void
report_read_error(const BlobStoreId *store, BlobPageNo page, int error)
{
	char		path[MAXPGPATH];

	blob_segment_path(path, sizeof(path), store, blob_segment_of(page));
	if (error == ENODATA)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("could not read content from file \"%s\": the file is too short", path),
				 errdetail("Content is expected at byte " UINT64_FORMAT ".",
						   blob_layout_file_offset(page)),
				 errhint("Restore the file from a backup; blobext_check() lists the affected "
						 "values.")));
	errno = error;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not read content from file \"%s\": %m", path)));
}

/*
 * Errors are reported at the end, after the extents were looked at again: content of an extent
 * that was freed meanwhile may be gone, and that is not the file's fault.
 */
static void
note_error(Reader *reader, BlobPageNo page, int error)
{
	if (reader->error != 0)
		return;
	reader->error = error;
	reader->error_page = page;
}

/* Hand a part out, and give it to the cache: it may lie there already. */
static void
finish_part(const Reader *reader, const ReadPart *part, bool is_failed)
{
	if (!is_failed)
		memcpy(part->target, part->memory + part->skip, part->wanted);
	if (part->fill_no >= 0)
		blob_cache_end_fill(part->fill_no, part->extent_offset % part->chunk_bytes,
							is_failed ? 0 : part->valid);
	else if (reader->use_cache && !is_failed)
		blob_cache_put(&reader->store->id, part->generation, part->chunk_bytes, part->extent_offset,
					   part->memory, part->valid);
}

/* Wait for a request, and hand out its parts. */
static void
finish_read(Reader *reader, int buffer_no)
{
	PendingRead *read = &pending[buffer_no];
	int			part_count = read->part_count;

	if (part_count == 0)
		return;
	blob_io_wait(&read->request);
	read->part_count = 0;
	if (read->request.error != 0)
		note_error(reader, read->first_page, read->request.error);
	for (int i = 0; i < part_count; i++)
		finish_part(reader, &read->parts[i], read->request.error != 0);
}

/* While the device works, have the memory mapped that the request's parts will be copied to. */
static void
prepare_targets(const PendingRead *read)
{
	const ReadPart *last = &read->parts[read->part_count - 1];

	/* Parts of one request follow each other in the target, unless the cache had one between. */
	blob_memory_populate(read->parts[0].target, last->target + last->wanted -
						 read->parts[0].target);
}

/* Start the request that is being filled, and take the next buffer in turn. */
static void
start_read(Reader *reader)
{
	PendingRead *read = &pending[reader->current];

	if (read->part_count == 0)
		return;
	read->request.is_write = false;
	read->request.fd = blob_segment_open(&reader->store->id, blob_segment_of(read->first_page),
										 BLOB_SEGMENT_MISSING_OK);
	if (read->request.fd < 0)
	{
		note_error(reader, read->first_page, ENOENT);
		for (int i = 0; i < read->part_count; i++)
			finish_part(reader, &read->parts[i], true);
		read->part_count = 0;
		return;
	}
	read->request.file_offset = blob_layout_file_offset(read->first_page);
	read->request.buffer_no = reader->current;
	blob_io_start(&read->request);
	/* The first one at once: the device shall not wait for a batch. */
	if (reader->started++ % SUBMIT_BATCH == 0)
		blob_io_submit();
	prepare_targets(read);

	reader->current = (reader->current + 1) % BLOB_IO_BUFFER_COUNT;
	finish_read(reader, reader->current);
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
 * Choose where the device shall put a part: in a frame of the cache, from which it is copied
 * out, or at its place in the buffer.
 */
static void
place_part(const Reader *reader, ReadPart *part, uint32 buffer_offset)
{
	part->fill_no = -1;
	if (reader->use_cache)
		part->fill_no = blob_cache_begin_fill(&reader->store->id, part->generation,
											  part->chunk_bytes, part->extent_offset);
	if (part->fill_no >= 0)
		part->memory = blob_cache_fill_memory(part->fill_no) +
			part->extent_offset % part->chunk_bytes;
	else
		part->memory = blob_io_buffer(reader->current) + buffer_offset;
}

static void
add_part(Reader *reader, BlobPageNo first_page, const ReadPart *part)
{
	PendingRead *read = &pending[reader->current];
	ReadPart   *added;

	if (!continues(read, first_page, part))
	{
		start_read(reader);
		read = &pending[reader->current];
		read->first_page = first_page;
		read->request.length = 0;
	}
	added = &read->parts[read->part_count];
	*added = *part;
	place_part(reader, added, read->request.length);
	read->request.vectors[read->part_count].iov_base = added->memory;
	read->request.vectors[read->part_count].iov_len = added->length;
	read->request.vector_count = ++read->part_count;
	read->request.length += added->length;
}

/*
 * Pages that have yet to be written cannot be read from the device: cut the part before the first
 * of them.  If that is the part's first page, its bytes are copied from memory, and length is 0.
 * False if it was written just now.
 */
static bool
cut_to_written(const Reader *reader, BlobPageNo page, ReadPart *part)
{
	uint32		page_count = part->length / BLOB_PAGE_SIZE;
	uint32		written = blob_deferred_count_written(&reader->store->id, page, page_count);

	if (written == page_count)
		return true;
	if (written > 0)
	{
		part->length = written * BLOB_PAGE_SIZE;
		part->wanted = Min(part->wanted, part->length - part->skip);
		return true;
	}
	part->length = 0;
	part->wanted = Min(part->wanted, BLOB_PAGE_SIZE - part->skip);
	if (!blob_deferred_read(&reader->store->id, page, part->skip, part->wanted, part->target))
		return false;
	if (reader->use_cache)
		blob_cache_put(&reader->store->id, part->generation, part->chunk_bytes,
					   part->extent_offset + part->skip, part->target, part->wanted);
	return true;
}

/*
 * Read [offset, offset + length) of one extent, of which content_bytes are content, chunk by
 * chunk, from the cache or by requests.  A chunk that crosses a segment's end is cut there.
 */
static void
read_extent(Reader *reader, const BlobExtent *extent, uint64 content_bytes, uint64 offset,
			uint64 length, char *target)
{
	uint32		chunk_bytes = blob_cache_chunk_bytes(extent->pages);

	while (length > 0)
	{
		uint64		chunk_end = (offset / chunk_bytes + 1) * chunk_bytes;
		BlobPageNo	page = extent->first_page + offset / BLOB_PAGE_SIZE;
		uint64		segment_end = offset / BLOB_PAGE_SIZE * BLOB_PAGE_SIZE +
			blob_layout_pages_left_in_segment(page) * BLOB_PAGE_SIZE;
		uint32		wanted = (uint32) Min(length, Min(chunk_end, segment_end) - offset);

		/* What was waited for may not have arrived alone: give the device more at once. */
		if (reader->use_cache && blob_readahead_await(&reader->store->id, page))
			blob_readahead_start(reader->store, reader->descriptor, &reader->ahead);
		if (!reader->use_cache ||
			!blob_cache_get(&reader->store->id, extent->generation, chunk_bytes, offset, wanted,
							target))
		{
			ReadPart	part = {.generation = extent->generation, .wanted = wanted};

			part.extent_offset = offset / BLOB_PAGE_SIZE * BLOB_PAGE_SIZE;
			part.skip = (uint32) (offset - part.extent_offset);
			part.length = (uint32) blob_pages_for(part.skip + wanted) * BLOB_PAGE_SIZE;
			/* What is requested ahead begins with the next chunk. */
			if (reader->ahead.stream != NULL)
				part.length = (uint32) (blob_pages_for(Min(Min(chunk_end, segment_end),
														   content_bytes)) *
										BLOB_PAGE_SIZE - part.extent_offset);
			part.target = target;
			part.chunk_bytes = chunk_bytes;
			if (!cut_to_written(reader, page, &part))
				continue;		/* look again */
			part.valid = (uint32) Min(part.length, content_bytes - part.extent_offset);
			wanted = part.wanted;
			if (part.length > 0)
				add_part(reader, page, &part);
		}
		offset += wanted;
		target += wanted;
		length -= wanted;
	}
}

/* ---- what can be known before ---- */

/* The files must reach to the end of the content of an extent. */
static void
require_files(const BlobStoreId *store, const BlobExtent *extent, uint64 content_bytes)
{
	BlobPageNo	page = extent->first_page;
	uint64		left = blob_pages_for(content_bytes);

	while (left > 0)
	{
		uint64		pages = Min(left, blob_layout_pages_left_in_segment(page));
		int64		bytes = blob_segment_file_bytes(store, blob_segment_of(page));

		if (bytes < 0)
			report_read_error(store, page, ENOENT);
		if ((uint64) bytes < blob_layout_file_offset(page) + pages * BLOB_PAGE_SIZE)
			report_read_error(store, page, ENODATA);
		page += pages;
		left -= pages;
	}
}

void
blob_require_readable(const BlobValue *value)
{
	const BlobDescriptor *descriptor = &value->descriptor;
	BlobStore	store;
	BlobRange	range;

	if (value->is_inline)
		return;
	range = blob_range_find(descriptor, 0, descriptor->size_bytes);
	blob_store_open(&store, AccessShareLock);
	prefetch_entries(store.map, range.extents, range.count);
	verify_extents(store.map, descriptor, range.extents, range.first_no, range.count);
	require_present(&store.id, descriptor, range.extents, range.count);
	for (int i = 0; i < range.count; i++)
		require_files(&store.id, &range.extents[i], range.content_bytes[i]);
	blob_store_close(&store);
	blob_range_free(&range);
}

/* ---- ranges ---- */

/* Pieces that are expected next are requested before this one is copied, or behind its requests. */
static void
read_range(Reader *reader, const BlobRange *range, uint64 offset, uint64 length, char *target)
{
	uint64		start = range->first_start;
	bool		starts_ahead = reader->ahead.is_expected;

	if (starts_ahead)
		blob_readahead_start(reader->store, reader->descriptor, &reader->ahead);
	for (int i = 0; i < range->count; i++)
	{
		uint64		content_bytes = range->content_bytes[i];
		uint64		part = Min(length, start + content_bytes - offset);

		read_extent(reader, &range->extents[i], content_bytes, offset - start, part, target);
		offset += part;
		target += part;
		length -= part;
		start += content_bytes;
	}
	start_read(reader);
	if (!starts_ahead)
	{
		blob_io_submit();
		blob_readahead_start(reader->store, reader->descriptor, &reader->ahead);
	}
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		finish_read(reader, (reader->current + i) % BLOB_IO_BUFFER_COUNT);
}

static void
verify_digest(const BlobDescriptor *descriptor, const char *content)
{
	uint8		sha256[BLOB_DIGEST_BYTES];

	blob_digest_bytes(content, descriptor->size_bytes, sha256);
	if (memcmp(sha256, descriptor->sha256, sizeof(sha256)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("content does not match its SHA-256 digest"),
				 errdetail("The value of " UINT64_FORMAT " bytes starts at page " UINT64_FORMAT ".",
						   descriptor->size_bytes,
						   blob_descriptor_extent(descriptor, 0).first_page),
				 errhint("Restore the value from a backup; blobext_check() lists the affected "
						 "values.")));
}

static void
read_extents(const BlobDescriptor *descriptor, uint64 offset, uint64 length, bool use_cache,
			 char *target)
{
	BlobStore	store;
	BlobRange	range = blob_range_find(descriptor, offset, length);
	Reader		reader = {
		.store = &store,
		.descriptor = descriptor,
		.use_cache = use_cache
	};

	if (use_cache)
		reader.ahead = blob_readahead_plan(descriptor, offset, length);
	blob_store_open(&store, AccessShareLock);
	prefetch_entries(store.map, range.extents, range.count);
	verify_extents(store.map, descriptor, range.extents, range.first_no, range.count);
	require_present(&store.id, descriptor, range.extents, range.count);

	blob_io_begin();
	for (int i = 0; i < BLOB_IO_BUFFER_COUNT; i++)
		pending[i].part_count = 0;
	PG_TRY();
	{
		read_range(&reader, &range, offset, length, target);
	}
	PG_FINALLY();
	{
		blob_io_drain();
		blob_cache_abandon_fills();
		blob_io_end();
	}
	PG_END_TRY();

	verify_extents(store.map, descriptor, range.extents, range.first_no, range.count);
	if (reader.error != 0)
		report_read_error(&store.id, reader.error_page, reader.error);
	blob_store_close(&store);
	blob_range_free(&range);

	blob_stat_count(content_reads, 1);
	blob_stat_count(content_read_bytes, length);
}

/* Read from the extents, and from the remainder that lies in the datum. */
static void
read_descriptor(const BlobDescriptor *descriptor, uint64 offset, uint64 length, bool use_cache,
				char *target)
{
	uint64		end = descriptor->size_bytes - blob_descriptor_inline_bytes(descriptor);
	uint64		in_extents = offset < end ? Min(length, end - offset) : 0;

	if (in_extents > 0)
		read_extents(descriptor, offset, in_extents, use_cache, target);
	if (in_extents < length)
		memcpy(target + in_extents, descriptor->remainder + (offset + in_extents - end),
			   length - in_extents);
	if (blob_verify_reads && length == descriptor->size_bytes)
		verify_digest(descriptor, target);
}

static void
read_value(const BlobValue *value, uint64 offset, uint64 length, bool use_cache, char *target)
{
	Assert(offset + length <= value->size_bytes);

	if (length == 0)
		return;
	if (value->is_inline)
		memcpy(target, value->inline_data + offset, length);
	else
		read_descriptor(&value->descriptor, offset, length, use_cache, target);
}

void
blob_read(const BlobValue *value, uint64 offset_bytes, uint64 length_bytes, char *target)
{
	read_value(value, offset_bytes, length_bytes, true, target);
}

void
blob_read_uncached(const BlobValue *value, uint64 offset_bytes, uint64 length_bytes, char *target)
{
	read_value(value, offset_bytes, length_bytes, false, target);
}
