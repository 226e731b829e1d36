/*
 * blob/writer_change.c
 *	  Writers of changed versions: trees of pieces; see blob/writer.h, and "Trees of pieces" in the
 *	  README of this folder.
 */
#include "postgres.h"

#include "blob/mapping.h"
#include "blob/reader.h"
#include "blob/seal.h"
#include "blob/slot_writer.h"
#include "blob/writer_internal.h"
#include "core/codec.h"
#include "core/settings.h"
#include "miscadmin.h"

/* New content is hashed and given to the tree in parts of this size. */
#define SLICE_BYTES (128 * 1024)

/* Content of a base that is kept, or written anew, is read in steps of this size. */
#define KEPT_STEP_BYTES (UINT64CONST(1024) * 1024)

/* A new extent of a tree has at most one of this number of parts of its content. */
#define SLOT_ROOM_PARTS 16

/* Stored offsets have 48 bits: a value that nears that is written anew. */
#define MAX_CHANGED_STORED_BYTES (UINT64CONST(1) << 47)

bool
blob_writer_is_change(const BlobWriter *writer)
{
	return writer->tree != NULL;
}

/* Live and dead bytes of a value; of one that is no tree all stored bytes count as live. */
static void
count_bytes(const BlobDescriptor *descriptor, uint64 *live_bytes, uint64 *dead_bytes)
{
	*live_bytes = *dead_bytes = 0;
	for (int i = 0; i < descriptor->slot_count && descriptor->is_tree; i++)
	{
		BlobSlot	slot = blob_descriptor_slot(descriptor, i);

		*live_bytes += slot.live_bytes;
		*dead_bytes += slot.bytes - slot.live_bytes;
	}
	if (!descriptor->is_tree)
		*live_bytes = blob_mapping_stored_bytes(descriptor);
}

bool
blob_writer_can_change(const BlobValue *value, uint64 kept_bytes, uint64 new_size_bytes)
{
	const BlobDescriptor *descriptor = &value->descriptor;
	uint64		limit = Max((uint64) blob_rewrite_limit_kb * 1024,
							(uint64) blob_inline_limit_bytes);
	uint64		live_bytes;
	uint64		dead_bytes;
	double		left_bytes;		/* dead bytes that the change leaves, before it adds its own */

	if (value->is_inline || value->size_bytes <= limit || new_size_bytes <= limit ||
		blob_descriptor_extent_count(descriptor) > BLOB_SLOTS_BEFORE_CHANGE)
		return false;
	if (descriptor->is_compressed &&
		(descriptor->compression.stored_bytes > MAX_CHANGED_STORED_BYTES ||
		 (!descriptor->is_tree && descriptor->compression.stored_bytes > value->size_bytes)))
		return false;
	count_bytes(descriptor, &live_bytes, &dead_bytes);
	left_bytes = (double) live_bytes * kept_bytes / value->size_bytes;
	return live_bytes - left_bytes + dead_bytes <=
		left_bytes * new_size_bytes / Max(kept_bytes, 1) / 2;
}

/* A BlobTreePut, whose context is the writer. */
static void
put_tree(void *context, const char *stored, uint64 length_bytes)
{
	BlobWriter *writer = context;

	blob_write_buffer_add(&writer->stored, stored, length_bytes);
}

/* The bytes that a new extent should have: those after which the value would be written anew. */
static uint64
get_slot_room(const BlobDescriptor *descriptor)
{
	uint64		live_bytes;
	uint64		dead_bytes;

	count_bytes(descriptor, &live_bytes, &dead_bytes);
	return Min(live_bytes / 2 - Min(live_bytes / 2, dead_bytes),
			   descriptor->size_bytes / SLOT_ROOM_PARTS);
}

BlobWriter *
blob_writer_begin_change(const BlobValue *value)
{
	BlobWriter *writer = blob_writer_make(0, BLOB_METHOD_NONE);
	BlobPageWriter *pages = &writer->stored.pages;
	BlobValue  *base = &pages->base;

	pages->keeps_room = true;
	blob_value_unpack(blob_descriptor_copy(&value->descriptor), base);
	writer->defers_digest = base->descriptor.defers_digest;
	writer->is_open = base->descriptor.is_open;
	blob_slot_writer_begin(pages, get_slot_room(&base->descriptor));
	writer->stored.is_content = false;
	writer->base_reader = palloc(sizeof(BlobReader));
	blob_reader_begin(writer->base_reader, base, BLOB_READER_ALL);
	writer->base_source = blob_reader_source(writer->base_reader);
	writer->tree = blob_tree_begin(&base->descriptor, &writer->base_source, pages->first_new,
								   put_tree, writer);
	return writer;
}

/* Hash content of the base, which is the next of the value. */
static void
hash_kept(BlobWriter *writer, uint64 from, uint64 to)
{
	char	   *content = palloc(Min(to - from, KEPT_STEP_BYTES));
	uint64		bytes;

	blob_reader_seek(writer->base_reader, from);
	for (; from < to; from += bytes)
	{
		bytes = blob_reader_next(writer->base_reader, content, Min(KEPT_STEP_BYTES, to - from));
		blob_digest_update(&writer->stored.digest, content, bytes);
	}
	pfree(content);
}

/* Continue the digest of the base, all of whose content is kept. */
static void
resume_digest(BlobWriter *writer)
{
	const BlobDescriptor *descriptor = &writer->stored.pages.base.descriptor;
	uint64		open_bytes = descriptor->size_bytes % BLOB_DIGEST_BLOCK_BYTES;
	char		open_block[BLOB_DIGEST_BLOCK_BYTES];

	blob_reader_seek(writer->base_reader, descriptor->size_bytes - open_bytes);
	(void) blob_reader_read(writer->base_reader, open_block, open_bytes);
	blob_digest_resume(&writer->stored.digest, descriptor->state, descriptor->size_bytes,
					   open_block);
}

/* Take bytes of the kept content for the prefix of the value. */
static void
take_prefix(BlobWriter *writer, uint64 from, uint64 to)
{
	uint64		bytes = Min(to - from, BLOB_PREFIX_BYTES - Min(writer->size_bytes,
															  BLOB_PREFIX_BYTES));

	if (bytes == 0)
		return;
	blob_reader_seek(writer->base_reader, from);
	(void) blob_reader_read(writer->base_reader, writer->prefix + writer->size_bytes, bytes);
}

/*
 * The digest of content of the base, which is the next of the value.  An append goes on with that
 * of its base.  Of another change it stays open, if it may: then none of the content was hashed,
 * for the first range decides.
 */
static void
take_kept_digest(BlobWriter *writer, uint64 from, uint64 to)
{
	const BlobValue *base = &writer->stored.pages.base;
	bool		is_append = writer->size_bytes == 0 && to - from == base->size_bytes;

	if (!writer->has_kept && !writer->is_open && !is_append)
		writer->is_open = blob_seal_may_open(base);
	writer->has_kept = true;
	if (writer->is_open)
		return;
	if (is_append)
		resume_digest(writer);
	else
		hash_kept(writer, from, to);
}

void
blob_writer_keep(BlobWriter *writer, uint64 from, uint64 to)
{
	if (from == to)
		return;
	take_prefix(writer, from, to);
	take_kept_digest(writer, from, to);
	blob_tree_keep(writer->tree, from, to);
	writer->size_bytes += to - from;
	writer->stored.hashed_bytes += to - from;
}

/* In parts that fit into the processor's cache. */
void
blob_writer_add_to_tree(BlobWriter *writer, const char *data, uint64 length_bytes)
{
	for (uint64 done = 0; done < length_bytes; done += SLICE_BYTES)
	{
		uint64		bytes = Min(SLICE_BYTES, length_bytes - done);

		CHECK_FOR_INTERRUPTS();
		if (!writer->is_open)
			blob_digest_update(&writer->stored.digest, data + done, bytes);
		writer->stored.hashed_bytes += bytes;
		blob_tree_add(writer->tree, data + done, bytes);
	}
}

/* ---- growth ---- */

/* Write the beginning of a value, which is read in steps. */
static void
copy_beginning(BlobWriter *writer, const BlobValue *value, uint64 length_bytes)
{
	char	   *content = palloc(Max(1, Min(length_bytes, KEPT_STEP_BYTES)));
	BlobReader	reader;

	blob_reader_begin(&reader, value, BLOB_READER_ALL);
	while (length_bytes > 0)
	{
		uint64		bytes = blob_reader_next(&reader, content, Min(KEPT_STEP_BYTES, length_bytes));

		blob_writer_write(writer, content, bytes);
		length_bytes -= bytes;
	}
	blob_reader_end(&reader);
	pfree(content);
}

BlobWriter *
blob_writer_grow_tree(const BlobValue *value, uint64 keep_bytes, uint64 expected_bytes)
{
	BlobMethod	method = (BlobMethod) value->descriptor.compression.method;
	BlobWriter *writer;

	if (blob_writer_can_change(value, keep_bytes, keep_bytes + expected_bytes))
	{
		writer = blob_writer_begin_change(value);
		blob_writer_keep(writer, 0, keep_bytes);
		return writer;
	}
	/* In its natural form. */
	writer = method != BLOB_METHOD_NONE && keep_bytes > BLOB_FRAME_BYTES ?
		blob_writer_begin_framed(keep_bytes + expected_bytes, method) :
		blob_writer_begin(keep_bytes + expected_bytes, method);
	writer->defers_digest = value->descriptor.defers_digest;
	copy_beginning(writer, value, keep_bytes);
	return writer;
}

BlobWriter *
blob_writer_open_beginning(const BlobValue *value, uint64 keep_bytes)
{
	BlobWriter *writer = blob_writer_begin_change(value);

	writer->is_open = true;
	blob_writer_keep(writer, 0, keep_bytes);
	return writer;
}

/* ---- the end ---- */

struct varlena *
blob_writer_complete_tree(BlobWriter *writer, BlobDescriptor *descriptor)
{
	descriptor->is_compressed = descriptor->is_tree = true;
	descriptor->compression = writer->tree_fields;
	return blob_slot_writer_complete(&writer->stored.pages, descriptor, writer->tree);
}
