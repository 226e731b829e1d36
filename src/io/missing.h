/*
 * io/missing.h
 *	  What the segment files of this server lack: content that another server wrote and did not log.
 *
 * A server that was made from another one's files and WAL has no content where that one did not
 * log it (blobext.wal_content): its files have zeros there, or bytes of some earlier value.  Redo
 * notes the generations of such extents in a file of the store, "missing", beside the segments, so
 * that it goes wherever they go: a backup of this server lacks the same.  A generation is never
 * given twice, so an entry stays true for ever.
 */
#ifndef BLOB_MISSING_H
#define BLOB_MISSING_H

#include "core/page.h"

extern Size blob_missing_shmem_size(void);
extern void blob_missing_shmem_init(void);

/* Startup process only: note these generations.  Durable, and seen by everybody, on return. */
extern void blob_missing_add(const BlobStoreId *store, const BlobGenerationRange *ranges,
							 int range_count);

/* Whether content of the extent of this generation is missing.  May read the file. */
extern bool blob_missing_contains(const BlobStoreId *store, BlobGeneration generation);

/* How many generations are missing. */
extern uint64 blob_missing_count(const BlobStoreId *store);

#endif							/* BLOB_MISSING_H */
