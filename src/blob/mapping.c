/*
 * blob/mapping.c
 *	  From content to stored bytes, see blob/mapping.h.
 */
#include "postgres.h"

#include "blob/mapping.h"

void
blob_mapping_extent(const BlobDescriptor *descriptor, int extent_no, uint64 start,
					BlobStoredExtent *stored)
{
	stored->extent = blob_descriptor_extent(descriptor, extent_no);
	stored->start = start;
	stored->bytes = blob_descriptor_extent_stored_bytes(descriptor, extent_no, start);
}

void
blob_mapping_read(const BlobDescriptor *descriptor, uint64 offset_bytes, uint64 length_bytes,
				  char *target, BlobMappingFetch fetch, void *context)
{
	uint64		end = blob_mapping_stored_bytes(descriptor);
	uint64		stored_bytes = offset_bytes < end ? Min(length_bytes, end - offset_bytes) : 0;

	Assert(offset_bytes + length_bytes <= descriptor->size_bytes);

	blob_descriptor_require_plain(descriptor);
	if (stored_bytes > 0)
		fetch(context, offset_bytes, stored_bytes, target);
	if (stored_bytes < length_bytes)
		memcpy(target + stored_bytes,
			   descriptor->remainder + (offset_bytes + stored_bytes - end),
			   length_bytes - stored_bytes);
}

void
blob_mapping_require_readable(const BlobDescriptor *descriptor)
{
	blob_descriptor_require_plain(descriptor);
}

BlobContentRange
blob_mapping_content_of(const BlobDescriptor *descriptor, const BlobStoredExtent *extent)
{
	BlobContentRange range = {blob_mapping_content_offset(extent->start), extent->bytes};

	blob_descriptor_require_plain(descriptor);
	return range;
}

uint64
blob_mapping_kept_pages(const BlobDescriptor *descriptor, uint64 keep_bytes)
{
	blob_descriptor_require_plain(descriptor);
	return Min(keep_bytes, descriptor->size_bytes - descriptor->remainder_bytes) / BLOB_PAGE_SIZE;
}

bool
blob_mapping_is_shared(const BlobStoredExtent *a, const BlobStoredExtent *b)
{
	return a->start == b->start && a->extent.first_page == b->extent.first_page &&
		a->extent.is_tail == b->extent.is_tail && a->extent.pages == b->extent.pages;
}
