/*
 * space/space.h
 *	  The extent store of the current database: identity, and allocation of extents.
 */
#ifndef BLOB_SPACE_H
#define BLOB_SPACE_H

#include "core/page.h"
#include "core/tier.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

typedef struct BlobSpace
{
	BlobSpaceId id;
	Relation	map;
	LOCKMODE	lock_mode;		/* held on the map until blob_space_close() */
} BlobSpace;

extern void blob_space_shmem_request(void);
extern void blob_space_shmem_init(void);

/* Whether the library was preloaded; ERROR 55000 with hint if it was not. */
extern bool blob_space_is_preloaded(void);
extern void blob_space_require_preload(void);

/*
 * Open the store of this database: AccessShareLock to read, RowExclusiveLock to allocate.  ERROR
 * where the extension is not installed or the library is not preloaded.
 */
extern void blob_space_open(BlobSpace *space, LOCKMODE lock_mode);
extern void blob_space_close(BlobSpace *space);

/*
 * Allocate the extents of plan for size_bytes of content: extents[] gets plan->extent_count
 * entries and, if there is one, the tail.  Side by side where the free space allows.  They are in
 * the map and in the WAL on return, and stay allocated whatever becomes of the transaction.
 * Returns their number.  ERROR 53100 if the file system is full.
 */
extern int	blob_space_allocate(BlobSpace *space, const BlobTierPlan *plan, uint64 size_bytes,
								BlobExtent *extents);

#endif							/* BLOB_SPACE_H */
