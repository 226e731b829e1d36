/*
 * io/buffer_slabs.h
 *	  Memory of the buffer: slabs, their owners, their replacement.  Only for buffer.c and
 *	  dirty.c.
 *
 * Memory is divided into groups of BLOB_BUFFER_CHUNK_BYTES.  A group is either *whole*, one slab
 * that holds a chunk of a large extent, or *split* into slabs for chunks of small extents.  Groups
 * change from one to the other as the demand does.  Each BLOB_BUFFER_SMALL_CHUNK_BYTES of memory
 * have a slab number.  A whole group has the number of its first part, its head; its other parts
 * have no slab then.
 */
#ifndef BLOB_BUFFER_SLABS_H
#define BLOB_BUFFER_SLABS_H

#include "io/chunk.h"
#include "port/atomics.h"

/* Hashed as bytes: no padding. */
typedef struct BufferKey
{
	uint64		incarnation;
	BlobGeneration generation;	/* 0: the slab is unused */
	uint64		chunk_no;
	Oid			dboid;
	uint32		chunk_bytes;
} BufferKey;

StaticAssertDecl(sizeof(BufferKey) == 32, "BufferKey must not have padding");

typedef struct BufferSlab
{
	pg_atomic_uint32 pins;		/* number of readers, or a state of buffer_slabs.c */
	pg_atomic_uint32 usage;		/* of the clock; races lose a count, no more */
	bool		is_whole;		/* head of a whole group; changed under ownership */
	uint32		valid_start;	/* bytes of the chunk that are content: written */
	uint32		valid_end;		/* by the owner, read by readers with a pin; raised by
								 * a writer with a pin */
	BufferKey	key;			/* written by the owner, read by it or with a pin */
	uint32		rewrites_seen;	/* by repairs, before the slab was filled; as the key */

	/* Of a slab that a fill of a neighbour has filled; as the key. */
	bool		is_neighbour;
	uint32		count_no;		/* see io/write_counts.h */
	uint64		count_seen;		/* before the fill */

	/*
	 * Of a dirty slab, which has a pin for that; changed under the list lock of dirty.c.  Readers
	 * with a pin look at the range without that lock.
	 */
	uint32		dirty_start;	/* bytes of the chunk, whole pages; 0 and 0: clean */
	uint32		dirty_end;
	uint32		dirty_no;		/* place in the list */
	bool		is_logged;		/* a part of the range is in the WAL */
	bool		is_writing;		/* a process writes a part of the range */
	BlobPageNo	page;			/* where the chunk begins */
	uint64		dirty_seq;		/* when the slab became dirty */
	uint64		added_seq;		/* when the last pages of it became dirty */
} BufferSlab;

extern Size blob_slabs_shmem_size(void);
extern void blob_slabs_shmem_init(void);

/* Slabs that exist when all groups are split, according to the setting; 0 if there is no buffer. */
extern uint32 blob_slabs_configured(void);

extern BufferSlab *blob_slab(uint32 slab_no);
extern uint32 blob_slab_number(const BufferSlab *slab);

/* The content of a pinned or owned slab. */
extern char *blob_slab_content(const BufferSlab *slab);

/*
 * Keep the slab from being owned; false if it is owned.  The caller holds the partition lock
 * of the slab's key.
 */
extern bool blob_slab_pin(BufferSlab *slab);
extern void blob_slab_unpin(BufferSlab *slab);

/* Count a use, for the clock. */
extern void blob_slab_touch(BufferSlab *slab);

/* Mark an owned slab as not used yet, for the clock. */
extern void blob_slab_set_unused(BufferSlab *slab);

/*
 * Take the slab, if no process reads or owns it; and end the ownership, so that readers may pin it.
 */
extern bool blob_slab_own(BufferSlab *slab);
extern void blob_slab_disown(BufferSlab *slab);

/* End the ownership, and keep a pin, so that the slab stays as it is. */
extern void blob_slab_disown_pinned(BufferSlab *slab);

/*
 * Take an unused or little used slab for a chunk of this size.  evict is called for each owned
 * slab that has a key, and takes that key out of the table.  NULL if the sweep finds no slab.
 */
extern BufferSlab *blob_slab_take(uint32 chunk_bytes, void (*evict) (BufferSlab *slab));

/*
 * The same for a certain slab, if it has this key still, and has hardly been used.  NULL if not.
 */
extern BufferSlab *blob_slab_take_again(BufferSlab *slab, const BufferKey *key,
										void (*evict) (BufferSlab *slab));

#endif							/* BLOB_BUFFER_SLABS_H */
