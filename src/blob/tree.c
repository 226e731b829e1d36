/*
 * blob/tree.c
 *	  Making trees of pieces, see blob/tree.h.
 *
 * One pass over the base, from its beginning to its end: the walk takes kept pieces and nodes to
 * the right edge of the new directory, and takes back the live bytes of the rest.  Bytes that are
 * to be put wait until they are enough for a piece.
 */
#include "postgres.h"

#include "blob/mapping.h"
#include "blob/tree.h"
#include "core/codec.h"
#include "miscadmin.h"

/* After failures a method is tried on every second piece, every fourth, up to every 16th. */
#define MAX_TRY_BITS 4

/* A node of the base on the path to the walk's position. */
typedef struct PathNode
{
	int			count;
	int			next;			/* entry that the walk comes to next */
	union
	{
		BlobFrame	frames[BLOB_NODE_ENTRIES];	/* level 1 */
		BlobNodeEntry nodes[BLOB_NODE_ENTRIES];
	}			entries;
} PathNode;

struct BlobTree
{
	MemoryContext context;
	const BlobDescriptor *base;
	const BlobMappingSource *source;
	BlobMethod	method;
	int			frame_bits;
	uint32		min_bytes;		/* of a piece's content */
	BlobLive	live;
	BlobEdge	edge;
	/* new content that waits: */
	char	   *content;
	uint32		content_bytes;
	uint32		capacity;		/* of a frame, and the shortest piece behind it */
	char	   *packed;			/* a frame while it is compressed; NULL: no method */
	int			failed_tries;	/* one after the other */
	int			frames_to_skip; /* before the next try */
	/* the walk: */
	uint64		position;		/* content offset in the base */
	PathNode   *path[BLOB_NODE_MAX_LEVEL + 1];	/* of a tree: nodes that were opened, by level */
	int			bottom;			/* level of the lowest open node */
	BlobFrameCursor *frames;	/* of a compressed base: the piece to come */
	bool		has_frame;
	bool		has_piece;		/* the walk is inside of a piece */
	BlobFrame	piece;
	uint64		piece_done;		/* content bytes of it */
};

/* ---- new pieces ---- */

/* Whether the method is worth a try on the next frame: content that is compressed already fails. */
static bool
wants_try(BlobTree *tree)
{
	if (tree->packed == NULL)
		return false;
	if (tree->frames_to_skip == 0)
		return true;
	tree->frames_to_skip--;
	return false;
}

/* Put a frame, compressed if that makes it shorter by an eighth. */
static void
put_frame(BlobTree *tree, const char *content, uint32 length_bytes)
{
	BlobFrame	frame = {
		.content_bytes = length_bytes,
		.stored_bytes = length_bytes,
		.method = BLOB_METHOD_NONE
	};
	const char *stored = content;

	if (wants_try(tree))
	{
		uint32		bytes = blob_codec_compress(tree->method, content, length_bytes, tree->packed,
												length_bytes - length_bytes / 8);

		tree->failed_tries = bytes > 0 ? 0 : Min(tree->failed_tries + 1, MAX_TRY_BITS);
		tree->frames_to_skip = (1 << tree->failed_tries) - 1;
		if (bytes > 0)
		{
			stored = tree->packed;
			frame.stored_bytes = bytes;
			frame.method = tree->method;
		}
	}
	frame.crc = blob_frame_checksum(stored, frame.stored_bytes);
	frame.stored_offset = blob_edge_put(&tree->edge, stored, frame.stored_bytes);
	blob_live_add(&tree->live, frame.stored_offset, frame.stored_bytes);
	blob_edge_add_piece(&tree->edge, &frame);
}

static void
put_run(BlobTree *tree, const char *content, uint32 length_bytes)
{
	BlobFrame	run = {
		.is_run = true,
		.content_bytes = length_bytes,
		.stored_bytes = length_bytes,
		.method = BLOB_METHOD_NONE
	};

	run.stored_offset = blob_edge_put(&tree->edge, content, length_bytes);
	blob_live_add(&tree->live, run.stored_offset, length_bytes);
	blob_edge_add_piece(&tree->edge, &run);
}

/* Put the first bytes of the content that waits as a piece. */
static void
put_piece(BlobTree *tree, uint32 length_bytes)
{
	if (tree->method == BLOB_METHOD_NONE)
		put_run(tree, tree->content, length_bytes);
	else
		put_frame(tree, tree->content, length_bytes);
	tree->content_bytes -= length_bytes;
	memmove(tree->content, tree->content + length_bytes, tree->content_bytes);
}

/* Put all content that waits: more than a frame in halves. */
static void
flush_content(BlobTree *tree)
{
	if (tree->content_bytes > (uint32) 1 << tree->frame_bits)
		put_piece(tree, tree->content_bytes / 2);
	if (tree->content_bytes > 0)
		put_piece(tree, tree->content_bytes);
}

/* Room behind the content that waits, at least one byte; a frame is put if there is none. */
static uint32
make_room(BlobTree *tree)
{
	if (tree->content_bytes == tree->capacity)
		put_piece(tree, (uint32) 1 << tree->frame_bits);
	return tree->capacity - tree->content_bytes;
}

void
blob_tree_add(BlobTree *tree, const char *content, uint64 length_bytes)
{
	while (length_bytes > 0)
	{
		uint32		bytes = (uint32) Min(length_bytes, make_room(tree));

		memcpy(tree->content + tree->content_bytes, content, bytes);
		tree->content_bytes += bytes;
		content += bytes;
		length_bytes -= bytes;
	}
}

/* Read content of the base, which is to be put anew. */
static void
add_content(BlobTree *tree, uint64 offset, uint64 length_bytes)
{
	while (length_bytes > 0)
	{
		uint32		bytes = (uint32) Min(length_bytes, make_room(tree));

		blob_mapping_read(tree->base, offset, bytes, tree->content + tree->content_bytes,
						  tree->source);
		tree->content_bytes += bytes;
		offset += bytes;
		length_bytes -= bytes;
	}
}

/* Whether a piece of the base may be entered behind the content that waits, if any. */
static bool
may_flush(const BlobTree *tree)
{
	return tree->content_bytes == 0 || tree->content_bytes >= tree->min_bytes;
}

/* ---- live bytes of the base ---- */

/* Those of a tree count from the beginning, those of another value when they are entered. */
static void
note_kept(BlobTree *tree, uint64 stored_offset, uint64 length_bytes)
{
	if (!tree->base->is_tree)
		blob_live_add(&tree->live, stored_offset, length_bytes);
}

static void
note_dropped(BlobTree *tree, uint64 stored_offset, uint64 length_bytes)
{
	if (tree->base->is_tree)
		blob_live_take(&tree->live, stored_offset, length_bytes);
}

/* Take back the live bytes of a node of this level, and of all below it. */
static void
drop_node(BlobTree *tree, int level, const BlobNodeEntry *entry)
{
	uint8	   *page = palloc(BLOB_PAGE_SIZE);
	BlobNode	node;

	CHECK_FOR_INTERRUPTS();
	blob_frames_read_node(tree->base, tree->source, entry, level, page, &node);
	note_dropped(tree, entry->stored_offset, BLOB_PAGE_SIZE);
	for (int i = 0; i < node.entry_count; i++)
	{
		BlobNodeEntry below;
		BlobFrame	piece;

		if (level > 1)
		{
			blob_frames_node_entry(tree->base, page, i, &below);
			drop_node(tree, level - 1, &below);
			continue;
		}
		blob_frames_node_frame(tree->base, page, i, &piece);
		note_dropped(tree, piece.stored_offset, piece.stored_bytes);
	}
	pfree(page);
}

/* ---- pieces of the base ---- */

/* A part of a run: content from piece_done on. */
static void
keep_run(BlobTree *tree, uint64 length_bytes)
{
	BlobFrame	run = tree->piece;
	uint64		joined = 0;		/* bytes that join the content that waits */

	if (!may_flush(tree))
		joined = Min(length_bytes, tree->min_bytes - tree->content_bytes);
	if (length_bytes - joined < tree->min_bytes)
		joined = length_bytes;
	run.stored_offset += tree->piece_done;
	add_content(tree, tree->position, joined);
	note_dropped(tree, run.stored_offset, joined);
	if (joined == length_bytes)
		return;
	flush_content(tree);
	run.stored_offset += joined;
	run.content_bytes = run.stored_bytes = (uint32) (length_bytes - joined);
	note_kept(tree, run.stored_offset, run.stored_bytes);
	blob_edge_add_piece(&tree->edge, &run);
}

/* A part of a frame: it is entered as a whole, or its content is put anew. */
static void
keep_frame(BlobTree *tree, uint64 length_bytes)
{
	const BlobFrame *frame = &tree->piece;

	if (length_bytes == frame->content_bytes && length_bytes >= tree->min_bytes &&
		may_flush(tree))
	{
		flush_content(tree);
		note_kept(tree, frame->stored_offset, frame->stored_bytes);
		blob_edge_add_piece(&tree->edge, frame);
		return;
	}
	if (tree->piece_done == 0)
		note_dropped(tree, frame->stored_offset, frame->stored_bytes);
	add_content(tree, tree->position, length_bytes);
}

/* The next bytes of the piece that the walk is in. */
static void
walk_piece(BlobTree *tree, uint64 length_bytes, bool is_kept)
{
	const BlobFrame *piece = &tree->piece;

	if (is_kept && piece->is_run)
		keep_run(tree, length_bytes);
	else if (is_kept)
		keep_frame(tree, length_bytes);
	else if (piece->is_run)
		note_dropped(tree, piece->stored_offset + tree->piece_done, length_bytes);
	else if (tree->piece_done == 0)
		note_dropped(tree, piece->stored_offset, piece->stored_bytes);
	tree->piece_done += length_bytes;
	tree->position += length_bytes;
	tree->has_piece = tree->piece_done < piece->content_bytes;
}

/* ---- the walk ---- */

/* Content of the base that is not in pieces: its remainder begins here. */
static uint64
end_of_pieces(const BlobTree *tree)
{
	return tree->base->size_bytes - tree->base->remainder_bytes;
}

/* Open a node of the base: the walk goes on inside of it. */
static void
open_node(BlobTree *tree, int level, const BlobNodeEntry *entry)
{
	uint8		page[BLOB_PAGE_SIZE];
	PathNode   *opened;
	BlobNode	node;

	CHECK_FOR_INTERRUPTS();
	blob_frames_read_node(tree->base, tree->source, entry, level, page, &node);
	note_dropped(tree, entry->stored_offset, BLOB_PAGE_SIZE);
	if (tree->path[level] == NULL)
		tree->path[level] = MemoryContextAlloc(tree->context, sizeof(PathNode));
	opened = tree->path[level];
	opened->count = node.entry_count;
	opened->next = 0;
	for (int i = 0; i < node.entry_count; i++)
	{
		if (level == 1)
			blob_frames_node_frame(tree->base, page, i, &opened->entries.frames[i]);
		else
			blob_frames_node_entry(tree->base, page, i, &opened->entries.nodes[i]);
	}
	tree->bottom = level;
}

/* The next piece of a base that is no tree, at the walk's position. */
static void
find_flat_piece(BlobTree *tree)
{
	BlobFrame  *piece = &tree->piece;
	uint64		left = end_of_pieces(tree) - tree->position;

	if (tree->base->is_compressed)
	{
		Assert(tree->has_frame && tree->frames->content_start == tree->position);
		*piece = tree->frames->frame;
		tree->has_frame = blob_frame_cursor_next(tree->frames);
		return;
	}
	memset(piece, 0, sizeof(*piece));
	piece->is_run = true;
	piece->method = BLOB_METHOD_NONE;
	piece->stored_offset = tree->position;
	/* No short run is left behind. */
	piece->content_bytes = (uint32) (left > BLOB_RUN_MAX_BYTES &&
									 left < BLOB_RUN_MAX_BYTES + tree->min_bytes ?
									 left / 2 : Min(left, BLOB_RUN_MAX_BYTES));
	piece->stored_bytes = piece->content_bytes;
}

/*
 * Go on to the next piece of a tree.  Nodes that lie before the end of the range as a whole are
 * shared or dropped; false if the walk's position has changed by that.
 */
static bool
find_tree_piece(BlobTree *tree, uint64 end, bool is_kept)
{
	for (;;)
	{
		PathNode   *node = tree->path[tree->bottom];
		const BlobNodeEntry *entry;
		int			below = tree->bottom - 1;

		if (node->next == node->count)
		{
			Assert(tree->bottom < tree->base->compression.level);
			tree->bottom++;
			continue;
		}
		if (below == 0)
		{
			tree->piece = node->entries.frames[node->next++];
			return true;
		}
		entry = &node->entries.nodes[node->next++];
		if (entry->content_bytes > end - tree->position)
		{
			open_node(tree, below, entry);
			continue;
		}
		if (!is_kept)
			drop_node(tree, below, entry);
		else
		{
			bool		is_shared = false;

			if (may_flush(tree))
			{
				flush_content(tree);
				is_shared = blob_edge_add_node(&tree->edge, below, entry);
			}
			if (!is_shared)
			{
				open_node(tree, below, entry);
				continue;
			}
		}
		tree->position += entry->content_bytes;
		return false;
	}
}

/* Go on to a content offset of the base, and take or leave the content before it. */
static void
walk(BlobTree *tree, uint64 end, bool is_kept)
{
	uint64		pieces_end = Min(end, end_of_pieces(tree));

	Assert(end >= tree->position && end <= tree->base->size_bytes);
	while (tree->position < pieces_end)
	{
		if (!tree->has_piece)
		{
			if (!tree->base->is_tree)
				find_flat_piece(tree);
			else if (!find_tree_piece(tree, pieces_end, is_kept))
				continue;
			tree->has_piece = true;
			tree->piece_done = 0;
		}
		walk_piece(tree, Min(pieces_end - tree->position,
							 tree->piece.content_bytes - tree->piece_done), is_kept);
	}
	if (is_kept)
		add_content(tree, tree->position, end - tree->position);
	tree->position = end;
}

void
blob_tree_keep(BlobTree *tree, uint64 from, uint64 to)
{
	walk(tree, from, false);
	walk(tree, to, true);
}

/* ---- begin and end ---- */

BlobTree *
blob_tree_begin(const BlobDescriptor *base, const BlobMappingSource *source, uint64 stored_offset,
				BlobTreePut put, void *context)
{
	BlobTree   *tree = palloc0(sizeof(BlobTree));

	Assert(stored_offset % BLOB_PAGE_SIZE == 0);
	tree->context = CurrentMemoryContext;
	tree->base = base;
	tree->source = source;
	tree->method = base->is_compressed ? (BlobMethod) base->compression.method : BLOB_METHOD_NONE;
	tree->frame_bits = base->is_compressed ? base->compression.frame_bits : BLOB_FRAME_BITS;
	blob_method_require((uint8) tree->method);
	tree->min_bytes = Min(BLOB_PIECE_MIN_BYTES, ((uint32) 1 << tree->frame_bits) / 4);
	tree->capacity = ((uint32) 1 << tree->frame_bits) + tree->min_bytes;
	tree->content = palloc(tree->capacity);
	if (tree->method != BLOB_METHOD_NONE)
		tree->packed = palloc((Size) 1 << tree->frame_bits);
	blob_live_begin(&tree->live, base, stored_offset);
	blob_edge_begin(&tree->edge, base, source, &tree->live, stored_offset, put, context);
	if (base->is_tree)
	{
		BlobNodeEntry root = blob_frames_root(base);

		open_node(tree, base->compression.level, &root);
	}
	else if (base->is_compressed)
	{
		tree->frames = palloc(sizeof(BlobFrameCursor));
		blob_frame_cursor_begin(tree->frames, base, source);
		tree->has_frame = blob_frame_cursor_seek(tree->frames, 0);
	}
	return tree;
}

/*
 * The content that waits at the end is too short for a piece: the end of the last piece, which is
 * one of the base, joins it.
 */
static void
join_last_piece(BlobTree *tree)
{
	BlobFrame	piece;
	uint32		joined;
	char	   *content;

	if (!blob_edge_take_piece(&tree->edge, &piece))
		return;
	if (piece.stored_offset + piece.stored_bytes > tree->live.new_start)
	{
		/* In a value that another library left with shorter pieces: it cannot be read yet. */
		blob_edge_add_piece(&tree->edge, &piece);
		return;
	}
	joined = piece.content_bytes;
	if (piece.is_run && piece.content_bytes >= 2 * tree->min_bytes)
		joined = tree->min_bytes;
	Assert(joined < tree->capacity);
	content = palloc(joined);
	blob_frames_read_piece(tree->base, tree->source, &piece, piece.content_bytes - joined, joined,
						   content);
	if (piece.is_run)
		blob_live_take(&tree->live, piece.stored_offset + piece.stored_bytes - joined, joined);
	else
		blob_live_take(&tree->live, piece.stored_offset, piece.stored_bytes);
	if (joined < piece.content_bytes)
	{
		piece.content_bytes -= joined;
		piece.stored_bytes -= joined;
		blob_edge_add_piece(&tree->edge, &piece);
	}
	/* Less than the shortest piece waits, so there is room for all of it. */
	memmove(tree->content + joined, tree->content, tree->content_bytes);
	memcpy(tree->content, content, joined);
	tree->content_bytes += joined;
	pfree(content);
}

void
blob_tree_finish(BlobTree *tree, BlobCompression *compression)
{
	walk(tree, tree->base->size_bytes, false);
	if (!may_flush(tree))
		join_last_piece(tree);
	flush_content(tree);
	memset(compression, 0, sizeof(*compression));
	compression->method = (uint8) tree->method;
	compression->frame_bits = tree->frame_bits;
	blob_edge_finish(&tree->edge, compression);
}

uint64
blob_tree_live_bytes(const BlobTree *tree, uint64 start, uint64 length_bytes)
{
	return blob_live_bytes(&tree->live, start, length_bytes);
}

void
blob_tree_free(BlobTree *tree)
{
	for (int level = 1; level <= BLOB_NODE_MAX_LEVEL; level++)
	{
		if (tree->path[level] != NULL)
			pfree(tree->path[level]);
	}
	if (tree->frames != NULL)
		pfree(tree->frames);
	if (tree->packed != NULL)
		pfree(tree->packed);
	blob_edge_end(&tree->edge);
	blob_live_end(&tree->live);
	pfree(tree->content);
	pfree(tree);
}
