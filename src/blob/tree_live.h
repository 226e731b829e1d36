/*
 * blob/tree_live.h
 *	  Live bytes of a tree that is being made (core/descriptor.h): how many stored bytes of each
 *	  slot its pieces and nodes lie in.
 *
 * A change knows what it takes from the base, what it leaves, and what it adds.  So the numbers are
 * exact, without a look at the parts of the directory that the new tree shares.
 */
#ifndef BLOB_TREE_LIVE_H
#define BLOB_TREE_LIVE_H

#include "core/descriptor.h"

/* A slot of the base, or an extent of a base that is no tree. */
typedef struct BlobLiveSlot
{
	uint64		start;			/* stored offset */
	uint64		bytes;
	uint64		live_bytes;
} BlobLiveSlot;

/* Stored bytes behind those of the base. */
typedef struct BlobLiveRange
{
	uint64		start;
	uint64		bytes;
	bool		is_taken_back;
} BlobLiveRange;

typedef struct BlobLive
{
	MemoryContext context;
	BlobLiveSlot slots[BLOB_TREE_MAX_SLOTS];
	int			slot_count;
	uint64		new_start;		/* stored offset of the first new byte */
	BlobLiveRange *ranges;
	int64		range_count;
	int64		range_room;
} BlobLive;

/*
 * Begin with the slots of a base, which has at most BLOB_TREE_MAX_SLOTS extents.  Of a tree all
 * live bytes count until they are taken back; of another value none until they are added.
 * new_start: a stored offset behind those of the base.  Memory is allocated in the current context.
 */
extern void blob_live_begin(BlobLive *live, const BlobDescriptor *base, uint64 new_start);

/* Stored bytes become live. */
extern void blob_live_add(BlobLive *live, uint64 stored_offset, uint64 length_bytes);

/* They are not live any more. */
extern void blob_live_take(BlobLive *live, uint64 stored_offset, uint64 length_bytes);

/*
 * The live bytes of a slot of the new tree: one of the base, which may have become longer, or a new
 * one.
 */
extern uint64 blob_live_bytes(const BlobLive *live, uint64 start, uint64 length_bytes);

extern void blob_live_end(BlobLive *live);

#endif							/* BLOB_TREE_LIVE_H */
