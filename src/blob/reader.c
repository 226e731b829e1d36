/*
 * blob/reader.c
 *	  Reading values, see blob/reader.h.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/reader.h"
#include "core/memory.h"
#include "core/settings.h"
#include "extents/buffered.h"
#include "extents/read.h"
#include "io/engine.h"
#include "miscadmin.h"
#include "store/map_sums.h"

void
blob_reader_begin(BlobReader *reader, const BlobValue *value, int flags)
{
	const BlobDescriptor *descriptor = &value->descriptor;

	reader->value = value;
	reader->position = 0;
	reader->flags = flags;
	reader->stored = (BlobStored) {.extents = reader->extents};
	reader->capacity = BLOB_READER_EXTENTS;
	reader->context = CurrentMemoryContext;
	if (value->is_inline)
		return;
	reader->stored.max_generation = descriptor->generation;
	reader->stored.total_bytes = blob_mapping_stored_bytes(descriptor);
	reader->stored.value_bytes = descriptor->size_bytes;
	reader->stored.notes_damage = (flags & BLOB_READER_NOTES_DAMAGE) != 0;
	Assert(!reader->stored.notes_damage || (flags & BLOB_READER_PAST_BUFFER) != 0);
	blob_readahead_window_init(&reader->window, (flags & BLOB_READER_ALL) != 0);
}

bool
blob_reader_has_damage(const BlobReader *reader, BlobPageNo *page)
{
	*page = reader->stored.damaged_page;
	return reader->stored.has_damage;
}

/* The same of a page of an extent. */
static bool
sum_fits(BlobReader *reader, const BlobStoredExtent *stored, BlobPageNo page)
{
	uint64		page_no = page - stored->extent.first_page;
	uint64		start = page_no * BLOB_PAGE_SIZE;
	char	   *data = palloc0(BLOB_PAGE_SIZE);
	BlobStore	store;
	bool		fits;
	uint32		sum;
	uint32		expected;

	blob_reader_read_stored(reader, stored->start + start,
							Min(stored->bytes - start, BLOB_PAGE_SIZE), data);
	blob_page_sums(&(BlobSummedPages) {stored->extent.generation, page, data, 1}, 1, &sum);
	blob_store_open(&store, AccessShareLock);
	fits = blob_map_get_sums(store.map, &stored->extent, page_no, 1, &expected) ==
		BLOB_SUMS_FOUND && sum == expected;
	blob_store_close(&store);
	pfree(data);
	return fits;
}

bool
blob_reader_sum_fits(BlobReader *reader, BlobPageNo page)
{
	for (int i = 0; i < reader->stored.count; i++)
	{
		const BlobStoredExtent *stored = &reader->stored.extents[i];

		if (page >= stored->extent.first_page &&
			page < stored->extent.first_page + blob_pages_for(stored->bytes))
			return sum_fits(reader, stored, page);
	}
	return false;
}

void
blob_reader_end(BlobReader *reader)
{
	if (reader->stored.extents != reader->extents)
		pfree(reader->stored.extents);
	reader->stored = (BlobStored) {.extents = reader->extents};
	reader->capacity = BLOB_READER_EXTENTS;
}

void
blob_reader_seek(BlobReader *reader, uint64 offset_bytes)
{
	Assert(offset_bytes <= reader->value->size_bytes);
	reader->position = offset_bytes;
}

/* Make room for all extents of the value, which has more than fit into the reader. */
static void
enlarge(BlobReader *reader)
{
	int			capacity = blob_descriptor_extent_count(&reader->value->descriptor);
	BlobStoredExtent *extents = MemoryContextAlloc(reader->context,
												   sizeof(BlobStoredExtent) * capacity);

	memcpy(extents, reader->stored.extents, sizeof(BlobStoredExtent) * reader->stored.count);
	reader->stored.extents = extents;
	reader->capacity = capacity;
}

/* Make all extents up to a stored offset known.  The offset may lie behind the end. */
static void
know_extents(BlobReader *reader, uint64 stored_end)
{
	BlobStored *stored = &reader->stored;
	uint64		known_end = blob_stored_known_end(stored);

	stored_end = Min(stored_end, stored->total_bytes);
	while (known_end < stored_end)
	{
		if (stored->count == reader->capacity)
			enlarge(reader);
		blob_mapping_extent(&reader->value->descriptor, stored->count, known_end,
							&stored->extents[stored->count]);
		stored->count++;
		known_end = blob_stored_known_end(stored);
	}
}

/*
 * A BlobMappingFetch, whose context is the reader: read stored bytes, and ahead of them if the
 * reads are a sequence.
 */
static void
fetch(void *context, uint64 stored_offset, uint64 length_bytes, bool is_node, char *target)
{
	BlobReader *reader = context;
	bool		use_buffer = (reader->flags & BLOB_READER_PAST_BUFFER) == 0;
	BlobAheadWindow *window = NULL;
	uint64		end = stored_offset + length_bytes;

	/*
	 * The most frequent read, of the whole value at once, has nothing to read ahead.  Of a tree
	 * content is read ahead, not stored bytes.
	 */
	if (use_buffer && !is_node && !reader->value->descriptor.is_tree &&
		length_bytes < reader->stored.total_bytes)
	{
		window = &reader->window;
		blob_readahead_note(window, stored_offset, length_bytes);
		end = Max(end, blob_readahead_reach(window));
	}
	know_extents(reader, end);
	blob_stored_read(&reader->stored, window, use_buffer, stored_offset, length_bytes, target);
}

void
blob_reader_read_stored(BlobReader *reader, uint64 stored_offset, uint64 length_bytes,
						char *target)
{
	fetch(reader, stored_offset, length_bytes, false, target);
}

/* A BlobMappingFetchParts of the same. */
static void
fetch_parts(void *context, BlobStoredPart *parts, int count)
{
	BlobReader *reader = context;
	bool		use_buffer = (reader->flags & BLOB_READER_PAST_BUFFER) == 0;

	for (int i = 0; i < count; i++)
		know_extents(reader, parts[i].offset + parts[i].length);
	blob_stored_read_parts(&reader->stored, use_buffer, parts, count);
}

BlobMappingSource
blob_reader_source(BlobReader *reader)
{
	BlobMappingSource source = {
		.fetch = fetch,
		.fetch_parts = fetch_parts,
		.context = reader,
		.is_past_buffer = (reader->flags & BLOB_READER_PAST_BUFFER) != 0
	};

	return source;
}

typedef struct BufferedFetch
{
	BlobReader *reader;
	bool		is_complete;
} BufferedFetch;

/* A BlobMappingFetch that asks the buffer alone. */
static void
fetch_buffered(void *context, uint64 stored_offset, uint64 length_bytes, bool is_node, char *target)
{
	BufferedFetch *buffered = context;
	BlobReader *reader = buffered->reader;
	BlobStore	store;

	know_extents(reader, stored_offset + length_bytes);
	blob_store_open(&store, AccessShareLock);
	if (blob_buffered_copy(&store, &reader->stored, stored_offset, length_bytes,
						   target) < length_bytes)
		buffered->is_complete = false;
	blob_store_close(&store);
}

bool
blob_reader_read_buffered(BlobReader *reader, char *buffer, uint64 length_bytes)
{
	BufferedFetch buffered = {reader, true};
	BlobMappingSource source = {.fetch = fetch_buffered, .context = &buffered};

	Assert(length_bytes <= BLOB_BUFFERED_MAX_BYTES && !reader->value->descriptor.is_compressed);
	blob_mapping_read(&reader->value->descriptor, reader->position, length_bytes, buffer,
					  &source);
	if (buffered.is_complete)
		reader->position += length_bytes;
	return buffered.is_complete;
}

void
blob_reader_request(BlobReader *reader, uint64 end_bytes)
{
	uint64		end = Min(end_bytes, reader->stored.total_bytes);
	BlobStore	store;

	if (end == 0)
		return;
	know_extents(reader, end);
	blob_store_open(&store, AccessShareLock);
	blob_readahead_request(&store, &reader->stored, end);
	blob_store_close(&store);
}

/* ERROR XX001 unless the whole content of a value has the digest of its descriptor. */
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

/* Pieces that are requested together: those of the largest step, or window. */
#define MAX_REQUESTED 128

/* Request stored bytes of a tree. */
static void
request_stored(BlobReader *reader, BlobStoredPart *parts, int count)
{
	BlobStore	store;

	if (count == 0)
		return;
	for (int i = 0; i < count; i++)
		know_extents(reader, parts[i].offset + parts[i].length);
	blob_store_open(&store, AccessShareLock);
	blob_readahead_request_parts(&store, &reader->stored, parts, count);
	blob_store_close(&store);
}

/* Request content of a tree. */
static void
request_pieces(BlobReader *reader, uint64 start, uint64 end)
{
	BlobMappingSource source = blob_reader_source(reader);
	BlobStoredPart parts[MAX_REQUESTED];
	int			count = 0;
	BlobFrameCursor cursor;
	bool		goes_on;

	blob_frame_cursor_begin(&cursor, &reader->value->descriptor, &source);
	cursor.content_end = end;
	for (goes_on = blob_frame_cursor_seek(&cursor, start);
		 goes_on && cursor.content_start < end && count < MAX_REQUESTED;
		 goes_on = blob_frame_cursor_next(&cursor))
	{
		const BlobFrame *piece = &cursor.frame;
		uint64		first = piece->stored_offset;
		uint64		behind = piece->stored_offset + piece->stored_bytes;

		if (piece->is_run)
		{
			first += start - Min(start, cursor.content_start);
			behind = Min(behind, piece->stored_offset + (end - cursor.content_start));
		}
		if (!blob_descriptor_slots_hold(&reader->value->descriptor, first, behind - first))
			break;				/* the read will report it */
		parts[count++] = (BlobStoredPart) {.offset = first, .length = behind - first};
	}
	request_stored(reader, parts, count);
}

/*
 * Frames are fetched one by one.  So a read of frames of a tree requests its own first, if it is no
 * part of a sequence and has this many bytes; and a long one is a sequence of steps: while one is
 * decompressed, the next ones are read.
 */
#define MIN_TOGETHER_BYTES (128 * 1024)
#define TREE_STEP_BYTES (UINT64CONST(512) * 1024)
#define TREE_AHEAD_BYTES (UINT64CONST(1) * 1024 * 1024)

/* Whether the pieces of a tree are frames, as far as this is known. */
static bool
has_frames(const BlobDescriptor *descriptor)
{
	return descriptor->compression.method != BLOB_METHOD_NONE;
}

/*
 * Read ahead in a tree: in the order of its content, since the stored bytes behind those that were
 * read are mostly others.  The content that is about to be read was noted.
 */
static void
read_tree_ahead(BlobReader *reader, uint64 offset, uint64 length)
{
	BlobAheadWindow *window = &reader->window;
	uint64		start;
	uint64		end;

	blob_readahead_due(window, reader->value->size_bytes, &start, &end);
	if (!window->is_expected && length >= MIN_TOGETHER_BYTES &&
		has_frames(&reader->value->descriptor))
	{
		start = offset;
		end = Max(end, offset + length);
	}
	end = Min(end, offset + length + TREE_AHEAD_BYTES);
	if (start >= end || !blob_io_is_asynchronous())
		return;
	window->ahead_end = Max(window->ahead_end, end);
	request_pieces(reader, start, end);
}

/* Read content of a tree, through the buffer; and ahead of it if the reads are a sequence. */
static void
read_tree(BlobReader *reader, uint64 offset, uint64 length, char *buffer)
{
	const BlobDescriptor *descriptor = &reader->value->descriptor;
	BlobMappingSource source = blob_reader_source(reader);
	uint64		step;

	for (; length > 0; length -= step)
	{
		bool		is_first;	/* requests ahead come before those of this read */

		step = has_frames(descriptor) ? Min(length, TREE_STEP_BYTES) : length;
		blob_readahead_note(&reader->window, offset, step);
		is_first = reader->window.is_expected || has_frames(descriptor);
		if (is_first)
			read_tree_ahead(reader, offset, step);
		if (has_frames(descriptor))
			blob_memory_populate(buffer, step);
		blob_mapping_read(descriptor, offset, step, buffer, &source);
		if (!is_first)
			read_tree_ahead(reader, offset, step);
		offset += step;
		buffer += step;
	}
}

static void
read_content(BlobReader *reader, uint64 offset, uint64 length, char *buffer)
{
	const BlobDescriptor *descriptor = &reader->value->descriptor;
	BlobMappingSource source = blob_reader_source(reader);

	if (descriptor->is_tree && (reader->flags & BLOB_READER_PAST_BUFFER) == 0)
		read_tree(reader, offset, length, buffer);
	else
		blob_mapping_read(descriptor, offset, length, buffer, &source);
}

uint64
blob_reader_read(BlobReader *reader, void *buffer, uint64 length_bytes)
{
	const BlobValue *value = reader->value;
	uint64		offset = reader->position;
	uint64		length = Min(length_bytes, value->size_bytes - offset);

	if (length == 0)
		return 0;
	if (value->is_inline)
		memcpy(buffer, value->inline_data + offset, length);
	else
	{
		read_content(reader, offset, length, buffer);
		if (blob_verify_reads && length == value->size_bytes && !value->descriptor.is_open)
			verify_digest(&value->descriptor, buffer);
	}
	reader->position = offset + length;
	return length;
}

uint64
blob_reader_next(BlobReader *reader, void *buffer, uint64 length_bytes)
{
	CHECK_FOR_INTERRUPTS();
	return blob_reader_read(reader, buffer, length_bytes);
}

void
blob_reader_require_readable(BlobReader *reader)
{
	BlobMappingSource source = blob_reader_source(reader);

	if (reader->value->is_inline)
		return;
	know_extents(reader, reader->stored.total_bytes);
	blob_stored_require_readable(&reader->stored);
	blob_mapping_require_readable(&reader->value->descriptor, &source);
}

void
blob_read(const BlobValue *value, uint64 offset_bytes, uint64 length_bytes, char *target)
{
	BlobReader	reader;

	Assert(offset_bytes + length_bytes <= value->size_bytes);
	blob_reader_begin(&reader, value, 0);
	blob_reader_seek(&reader, offset_bytes);
	(void) blob_reader_read(&reader, target, length_bytes);
	blob_reader_end(&reader);
}
