/*
 * store/map_internal.h
 *	  Declarations that map.c, map_meta.c and map_holes.c share.
 */
#ifndef BLOB_MAP_INTERNAL_H
#define BLOB_MAP_INTERNAL_H

#include "store/map_page.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "wal/insert.h"

/* The content of rd_amcache; PostgreSQL frees it with the relation's cache entry. */
typedef struct BlobMapCache
{
	BlobStoreId store;
	BlockNumber block_count;	/* a lower bound: maps never shrink */
} BlobMapCache;

/* map_meta.c: make rd_amcache, by the meta page. */
extern void blob_map_load_cache(Relation map);

static inline BlobMapCache *
blob_map_cache(Relation map)
{
	if (map->rd_amcache == NULL)
		blob_map_load_cache(map);
	return map->rd_amcache;
}

/* map_meta.c: lock the meta page exclusively, and read its present content. */
extern Buffer blob_map_lock_meta(Relation map, BlobMapMeta *meta);

/*
 * map.c: pin a map block for a change, extending the relation up to it.  New blocks stay zero until
 * a process initialises them under the buffer's lock.
 */
extern Buffer blob_map_pin_block(Relation map, BlockNumber block);

/* map.c: apply the changes of one pinned and locked block.  Inside of the critical section. */
extern void blob_map_apply_block(BlobWalMapBlock *block);

/* Which entries are visited: each kind has those of the one before, too. */
typedef enum BlobMapVisited
{
	BLOB_VISIT_EXTENTS,
	BLOB_VISIT_HOLLOW,			/* those of hollow pages */
	BLOB_VISIT_DAMAGED			/* those that no library writes */
} BlobMapVisited;

/*
 * map.c: call visit for the entries in [first_page, end_page) of these kinds.  Works on copies of
 * the blocks, so that no lock is held during visit.
 */
extern void blob_map_visit_entries(Relation map, BlobPageNo first_page, BlobPageNo end_page,
								   BlobMapVisited visited, BufferAccessStrategy strategy,
								   void (*visit) (BlobPageNo page, const BlobMapEntry *entry,
												  void *context),
								   void *context);

#endif							/* BLOB_MAP_INTERNAL_H */
