/*
 * blob/tree_edge.c
 *	  The right edge of a directory of pieces, see blob/tree_edge.h.
 *
 * A node that has been put is never read again: its bytes may wait in the writer's buffer.  It need
 * not be.  A level puts a node while it keeps enough entries for another one, or because a node of
 * the base is added behind it.  So wherever a level has too few entries at the end, the node before
 * it is one of the base.
 */
#include "postgres.h"

#include "blob/tree_edge.h"

void
blob_edge_begin(BlobEdge *edge, const BlobDescriptor *base, const BlobMappingSource *source,
				BlobLive *live, uint64 stored_bytes, BlobTreePut put, void *put_context)
{
	memset(edge, 0, sizeof(*edge));
	edge->context = CurrentMemoryContext;
	edge->base = base;
	edge->source = source;
	edge->live = live;
	edge->stored_bytes = stored_bytes;
	edge->put = put;
	edge->put_context = put_context;
}

void
blob_edge_end(BlobEdge *edge)
{
	for (int level = 1; level <= BLOB_NODE_MAX_LEVEL + 1; level++)
	{
		if (edge->levels[level] != NULL)
			pfree(edge->levels[level]);
		edge->levels[level] = NULL;
	}
}

/* ---- stored bytes ---- */

uint64
blob_edge_put(BlobEdge *edge, const char *stored, uint64 length_bytes)
{
	uint64		offset = edge->stored_bytes;

	edge->put(edge->put_context, stored, length_bytes);
	edge->stored_bytes += length_bytes;
	return offset;
}

/* Nodes begin at a page. */
static void
put_padding(BlobEdge *edge)
{
	static const char zeros[BLOB_PAGE_SIZE];
	uint64		partial = edge->stored_bytes % BLOB_PAGE_SIZE;

	if (partial > 0)
		(void) blob_edge_put(edge, zeros, BLOB_PAGE_SIZE - partial);
}

/* ---- levels ---- */

static BlobEdgeLevel *
get_level(BlobEdge *edge, int level)
{
	/* One level above the highest has the root's entry. */
	if (level < 1 || level > BLOB_NODE_MAX_LEVEL + 1)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a blobstate value has too many pieces")));
	if (edge->levels[level] == NULL)
	{
		edge->levels[level] = MemoryContextAlloc(edge->context, sizeof(BlobEdgeLevel));
		edge->levels[level]->count = 0;
	}
	return edge->levels[level];
}

static int
count_of(const BlobEdge *edge, int level)
{
	return edge->levels[level] == NULL ? 0 : edge->levels[level]->count;
}

/* The lowest level from this one on that has entries, or 0. */
static int
find_level(const BlobEdge *edge, int level)
{
	for (; level <= BLOB_NODE_MAX_LEVEL + 1; level++)
	{
		if (count_of(edge, level) > 0)
			return level;
	}
	return 0;
}

static void add_entry(BlobEdge *edge, int level, const BlobNodeEntry *entry);

/* Put a node of the first entries of a level, which leave it, and enter it in the level above. */
static void
put_node(BlobEdge *edge, int level, int count)
{
	BlobEdgeLevel *entries = edge->levels[level];
	uint8		page[BLOB_PAGE_SIZE];
	BlobNodeEntry node = {0};

	Assert(count > 0 && count <= BLOB_NODE_ENTRIES && count <= entries->count);
	if (level > BLOB_NODE_MAX_LEVEL)
		(void) get_level(edge, level + 1);	/* which fails */
	put_padding(edge);
	if (level == 1)
	{
		for (int i = 0; i < count; i++)
			node.content_bytes += entries->entries.frames[i].content_bytes;
		node.frame_count = count;
		blob_node_pack_frames(page, entries->entries.frames, count);
	}
	else
	{
		for (int i = 0; i < count; i++)
		{
			node.content_bytes += entries->entries.nodes[i].content_bytes;
			node.frame_count += entries->entries.nodes[i].frame_count;
		}
		blob_node_pack(page, level, entries->entries.nodes, count);
	}
	node.stored_offset = blob_edge_put(edge, (const char *) page, BLOB_PAGE_SIZE);
	blob_live_add(edge->live, node.stored_offset, BLOB_PAGE_SIZE);
	entries->count -= count;
	if (level == 1)
		memmove(entries->entries.frames, entries->entries.frames + count,
				sizeof(BlobFrame) * entries->count);
	else
		memmove(entries->entries.nodes, entries->entries.nodes + count,
				sizeof(BlobNodeEntry) * entries->count);
	add_entry(edge, level + 1, &node);
}

/* Make room for an entry. */
static BlobEdgeLevel *
make_room(BlobEdge *edge, int level)
{
	BlobEdgeLevel *entries = get_level(edge, level);

	if (entries->count == BLOB_EDGE_ENTRIES)
		put_node(edge, level, BLOB_NODE_ENTRIES);
	return entries;
}

static void
add_entry(BlobEdge *edge, int level, const BlobNodeEntry *entry)
{
	BlobEdgeLevel *entries = make_room(edge, level);

	entries->entries.nodes[entries->count++] = *entry;
}

/* Put all entries of a level: one node, or two halves. */
static void
put_level(BlobEdge *edge, int level)
{
	int			count = count_of(edge, level);

	if (count > BLOB_NODE_ENTRIES)
	{
		put_node(edge, level, count / 2);
		count -= count / 2;
	}
	if (count > 0)
		put_node(edge, level, count);
}

void
blob_edge_add_piece(BlobEdge *edge, const BlobFrame *piece)
{
	BlobEdgeLevel *entries = get_level(edge, 1);
	BlobFrame  *last = entries->count > 0 ? &entries->entries.frames[entries->count - 1] : NULL;

	if (last != NULL && last->is_run && piece->is_run &&
		last->stored_offset + last->stored_bytes == piece->stored_offset &&
		last->content_bytes <= BLOB_RUN_MAX_BYTES - piece->content_bytes)
	{
		last->content_bytes += piece->content_bytes;
		last->stored_bytes += piece->stored_bytes;
		return;
	}
	entries = make_room(edge, 1);
	entries->entries.frames[entries->count++] = *piece;
}

/* Whether all entries of the levels up to this one can be put, with enough for each node. */
static bool
can_put_levels(const BlobEdge *edge, int to_level)
{
	int			new_nodes = 0;	/* of the level below */

	for (int level = 1; level <= to_level; level++)
	{
		int			count = count_of(edge, level) + new_nodes;

		if (count > 0 && count < BLOB_EDGE_MIN_ENTRIES)
			return false;
		new_nodes = count == 0 ? 0 : count > BLOB_NODE_ENTRIES ? 2 : 1;
	}
	return true;
}

bool
blob_edge_add_node(BlobEdge *edge, int level, const BlobNodeEntry *entry)
{
	if (!can_put_levels(edge, level))
		return false;
	for (int i = 1; i <= level; i++)
		put_level(edge, i);
	add_entry(edge, level + 1, entry);
	return true;
}

/* ---- back ---- */

/* Whether the last node of a level's entries was put by this change, and cannot be read. */
static bool
is_last_new(const BlobEdge *edge, int level)
{
	const BlobEdgeLevel *entries = edge->levels[level];

	return entries->entries.nodes[entries->count - 1].stored_offset >= edge->live->new_start;
}

/*
 * Take the last node of a level's entries out of the level, and put its entries before those of the
 * level below.  It is a node of the base.
 */
static void
open_last(BlobEdge *edge, int level)
{
	BlobEdgeLevel *entries = edge->levels[level];
	BlobEdgeLevel *below = get_level(edge, level - 1);
	BlobNodeEntry entry = entries->entries.nodes[--entries->count];
	uint8		page[BLOB_PAGE_SIZE];
	BlobNode	node;

	blob_frames_read_node(edge->base, edge->source, &entry, level - 1, page, &node);
	blob_live_take(edge->live, entry.stored_offset, BLOB_PAGE_SIZE);
	Assert(below->count + node.entry_count <= BLOB_EDGE_ENTRIES);
	if (level - 1 == 1)
		memmove(below->entries.frames + node.entry_count, below->entries.frames,
				sizeof(BlobFrame) * below->count);
	else
		memmove(below->entries.nodes + node.entry_count, below->entries.nodes,
				sizeof(BlobNodeEntry) * below->count);
	for (int i = 0; i < node.entry_count; i++)
	{
		if (level - 1 == 1)
			blob_frames_node_frame(edge->base, page, i, &below->entries.frames[i]);
		else
			blob_frames_node_entry(edge->base, page, i, &below->entries.nodes[i]);
	}
	below->count += node.entry_count;
}

/*
 * Bring entries to a level that has none, from those above; false if these have none, or new ones
 * in a value whose nodes another library has left with too few entries.
 */
static bool
fill_level(BlobEdge *edge, int level)
{
	int			from = find_level(edge, level);

	if (from == 0)
		return false;
	for (; from > level; from--)
	{
		if (is_last_new(edge, from))
			return false;
		open_last(edge, from);
	}
	return true;
}

bool
blob_edge_take_piece(BlobEdge *edge, BlobFrame *piece)
{
	if (!fill_level(edge, 1))
		return false;
	*piece = edge->levels[1]->entries.frames[--edge->levels[1]->count];
	return true;
}

/* ---- the end ---- */

/*
 * Put the entries of a level below the highest one.  If they are too few, those of the node before
 * them join; then the level may become the highest one.
 */
static void
put_lower_level(BlobEdge *edge, int level)
{
	while (count_of(edge, level) < BLOB_EDGE_MIN_ENTRIES && fill_level(edge, level + 1) &&
		   !is_last_new(edge, level + 1))
		open_last(edge, level + 1);
	if (find_level(edge, level + 1) != 0)
		put_level(edge, level);
}

void
blob_edge_finish(BlobEdge *edge, BlobCompression *compression)
{
	for (int level = find_level(edge, 1);; level++)
	{
		const BlobNodeEntry *root;

		if (count_of(edge, level) > 0 && find_level(edge, level + 1) != 0)
			put_lower_level(edge, level);
		if (find_level(edge, level + 1) != 0)
			continue;
		if (level == 1 || count_of(edge, level) > 1)
		{
			put_level(edge, level);
			continue;
		}
		root = &edge->levels[level]->entries.nodes[0];
		compression->level = level - 1;
		compression->root_offset = root->stored_offset;
		compression->frame_count = root->frame_count;
		break;
	}
	put_padding(edge);
}
