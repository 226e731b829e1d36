/*
 * io/stat.c
 *	  Counters in shared memory, of the whole server and of each database.
 *
 * Plain atomics: they are advanced once per request or per value, not per page, and no reader needs
 * a consistent set of them.  They start at zero with the server.
 */
#include "postgres.h"

#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "storage/shmem.h"

BlobStat   *blob_stat = NULL;
BlobDatabaseStat *blob_database_stats = NULL;

static Size
database_stats_bytes(void)
{
	return mul_size(blob_segment_database_room(), sizeof(BlobDatabaseStat));
}

Size
blob_stat_shmem_size(void)
{
	return add_size(MAXALIGN(sizeof(BlobStat)), MAXALIGN(database_stats_bytes()));
}

static void
init_database_stat(BlobDatabaseStat *stat)
{
	pg_atomic_init_u32(&stat->database, InvalidOid);
	pg_atomic_init_u64(&stat->stored_blobs, 0);
	pg_atomic_init_u64(&stat->stored_bytes, 0);
	pg_atomic_init_u64(&stat->content_reads, 0);
	pg_atomic_init_u64(&stat->content_read_bytes, 0);
	pg_atomic_init_u64(&stat->stale_reads, 0);
}

static void
init_database_stats(void)
{
	bool		found;

	blob_database_stats = ShmemInitStruct("blobext database statistics", database_stats_bytes(),
										  &found);
	if (found)
		return;
	for (int i = 0; i < blob_segment_database_room(); i++)
		init_database_stat(&blob_database_stats[i]);
}

/* Make or attach to the counters.  Called under AddinShmemInitLock. */
void
blob_stat_shmem_init(void)
{
	bool		found;

	init_database_stats();
	blob_stat = ShmemInitStruct("blobext statistics", sizeof(BlobStat), &found);
	if (found)
		return;

	pg_atomic_init_u64(&blob_stat->stored_blobs, 0);
	pg_atomic_init_u64(&blob_stat->stored_bytes, 0);
	pg_atomic_init_u64(&blob_stat->content_reads, 0);
	pg_atomic_init_u64(&blob_stat->content_read_bytes, 0);
	pg_atomic_init_u64(&blob_stat->streamed_bytes, 0);
	pg_atomic_init_u64(&blob_stat->content_comparisons, 0);
	for (int i = 0; i <= BLOB_IO_METHOD_SYNC; i++)
		pg_atomic_init_u64(&blob_stat->io_requests[i], 0);
	pg_atomic_init_u64(&blob_stat->io_reads, 0);
	pg_atomic_init_u64(&blob_stat->io_read_bytes, 0);
	pg_atomic_init_u64(&blob_stat->ahead_bytes, 0);
	pg_atomic_init_u64(&blob_stat->io_writes, 0);
	pg_atomic_init_u64(&blob_stat->io_write_bytes, 0);
	pg_atomic_init_u64(&blob_stat->trailing_write_bytes, 0);
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
	pg_atomic_init_u64(&blob_stat->punched_bytes, 0);
	pg_atomic_init_u64(&blob_stat->filled_bytes, 0);
	pg_atomic_init_u64(&blob_stat->stale_reads, 0);
	pg_atomic_init_u64(&blob_stat->damaged_pages, 0);
	pg_atomic_init_u64(&blob_stat->damage_unlisted, 0);
	pg_atomic_init_u64(&blob_stat->repaired_pages, 0);
}

/* Free entries have zeros: no process of a database that is gone counts any more. */
BlobDatabaseStat *
blob_stat_of_database(void)
{
	static BlobDatabaseStat *mine = NULL;
	static BlobDatabaseStat uncounted;

	if (mine != NULL)
		return mine;
	if (OidIsValid(MyDatabaseId))
	{
		for (int i = 0; i < blob_segment_database_room(); i++)
		{
			BlobDatabaseStat *stat = &blob_database_stats[i];
			uint32		database = InvalidOid;

			/* If it fails, `database` is whose entry it is, perhaps since a moment ago. */
			if (pg_atomic_compare_exchange_u32(&stat->database, &database, MyDatabaseId) ||
				database == MyDatabaseId)
				return mine = stat;
		}
	}
	init_database_stat(&uncounted);
	return mine = &uncounted;
}

void
blob_stat_forget_database(Oid database)
{
	for (int i = 0; i < blob_segment_database_room(); i++)
	{
		BlobDatabaseStat *stat = &blob_database_stats[i];

		if (pg_atomic_read_u32(&stat->database) != database)
			continue;
		pg_atomic_write_u64(&stat->stored_blobs, 0);
		pg_atomic_write_u64(&stat->stored_bytes, 0);
		pg_atomic_write_u64(&stat->content_reads, 0);
		pg_atomic_write_u64(&stat->content_read_bytes, 0);
		pg_atomic_write_u64(&stat->stale_reads, 0);
		pg_write_barrier();
		pg_atomic_write_u32(&stat->database, InvalidOid);
	}
}
