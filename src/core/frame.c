/*
 * core/frame.c
 *	  Packing and unpacking of frames' entries and of the directory's nodes, see core/frame.h.
 */
#include "postgres.h"

#include "core/frame.h"
#include "core/integer.h"
#include "port/pg_crc32c.h"

/* Of a frame's entry. */
enum
{
	AT_FRAME_CONTENT = 0,
	AT_FRAME_STORED = 4,
	AT_FRAME_OFFSET = 8,
	AT_FRAME_METHOD = 14,
	AT_FRAME_FLAGS = 15,
	AT_FRAME_CRC = 16,
	AT_FRAME_ZEROS = 20
};

/* Of a node's header. */
enum
{
	AT_NODE_CRC = 0,
	AT_NODE_COUNT = 4,
	AT_NODE_LEVEL = 6,
	AT_NODE_ZERO = 7,
	AT_NODE_CONTENT = 8,
	AT_NODE_FRAMES = 16,
	AT_NODE_ZEROS = 24
};

/* Of a node's entry in the node above. */
enum
{
	AT_ENTRY_CONTENT = 0,
	AT_ENTRY_FRAMES = 8,
	AT_ENTRY_OFFSET = 16,
	AT_ENTRY_ZEROS = 22
};

StaticAssertDecl(AT_FRAME_ZEROS + 4 == BLOB_FRAME_ENTRY_BYTES, "frame layout");
StaticAssertDecl(AT_NODE_ZEROS + 8 == BLOB_NODE_HEADER_BYTES, "node layout");
StaticAssertDecl(AT_ENTRY_ZEROS + 2 == BLOB_NODE_ENTRY_BYTES, "node layout");
StaticAssertDecl(BLOB_FRAME_ENTRY_BYTES == BLOB_NODE_ENTRY_BYTES, "node layout");
StaticAssertDecl(BLOB_NODE_ENTRIES == 169, "node layout");

uint32
blob_frame_checksum(const void *stored, size_t length_bytes)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, stored, length_bytes);
	FIN_CRC32C(crc);
	return crc;
}

/* Undoes the last step of a checksum, which is its own inverse, and goes on. */
uint32
blob_frame_checksum_continue(uint32 crc, const void *stored, size_t length_bytes)
{
	pg_crc32c	continued = crc;

	FIN_CRC32C(continued);
	COMP_CRC32C(continued, stored, length_bytes);
	FIN_CRC32C(continued);
	return continued;
}

/* ---- frames ---- */

const char *
blob_frame_unpack(const uint8 *entry, int frame_bits, uint64 stored_bytes, BlobFrame *frame)
{
	frame->content_bytes = (uint32) blob_load_integer(entry + AT_FRAME_CONTENT, 4);
	frame->stored_bytes = (uint32) blob_load_integer(entry + AT_FRAME_STORED, 4);
	frame->stored_offset = blob_load_integer(entry + AT_FRAME_OFFSET, 6);
	frame->method = entry[AT_FRAME_METHOD];
	frame->crc = (uint32) blob_load_integer(entry + AT_FRAME_CRC, 4);
	frame->is_run = (entry[AT_FRAME_FLAGS] & BLOB_FRAME_IS_RUN) != 0;

	if ((entry[AT_FRAME_FLAGS] & ~BLOB_FRAME_IS_RUN) != 0 ||
		(frame->is_run && (frame->method != BLOB_METHOD_NONE || frame->crc != 0)) ||
		blob_load_integer(entry + AT_FRAME_ZEROS, 4) != 0)
		return "A frame has bytes that are not zero.";
	if (frame->content_bytes == 0 ||
		frame->content_bytes > (frame->is_run ? BLOB_RUN_MAX_BYTES : (uint32) 1 << frame_bits))
		return "A frame has an impossible length.";
	if (frame->stored_bytes == 0 || frame->stored_bytes > frame->content_bytes ||
		(frame->method == BLOB_METHOD_NONE && frame->stored_bytes != frame->content_bytes))
		return "A frame has an impossible number of stored bytes.";
	if (frame->stored_bytes > stored_bytes ||
		frame->stored_offset > stored_bytes - frame->stored_bytes)
		return "A frame lies outside of the stored bytes.";
	return NULL;
}

void
blob_frame_pack(uint8 *entry, const BlobFrame *frame)
{
	memset(entry, 0, BLOB_FRAME_ENTRY_BYTES);
	blob_store_integer(entry + AT_FRAME_CONTENT, 4, frame->content_bytes);
	blob_store_integer(entry + AT_FRAME_STORED, 4, frame->stored_bytes);
	blob_store_integer(entry + AT_FRAME_OFFSET, 6, frame->stored_offset);
	entry[AT_FRAME_METHOD] = frame->method;
	entry[AT_FRAME_FLAGS] = frame->is_run ? BLOB_FRAME_IS_RUN : 0;
	blob_store_integer(entry + AT_FRAME_CRC, 4, frame->crc);
}

/* ---- nodes ---- */

static const uint8 *
entry_at(const uint8 *page, int entry_no)
{
	return page + BLOB_NODE_HEADER_BYTES + entry_no * BLOB_NODE_ENTRY_BYTES;
}

/* The bytes of content and the number of frames below one entry of a node of this level. */
static void
load_below(const uint8 *page, int level, int entry_no, uint64 *content_bytes, uint64 *frame_count)
{
	const uint8 *entry = entry_at(page, entry_no);

	if (level == 1)
	{
		*content_bytes = blob_load_integer(entry + AT_FRAME_CONTENT, 4);
		*frame_count = 1;
		return;
	}
	*content_bytes = blob_load_integer(entry + AT_ENTRY_CONTENT, 8);
	*frame_count = blob_load_integer(entry + AT_ENTRY_FRAMES, 8);
}

/*
 * Whether the entries of a node have the sums that its header says.  Each entry is compared with
 * the remaining part of the sum, so that no sum can overflow.
 */
static bool
are_sums_right(const uint8 *page, const BlobNode *node)
{
	uint64		left_bytes = node->content_bytes;
	uint64		left_frames = node->frame_count;

	for (int i = 0; i < node->entry_count; i++)
	{
		uint64		content_bytes;
		uint64		frame_count;

		load_below(page, node->level, i, &content_bytes, &frame_count);
		if (content_bytes == 0 || content_bytes > left_bytes || frame_count == 0 ||
			frame_count > left_frames)
			return false;
		left_bytes -= content_bytes;
		left_frames -= frame_count;
	}
	return left_bytes == 0 && left_frames == 0;
}

const char *
blob_node_unpack(const uint8 *page, int expected_level, uint64 content_bytes, uint64 frame_count,
				 BlobNode *node)
{
	node->entry_count = (int) blob_load_integer(page + AT_NODE_COUNT, 2);
	node->level = page[AT_NODE_LEVEL];
	node->content_bytes = blob_load_integer(page + AT_NODE_CONTENT, 8);
	node->frame_count = blob_load_integer(page + AT_NODE_FRAMES, 8);

	if (blob_load_integer(page + AT_NODE_CRC, 4) !=
		blob_frame_checksum(page + AT_NODE_COUNT, BLOB_PAGE_SIZE - AT_NODE_COUNT))
		return "The checksum of a node of the directory does not match.";
	if (page[AT_NODE_ZERO] != 0 || blob_load_integer(page + AT_NODE_ZEROS, 8) != 0)
		return "A node of the directory has bytes that are not zero.";
	if (node->level != expected_level || node->level < 1 || node->entry_count < 1 ||
		node->entry_count > BLOB_NODE_ENTRIES)
		return "A node of the directory is not of its level.";
	if (node->content_bytes != content_bytes || node->frame_count != frame_count ||
		!are_sums_right(page, node))
		return "A node of the directory contradicts the one above.";
	return NULL;
}

const uint8 *
blob_node_frame(const uint8 *page, int entry_no)
{
	return entry_at(page, entry_no);
}

const char *
blob_node_entry_unpack(const uint8 *page, int entry_no, uint64 stored_bytes, BlobNodeEntry *entry)
{
	const uint8 *at = entry_at(page, entry_no);

	entry->content_bytes = blob_load_integer(at + AT_ENTRY_CONTENT, 8);
	entry->frame_count = blob_load_integer(at + AT_ENTRY_FRAMES, 8);
	entry->stored_offset = blob_load_integer(at + AT_ENTRY_OFFSET, 6);
	if (blob_load_integer(at + AT_ENTRY_ZEROS, 2) != 0)
		return "A node of the directory has bytes that are not zero.";
	if (entry->stored_offset % BLOB_PAGE_SIZE != 0 || stored_bytes < BLOB_PAGE_SIZE ||
		entry->stored_offset > stored_bytes - BLOB_PAGE_SIZE)
		return "A node of the directory lies outside of the stored bytes.";
	return NULL;
}

/* Fill in the header of a node whose entries are in place: level, count, sums, and the CRC last. */
static void
finish_node(uint8 *page, int level, int count)
{
	uint64		sum_bytes = 0;
	uint64		sum_frames = 0;

	Assert(count >= 1 && count <= BLOB_NODE_ENTRIES);

	for (int i = 0; i < count; i++)
	{
		uint64		content_bytes;
		uint64		frame_count;

		load_below(page, level, i, &content_bytes, &frame_count);
		sum_bytes += content_bytes;
		sum_frames += frame_count;
	}
	blob_store_integer(page + AT_NODE_COUNT, 2, count);
	page[AT_NODE_LEVEL] = (uint8) level;
	blob_store_integer(page + AT_NODE_CONTENT, 8, sum_bytes);
	blob_store_integer(page + AT_NODE_FRAMES, 8, sum_frames);
	blob_store_integer(page + AT_NODE_CRC, 4,
					   blob_frame_checksum(page + AT_NODE_COUNT,
										   BLOB_PAGE_SIZE - AT_NODE_COUNT));
}

void
blob_node_pack_frames(uint8 *page, const BlobFrame *frames, int count)
{
	memset(page, 0, BLOB_PAGE_SIZE);
	for (int i = 0; i < count; i++)
		blob_frame_pack((uint8 *) entry_at(page, i), &frames[i]);
	finish_node(page, 1, count);
}

void
blob_node_pack(uint8 *page, int level, const BlobNodeEntry *entries, int count)
{
	memset(page, 0, BLOB_PAGE_SIZE);
	for (int i = 0; i < count; i++)
	{
		uint8	   *at = (uint8 *) entry_at(page, i);

		blob_store_integer(at + AT_ENTRY_CONTENT, 8, entries[i].content_bytes);
		blob_store_integer(at + AT_ENTRY_FRAMES, 8, entries[i].frame_count);
		blob_store_integer(at + AT_ENTRY_OFFSET, 6, entries[i].stored_offset);
	}
	finish_node(page, level, count);
}
