/*
 * blob/footprint.c
 *	  What the extents of a value hold of it, see blob/footprint.h.
 *
 * Each form of a datum has a function here that says how many bytes the value would store, were it
 * stored at once.  All the rest is the same for all forms.
 */
#include "postgres.h"

#include "blob/footprint.h"
#include "blob/frames.h"
#include "blob/reader.h"
#include "core/settings.h"
#include "miscadmin.h"

#define NATURAL_RUN_PAGES (1024 * 1024 / BLOB_PAGE_SIZE)

uint64
blob_footprint_nodes(uint64 frame_count)
{
	uint64		nodes = frame_count > BLOB_FRAMES_INLINE ? 1 : 0;

	for (uint64 count = frame_count; count > BLOB_NODE_ENTRIES; count /= BLOB_NODE_ENTRIES)
		nodes += count / BLOB_NODE_ENTRIES + 1;
	return nodes;
}

/* ---- the forms ---- */

/* Content is stored as it is. */
static uint64
plain_bytes(const BlobValue *value)
{
	return value->size_bytes;
}

/*
 * Frames, those that are not compressed yet as they are, and the directory that full frames need.
 * A node begins at a page, behind frames that do not end with one.
 */
static uint64
compressed_bytes(const BlobValue *value)
{
	const BlobDescriptor *descriptor = &value->descriptor;
	const BlobCompression *compression = &descriptor->compression;
	uint64		frame_bytes = UINT64CONST(1) << compression->frame_bits;
	uint64		frame_count = (value->size_bytes + frame_bytes - 1) / frame_bytes;
	uint64		bytes = descriptor->remainder_bytes;
	BlobMappingSource source;
	BlobFrameCursor cursor;
	BlobReader	reader;

	blob_reader_begin(&reader, value, 0);
	source = blob_reader_source(&reader);
	blob_frame_cursor_begin(&cursor, descriptor, &source);
	for (bool goes_on = blob_frame_cursor_seek(&cursor, 0); goes_on;
		 goes_on = blob_frame_cursor_next(&cursor))
	{
		CHECK_FOR_INTERRUPTS();
		bytes += cursor.frame.stored_bytes;
	}
	blob_reader_end(&reader);
	return bytes + 2 * blob_footprint_nodes(frame_count) * BLOB_PAGE_SIZE;
}

/* ---- runs ---- */

/*
 * Runs that pages add, by the extent of a value they are of, behind the page where the last one
 * ended.
 */
static uint64
added_runs(BlobPageNo first_page, uint64 pages, BlobPageNo last_end)
{
	uint64		files = blob_segment_of(first_page + pages - 1) - blob_segment_of(first_page) + 1;
	bool		continues = first_page == last_end && last_end % BLOB_SEGMENT_PAGES != 0;

	return continues ? files - 1 : files;
}

/* Runs in the order of the extents. */
static uint64
count_extent_runs(const BlobDescriptor *descriptor)
{
	BlobPageNo	last_end = BLOB_MAX_PAGE_NO;
	uint64		runs = 0;

	for (int i = 0; i < blob_descriptor_extent_count(descriptor); i++)
	{
		BlobExtent	extent = blob_descriptor_extent(descriptor, i);

		runs += added_runs(extent.first_page, extent.pages, last_end);
		last_end = extent.first_page + extent.pages;
	}
	return runs;
}

/* Runs of stored bytes of a tree, which lie in its slots, behind the page of *last_end. */
static uint64
count_piece_runs(const BlobDescriptor *descriptor, uint64 start, uint64 end, BlobPageNo *last_end)
{
	uint64		runs = 0;

	for (int i = 0; i < descriptor->slot_count; i++)
	{
		BlobSlot	slot = blob_descriptor_slot(descriptor, i);
		uint64		from = Max(start, slot.start);
		uint64		to = Min(end, slot.start + slot.bytes);
		BlobPageNo	first;
		BlobPageNo	behind;

		if (from >= to)
			continue;
		first = slot.extent.first_page + (from - slot.start) / BLOB_PAGE_SIZE;
		behind = slot.extent.first_page + blob_pages_for(to - slot.start);
		/* Two pieces may share a page. */
		if (first + 1 == *last_end)
			first++;
		if (first < behind)
			runs += added_runs(first, behind - first, *last_end);
		*last_end = behind;
	}
	return runs;
}

/* ---- all forms ---- */

/*
 * Walk the pieces of a tree, in the order of the content: their runs, and their stored bytes.
 */
static void
walk_tree(const BlobValue *value, BlobFootprint *footprint, uint64 *stored_bytes)
{
	BlobPageNo	last_end = BLOB_MAX_PAGE_NO;
	BlobMappingSource source;
	BlobFrameCursor cursor;
	BlobReader	reader;

	*stored_bytes = 0;
	blob_reader_begin(&reader, value, 0);
	source = blob_reader_source(&reader);
	blob_frame_cursor_begin(&cursor, &value->descriptor, &source);
	for (bool goes_on = blob_frame_cursor_seek(&cursor, 0); goes_on;
		 goes_on = blob_frame_cursor_next(&cursor))
	{
		CHECK_FOR_INTERRUPTS();
		*stored_bytes += cursor.frame.stored_bytes;
		footprint->runs += count_piece_runs(&value->descriptor, cursor.frame.stored_offset,
											cursor.frame.stored_offset +
											cursor.frame.stored_bytes, &last_end);
	}
	blob_reader_end(&reader);
}

/* The bytes that a tree would store: all content, or its frames and a directory. */
static uint64
tree_bytes(const BlobValue *value, uint64 stored_bytes)
{
	const BlobCompression *compression = &value->descriptor.compression;
	uint64		frames = (value->size_bytes >> compression->frame_bits) + 1;

	if (compression->method == BLOB_METHOD_NONE)
		return plain_bytes(value);
	return stored_bytes + 2 * blob_footprint_nodes(frames) * BLOB_PAGE_SIZE;
}

void
blob_footprint(const BlobValue *value, BlobFootprint *footprint)
{
	uint64		bytes;

	memset(footprint, 0, sizeof(*footprint));
	if (value->is_inline)
		return;
	for (int i = 0; i < blob_descriptor_extent_count(&value->descriptor); i++)
		footprint->pages += blob_descriptor_extent(&value->descriptor, i).pages;
	if (value->descriptor.is_tree)
	{
		walk_tree(value, footprint, &bytes);
		bytes = tree_bytes(value, bytes);
	}
	else
	{
		footprint->runs = count_extent_runs(&value->descriptor);
		bytes = value->descriptor.is_compressed ? compressed_bytes(value) : plain_bytes(value);
	}
	footprint->live_pages =
		Min(footprint->pages,
			blob_tier_plan(blob_pages_for(bytes), blob_tail_extents).total_pages);
	footprint->natural_runs =
		Max(1, (footprint->live_pages + NATURAL_RUN_PAGES - 1) / NATURAL_RUN_PAGES);
}
