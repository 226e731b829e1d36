/*
 * blob/frames.c
 *	  Reading compressed values, see blob/frames.h.
 *
 * Memory for frames is that of the process, because comparisons read under buffer locks, again and
 * again.
 */
#include "postgres.h"

#include "blob/frames.h"
#include "core/codec.h"
#include "utils/memutils.h"

/* Memory that grows to the largest frame that was read. */
typedef struct FrameMemory
{
	char	   *bytes;
	uint32		capacity_bytes;
} FrameMemory;

/* A frame in memory.  Two values that are compared in pieces need one each. */
typedef struct KeptFrame
{
	bool		is_valid;
	BlobGeneration generation;
	uint8		sha256[BLOB_DIGEST_BYTES];	/* of the value */
	uint64		content_start;
	BlobFrame	frame;
	FrameMemory content;
} KeptFrame;

#define KEPT_FRAMES 4

static KeptFrame kept_frames[KEPT_FRAMES];
static int	next_kept = 0;		/* which is replaced next */
static FrameMemory packed;		/* stored bytes of the frame that is being read */

/* ---- damage ---- */

/* ERROR XX001: the problem of a frame, or of the directory, at a stored offset. */
static void
report_damage(const BlobDescriptor *descriptor, const char *problem, uint64 stored_offset)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("compressed content of a blobstate value is damaged"),
			 errdetail("%s It lies in page " UINT64_FORMAT ", at offset " UINT64_FORMAT
					   " of the stored bytes of a value of " UINT64_FORMAT " bytes.", problem,
					   blob_descriptor_page_of(descriptor, stored_offset), stored_offset,
					   descriptor->size_bytes),
			 errhint("Restore the value from a backup; blobext_check() lists the affected "
					 "values.")));
}

/* The same of a frame, which has a place in the content, too. */
static void
report_frame(const BlobFrameCursor *cursor, const char *problem)
{
	char		text[256];

	snprintf(text, sizeof(text), "The frame of " UINT64_FORMAT " bytes of content from offset "
			 UINT64_FORMAT " on %s.", (uint64) cursor->frame.content_bytes,
			 cursor->content_start, problem);
	report_damage(cursor->descriptor, text, cursor->frame.stored_offset);
}

/* ERROR XX001 if the extents of a tree do not have these stored bytes. */
static void
require_stored(const BlobDescriptor *descriptor, uint64 stored_offset, uint64 length_bytes)
{
	if (descriptor->is_tree &&
		!blob_descriptor_slots_hold(descriptor, stored_offset, length_bytes))
		report_damage(descriptor, "A piece lies outside of the slots.", stored_offset);
}

/* Get stored bytes.  ERROR XX001 if the extents of a tree do not have them. */
static void
fetch_stored(const BlobDescriptor *descriptor, const BlobMappingSource *source,
			 uint64 stored_offset, uint64 length_bytes, bool is_node, char *target)
{
	require_stored(descriptor, stored_offset, length_bytes);
	source->fetch(source->context, stored_offset, length_bytes, is_node, target);
}

/* ---- the directory ---- */

BlobNodeEntry
blob_frames_root(const BlobDescriptor *descriptor)
{
	BlobNodeEntry root = {
		.content_bytes = blob_frames_closed_bytes(descriptor),
		.frame_count = descriptor->compression.frame_count,
		.stored_offset = descriptor->compression.root_offset
	};

	return root;
}

/* Check the page of a node. */
static void
unpack_node(const BlobDescriptor *descriptor, const BlobNodeEntry *entry, int level,
			const uint8 *page, BlobNode *node)
{
	const char *problem = blob_node_unpack(page, level, entry->content_bytes, entry->frame_count,
										   node);

	if (problem != NULL)
		report_damage(descriptor, problem, entry->stored_offset);
}

void
blob_frames_read_node(const BlobDescriptor *descriptor, const BlobMappingSource *source,
					  const BlobNodeEntry *entry, int level, uint8 *page, BlobNode *node)
{
	fetch_stored(descriptor, source, entry->stored_offset, BLOB_PAGE_SIZE, true, (char *) page);
	unpack_node(descriptor, entry, level, page, node);
}

/* Unpack an entry of a frame, wherever it is. */
static void
unpack_frame(const BlobDescriptor *descriptor, const uint8 *entry, BlobFrame *frame)
{
	const BlobCompression *compression = &descriptor->compression;
	const char *problem = blob_frame_unpack(entry, compression->frame_bits,
											compression->stored_bytes, frame);

	if (problem == NULL && frame->is_run && !descriptor->is_tree)
		problem = "A run is among the frames.";
	if (problem != NULL)
		report_damage(descriptor, problem, compression->root_offset);
}

void
blob_frames_node_frame(const BlobDescriptor *descriptor, const uint8 *page, int entry_no,
					   BlobFrame *frame)
{
	unpack_frame(descriptor, blob_node_frame(page, entry_no), frame);
}

void
blob_frames_datum_frame(const BlobDescriptor *descriptor, int frame_no, BlobFrame *frame)
{
	unpack_frame(descriptor, descriptor->compression.frames + frame_no * BLOB_FRAME_ENTRY_BYTES,
				 frame);
}

void
blob_frames_node_entry(const BlobDescriptor *descriptor, const uint8 *page, int entry_no,
					   BlobNodeEntry *entry)
{
	const BlobCompression *compression = &descriptor->compression;
	const char *problem = blob_node_entry_unpack(page, entry_no, compression->stored_bytes, entry);

	if (problem != NULL)
		report_damage(descriptor, problem, compression->root_offset);
}

/* Go to the beginning of a leaf that was read. */
static void
open_leaf(BlobFrameCursor *cursor, int leaf_no)
{
	const uint8 *page = cursor->pages[leaf_no];
	BlobNode	node;

	unpack_node(cursor->descriptor, &cursor->leaves[leaf_no], 1, page, &node);
	cursor->leaf_no = leaf_no;
	cursor->entries = blob_node_frame(page, 0);
	cursor->entry_no = 0;
	cursor->entry_count = node.entry_count;
}

/* Read the cursor's leaves, which are in flight together where the source can do so. */
static void
fetch_leaves(BlobFrameCursor *cursor)
{
	const BlobMappingSource *source = cursor->source;
	BlobStoredPart parts[BLOB_CURSOR_LEAVES];
	int			count = cursor->leaf_count;

	for (int i = 0; i < count; i++)
	{
		parts[i].offset = cursor->leaves[i].stored_offset;
		parts[i].length = BLOB_PAGE_SIZE;
		parts[i].target = (char *) cursor->pages[i];
		require_stored(cursor->descriptor, parts[i].offset, BLOB_PAGE_SIZE);
	}
	if (count > 1 && source->fetch_parts != NULL)
		source->fetch_parts(source->context, parts, count);
	else
		for (int i = 0; i < count; i++)
			source->fetch(source->context, parts[i].offset, BLOB_PAGE_SIZE, true, parts[i].target);
}

/*
 * Read the leaf that holds a content offset, and go to its beginning.  Returns the content offset
 * of its first frame.  The sums of a node were checked, so an entry is found.
 */
static uint64
read_leaf(BlobFrameCursor *cursor, uint64 content_offset)
{
	const BlobDescriptor *descriptor = cursor->descriptor;
	BlobNodeEntry *leaves = cursor->leaves;
	uint8	   *page = cursor->pages[0];
	BlobNodeEntry entry = blob_frames_root(descriptor);
	int			child_no = 0;
	int			count = 1;
	BlobNode	node = {0};
	uint64		start = 0;
	uint64		end;

	for (int level = descriptor->compression.level; level > 1; level--)
	{
		blob_frames_read_node(descriptor, cursor->source, &entry, level, page, &node);
		child_no = 0;
		blob_frames_node_entry(descriptor, page, 0, &entry);
		while (content_offset >= start + entry.content_bytes)
		{
			start += entry.content_bytes;
			blob_frames_node_entry(descriptor, page, ++child_no, &entry);
		}
	}
	leaves[0] = entry;
	end = start + entry.content_bytes;
	while (++child_no < node.entry_count && end < cursor->content_end &&
		   count < BLOB_CURSOR_LEAVES)
	{
		blob_frames_node_entry(descriptor, page, child_no, &leaves[count]);
		end += leaves[count++].content_bytes;
	}
	cursor->leaf_count = count;
	fetch_leaves(cursor);
	open_leaf(cursor, 0);
	return start;
}

/* Unpack the entry that the cursor has come to. */
static void
load_entry(BlobFrameCursor *cursor)
{
	unpack_frame(cursor->descriptor, cursor->entries + cursor->entry_no * BLOB_FRAME_ENTRY_BYTES,
				 &cursor->frame);
}

/* Go to the open frame, if it holds this content offset. */
static bool
seek_open(BlobFrameCursor *cursor, uint64 content_offset)
{
	const BlobCompression *compression = &cursor->descriptor->compression;

	if (content_offset >= blob_frames_content_bytes(cursor->descriptor))
		return false;
	cursor->entry_no = cursor->entry_count = 0;
	cursor->leaf_no = cursor->leaf_count = 0;
	cursor->content_start = blob_frames_closed_bytes(cursor->descriptor);
	cursor->frame.content_bytes = (uint32) compression->open_bytes;
	cursor->frame.stored_bytes = (uint32) compression->open_bytes;
	cursor->frame.stored_offset = compression->open_offset;
	cursor->frame.method = BLOB_METHOD_NONE;
	cursor->frame.is_run = false;
	cursor->frame.crc = compression->open_crc;
	return true;
}

void
blob_frame_cursor_begin(BlobFrameCursor *cursor, const BlobDescriptor *descriptor,
						const BlobMappingSource *source)
{
	memset(cursor, 0, offsetof(BlobFrameCursor, leaves));
	cursor->descriptor = descriptor;
	cursor->source = source;
}

bool
blob_frame_cursor_seek(BlobFrameCursor *cursor, uint64 content_offset)
{
	const BlobCompression *compression = &cursor->descriptor->compression;

	if (content_offset >= blob_frames_closed_bytes(cursor->descriptor))
		return seek_open(cursor, content_offset);
	cursor->content_start = 0;
	if (compression->level == 0)
	{
		cursor->entries = compression->frames;
		cursor->entry_count = (int) compression->frame_count;
	}
	else
		cursor->content_start = read_leaf(cursor, content_offset);
	for (cursor->entry_no = 0;; cursor->entry_no++)
	{
		Assert(cursor->entry_no < cursor->entry_count);
		load_entry(cursor);
		if (content_offset < cursor->content_start + cursor->frame.content_bytes)
			return true;
		cursor->content_start += cursor->frame.content_bytes;
	}
}

bool
blob_frame_cursor_next(BlobFrameCursor *cursor)
{
	cursor->content_start += cursor->frame.content_bytes;
	if (cursor->entry_no + 1 < cursor->entry_count)
		cursor->entry_no++;
	else if (cursor->leaf_no + 1 < cursor->leaf_count)
		open_leaf(cursor, cursor->leaf_no + 1);
	else
		return blob_frame_cursor_seek(cursor, cursor->content_start);
	load_entry(cursor);
	return true;
}

/* ---- frames ---- */

static char *
get_memory(FrameMemory *memory, uint32 bytes)
{
	if (bytes > memory->capacity_bytes)
	{
		if (memory->bytes != NULL)
			pfree(memory->bytes);
		memory->bytes = NULL;
		memory->capacity_bytes = 0;
		bytes = Max(bytes, BLOB_FRAME_BYTES);
		memory->bytes = MemoryContextAlloc(TopMemoryContext, bytes);
		memory->capacity_bytes = bytes;
	}
	return memory->bytes;
}

/* Copy the content of the frame to target: fetch, check, decompress. */
static void
read_frame(const BlobFrameCursor *cursor, char *target)
{
	const BlobMappingSource *source = cursor->source;
	const BlobFrame *frame = &cursor->frame;
	bool		is_packed = frame->method != BLOB_METHOD_NONE;
	char	   *stored = target;

	blob_method_require(frame->method);
	if (is_packed)
		stored = get_memory(&packed, frame->stored_bytes);
	fetch_stored(cursor->descriptor, source, frame->stored_offset, frame->stored_bytes, false,
				 stored);
	if (blob_frame_checksum(stored, frame->stored_bytes) != frame->crc)
		report_frame(cursor, "has another checksum than its entry");
	if (is_packed && !blob_codec_decompress(frame->method, stored, frame->stored_bytes, target,
											frame->content_bytes))
		report_frame(cursor, "cannot be decompressed to that length");
}

static bool
is_kept(const KeptFrame *kept, const BlobFrameCursor *cursor)
{
	const BlobFrame *a = &kept->frame;
	const BlobFrame *b = &cursor->frame;

	return kept->is_valid && a->stored_offset == b->stored_offset && a->crc == b->crc &&
		a->stored_bytes == b->stored_bytes && a->content_bytes == b->content_bytes &&
		a->method == b->method && kept->content_start == cursor->content_start &&
		kept->generation == cursor->descriptor->generation &&
		memcmp(kept->sha256, cursor->descriptor->sha256, BLOB_DIGEST_BYTES) == 0;
}

/* The frame in memory, or NULL. */
static const KeptFrame *
find_kept(const BlobFrameCursor *cursor)
{
	if (cursor->source->is_past_buffer)
		return NULL;
	for (int i = 0; i < KEPT_FRAMES; i++)
	{
		if (is_kept(&kept_frames[i], cursor))
			return &kept_frames[i];
	}
	return NULL;
}

/* Read the frame into memory, in place of the oldest one there. */
static const KeptFrame *
keep_frame(const BlobFrameCursor *cursor)
{
	KeptFrame  *kept = &kept_frames[next_kept];

	kept->is_valid = false;
	read_frame(cursor, get_memory(&kept->content, cursor->frame.content_bytes));
	next_kept = (next_kept + 1) % KEPT_FRAMES;
	kept->generation = cursor->descriptor->generation;
	memcpy(kept->sha256, cursor->descriptor->sha256, BLOB_DIGEST_BYTES);
	kept->content_start = cursor->content_start;
	kept->frame = cursor->frame;
	kept->is_valid = !cursor->source->is_past_buffer;
	return kept;
}

/* Copy a part of the frame's content.  A whole frame that is not in memory goes to its target. */
static void
copy_part(const BlobFrameCursor *cursor, uint32 offset, uint32 length, char *target)
{
	const KeptFrame *kept;

	if (cursor->frame.is_run)
	{
		fetch_stored(cursor->descriptor, cursor->source, cursor->frame.stored_offset + offset,
					 length, false, target);
		return;
	}
	kept = find_kept(cursor);
	if (kept == NULL && length == cursor->frame.content_bytes)
	{
		read_frame(cursor, target);
		return;
	}
	if (kept == NULL)
		kept = keep_frame(cursor);
	memcpy(target, kept->content.bytes + offset, length);
}

void
blob_frames_read_piece(const BlobDescriptor *descriptor, const BlobMappingSource *source,
					   const BlobFrame *piece, uint32 offset_bytes, uint32 length_bytes,
					   char *target)
{
	BlobFrameCursor cursor;
	char	   *content;

	blob_frame_cursor_begin(&cursor, descriptor, source);
	cursor.frame = *piece;
	if (piece->is_run)
	{
		copy_part(&cursor, offset_bytes, length_bytes, target);
		return;
	}
	content = palloc(piece->content_bytes);
	read_frame(&cursor, content);
	memcpy(target, content + offset_bytes, length_bytes);
	pfree(content);
}

void
blob_frames_read_remainder(const BlobDescriptor *descriptor, const BlobMappingSource *source,
						   uint32 offset_bytes, uint32 length_bytes, char *target)
{
	const BlobCompression *compression = &descriptor->compression;
	char		page[BLOB_PAGE_SIZE];

	if (!compression->has_remainder_crc)
	{
		source->fetch(source->context, compression->stored_bytes + offset_bytes, length_bytes,
					  false, target);
		return;
	}
	source->fetch(source->context, compression->stored_bytes, descriptor->remainder_bytes, false,
				  page);
	if (blob_frame_checksum(page, descriptor->remainder_bytes) != compression->remainder_crc)
		report_damage(descriptor, "The remainder has another checksum than its value says.",
					  compression->stored_bytes);
	memcpy(target, page + offset_bytes, length_bytes);
}

/* ---- ranges ---- */

/* Runs that are fetched together: those of at least 4 MB of a tree. */
#define MAX_PARTS 256

typedef struct PartList
{
	const BlobMappingSource *source;
	int			count;
	BlobStoredPart parts[MAX_PARTS];
} PartList;

static void
fetch_parts(PartList *list)
{
	const BlobMappingSource *source = list->source;

	if (list->count == 1)
		source->fetch(source->context, list->parts[0].offset, list->parts[0].length, false,
					  list->parts[0].target);
	else if (list->count > 1)
		source->fetch_parts(source->context, list->parts, list->count);
	list->count = 0;
}

/* Copy a part of a piece, now or with others. */
static void
read_part(PartList *list, const BlobFrameCursor *cursor, uint32 offset, uint32 length, char *target)
{
	const BlobFrame *frame = &cursor->frame;

	if (!frame->is_run || list->source->fetch_parts == NULL)
	{
		copy_part(cursor, offset, length, target);
		return;
	}
	require_stored(cursor->descriptor, frame->stored_offset + offset, length);
	if (list->count == MAX_PARTS)
		fetch_parts(list);
	list->parts[list->count++] =
		(BlobStoredPart) {frame->stored_offset + offset, length, target};
}

void
blob_frames_read(const BlobDescriptor *descriptor, const BlobMappingSource *source,
				 uint64 offset_bytes, uint64 length_bytes, char *target)
{
	BlobFrameCursor cursor;
	PartList	list;
	bool		is_found;

	Assert(offset_bytes + length_bytes <= blob_frames_content_bytes(descriptor));

	list.source = source;
	list.count = 0;
	blob_frame_cursor_begin(&cursor, descriptor, source);
	cursor.content_end = offset_bytes + length_bytes;
	is_found = blob_frame_cursor_seek(&cursor, offset_bytes);
	while (length_bytes > 0)
	{
		uint32		in_frame = (uint32) (offset_bytes - cursor.content_start);
		uint32		length = (uint32) Min(length_bytes, cursor.frame.content_bytes - in_frame);

		Assert(is_found);
		read_part(&list, &cursor, in_frame, length, target);
		target += length;
		offset_bytes += length;
		length_bytes -= length;
		if (length_bytes > 0)
			is_found = blob_frame_cursor_next(&cursor);
	}
	(void) is_found;
	fetch_parts(&list);
}
