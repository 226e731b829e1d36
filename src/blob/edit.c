/*
 * blob/edit.c
 *	  Changes of a value, see blob/edit.h.
 *
 * A change of the size writes the content behind it again, through the writer.  An overwrite writes
 * the extents that it touches to new ones of the same sizes, and shares all others; this file does
 * that itself.
 */
#include "postgres.h"

#include "access/xact.h"
#include "blob/blob.h"
#include "blob/complete.h"
#include "blob/edit.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "extents/pipeline.h"
#include "blob/writer.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "store/store.h"

/* Content is read and written in steps of this size. */
#define STEP_BYTES (UINT64CONST(1024) * 1024)

StaticAssertDecl(STEP_BYTES % BLOB_PAGE_SIZE == 0, "steps are whole pages");

/* ---- through the writer ---- */

/* Add the bytes [offset, offset + length) of a value. */
static void
write_range(BlobWriter *writer, const BlobValue *value, uint64 offset, uint64 length_bytes)
{
	BlobReader	reader;
	char	   *content;

	if (value->is_inline)
	{
		blob_writer_write(writer, value->inline_data + offset, length_bytes);
		return;
	}
	content = palloc(Max(1, Min(length_bytes, STEP_BYTES)));
	blob_reader_begin(&reader, value, 0);
	blob_reader_seek(&reader, offset);
	while (length_bytes > 0)
	{
		uint64		bytes = blob_reader_next(&reader, content, Min(STEP_BYTES, length_bytes));

		blob_writer_write(writer, content, bytes);
		length_bytes -= bytes;
	}
	blob_reader_end(&reader);
	pfree(content);
}

/* Add zeros. */
static void
write_zeros(BlobWriter *writer, uint64 length_bytes)
{
	char	   *zeros = palloc0(Max(1, Min(length_bytes, STEP_BYTES)));

	for (uint64 done = 0; done < length_bytes; done += STEP_BYTES)
	{
		CHECK_FOR_INTERRUPTS();
		blob_writer_write(writer, zeros, Min(STEP_BYTES, length_bytes - done));
	}
	pfree(zeros);
}

struct varlena *
blob_edit_append(const BlobValue *value, const void *data, uint64 length_bytes)
{
	BlobWriter *writer = blob_writer_grow(value, value->size_bytes, length_bytes);

	blob_writer_write(writer, data, length_bytes);
	return blob_writer_finish(writer);
}

struct varlena *
blob_edit_concat(const BlobValue *value, const BlobValue *second)
{
	BlobWriter *writer = blob_writer_grow(value, value->size_bytes, second->size_bytes);

	write_range(writer, second, 0, second->size_bytes);
	return blob_writer_finish(writer);
}

struct varlena *
blob_edit_replace(const BlobValue *value, uint64 kept_bytes, const void *data,
				  uint64 length_bytes, uint64 behind, uint64 end)
{
	BlobWriter *writer;

	Assert(kept_bytes <= value->size_bytes && behind <= end && end <= value->size_bytes);

	writer = blob_writer_grow(value, kept_bytes, length_bytes + end - behind);
	blob_writer_write(writer, data, length_bytes);
	write_range(writer, value, behind, end - behind);
	return blob_writer_finish(writer);
}

struct varlena *
blob_edit_splice(const BlobValue *value, uint64 offset, uint64 deleted_bytes, const void *data,
				 uint64 length_bytes)
{
	return blob_edit_replace(value, offset, data, length_bytes, offset + deleted_bytes,
							 value->size_bytes);
}

struct varlena *
blob_edit_resize(const BlobValue *value, uint64 size_bytes)
{
	uint64		kept = Min(size_bytes, value->size_bytes);
	BlobWriter *writer = blob_writer_grow(value, kept, size_bytes - kept);

	write_zeros(writer, size_bytes - kept);
	return blob_writer_finish(writer);
}

/* ---- overwriting ---- */

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
	uint64		offset;
	const char *data;
	uint64		length_bytes;
	EditedExtent *extents;
	int			extent_count;	/* the page of the remainder included */
	BlobDescriptor descriptor;	/* of the new value */
	BlobDraft  *draft;			/* its new extents */
	BlobStoreId store;
} Overwrite;

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
		edited->is_touched =
			edited->content.offset < overwrite->offset + overwrite->length_bytes &&
			edited->content.offset + edited->content.bytes > overwrite->offset;
		start += stored.bytes;
	}
}

static bool
is_remainder_page(const Overwrite *overwrite, int extent_no)
{
	return overwrite->descriptor.has_remainder_page && extent_no == overwrite->extent_count - 1;
}

/*
 * Allocate new extents for the touched ones in one step: those of tier sizes, which follow each
 * other, and the tail.
 */
static void
replace_touched(Overwrite *overwrite, BlobStore *store)
{
	BlobTierPlan plan = {0};
	BlobExtent *replacements = palloc(sizeof(BlobExtent) * (overwrite->extent_count + 1));
	uint64		tier_bytes = 0;
	int			tier_no = 0;
	int			next = 0;
	int			count;

	for (int i = 0; i < overwrite->extent_count; i++)
	{
		EditedExtent *edited = &overwrite->extents[i];
		uint64		content_pages = blob_pages_for(edited->content.bytes);

		if (edited->is_touched && !is_remainder_page(overwrite, i))
		{
			plan.total_pages += edited->extent.is_tail ? content_pages : edited->extent.pages;
			if (edited->extent.is_tail)
				plan.tail_pages = content_pages;
			else
			{
				if (plan.extent_count++ == 0)
					plan.first_extent_no = tier_no;
				tier_bytes += content_pages * BLOB_PAGE_SIZE;
			}
		}
		tier_no += !edited->extent.is_tail;
	}
	if (plan.total_pages == 0)
		return;

	count = blob_store_allocate(store, &plan, tier_bytes, overwrite->draft, replacements);
	for (int i = 0; i < overwrite->extent_count; i++)
	{
		EditedExtent *edited = &overwrite->extents[i];

		if (!edited->is_touched || is_remainder_page(overwrite, i))
			continue;
		edited->extent = replacements[edited->extent.is_tail ? count - 1 : next++];
	}
	pfree(replacements);
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

/*
 * Write the part of a step that lies in touched extents.  These parts follow each other in the
 * content.
 */
static void
write_step(Overwrite *overwrite, uint64 offset, uint64 length_bytes, const char *content)
{
	BlobWriteRun *runs = palloc(sizeof(BlobWriteRun) * overwrite->extent_count);
	BlobSource	source = {0};
	int			run_count = 0;

	for (int i = 0; i < overwrite->extent_count; i++)
	{
		const EditedExtent *edited = &overwrite->extents[i];
		uint64		start = Max(offset, edited->content.offset);
		uint64		end = Min(offset + length_bytes,
							  edited->content.offset + edited->content.bytes);

		if (!edited->is_touched || start >= end)
			continue;
		if (run_count == 0)
			source.first = content + (start - offset);
		runs[run_count].extent = edited->extent;
		runs[run_count].page_in_extent = (start - edited->content.offset) / BLOB_PAGE_SIZE;
		runs[run_count++].pages = blob_pages_for(end - start);
		source.first_bytes += end - start;
	}
	source.total_bytes = source.first_bytes;
	if (run_count > 0)
		blob_pipeline_write(&overwrite->store, runs, run_count, &source, NULL, 0);
	blob_stat_count_in_database(stored_bytes, source.total_bytes);
	pfree(runs);
}

/* Copy the part of the new bytes that falls into a piece of content to its place. */
static void
patch(const Overwrite *overwrite, uint64 offset, uint64 length_bytes, char *content)
{
	uint64		start = Max(offset, overwrite->offset);
	uint64		end = Min(offset + length_bytes, overwrite->offset + overwrite->length_bytes);

	if (start < end)
		memcpy(content + (start - offset), overwrite->data + (start - overwrite->offset),
			   end - start);
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
	datum = blob_complete(descriptor, NULL, extents, count, &overwrite->value->descriptor, is_shared);
	pfree(extents);
	pfree(is_shared);
	return datum;
}

/*
 * Overwrite [offset, offset + length), which lies inside of a value in extents.  Locks the map in
 * RowExclusive mode while content is copied.
 */
static struct varlena *
overwrite_inside(const BlobValue *value, uint64 offset, const char *data, uint64 length_bytes)
{
	Overwrite	overwrite = {
		.value = value,
		.offset = offset,
		.data = data,
		.length_bytes = length_bytes,
		.descriptor = value->descriptor
	};
	BlobDescriptor *descriptor = &overwrite.descriptor;
	char	   *remainder = NULL;
	uint64		remainder_offset = blob_mapping_datum_offset(descriptor);
	BlobStore	store;
	struct varlena *datum;

	blob_writer_require_allocation();
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
	pfree(overwrite.extents);
	if (remainder != NULL)
		pfree(remainder);
	return datum;
}

struct varlena *
blob_edit_overwrite(const BlobValue *value, uint64 offset, const void *data, uint64 length_bytes)
{
	uint64		end = offset + length_bytes;
	BlobWriter *writer;

	if (!value->is_inline && !value->descriptor.is_compressed && length_bytes > 0 &&
		end <= value->size_bytes)
		return overwrite_inside(value, offset, data, length_bytes);
	if (offset <= value->size_bytes)
		return blob_edit_splice(value, offset, Min(end, value->size_bytes) - offset, data,
								length_bytes);

	writer = blob_writer_grow(value, value->size_bytes, end - value->size_bytes);
	write_zeros(writer, offset - value->size_bytes);
	blob_writer_write(writer, data, length_bytes);
	return blob_writer_finish(writer);
}
