/*
 * blob/change.c
 *	  Changed versions of a value: trees of pieces; see blob/change.h, and "Trees of pieces" in the
 *	  README of this folder.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/change.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "blob/seal.h"
#include "blob/slot_writer.h"
#include "blob/tree.h"
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

struct BlobChange
{
	BlobWriteBuffer *stored;	/* the owner's */
	BlobTree   *tree;
	BlobCompression fields;		/* once the tree is finished */
	bool		has_begun;		/* whether the digest stays open is decided */
	bool		is_open;		/* the digest is not computed, blob/seal.h */
	BlobReader	reader;			/* of the base */
	BlobMappingSource source;
};

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
blob_change_is_possible(const BlobValue *value, uint64 kept_bytes, uint64 new_size_bytes)
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

bool
blob_change_is_growth(const BlobValue *value, uint64 keep_bytes, uint64 more_bytes, bool *may_open)
{
	*may_open = false;
	if (!blob_change_is_possible(value, keep_bytes, keep_bytes + more_bytes))
		return false;
	if (value->descriptor.is_tree)
		return true;
	if (keep_bytes == value->size_bytes)
		return false;
	blob_require_allocation();
	*may_open = blob_seal_may_open(value);
	return *may_open;
}

/* A BlobTreePut, whose context is the change. */
static void
put_tree(void *context, const char *stored, uint64 length_bytes)
{
	BlobChange *change = context;

	blob_write_buffer_add(change->stored, stored, length_bytes);
}

/*
 * The bytes that a new extent should have: at most those after which the value would be written
 * anew.  The first new extent is as small as can be, for the value may never change again; each
 * later one has twice the bytes of the one before.
 */
static uint64
get_slot_room(const BlobDescriptor *descriptor)
{
	uint64		live_bytes;
	uint64		dead_bytes;
	uint64		most;
	BlobSlot	last;

	if (!descriptor->is_tree)
		return 0;
	count_bytes(descriptor, &live_bytes, &dead_bytes);
	most = Min(live_bytes / 2 - Min(live_bytes / 2, dead_bytes),
			   descriptor->size_bytes / SLOT_ROOM_PARTS);
	last = blob_descriptor_slot(descriptor, descriptor->slot_count - 1);
	return Min(most, 2 * last.extent.pages * BLOB_PAGE_SIZE);
}

BlobChange *
blob_change_begin(const BlobValue *value, BlobWriteBuffer *stored)
{
	BlobChange *change = palloc0(sizeof(BlobChange));
	BlobPageWriter *pages = &stored->pages;
	BlobValue  *base = &pages->base;

	change->stored = stored;
	pages->keeps_room = true;
	stored->is_content = false;
	blob_value_unpack(blob_descriptor_copy(&value->descriptor), base);
	change->is_open = base->descriptor.is_open;
	blob_slot_writer_begin(pages, get_slot_room(&base->descriptor));
	blob_reader_begin(&change->reader, base, BLOB_READER_ALL);
	change->source = blob_reader_source(&change->reader);
	change->tree = blob_tree_begin(&base->descriptor, &change->source, pages->first_new, put_tree,
								   change);
	return change;
}

void
blob_change_read(BlobChange *change, uint64 offset_bytes, uint64 length_bytes, char *target)
{
	if (offset_bytes + length_bytes <= BLOB_PREFIX_BYTES)
	{
		/* A read from the beginning would read ahead. */
		memcpy(target, change->stored->pages.base.descriptor.prefix + offset_bytes, length_bytes);
		return;
	}
	blob_reader_seek(&change->reader, offset_bytes);
	(void) blob_reader_read(&change->reader, target, length_bytes);
}

/* Hash content of the base, which is the next of the value. */
static void
hash_kept(BlobChange *change, uint64 from, uint64 to)
{
	char	   *content = palloc(Min(to - from, KEPT_STEP_BYTES));
	uint64		bytes;

	blob_reader_seek(&change->reader, from);
	for (; from < to; from += bytes)
	{
		bytes = blob_reader_next(&change->reader, content, Min(KEPT_STEP_BYTES, to - from));
		blob_digest_update(&change->stored->digest, content, bytes);
	}
	pfree(content);
}

/* Continue the digest of the base, all of whose content is kept. */
static void
resume_digest(BlobChange *change)
{
	const BlobDescriptor *descriptor = &change->stored->pages.base.descriptor;
	uint64		open_bytes = descriptor->size_bytes % BLOB_DIGEST_BLOCK_BYTES;
	char		open_block[BLOB_DIGEST_BLOCK_BYTES];

	blob_change_read(change, descriptor->size_bytes - open_bytes, open_bytes, open_block);
	blob_seal_require_sound_end(descriptor, open_block);
	blob_digest_resume(&change->stored->digest, descriptor->state, descriptor->size_bytes,
					   open_block);
}

bool
blob_change_is_open(const BlobChange *change)
{
	return change->is_open;
}

void
blob_change_leave_open(BlobChange *change)
{
	Assert(!change->has_begun);
	change->is_open = change->has_begun = true;
}

/*
 * Before the first content is kept or added, so before a page is claimed: whether the digest stays
 * open.  If it does not, the content that is kept has to be that of the base.
 */
static void
decide_digest(BlobChange *change)
{
	const BlobValue *base = &change->stored->pages.base;

	if (change->has_begun)
		return;
	change->has_begun = true;
	if (change->is_open)
		return;
	change->is_open = blob_seal_may_open(base);
	if (!change->is_open)
		blob_seal_require_sound(base);
}

/* The digest of content of the base, which is the next of the value: all of it, if it is grown. */
static void
take_digest(BlobChange *change, uint64 from, uint64 to)
{
	const BlobValue *base = &change->stored->pages.base;
	bool		is_append = !change->has_begun && to - from == base->size_bytes;

	if (is_append)
		change->has_begun = true;
	else
		decide_digest(change);
	if (change->is_open)
		return;
	if (is_append)
		resume_digest(change);
	else
		hash_kept(change, from, to);
}

void
blob_change_keep(BlobChange *change, uint64 from, uint64 to)
{
	take_digest(change, from, to);
	blob_tree_keep(change->tree, from, to);
	change->stored->hashed_bytes += to - from;
}

/* In parts that fit into the processor's cache. */
void
blob_change_add(BlobChange *change, const char *data, uint64 length_bytes)
{
	if (length_bytes > 0)
		decide_digest(change);
	for (uint64 done = 0; done < length_bytes; done += SLICE_BYTES)
	{
		uint64		bytes = Min(SLICE_BYTES, length_bytes - done);

		CHECK_FOR_INTERRUPTS();
		if (!change->is_open)
			blob_digest_update(&change->stored->digest, data + done, bytes);
		change->stored->hashed_bytes += bytes;
		blob_tree_add(change->tree, data + done, bytes);
	}
}

void
blob_change_finish(BlobChange *change)
{
	blob_tree_finish(change->tree, &change->fields);
}

struct varlena *
blob_change_complete(BlobChange *change, BlobDescriptor *descriptor)
{
	descriptor->is_compressed = descriptor->is_tree = true;
	descriptor->compression = change->fields;
	return blob_slot_writer_complete(&change->stored->pages, descriptor, change->tree);
}

void
blob_change_end(BlobChange *change)
{
	blob_tree_free(change->tree);
	blob_reader_end(&change->reader);
	pfree(change);
}
