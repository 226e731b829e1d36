/*
 * store/unlogged.h
 *	  Unlogged content: content that another server wrote and did not log, so that this one lacks
 *	  it.
 *
 * A server may be a copy, made from another one's files and WAL.  If that server did not log some
 * content (blobext.wal_content), the copy's files have zeros there, or bytes of some earlier value.
 * Redo notes the generations of such extents in a file of the store, "missing".  The file lies
 * beside the segments, so that it goes wherever they go: a backup of the copy lacks the same.  A
 * generation is never drawn twice, so an entry stays true until the content is fetched from another
 * server (heal/), or the store is dropped.  Content of files that were lost is noted in the same
 * way.
 */
#ifndef BLOB_UNLOGGED_H
#define BLOB_UNLOGGED_H

#include "core/page.h"

extern Size blob_unlogged_shmem_size(void);
extern void blob_unlogged_shmem_init(void);

/*
 * Changes are made by one process at a time: in recovery by the startup process, otherwise by the
 * process that has the lock of heal/.  On return a change is durable, and all processes see it.
 */

/* Note these generations. */
extern void blob_unlogged_add(const BlobStoreId *store, const BlobGenerationRange *ranges,
							  int range_count);

/*
 * The content of these generations is there now, and durable: forget them.  An ERROR leaves the
 * note as it was.
 */
extern void blob_unlogged_remove(const BlobStoreId *store, const BlobGenerationRange *ranges,
								 int range_count);

/* The file of a store went with its directory: processes keep no copy of it. */
extern void blob_unlogged_file_removed(void);

/* The ranges that are noted, sorted, in palloc'd memory; returns their number. */
extern int	blob_unlogged_ranges(const BlobStoreId *store, BlobGenerationRange **ranges);

/* Whether content of the extent of this generation is unlogged.  May read the file "missing". */
extern bool blob_unlogged_contains(const BlobStoreId *store, BlobGeneration generation);

/*
 * Moves before and after a range is removed; a full barrier.  If it is the same before bytes are
 * copied and after blob_unlogged_contains() was asked about them, the answer is true of the moment
 * of the copy.
 */
extern uint64 blob_unlogged_version(void);

/* How many generations are unlogged. */
extern uint64 blob_unlogged_count(const BlobStoreId *store);

#endif							/* BLOB_UNLOGGED_H */
