/*
 * io/write_counts.c
 *	  Counts of writes of content, see io/write_counts.h.
 */
#include "postgres.h"

#include "io/write_counts.h"
#include "port/atomics.h"
#include "storage/shmem.h"

#define COUNTS 4096

static pg_atomic_uint64 *counts = NULL;

Size
blob_write_counts_shmem_size(void)
{
	return COUNTS * sizeof(pg_atomic_uint64);
}

/* Called under AddinShmemInitLock. */
void
blob_write_counts_shmem_init(void)
{
	bool		found;

	counts = ShmemInitStruct("blobext write counts", blob_write_counts_shmem_size(), &found);
	if (found)
		return;
	for (int i = 0; i < COUNTS; i++)
		pg_atomic_init_u64(&counts[i], 0);
}

static uint32
region_count_no(const BlobStoreId *store, uint64 region)
{
	return (uint32) ((store->incarnation + region) % COUNTS);
}

uint32
blob_write_count_no(const BlobStoreId *store, BlobPageNo page)
{
	return region_count_no(store, page / BLOB_WRITE_REGION_PAGES);
}

uint64
blob_write_count(uint32 count_no)
{
	return pg_atomic_read_u64(&counts[count_no]);
}

void
blob_write_counts_add(const BlobStoreId *store, BlobPageNo first_page, uint64 pages)
{
	uint64		last_region = (first_page + pages - 1) / BLOB_WRITE_REGION_PAGES;

	Assert(pages > 0);
	for (uint64 region = first_page / BLOB_WRITE_REGION_PAGES; region <= last_region; region++)
		pg_atomic_fetch_add_u64(&counts[region_count_no(store, region)], 1);
}
