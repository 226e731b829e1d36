/*
 * blob/overwrite.c
 *	  Overwrites bytes inside of a value, see blob/overwrite.h: the extents that it touches are
 *	  written to new ones of the same sizes, all others are shared.
 */
#include "postgres.h"

#include "access/xact.h"
#include "blob/blob.h"
#include "blob/complete.h"
#include "blob/mapping.h"
#include "blob/overwrite.h"
#include "blob/reader.h"
#include "core/settings.h"
#include "extents/pipeline.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "store/store.h"

/* Content is read and written in steps of this size. */
#define STEP_BYTES (UINT64CONST(1024) * 1024)

StaticAssertDecl(STEP_BYTES % BLOB_PAGE_SIZE == 0, "steps are whole pages");

/* An extent of the old value, or the new one that replaces it. */
typedef struct EditedExtent
{
	BlobExtent	extent;			/* a new one if touched */
	BlobContentRange content;	/* of the value, in this extent */
	bool		is_touched;
} EditedExtent;

typedef struct Overwrite
{
	const BlobValue *value;
	const BlobPatchPiece *pieces;	/* in the order of their offsets, all inside of the value */
	int			piece_count;
	EditedExtent *extents;
	int			extent_count;	/* the page of the remainder included */
	BlobDescriptor descriptor;	/* of the new value */
	BlobDraft  *draft;			/* its new extents */
	BlobStoreId store;
	BlobPipeline pipeline;
} Overwrite;

/* The first piece that ends behind an offset, or the number of all. */
static int
find_piece(const Overwrite *overwrite, uint64 offset)
{
	int			low = 0;
	int			high = overwrite->piece_count;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (overwrite->pieces[middle].offset + overwrite->pieces[middle].bytes > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Whether a piece has bytes of a range of the content. */
static bool
is_touched(const Overwrite *overwrite, const BlobContentRange *range)
{
	int			piece_no = find_piece(overwrite, range->offset);

	return piece_no < overwrite->piece_count &&
		overwrite->pieces[piece_no].offset < range->offset + range->bytes;
}

/* List the extents of the old value, and find those whose content the new bytes touch. */
static void
find_touched(Overwrite *overwrite)
{
	const BlobDescriptor *old = &overwrite->value->descriptor;
	uint64		start = 0;

	overwrite->extent_count = blob_descriptor_extent_count(old);
	overwrite->extents = palloc0(sizeof(EditedExtent) * overwrite->extent_count);
	for (int i = 0; i < overwrite->extent_count; i++)
	{
		EditedExtent *edited = &overwrite->extents[i];
		BlobStoredExtent stored;

		blob_mapping_extent(old, i, start, &stored);
		edited->extent = stored.extent;
		edited->content = blob_mapping_content_of(old, &stored);
		edited->is_touched = is_touched(overwrite, &edited->content);
		start += stored.bytes;
	}
}

static bool
is_remainder_page(const Overwrite *overwrite, int extent_no)
{
	return overwrite->descriptor.has_remainder_page && extent_no == overwrite->extent_count - 1;
}

/* Whether an extent is replaced by one that is allocated as a tier or a tail. */
static bool
is_replaced(const Overwrite *overwrite, int extent_no)
{
	return overwrite->extents[extent_no].is_touched && !is_remainder_page(overwrite, extent_no);
}

/*
 * Allocate new extents for touched ones that follow each other, [first, end), in one step: those of
 * tier sizes, and the tail.  tier_no: the tier of the first.
 */
static void
replace_run(Overwrite *overwrite, BlobStore *store, int first, int end, int tier_no)
{
	BlobTierPlan plan = {.first_extent_no = tier_no};
	BlobExtent *replacements = palloc(sizeof(BlobExtent) * (end - first + 1));
	uint64		tier_bytes = 0;
	int			next = 0;
	int			count;

	for (int i = first; i < end; i++)
	{
		EditedExtent *edited = &overwrite->extents[i];
		uint64		content_pages = blob_pages_for(edited->content.bytes);

		plan.total_pages += edited->extent.is_tail ? content_pages : edited->extent.pages;
		if (edited->extent.is_tail)
			plan.tail_pages = content_pages;
		else
		{
			plan.extent_count++;
			tier_bytes += content_pages * BLOB_PAGE_SIZE;
		}
	}
	count = blob_store_allocate(store, &plan, tier_bytes, overwrite->draft, replacements);
	for (int i = first; i < end; i++)
	{
		EditedExtent *edited = &overwrite->extents[i];

		edited->extent = replacements[edited->extent.is_tail ? count - 1 : next++];
	}
	pfree(replacements);
}

/* Allocate new extents for all touched ones but the page of the remainder. */
static void
replace_touched(Overwrite *overwrite, BlobStore *store)
{
	int			tier_no = 0;
	int			end;

	for (int first = 0; first < overwrite->extent_count; first = end)
	{
		int			first_tier_no = tier_no;

		end = first;
		while (end < overwrite->extent_count && is_replaced(overwrite, end))
			tier_no += !overwrite->extents[end++].extent.is_tail;
		if (end > first)
			replace_run(overwrite, store, first, end, first_tier_no);
		else
			tier_no += !overwrite->extents[end++].extent.is_tail;
	}
}

/* Allocate a new page for the remainder if the old one is touched. */
static void
replace_remainder_page(Overwrite *overwrite, BlobStore *store)
{
	BlobTierPlan plan = {.tail_pages = 1, .total_pages = 1};
	EditedExtent *last = &overwrite->extents[overwrite->extent_count - 1];

	if (!overwrite->descriptor.has_remainder_page || !last->is_touched)
		return;
	blob_store_allocate(store, &plan, BLOB_PAGE_SIZE, overwrite->draft, &last->extent);
	overwrite->descriptor.remainder_page = last->extent.first_page;
}

/* Write content that lies in touched extents which follow each other. */
static void
write_runs(Overwrite *overwrite, const BlobWriteRun *runs, int count, const char *content,
		   uint64 bytes)
{
	BlobStore	store;
	BlobPut		put = {
		.store = &overwrite->store,
		.runs = runs,
		.run_count = count,
		.first = content,
		.first_bytes = bytes,
		.total_bytes = bytes
	};

	if (count == 0)
		return;
	blob_store_open_same(&store, RowExclusiveLock, &overwrite->store);
	put.map = store.map;
	blob_pipeline_put(&overwrite->pipeline, &put);
	blob_store_close(&store);
}

/* Write the parts of a step that lie in touched extents. */
static void
write_step(Overwrite *overwrite, uint64 offset, uint64 length_bytes, const char *content)
{
	BlobWriteRun *runs = palloc(sizeof(BlobWriteRun) * overwrite->extent_count);
	int			run_count = 0;
	uint64		first = offset;
	uint64		behind = offset;	/* the content [first, behind) is in the runs */

	for (int i = 0; i < overwrite->extent_count; i++)
	{
		const EditedExtent *edited = &overwrite->extents[i];
		uint64		start = Max(offset, edited->content.offset);
		uint64		end = Min(offset + length_bytes,
							  edited->content.offset + edited->content.bytes);

		if (!edited->is_touched || start >= end)
			continue;
		if (start != behind)
		{
			write_runs(overwrite, runs, run_count, content + (first - offset), behind - first);
			run_count = 0;
			first = start;
		}
		runs[run_count].extent = edited->extent;
		runs[run_count].page_in_extent = (start - edited->content.offset) / BLOB_PAGE_SIZE;
		runs[run_count++].pages = blob_pages_for(end - start);
		behind = end;
	}
	write_runs(overwrite, runs, run_count, content + (first - offset), behind - first);
	pfree(runs);
}

/* Copy the new bytes of the range [offset, offset + length) of the content to their places. */
static void
patch(const Overwrite *overwrite, uint64 offset, uint64 length_bytes, char *content)
{
	for (int i = find_piece(overwrite, offset); i < overwrite->piece_count; i++)
	{
		const BlobPatchPiece *piece = &overwrite->pieces[i];
		uint64		start = Max(offset, piece->offset);
		uint64		end = Min(offset + length_bytes, piece->offset + piece->bytes);

		if (start >= end)
			break;
		memcpy(content + (start - offset), piece->data + (start - piece->offset), end - start);
	}
}

/* Read, patch and hash the whole content; write the content of touched extents. */
static void
copy_content(Overwrite *overwrite)
{
	BlobDescriptor *descriptor = &overwrite->descriptor;
	char	   *content = palloc(Min(descriptor->size_bytes, STEP_BYTES));
	uint64		offset = 0;
	uint64		bytes;
	BlobReader	reader;
	BlobDigest	digest;

	blob_digest_begin(&digest);
	blob_reader_begin(&reader, overwrite->value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, content, STEP_BYTES)) > 0)
	{
		patch(overwrite, offset, bytes, content);
		write_step(overwrite, offset, bytes, content);
		blob_digest_update(&digest, content, bytes);
		if (offset == 0)
			memcpy(descriptor->prefix, content, Min(bytes, BLOB_PREFIX_BYTES));
		offset += bytes;
	}
	blob_reader_end(&reader);
	blob_digest_finish(&digest, descriptor->sha256, descriptor->state);
	pfree(content);
}

/*
 * The new value's datum.  ERROR XB001 if an extent that it shares does not belong to the old value
 * any more.
 */
static struct varlena *
pack_overwrite(Overwrite *overwrite)
{
	BlobDescriptor *descriptor = &overwrite->descriptor;
	BlobExtent *extents = palloc(sizeof(BlobExtent) * (overwrite->extent_count + 1));
	bool	   *is_shared = palloc(sizeof(bool) * (overwrite->extent_count + 1));
	int			count = overwrite->extent_count - (descriptor->has_remainder_page ? 1 : 0);
	struct varlena *datum;

	for (int i = 0; i < overwrite->extent_count; i++)
	{
		extents[i] = overwrite->extents[i].extent;
		is_shared[i] = !overwrite->extents[i].is_touched;
		descriptor->generation = Max(descriptor->generation, extents[i].generation);
	}
	datum = blob_complete(descriptor, NULL, extents, count, &overwrite->value->descriptor,
						  is_shared);
	pfree(extents);
	pfree(is_shared);
	return datum;
}

struct varlena *
blob_overwrite(const BlobValue *value, const BlobPatchPiece *pieces, int count)
{
	Overwrite	overwrite = {
		.value = value,
		.pieces = pieces,
		.piece_count = count,
		.descriptor = value->descriptor
	};
	BlobDescriptor *descriptor = &overwrite.descriptor;
	char	   *remainder = NULL;
	uint64		remainder_offset = blob_mapping_datum_offset(descriptor);
	BlobStore	store;
	struct varlena *datum;

	blob_require_allocation();
	/*
	 * Check the old value before extents are allocated by its sizes.  The check that readers rely
	 * on is that of blob_complete().
	 */
	blob_require_valid(descriptor);
	if (descriptor->remainder != NULL)
	{
		remainder = memcpy(palloc(descriptor->remainder_bytes), descriptor->remainder,
						   descriptor->remainder_bytes);
		patch(&overwrite, remainder_offset, descriptor->remainder_bytes, remainder);
		descriptor->remainder = remainder;
	}
	find_touched(&overwrite);
	(void) GetTopTransactionId();	/* so that the commit writes a record, after our content */
	blob_store_open(&store, RowExclusiveLock);
	overwrite.store = store.id;
	overwrite.draft = blob_draft_begin(CurrentMemoryContext);
	replace_touched(&overwrite, &store);
	replace_remainder_page(&overwrite, &store);
	copy_content(&overwrite);
	blob_store_close(&store);

	datum = pack_overwrite(&overwrite);
	blob_draft_complete(overwrite.draft);
	blob_stat_count_in_database(stored_blobs, 1);
	blob_stat_count_in_database(stored_bytes, overwrite.pipeline.put_bytes);
	pfree(overwrite.extents);
	if (remainder != NULL)
		pfree(remainder);
	return datum;
}
