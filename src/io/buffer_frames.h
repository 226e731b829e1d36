/*
 * io/buffer_frames.h
 *	  Memory of the buffer: frames, their owners, their replacement.  Only for buffer.c and
 *	  dirty.c.
 *
 * Memory is divided into groups of BLOB_BUFFER_CHUNK_BYTES.  A group is either *whole*, one frame
 * that holds a chunk of a large extent, or *split* into frames for chunks of small extents.  Groups
 * change from one to the other as the demand does.  Each BLOB_BUFFER_SMALL_CHUNK_BYTES of memory
 * have a frame number.  A whole group has the number of its first part, its head; its other parts
 * have no frame then.
 */
#ifndef BLOB_BUFFER_FRAMES_H
#define BLOB_BUFFER_FRAMES_H

#include "io/buffer.h"
#include "port/atomics.h"

/* Hashed as bytes: no padding. */
typedef struct BufferKey
{
	uint64		incarnation;
	BlobGeneration generation;	/* 0: the frame is unused */
	uint64		chunk_no;
	Oid			dboid;
	uint32		chunk_bytes;
} BufferKey;

StaticAssertDecl(sizeof(BufferKey) == 32, "BufferKey must not have padding");

typedef struct BufferFrame
{
	pg_atomic_uint32 pins;		/* number of readers, or a state of cache_frames.c */
	pg_atomic_uint32 usage;		/* of the clock; races lose a count, no more */
	bool		is_whole;		/* head of a whole group; changed under a claim */
	uint32		valid_start;	/* bytes of the chunk that are content: written */
	uint32		valid_end;		/* by the claimant, read by readers with a pin; raised by
								 * a writer with a pin */
	BufferKey	key;			/* written by the claimant, read by it or with a pin */
	uint32		rewrites_seen;	/* by repairs, before the frame was filled; as the key */

	/* Of a frame that a fill of a neighbour has filled; as the key. */
	bool		is_neighbour;
	uint32		count_no;		/* see io/write_counts.h */
	uint64		count_seen;		/* before the fill */

	/*
	 * Of a dirty frame, which has a pin for that; changed under the list lock of dirty.c.  Readers
	 * with a pin look at the range without that lock.
	 */
	uint32		dirty_start;	/* bytes of the chunk, whole pages; 0 and 0: clean */
	uint32		dirty_end;
	uint32		dirty_no;		/* place in the list */
	bool		is_logged;		/* a part of the range is in the WAL */
	bool		is_writing;		/* a process writes a part of the range */
	BlobPageNo	page;			/* where the chunk begins */
	uint64		dirty_seq;		/* when the frame became dirty */
	uint64		added_seq;		/* when the last pages of it became dirty */
} BufferFrame;

extern Size blob_frames_shmem_size(void);
extern void blob_frames_shmem_init(void);

/* Frames that exist when all groups are split, according to the setting; 0 if there is no cache. */
extern uint32 blob_frames_configured(void);

extern BufferFrame *blob_frame(uint32 frame_no);
extern uint32 blob_frame_number(const BufferFrame *frame);

/* The content of a pinned or claimed frame. */
extern char *blob_frame_content(const BufferFrame *frame);

/*
 * Keep the frame from being claimed; false if it is claimed.  The caller holds the partition lock
 * of the frame's key.
 */
extern bool blob_frame_pin(BufferFrame *frame);
extern void blob_frame_unpin(BufferFrame *frame);

/* Count a use, for the clock. */
extern void blob_frame_touch(BufferFrame *frame);

/* Mark a claimed frame as not used yet, for the clock. */
extern void blob_frame_set_unused(BufferFrame *frame);

/*
 * Claim the frame, if no process reads or owns it; and end the claim, so that readers may pin it.
 */
extern bool blob_frame_claim(BufferFrame *frame);
extern void blob_frame_disclaim(BufferFrame *frame);

/* End the claim, and keep a pin, so that the frame stays as it is. */
extern void blob_frame_disclaim_pinned(BufferFrame *frame);

/*
 * Claim an unused or little used frame for a chunk of this size.  evict is called for each claimed
 * frame that has a key, and takes that key out of the table.  NULL if the sweep finds no frame.
 */
extern BufferFrame *blob_frame_take(uint32 chunk_bytes, void (*evict) (BufferFrame *frame));

/*
 * The same for a certain frame, if it has this key still, and has hardly been used.  NULL if not.
 */
extern BufferFrame *blob_frame_take_again(BufferFrame *frame, const BufferKey *key,
										  void (*evict) (BufferFrame *frame));

#endif							/* BLOB_BUFFER_FRAMES_H */
