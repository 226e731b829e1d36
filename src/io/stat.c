/*
 * io/stat.c
 *	  Cluster-wide counters in shared memory.
 *
 * Plain atomics: they are advanced once per request or per value, not per page, and no reader needs
 * a consistent set of them.  They start at zero with the server.
 */
#include "postgres.h"

#include "io/stat.h"
#include "storage/shmem.h"

BlobStat   *blob_stat = NULL;

Size
blob_stat_shmem_size(void)
{
	return MAXALIGN(sizeof(BlobStat));
}

/* Make or attach to the counters.  Called under AddinShmemInitLock. */
void
blob_stat_shmem_init(void)
{
	bool		found;

	blob_stat = ShmemInitStruct("blobext statistics", sizeof(BlobStat), &found);
	if (found)
		return;

	pg_atomic_init_u64(&blob_stat->stored_blobs, 0);
	pg_atomic_init_u64(&blob_stat->stored_bytes, 0);
	pg_atomic_init_u64(&blob_stat->content_reads, 0);
	pg_atomic_init_u64(&blob_stat->content_read_bytes, 0);
	pg_atomic_init_u64(&blob_stat->streamed_bytes, 0);
	pg_atomic_init_u64(&blob_stat->content_comparisons, 0);
	pg_atomic_init_u64(&blob_stat->io_reads, 0);
	pg_atomic_init_u64(&blob_stat->io_read_bytes, 0);
	pg_atomic_init_u64(&blob_stat->ahead_bytes, 0);
	pg_atomic_init_u64(&blob_stat->io_writes, 0);
	pg_atomic_init_u64(&blob_stat->io_write_bytes, 0);
	pg_atomic_init_u64(&blob_stat->cache_hits, 0);
	pg_atomic_init_u64(&blob_stat->cache_misses, 0);
	pg_atomic_init_u64(&blob_stat->syncs, 0);
	pg_atomic_init_u64(&blob_stat->shared_syncs, 0);
	pg_atomic_init_u64(&blob_stat->syncs_handed_over, 0);
	pg_atomic_init_u64(&blob_stat->background_syncs, 0);
	pg_atomic_init_u64(&blob_stat->deferred_pages, 0);
	pg_atomic_init_u64(&blob_stat->deferred_page_reads, 0);
	pg_atomic_init_u64(&blob_stat->deferred_writes, 0);
	pg_atomic_init_u64(&blob_stat->wal_content_bytes, 0);
	pg_atomic_init_u64(&blob_stat->gc_cycles, 0);
	pg_atomic_init_u64(&blob_stat->gc_freed_blobs, 0);
	pg_atomic_init_u64(&blob_stat->gc_freed_bytes, 0);
	pg_atomic_init_u64(&blob_stat->abandoned_freed_bytes, 0);
	pg_atomic_init_u64(&blob_stat->stale_reads, 0);
}
