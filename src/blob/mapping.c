/*
 * blob/mapping.c
 *	  From content to stored bytes, see blob/mapping.h.
 */
#include "postgres.h"

#include "blob/frames.h"
#include "blob/mapping.h"
#include "core/codec.h"

void
blob_mapping_extent(const BlobDescriptor *descriptor, int extent_no, uint64 start,
					BlobStoredExtent *stored)
{
	stored->extent = blob_descriptor_extent(descriptor, extent_no);
	stored->start = blob_descriptor_extent_start(descriptor, extent_no, start);
	stored->bytes = blob_descriptor_extent_stored_bytes(descriptor, extent_no, start);
}

/* Behind the frames of a compressed value is the remainder, in the datum or in its page. */
static void
read_compressed(const BlobDescriptor *descriptor, uint64 offset_bytes, uint64 length_bytes,
				char *target, const BlobMappingSource *source)
{
	uint64		in_frames = blob_frames_content_bytes(descriptor);
	uint64		from_frames = offset_bytes < in_frames ?
		Min(length_bytes, in_frames - offset_bytes) : 0;
	uint64		at_remainder = offset_bytes + from_frames - in_frames;

	if (from_frames > 0)
		blob_frames_read(descriptor, source, offset_bytes, from_frames, target);
	target += from_frames;
	length_bytes -= from_frames;
	if (length_bytes == 0)
		return;
	if (descriptor->remainder != NULL)
		memcpy(target, descriptor->remainder + at_remainder, length_bytes);
	else
		blob_frames_read_remainder(descriptor, source, (uint32) at_remainder,
								   (uint32) length_bytes, target);
}

void
blob_mapping_read(const BlobDescriptor *descriptor, uint64 offset_bytes, uint64 length_bytes,
				  char *target, const BlobMappingSource *source)
{
	uint64		end = blob_mapping_stored_bytes(descriptor);
	uint64		stored_bytes = offset_bytes < end ? Min(length_bytes, end - offset_bytes) : 0;

	Assert(offset_bytes + length_bytes <= descriptor->size_bytes);

	if (descriptor->is_compressed)
	{
		read_compressed(descriptor, offset_bytes, length_bytes, target, source);
		return;
	}
	if (stored_bytes > 0)
		source->fetch(source->context, offset_bytes, stored_bytes, false, target);
	if (stored_bytes < length_bytes)
		memcpy(target + stored_bytes,
			   descriptor->remainder + (offset_bytes + stored_bytes - end),
			   length_bytes - stored_bytes);
}

void
blob_mapping_require_readable(const BlobDescriptor *descriptor, const BlobMappingSource *source)
{
	BlobFrameCursor cursor;

	if (!descriptor->is_compressed)
		return;
	blob_frame_cursor_begin(&cursor, descriptor, source);
	cursor.content_end = descriptor->size_bytes;
	for (bool goes_on = blob_frame_cursor_seek(&cursor, 0); goes_on;
		 goes_on = blob_frame_cursor_next(&cursor))
		blob_method_require(cursor.frame.method);
}

BlobContentRange
blob_mapping_content_of(const BlobDescriptor *descriptor, const BlobStoredExtent *extent)
{
	BlobContentRange range = {blob_mapping_content_offset(extent->start), extent->bytes};

	Assert(!descriptor->is_compressed);
	return range;
}

uint64
blob_mapping_kept_pages(const BlobDescriptor *descriptor, uint64 keep_bytes)
{
	Assert(!descriptor->is_compressed);
	return Min(keep_bytes, descriptor->size_bytes - descriptor->remainder_bytes) / BLOB_PAGE_SIZE;
}

void
blob_mapping_kept_frames(const BlobDescriptor *descriptor, uint64 keep_bytes,
						 const BlobMappingSource *source, BlobMappingKept *kept)
{
	BlobFrameCursor cursor;
	uint64		stored_end = 0;

	kept->content_bytes = blob_frames_content_bytes(descriptor);
	kept->is_all = keep_bytes >= kept->content_bytes;
	kept->pages = descriptor->compression.stored_bytes / BLOB_PAGE_SIZE;
	if (kept->is_all)
		return;
	kept->content_bytes = 0;
	blob_frame_cursor_begin(&cursor, descriptor, source);
	for (bool goes_on = blob_frame_cursor_seek(&cursor, 0); goes_on;
		 goes_on = blob_frame_cursor_next(&cursor))
	{
		uint64		end = cursor.content_start + cursor.frame.content_bytes;

		if (end > keep_bytes)
			break;
		kept->content_bytes = end;
		stored_end = Max(stored_end, cursor.frame.stored_offset + cursor.frame.stored_bytes);
	}
	kept->pages = blob_pages_for(stored_end);
}

bool
blob_mapping_is_shared(const BlobStoredExtent *a, const BlobStoredExtent *b)
{
	return a->start == b->start && a->extent.first_page == b->extent.first_page &&
		a->extent.is_tail == b->extent.is_tail && a->extent.pages == b->extent.pages;
}
