/*
 * io/io.c
 *	  Shared memory of the whole folder: one request, one initialisation.
 */
#include "postgres.h"

#include "core/settings.h"
#include "io/buffer.h"
#include "io/dirty.h"
#include "io/engine_internal.h"
#include "io/io.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "io/stat.h"
#include "io/syncer.h"
#include "io/write_counts.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"

/*
 * Replace the default size of the buffer by a number, as PostgreSQL does for wal_buffers: by a
 * quarter of shared_buffers, at least 64 MB.
 */
static void
choose_buffer_size(void)
{
	int64		kb = Max((int64) NBuffers * (BLCKSZ / 1024) / 4, 64 * 1024);
	char		text[32];

	if (blob_buffer_kb != -1)
		return;
	snprintf(text, sizeof(text), "%dkB", (int) Min(kb, INT_MAX));
	SetConfigOption("blobext.cache_size", text, PGC_POSTMASTER, PGC_S_DYNAMIC_DEFAULT);
	/* A value of the configuration file takes precedence, even if it is the same as the default. */
	if (blob_buffer_kb == -1)
		SetConfigOption("blobext.cache_size", text, PGC_POSTMASTER, PGC_S_OVERRIDE);
}

/*
 * Ask for shared memory and locks.  The buffer's tranche is requested even where the buffer is off,
 * so that the list of tranches does not depend on a setting.
 */
void
blob_io_shmem_request(void)
{
	Size		bytes = 0;

	choose_buffer_size();
	bytes = add_size(bytes, blob_stat_shmem_size());
	bytes = add_size(bytes, blob_segment_shmem_size());
	bytes = add_size(bytes, blob_segment_sync_shmem_size());
	bytes = add_size(bytes, blob_buffer_shmem_size());
	bytes = add_size(bytes, blob_write_counts_shmem_size());
	bytes = add_size(bytes, blob_syncer_shmem_size());
	bytes = add_size(bytes, blob_dirty_shmem_size());
	bytes = add_size(bytes, blob_engine_shmem_size());
	RequestAddinShmemSpace(bytes);

	RequestNamedLWLockTranche(BLOB_SYNC_TRANCHE, BLOB_SYNC_SLOTS);
	RequestNamedLWLockTranche(BLOB_BUFFER_TRANCHE, BLOB_BUFFER_PARTITIONS);
	RequestNamedLWLockTranche(BLOB_SYNCER_TRANCHE, 1);
	RequestNamedLWLockTranche(BLOB_DIRTY_TRANCHE, BLOB_DIRTY_LOCKS);
}

/* Make or attach to all shared structures of this folder.  The caller holds AddinShmemInitLock. */
void
blob_io_shmem_init(void)
{
	blob_stat_shmem_init();
	blob_segment_shmem_init();
	blob_segment_sync_shmem_init();
	blob_buffer_shmem_init();
	blob_write_counts_shmem_init();
	blob_syncer_shmem_init();
	blob_dirty_shmem_init();
	blob_engine_shmem_init();
}

void
blob_io_process_begins(void)
{
	blob_engine_process_begins();
	blob_buffer_process_begins();
}
