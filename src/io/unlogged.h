/*
 * io/unlogged.h
 *	  Unlogged content: what another server wrote and did not log, so that this one lacks it.
 *
 * A server that was made from another one's files and WAL has no content where that one did not
 * log it (blobext.wal_content): its files have zeros there, or bytes of some earlier value.  Redo
 * notes the generations of such extents in a file of the store, "missing", beside the segments, so
 * that it goes wherever they go: a backup of this server lacks the same.  A generation is never
 * given twice, so an entry stays true for ever.
 */
#ifndef BLOB_UNLOGGED_H
#define BLOB_UNLOGGED_H

#include "core/page.h"

extern Size blob_unlogged_shmem_size(void);
extern void blob_unlogged_shmem_init(void);

/* Startup process only: note these generations.  Durable, and seen by everybody, on return. */
extern void blob_unlogged_add(const BlobStoreId *store, const BlobGenerationRange *ranges,
							  int range_count);

/* Whether content of the extent of this generation is unlogged.  May read the file. */
extern bool blob_unlogged_contains(const BlobStoreId *store, BlobGeneration generation);

/* How many generations are unlogged. */
extern uint64 blob_unlogged_count(const BlobStoreId *store);

#endif							/* BLOB_UNLOGGED_H */
