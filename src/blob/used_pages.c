/*
 * blob/used_pages.c
 *	  Which stored pages a value uses, see blob/used_pages.h.
 */
#include "postgres.h"

#include "blob/mapping.h"
#include "blob/used_pages.h"
#include "miscadmin.h"
#include "utils/memutils.h"

void
blob_used_pages_add(BlobUsedPages *used, uint64 stored_offset, uint64 length_bytes)
{
	BlobUsedRange range = {stored_offset, stored_offset + length_bytes};
	BlobUsedRange *last = used->count > 0 ? &used->ranges[used->count - 1] : NULL;

	if (last != NULL && range.start >= last->start && range.start <= last->end)
	{
		last->end = Max(last->end, range.end);
		return;
	}
	if (used->count == used->room)
	{
		used->room = Max(64, used->room * 2);
		used->ranges = used->ranges == NULL ?
			palloc(sizeof(BlobUsedRange) * used->room) :
			repalloc_huge(used->ranges, sizeof(BlobUsedRange) * used->room);
	}
	used->ranges[used->count++] = range;
}

static int
compare_ranges(const void *a, const void *b)
{
	const BlobUsedRange *left = a;
	const BlobUsedRange *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

void
blob_used_pages_sort(BlobUsedPages *used)
{
	int64		count = 0;

	if (used->count == 0)
		return;
	qsort(used->ranges, used->count, sizeof(BlobUsedRange), compare_ranges);
	for (int64 i = 1; i < used->count; i++)
	{
		BlobUsedRange *last = &used->ranges[count];

		if (used->ranges[i].start <= last->end)
			last->end = Max(last->end, used->ranges[i].end);
		else
			used->ranges[++count] = used->ranges[i];
	}
	used->count = count + 1;
}

/* The first range that ends behind a stored offset, or NULL. */
static const BlobUsedRange *
find_range(const BlobUsedPages *used, uint64 stored_offset)
{
	int64		low = 0;
	int64		high = used->count;

	while (low < high)
	{
		int64		middle = low + (high - low) / 2;

		if (used->ranges[middle].end > stored_offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low < used->count ? &used->ranges[low] : NULL;
}

bool
blob_used_pages_have(const BlobUsedPages *used, uint64 page_no)
{
	const BlobUsedRange *range = find_range(used, page_no * BLOB_PAGE_SIZE);

	return range != NULL && range->start < (page_no + 1) * BLOB_PAGE_SIZE;
}

bool
blob_used_pages_fill(const BlobUsedPages *used, uint64 page_no)
{
	const BlobUsedRange *range = find_range(used, page_no * BLOB_PAGE_SIZE);

	return range != NULL && range->start <= page_no * BLOB_PAGE_SIZE &&
		range->end >= (page_no + 1) * BLOB_PAGE_SIZE;
}

void
blob_used_pages_copy(const BlobUsedPages *used, uint64 page_no, const char *from, char *to)
{
	uint64		page_start = page_no * BLOB_PAGE_SIZE;
	const BlobUsedRange *range = find_range(used, page_start);

	if (range == NULL)
		return;
	for (; range < used->ranges + used->count && range->start < page_start + BLOB_PAGE_SIZE;
		 range++)
	{
		uint64		start = Max(range->start, page_start) - page_start;
		uint64		end = Min(range->end - page_start, BLOB_PAGE_SIZE);

		memcpy(to + start, from + start, end - start);
	}
}

/* Add a node of a tree, and all below it. */
static void
add_node(const BlobDescriptor *descriptor, const BlobMappingSource *source,
		 const BlobNodeEntry *entry, int level, BlobUsedPages *used)
{
	uint8	   *page = palloc(BLOB_PAGE_SIZE);
	BlobNode	node;

	CHECK_FOR_INTERRUPTS();
	blob_used_pages_add(used, entry->stored_offset, BLOB_PAGE_SIZE);
	blob_frames_read_node(descriptor, source, entry, level, page, &node);
	for (int i = 0; i < node.entry_count; i++)
	{
		BlobNodeEntry below;
		BlobFrame	piece;

		if (level > 1)
		{
			blob_frames_node_entry(descriptor, page, i, &below);
			add_node(descriptor, source, &below, level - 1, used);
			continue;
		}
		blob_frames_node_frame(descriptor, page, i, &piece);
		blob_used_pages_add(used, piece.stored_offset, piece.stored_bytes);
	}
	pfree(page);
}

void
blob_used_pages_list_frames(const BlobDescriptor *descriptor, const BlobMappingSource *source,
							BlobUsedPages *used)
{
	const BlobCompression *compression = &descriptor->compression;
	BlobNodeEntry root;
	BlobFrameCursor cursor;

	Assert(descriptor->is_compressed && !descriptor->is_tree);
	memset(used, 0, sizeof(*used));
	if (compression->level > 0)
	{
		root = blob_frames_root(descriptor);
		add_node(descriptor, source, &root, compression->level, used);
	}
	blob_frame_cursor_begin(&cursor, descriptor, source);
	for (bool goes_on = blob_frame_cursor_seek(&cursor, 0); goes_on;
		 goes_on = blob_frame_cursor_next(&cursor))
		blob_used_pages_add(used, cursor.frame.stored_offset, cursor.frame.stored_bytes);
	if (descriptor->remainder == NULL && descriptor->remainder_bytes > 0)
		blob_used_pages_add(used, compression->stored_bytes, descriptor->remainder_bytes);
	blob_used_pages_sort(used);
}

void
blob_used_pages_list(const BlobDescriptor *descriptor, const BlobMappingSource *source,
					 BlobUsedPages *used)
{
	BlobNodeEntry root;

	memset(used, 0, sizeof(*used));
	if (!descriptor->is_tree)
	{
		if (blob_mapping_stored_bytes(descriptor) > 0)
			blob_used_pages_add(used, 0, blob_mapping_stored_bytes(descriptor));
		return;
	}
	root = blob_frames_root(descriptor);
	add_node(descriptor, source, &root, descriptor->compression.level, used);
	blob_used_pages_sort(used);
}
