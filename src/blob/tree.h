/*
 * blob/tree.h
 *	  Makes a tree of pieces (core/descriptor.h) out of parts of a value and new bytes, by copying
 *	  the paths that change.
 *
 * The owner adds ranges of the base's content, in the order of their offsets, and new bytes. Nodes
 * of the base's directory that lie in such a range as a whole are shared, with all below them;
 * pieces that do are entered in new nodes.  Of content that is left out only the nodes above it
 * are read, so that its live bytes can be taken back.  No piece becomes shorter than
 * BLOB_PIECE_MIN_BYTES, unless the value is: its content joins that of its neighbours, and is put
 * anew.
 *
 * The base may be a value of any form in extents.  The content of a plain one becomes runs where it
 * lies, the frames of a compressed one are entered in a directory of pieces.
 *
 * Like a framer, a tree allocates and writes nothing itself: stored bytes leave in their order,
 * through a function of the owner.  Their number is a multiple of the page at the end.
 */
#ifndef BLOB_TREE_H
#define BLOB_TREE_H

#include "blob/tree_edge.h"

/*
 * Content of the shortest piece; of values whose frames are shorter than four times that, a quarter
 * of a frame.  Not part of the format.
 */
#define BLOB_PIECE_MIN_BYTES (16 * 1024)

typedef struct BlobTree BlobTree;

/*
 * Begin, in the current context.  base and source stay where they are.  stored_offset: where new
 * stored bytes go, a multiple of the page, behind all of the base.  The base has at most
 * BLOB_TREE_MAX_SLOTS extents.  ERROR 0A000 if its method is not built in.
 */
extern PGDLLEXPORT BlobTree *blob_tree_begin(const BlobDescriptor *base,
											 const BlobMappingSource *source,
											 uint64 stored_offset, BlobTreePut put,
											 void *context);

/* Add the content [from, to) of the base; from is not before the end of the last range. */
extern PGDLLEXPORT void blob_tree_keep(BlobTree *tree, uint64 from, uint64 to);

/* Add new content. */
extern PGDLLEXPORT void blob_tree_add(BlobTree *tree, const char *content, uint64 length_bytes);

/*
 * Put the last stored bytes, and set the fields of the value but stored_bytes.  Some content was
 * added.
 */
extern PGDLLEXPORT void blob_tree_finish(BlobTree *tree, BlobCompression *compression);

/* After that: the live bytes of a slot. */
extern PGDLLEXPORT uint64 blob_tree_live_bytes(const BlobTree *tree, uint64 start,
											   uint64 length_bytes);

extern PGDLLEXPORT void blob_tree_free(BlobTree *tree);

#endif							/* BLOB_TREE_H */
