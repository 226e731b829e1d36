/*
 * blob/framer.c
 *	  From content to frames and their directory, see blob/framer.h.
 *
 * The directory grows at its right edge only.  So the framer has one node of each level in memory,
 * that one which is not full yet.  A node that is full is put, and entered in the node above.
 */
#include "postgres.h"

#include "blob/framer.h"

/* After failures a method is tried on every second frame, every fourth, up to every 16th. */
#define MAX_TRY_BITS 4

/* Parts of a content that are tried before it is compressed: their number and their distance. */
#define MAX_TRIED_PARTS 8
#define TRIED_PART_BYTES BLOB_PAGE_SIZE
#define BYTES_PER_TRIED_PART (64 * 1024)

/* Of a level above 1, without its page. */
typedef struct FramerNode
{
	BlobNodeEntry entries[BLOB_NODE_ENTRIES];
	int			entry_count;
} FramerNode;

struct BlobFramer
{
	MemoryContext memory;
	BlobMethod	method;
	int			frame_bits;
	BlobFramerPut put;
	void	   *context;
	uint64		stored_bytes;	/* where the next ones go */
	char	   *content;		/* that waits, of a frame's length at most */
	uint32		content_bytes;
	char	   *packed;			/* a frame while it is compressed */
	int			failed_tries;	/* one after the other */
	int			frames_to_skip; /* before the next try */
	/* the directory: */
	bool		is_changed;		/* since the base's */
	uint64		frame_count;
	BlobFrame	leaf[BLOB_NODE_ENTRIES];
	int			leaf_count;
	FramerNode *nodes[BLOB_NODE_MAX_LEVEL + 1]; /* from level 2 on; NULL: none yet */
	int			level;			/* of the root, once finished */
	uint64		root_offset;
	uint64		open_offset;
	uint64		open_bytes;
	uint32		open_crc;
};

static void
put_stored(BlobFramer *framer, const char *stored, uint64 length_bytes)
{
	framer->put(framer->context, stored, length_bytes);
	framer->stored_bytes += length_bytes;
}

/* Nodes and open frames begin at a page. */
static void
put_padding(BlobFramer *framer)
{
	static const char zeros[BLOB_PAGE_SIZE];
	uint64		partial = framer->stored_bytes % BLOB_PAGE_SIZE;

	if (partial > 0)
		put_stored(framer, zeros, BLOB_PAGE_SIZE - partial);
}

/* ---- the directory ---- */

static FramerNode *
get_node(BlobFramer *framer, int level)
{
	if (level > BLOB_NODE_MAX_LEVEL)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a compressed blobstate value has too many frames")));
	if (framer->nodes[level] == NULL)
		framer->nodes[level] = MemoryContextAllocZero(framer->memory, sizeof(FramerNode));
	return framer->nodes[level];
}

static BlobNodeEntry put_node(BlobFramer *framer, int level);

/* Enter a node of the level below; a full one of this level is put first. */
static void
add_node(BlobFramer *framer, int level, const BlobNodeEntry *entry)
{
	FramerNode *node = get_node(framer, level);

	if (node->entry_count == BLOB_NODE_ENTRIES)
	{
		BlobNodeEntry full = put_node(framer, level);

		add_node(framer, level + 1, &full);
	}
	node->entries[node->entry_count++] = *entry;
}

/* Put the node of a level, which begins anew, and return its entry for the level above. */
static BlobNodeEntry
put_node(BlobFramer *framer, int level)
{
	uint8		page[BLOB_PAGE_SIZE];
	BlobNodeEntry entry = {0};

	put_padding(framer);
	entry.stored_offset = framer->stored_bytes;
	if (level == 1)
	{
		for (int i = 0; i < framer->leaf_count; i++)
			entry.content_bytes += framer->leaf[i].content_bytes;
		entry.frame_count = framer->leaf_count;
		blob_node_pack_frames(page, framer->leaf, framer->leaf_count);
		framer->leaf_count = 0;
	}
	else
	{
		FramerNode *node = framer->nodes[level];

		for (int i = 0; i < node->entry_count; i++)
		{
			entry.content_bytes += node->entries[i].content_bytes;
			entry.frame_count += node->entries[i].frame_count;
		}
		blob_node_pack(page, level, node->entries, node->entry_count);
		node->entry_count = 0;
	}
	put_stored(framer, (const char *) page, BLOB_PAGE_SIZE);
	return entry;
}

static void
add_frame(BlobFramer *framer, const BlobFrame *frame)
{
	if (framer->leaf_count == BLOB_NODE_ENTRIES)
	{
		BlobNodeEntry full = put_node(framer, 1);

		add_node(framer, 2, &full);
	}
	framer->leaf[framer->leaf_count++] = *frame;
	framer->frame_count++;
	framer->is_changed = true;
}

/* Whether a level or one above has entries. */
static bool
has_entries_from(const BlobFramer *framer, int level)
{
	for (; level <= BLOB_NODE_MAX_LEVEL; level++)
	{
		if (framer->nodes[level] != NULL && framer->nodes[level]->entry_count > 0)
			return true;
	}
	return false;
}

/*
 * Put the nodes that are not full, from the leaf up.  A single entry of the highest level is the
 * root.
 */
static void
put_directory(BlobFramer *framer)
{
	if (!has_entries_from(framer, 2) && framer->leaf_count <= BLOB_FRAMES_INLINE)
	{
		framer->level = 0;
		framer->root_offset = 0;
		return;
	}
	for (int level = 1;; level++)
	{
		int			count = level == 1 ? framer->leaf_count :
			framer->nodes[level] == NULL ? 0 : framer->nodes[level]->entry_count;
		bool		is_highest = !has_entries_from(framer, level + 1);
		BlobNodeEntry entry;

		if (count == 0)
			continue;
		if (level > 1 && count == 1 && is_highest)
		{
			framer->level = level - 1;
			framer->root_offset = framer->nodes[level]->entries[0].stored_offset;
			return;
		}
		entry = put_node(framer, level);
		add_node(framer, level + 1, &entry);
	}
}

/* ---- frames ---- */

/* Whether a method is worth a try on the next frame: content that is compressed already fails. */
static bool
wants_try(BlobFramer *framer)
{
	if (framer->method == BLOB_METHOD_NONE)
		return false;
	if (framer->frames_to_skip == 0)
		return true;
	framer->frames_to_skip--;
	return false;
}

/* Note whether a try has succeeded. */
static void
note_try(BlobFramer *framer, bool has_succeeded)
{
	framer->failed_tries = has_succeeded ? 0 : Min(framer->failed_tries + 1, MAX_TRY_BITS);
	framer->frames_to_skip = (1 << framer->failed_tries) - 1;
}

/* The open frame becomes one that is stored as it is. */
static void
close_open_frame(BlobFramer *framer)
{
	BlobFrame	frame = {
		.content_bytes = (uint32) framer->open_bytes,
		.stored_bytes = (uint32) framer->open_bytes,
		.stored_offset = framer->open_offset,
		.method = BLOB_METHOD_NONE,
		.crc = framer->open_crc
	};

	if (framer->open_bytes == 0)
		return;
	framer->open_offset = framer->open_bytes = 0;
	framer->open_crc = 0;
	add_frame(framer, &frame);
}

/* Put a frame with this content. */
static void
make_frame(BlobFramer *framer, const char *content, uint32 content_bytes)
{
	BlobFrame	frame = {
		.content_bytes = content_bytes,
		.stored_bytes = content_bytes,
		.method = BLOB_METHOD_NONE
	};
	const char *stored = content;

	close_open_frame(framer);
	if (wants_try(framer))
	{
		uint32		bytes = blob_codec_compress(framer->method, content, content_bytes,
												framer->packed,
												content_bytes - content_bytes / 8);

		note_try(framer, bytes > 0);
		if (bytes > 0)
		{
			stored = framer->packed;
			frame.stored_bytes = bytes;
			frame.method = framer->method;
		}
	}
	frame.crc = blob_frame_checksum(stored, frame.stored_bytes);
	frame.stored_offset = framer->stored_bytes;
	put_stored(framer, stored, frame.stored_bytes);
	add_frame(framer, &frame);
}

void
blob_framer_add(BlobFramer *framer, const char *content, uint64 length_bytes)
{
	uint32		frame_bytes = (uint32) 1 << framer->frame_bits;

	while (length_bytes > 0)
	{
		uint32		bytes = (uint32) Min(length_bytes, frame_bytes - framer->content_bytes);

		if (bytes == frame_bytes)
			make_frame(framer, content, frame_bytes);
		else
		{
			memcpy(framer->content + framer->content_bytes, content, bytes);
			framer->content_bytes += bytes;
			if (framer->content_bytes == frame_bytes)
			{
				make_frame(framer, framer->content, frame_bytes);
				framer->content_bytes = 0;
			}
		}
		content += bytes;
		length_bytes -= bytes;
	}
}

void
blob_framer_flush(BlobFramer *framer)
{
	if (framer->content_bytes > 0)
		make_frame(framer, framer->content, framer->content_bytes);
	framer->content_bytes = 0;
}

/*
 * Add the whole pages of the content that waits to the open frame.  It is the last one of the
 * stored bytes, or a new one begins.
 */
static void
put_open_pages(BlobFramer *framer)
{
	uint32		bytes = framer->content_bytes - framer->content_bytes % BLOB_PAGE_SIZE;

	if (bytes == 0)
		return;
	if (framer->open_bytes == 0)
		framer->open_offset = framer->stored_bytes;
	framer->open_crc = blob_frame_checksum_continue(framer->open_crc, framer->content, bytes);
	framer->open_bytes += bytes;
	put_stored(framer, framer->content, bytes);
	framer->content_bytes -= bytes;
	memmove(framer->content, framer->content + bytes, framer->content_bytes);
}

uint32
blob_framer_finish(BlobFramer *framer, bool is_appending, const char **remainder)
{
	uint32		pages_bytes;

	if (!is_appending || framer->content_bytes >= BLOB_GROWN_FRAME_BYTES)
		blob_framer_flush(framer);
	pages_bytes = framer->content_bytes - framer->content_bytes % BLOB_PAGE_SIZE;
	/* A full open frame, or one with anything behind it, cannot go on. */
	if (pages_bytes > 0 &&
		(framer->open_bytes + pages_bytes > (uint64) 1 << framer->frame_bits ||
		 framer->open_offset + framer->open_bytes != framer->stored_bytes))
		close_open_frame(framer);
	if (framer->is_changed)
		put_directory(framer);
	put_padding(framer);
	put_open_pages(framer);
	*remainder = framer->content;
	return framer->content_bytes;
}

const BlobFrame *
blob_framer_describe(const BlobFramer *framer, BlobCompression *compression)
{
	compression->method = (uint8) framer->method;
	compression->frame_bits = framer->frame_bits;
	compression->level = framer->level;
	compression->root_offset = framer->root_offset;
	compression->frame_count = framer->frame_count;
	compression->open_offset = framer->open_offset;
	compression->open_bytes = framer->open_bytes;
	compression->open_crc = framer->open_crc;
	return framer->level == 0 ? framer->leaf : NULL;
}

/* ---- begin and end ---- */

static BlobFramer *
make_framer(BlobMethod method, int frame_bits, BlobFramerPut put, void *context)
{
	BlobFramer *framer;

	blob_method_require((uint8) method);
	framer = palloc0(sizeof(BlobFramer));
	framer->memory = CurrentMemoryContext;
	framer->method = method;
	framer->frame_bits = frame_bits;
	framer->put = put;
	framer->context = context;
	framer->content = palloc((Size) 1 << frame_bits);
	framer->packed = palloc((Size) 1 << frame_bits);
	return framer;
}

BlobFramer *
blob_framer_begin(BlobMethod method, BlobFramerPut put, void *context)
{
	return make_framer(method, BLOB_FRAME_BITS, put, context);
}

BlobFramer *
blob_framer_begin_with(const BlobDescriptor *base, uint64 stored_bytes, BlobFramerPut put,
					   void *context)
{
	BlobFramer *framer = make_framer((BlobMethod) base->compression.method,
									 base->compression.frame_bits, put, context);

	framer->stored_bytes = stored_bytes;
	framer->is_changed = true;
	return framer;
}

/*
 * Take the right edge of a directory over: of each node all entries but the last one, which is
 * opened in turn; of the leaf all frames.
 */
static void
take_right_edge(BlobFramer *framer, const BlobDescriptor *base, const BlobMappingSource *source)
{
	BlobNodeEntry entry = blob_frames_root(base);
	uint8		page[BLOB_PAGE_SIZE];
	BlobNode	node;

	for (int level = base->compression.level; level > 1; level--)
	{
		FramerNode *edge = get_node(framer, level);

		blob_frames_read_node(base, source, &entry, level, page, &node);
		edge->entry_count = node.entry_count - 1;
		for (int i = 0; i < edge->entry_count; i++)
			blob_frames_node_entry(base, page, i, &edge->entries[i]);
		blob_frames_node_entry(base, page, edge->entry_count, &entry);
	}
	blob_frames_read_node(base, source, &entry, 1, page, &node);
	framer->leaf_count = node.entry_count;
	for (int i = 0; i < node.entry_count; i++)
		blob_frames_node_frame(base, page, i, &framer->leaf[i]);
}

BlobFramer *
blob_framer_resume(const BlobDescriptor *base, const BlobMappingSource *source, BlobFramerPut put,
				   void *context)
{
	const BlobCompression *compression = &base->compression;
	BlobFramer *framer = blob_framer_begin_with(base, compression->stored_bytes, put, context);

	framer->frame_count = compression->frame_count;
	framer->level = compression->level;
	framer->root_offset = compression->root_offset;
	framer->open_offset = compression->open_offset;
	framer->open_bytes = compression->open_bytes;
	framer->open_crc = compression->open_crc;
	if (compression->level > 0)
		take_right_edge(framer, base, source);
	else if (compression->frame_count > BLOB_NODE_ENTRIES)
	{
		/* Of another library: its frames get a directory. */
		framer->frame_count = framer->open_offset = framer->open_bytes = framer->open_crc = 0;
		blob_framer_add_frames(framer, base, source, 0, blob_frames_content_bytes(base));
		return framer;
	}
	else
	{
		framer->leaf_count = (int) compression->frame_count;
		for (int i = 0; i < framer->leaf_count; i++)
			blob_frames_datum_frame(base, i, &framer->leaf[i]);
	}
	framer->is_changed = false;
	return framer;
}

void
blob_framer_add_frames(BlobFramer *framer, const BlobDescriptor *base,
					   const BlobMappingSource *source, uint64 from, uint64 to)
{
	BlobFrameCursor cursor;
	bool		goes_on;

	Assert(framer->content_bytes == 0 && framer->open_bytes == 0);
	if (from >= to)
		return;
	blob_frame_cursor_begin(&cursor, base, source);
	for (goes_on = blob_frame_cursor_seek(&cursor, from);
		 goes_on && cursor.content_start + cursor.frame.content_bytes <= to;
		 goes_on = blob_frame_cursor_next(&cursor))
		add_frame(framer, &cursor.frame);
}

void
blob_framer_free(BlobFramer *framer)
{
	for (int level = 2; level <= BLOB_NODE_MAX_LEVEL; level++)
	{
		if (framer->nodes[level] != NULL)
			pfree(framer->nodes[level]);
	}
	pfree(framer->content);
	pfree(framer->packed);
	pfree(framer);
}

bool
blob_framer_is_worth(BlobMethod method, const char *data, uint64 length_bytes)
{
	uint64		parts = Min(MAX_TRIED_PARTS, length_bytes / BYTES_PER_TRIED_PART + 1);
	uint64		part_bytes = Min(TRIED_PART_BYTES, length_bytes);

	if (length_bytes <= BLOB_PAGE_SIZE)
		return false;
	for (uint64 i = 0; i < parts; i++)
	{
		uint64		offset = (length_bytes - part_bytes) / parts * i +
			(length_bytes - part_bytes) / parts / 2;

		if (blob_codec_is_promising(method, data + offset, (uint32) part_bytes))
			return true;
	}
	return false;
}
