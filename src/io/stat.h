/*
 * io/stat.h
 *	  Cluster-wide counters in shared memory.  Every layer counts here, and view blobext_stat shows
 *	  them.
 */
#ifndef BLOB_STAT_H
#define BLOB_STAT_H

#include "port/atomics.h"

typedef struct BlobStat
{
	pg_atomic_uint64 stored_blobs;	/* values written to extents */
	pg_atomic_uint64 stored_bytes;	/* their content */
	pg_atomic_uint64 content_reads; /* reads of extents asked for by SQL */
	pg_atomic_uint64 content_read_bytes;	/* bytes they returned */
	pg_atomic_uint64 streamed_bytes;	/* part of content_read_bytes, sent while read */
	pg_atomic_uint64 content_comparisons;	/* comparisons that needed content of extents */
	pg_atomic_uint64 io_reads;		/* requests to the kernel */
	pg_atomic_uint64 io_read_bytes;
	pg_atomic_uint64 ahead_bytes;	/* part of io_read_bytes, read ahead */
	pg_atomic_uint64 io_writes;
	pg_atomic_uint64 io_write_bytes;
	pg_atomic_uint64 cache_hits;	/* chunks served by the buffer */
	pg_atomic_uint64 cache_misses;
	pg_atomic_uint64 syncs;			/* fdatasync calls on segments */
	pg_atomic_uint64 shared_syncs;	/* syncs served by another backend's fdatasync */
	pg_atomic_uint64 syncs_handed_over; /* segments that commits handed to the syncer */
	pg_atomic_uint64 background_syncs;	/* segments that the syncer has synced */
	pg_atomic_uint64 deferred_pages;	/* pages that became dirty in the buffer */
	pg_atomic_uint64 deferred_page_reads;	/* reads of chunks that had such pages */
	pg_atomic_uint64 deferred_writes;	/* requests that wrote such pages */
	pg_atomic_uint64 wal_content_bytes; /* content logged in CONTENT records */
	pg_atomic_uint64 gc_cycles;		/* complete rounds of the collector */
	pg_atomic_uint64 gc_freed_blobs;
	pg_atomic_uint64 gc_freed_bytes;
	pg_atomic_uint64 abandoned_freed_bytes; /* of failed stores, freed by their sessions */
	pg_atomic_uint64 stale_reads;	/* reads refused because an extent was reused */
} BlobStat;

extern BlobStat *blob_stat;

extern Size blob_stat_shmem_size(void);
extern void blob_stat_shmem_init(void);

#define blob_stat_count(member, n) pg_atomic_fetch_add_u64(&blob_stat->member, (n))

#endif							/* BLOB_STAT_H */
