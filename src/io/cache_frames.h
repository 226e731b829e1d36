/*
 * io/cache_frames.h
 *	  Memory of the read cache: frames, their owners, their replacement.  Only for cache.c.
 *
 * Memory is divided into groups of BLOB_CACHE_CHUNK_BYTES.  A group is either *whole*, one frame
 * that holds a chunk of a large extent, or *split* into frames for chunks of small extents.  Groups
 * change from one to the other as the demand does.  Each BLOB_CACHE_SMALL_CHUNK_BYTES of memory
 * have a frame number.  A whole group has the number of its first part, its head; its other parts
 * have no frame then.
 */
#ifndef BLOB_CACHE_FRAMES_H
#define BLOB_CACHE_FRAMES_H

#include "io/cache.h"
#include "port/atomics.h"

/* Hashed as bytes: no padding. */
typedef struct CacheKey
{
	uint64		incarnation;
	BlobGeneration generation;	/* 0: the frame is unused */
	uint64		chunk_no;
	Oid			dboid;
	uint32		chunk_bytes;
} CacheKey;

StaticAssertDecl(sizeof(CacheKey) == 32, "CacheKey must not have padding");

typedef struct CacheFrame
{
	pg_atomic_uint32 pins;		/* number of readers, or a state of cache_frames.c */
	pg_atomic_uint32 usage;		/* of the clock; races lose a count, no more */
	bool		is_whole;		/* head of a whole group; changed under a claim */
	uint32		valid_start;	/* bytes of the chunk that are content: written */
	uint32		valid_end;		/* by the claimant, read by readers with a pin */
	CacheKey	key;			/* written and read by the claimant only */
} CacheFrame;

extern Size blob_frames_shmem_size(void);
extern void blob_frames_shmem_init(void);

/* Frames that exist when all groups are split, according to the setting; 0 if there is no cache. */
extern uint32 blob_frames_configured(void);

extern CacheFrame *blob_frame(uint32 frame_no);
extern uint32 blob_frame_number(const CacheFrame *frame);

/* The content of a pinned or claimed frame. */
extern char *blob_frame_content(const CacheFrame *frame);

/*
 * Keep the frame from being claimed; false if it is claimed.  The caller holds the partition lock
 * of the frame's key.
 */
extern bool blob_frame_pin(CacheFrame *frame);
extern void blob_frame_unpin(CacheFrame *frame);

/* Count a use, for the clock. */
extern void blob_frame_touch(CacheFrame *frame);

/* Mark a claimed frame as not used yet, for the clock. */
extern void blob_frame_set_unused(CacheFrame *frame);

/*
 * Claim the frame, if no process reads or owns it; and end the claim, so that readers may pin it.
 */
extern bool blob_frame_claim(CacheFrame *frame);
extern void blob_frame_disclaim(CacheFrame *frame);

/*
 * Claim an unused or little used frame for a chunk of this size.  evict is called for each claimed
 * frame that has a key, and takes that key out of the table.  NULL if the sweep finds no frame.
 */
extern CacheFrame *blob_frame_take(uint32 chunk_bytes, void (*evict) (CacheFrame *frame));

#endif							/* BLOB_CACHE_FRAMES_H */
