/*
 * io/dirty_internal.h
 *	  The list of dirty slabs, for dirty.c, which keeps it, and dirty_write.c, which writes them.
 */
#ifndef BLOB_DIRTY_INTERNAL_H
#define BLOB_DIRTY_INTERNAL_H

#include "io/buffer_slabs.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

typedef struct BlobDirtyShared
{
	LWLock	   *list_lock;
	LWLock	   *removal_lock;
	LWLock	   *gate_lock;
	ConditionVariable written;	/* a process has finished writes */
	volatile bool is_open;		/* read without the lock as a hint */
	uint64		limit_bytes;
	pg_atomic_uint64 next_seq;	/* changed under list_lock, which protects the rest */
	uint32		slab_count;
	pg_atomic_uint64 dirty_bytes;	/* read without the lock as a hint */
	pg_atomic_uint64 unlogged_bytes;	/* of these in slabs that are not logged; likewise */
	pg_atomic_uint64 slab_bytes;	/* memory of the slabs; likewise */
	BufferSlab *list[FLEXIBLE_ARRAY_MEMBER];
} BlobDirtyShared;

/* Which slabs are meant. */
typedef struct BlobDirtyFilter
{
	const BlobStoreId *store;	/* NULL: of all stores */
	uint32		segment_no;		/* BLOB_ALL_SEGMENTS: of all */
	BlobGeneration generation;	/* BLOB_INVALID_GENERATION: of all extents */
	uint64		start_seq;		/* slabs that got dirty pages at this time or later */
	uint64		end_seq;		/* slabs that became dirty before */
	bool		must_succeed;	/* report failures of pages that are not logged, too */
	bool		only_logged;	/* others could not be written, and are left alone */
	bool		only_unlogged;	/* slabs without a logged page */
} BlobDirtyFilter;

/* NULL without shared memory. */
extern BlobDirtyShared *blob_dirty;

static inline uint32
blob_dirty_bytes_of(const BufferSlab *slab)
{
	return slab->dirty_end - slab->dirty_start;
}

/*
 * Set the dirty range; readers look at it without the lock, see readable_bytes() in buffer.c.  Each
 * sum changes in one step: a process that reads a zero in between would take its pages for written.
 */
static inline void
blob_dirty_set_range(BufferSlab *slab, uint32 start, uint32 end)
{
	int64		change = -(int64) blob_dirty_bytes_of(slab);

	if (end == 0)
	{
		slab->dirty_end = 0;
		slab->dirty_start = 0;
	}
	else
	{
		slab->dirty_start = start;
		slab->dirty_end = end;
	}
	change += blob_dirty_bytes_of(slab);
	pg_atomic_fetch_add_u64(&blob_dirty->dirty_bytes, change);
	if (!slab->is_logged)
		pg_atomic_fetch_add_u64(&blob_dirty->unlogged_bytes, change);
}

static inline void
blob_dirty_store_of(const BufferSlab *slab, BlobStoreId *store)
{
	store->dboid = slab->key.dboid;
	store->incarnation = slab->key.incarnation;
}

/* Whether a slab of the list is meant.  All of a slab lies in one segment. */
static inline bool
blob_dirty_matches(const BufferSlab *slab, const BlobDirtyFilter *filter)
{
	BlobStoreId store;

	if (slab->dirty_seq >= filter->end_seq || slab->added_seq < filter->start_seq ||
		(filter->only_logged && !slab->is_logged) ||
		(filter->only_unlogged && slab->is_logged))
		return false;
	if (filter->store == NULL)
		return true;
	blob_dirty_store_of(slab, &store);
	return blob_store_id_equals(&store, filter->store) &&
		(filter->segment_no == BLOB_ALL_SEGMENTS ||
		 filter->segment_no == blob_segment_of(slab->page)) &&
		(filter->generation == BLOB_INVALID_GENERATION ||
		 filter->generation == slab->key.generation);
}

/*
 * dirty.c: the list has each dirty slab in its place, and the sums are those of its slabs.  The
 * caller holds list_lock in any mode.
 */
extern void blob_dirty_assert_list(void);

/*
 * dirty.c: take a slab out of the list, and give up the list's pin.  The caller holds list_lock
 * exclusively.
 */
extern void blob_dirty_remove_slab(BufferSlab *slab);

#endif							/* BLOB_DIRTY_INTERNAL_H */
