/*
 * blob/tree_edge.h
 *	  The right edge of a directory of pieces that is being made (blob/tree.h).
 *
 * The directory grows at its right edge only, by pieces and by whole nodes of the base.  The edge
 * has the entries of each level that are in no node yet, up to those of two nodes: so it can divide
 * them in halves, and no node but the root has fewer than BLOB_EDGE_MIN_ENTRIES.
 */
#ifndef BLOB_TREE_EDGE_H
#define BLOB_TREE_EDGE_H

#include "blob/frames.h"
#include "blob/tree_live.h"

/* The fewest entries of a node that is not the root. */
#define BLOB_EDGE_MIN_ENTRIES (BLOB_NODE_ENTRIES / 2)

#define BLOB_EDGE_ENTRIES (2 * BLOB_NODE_ENTRIES)

/* Takes the next stored bytes. */
typedef void (*BlobTreePut) (void *context, const char *stored, uint64 length_bytes);

/* The entries of one level; of a node of that level they will be. */
typedef struct BlobEdgeLevel
{
	int			count;
	union
	{
		BlobFrame	frames[BLOB_EDGE_ENTRIES];	/* level 1 */
		BlobNodeEntry nodes[BLOB_EDGE_ENTRIES];
	}			entries;
} BlobEdgeLevel;

/* Only tree_edge.c changes the members. */
typedef struct BlobEdge
{
	MemoryContext context;
	const BlobDescriptor *base;
	const BlobMappingSource *source;
	BlobLive   *live;
	BlobTreePut put;
	void	   *put_context;
	uint64		stored_bytes;	/* stored offset of the next byte */
	BlobEdgeLevel *levels[BLOB_NODE_MAX_LEVEL + 2]; /* from 1 on; NULL: was never used */
} BlobEdge;

/* Begin in the current context; stored_bytes: where new stored bytes go. */
extern void blob_edge_begin(BlobEdge *edge, const BlobDescriptor *base,
							const BlobMappingSource *source, BlobLive *live, uint64 stored_bytes,
							BlobTreePut put, void *put_context);

/* Put stored bytes of a piece.  Returns their stored offset. */
extern uint64 blob_edge_put(BlobEdge *edge, const char *stored, uint64 length_bytes);

/*
 * Add a piece; its live bytes are the caller's matter.  A run that goes on where the last one ends
 * becomes a part of that.
 */
extern void blob_edge_add_piece(BlobEdge *edge, const BlobFrame *piece);

/*
 * Add a node of the base, with all below it, if no node before it would have too few entries.
 * level: that of the node.  Otherwise false; then the entries of the node are to be added, which
 * fill the others.
 */
extern bool blob_edge_add_node(BlobEdge *edge, int level, const BlobNodeEntry *entry);

/* Take the last piece back; false if there is none. */
extern bool blob_edge_take_piece(BlobEdge *edge, BlobFrame *piece);

/*
 * Put all nodes, and zeros up to the end of a page.  Sets level, root_offset and frame_count.
 * There is a piece.
 */
extern void blob_edge_finish(BlobEdge *edge, BlobCompression *compression);

extern void blob_edge_end(BlobEdge *edge);

#endif							/* BLOB_TREE_EDGE_H */
