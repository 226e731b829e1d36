/*
 * io/io.c
 *	  Shared memory of the whole folder: one request, one initialisation.
 */
#include "postgres.h"

#include "io/deferred.h"
#include "io/cache.h"
#include "io/engine_internal.h"
#include "io/io.h"
#include "io/io_internal.h"
#include "io/unlogged.h"
#include "io/segment.h"
#include "io/stat.h"
#include "io/syncer.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

/*
 * Ask for shared memory and locks.  The cache's tranche is requested even where the cache is off,
 * so that the list of tranches does not depend on a setting.
 */
void
blob_io_shmem_request(void)
{
	Size		bytes = 0;

	bytes = add_size(bytes, blob_stat_shmem_size());
	bytes = add_size(bytes, blob_segment_shmem_size());
	bytes = add_size(bytes, blob_segment_sync_shmem_size());
	bytes = add_size(bytes, blob_cache_shmem_size());
	bytes = add_size(bytes, blob_unlogged_shmem_size());
	bytes = add_size(bytes, blob_syncer_shmem_size());
	bytes = add_size(bytes, blob_deferred_shmem_size());
	RequestAddinShmemSpace(bytes);

	RequestNamedLWLockTranche(BLOB_SYNC_TRANCHE, BLOB_SYNC_SLOTS);
	RequestNamedLWLockTranche(BLOB_CACHE_TRANCHE, BLOB_CACHE_PARTITIONS);
	RequestNamedLWLockTranche(BLOB_SYNCER_TRANCHE, 1);
	RequestNamedLWLockTranche(BLOB_DEFERRED_TRANCHE, BLOB_DEFERRED_LOCKS);
}

/* Make or attach to all shared structures of this folder.  The caller holds AddinShmemInitLock. */
void
blob_io_shmem_init(void)
{
	blob_stat_shmem_init();
	blob_segment_shmem_init();
	blob_segment_sync_shmem_init();
	blob_cache_shmem_init();
	blob_unlogged_shmem_init();
	blob_syncer_shmem_init();
	blob_deferred_shmem_init();
}

void
blob_io_process_begins(void)
{
	blob_uring_process_begins();
	blob_cache_process_begins();
}
