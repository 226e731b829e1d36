/*
 * io/stat.h
 *	  Counters in shared memory, of the whole server and of each database.  Every layer counts here;
 *	  the views blobext_stat and blobext_databases show them.
 */
#ifndef BLOB_STAT_H
#define BLOB_STAT_H

#include "core/settings.h"
#include "port/atomics.h"

typedef struct BlobStat
{
	pg_atomic_uint64 stored_blobs;	/* values written to extents */
	pg_atomic_uint64 stored_bytes;	/* their content */
	pg_atomic_uint64 content_reads; /* reads of extents asked for by SQL */
	pg_atomic_uint64 content_read_bytes;	/* bytes they returned */
	pg_atomic_uint64 streamed_bytes;	/* part of content_read_bytes, sent while read */
	pg_atomic_uint64 content_comparisons;	/* comparisons that needed content of extents */
	pg_atomic_uint64 io_requests[BLOB_IO_METHOD_SYNC + 1];	/* by BlobIoMethod, both below */
	pg_atomic_uint64 io_reads;		/* requests to the kernel */
	pg_atomic_uint64 io_read_bytes;
	pg_atomic_uint64 ahead_bytes;	/* part of io_read_bytes, read ahead */
	pg_atomic_uint64 io_writes;
	pg_atomic_uint64 io_write_bytes;
	pg_atomic_uint64 trailing_write_bytes;	/* part of io_write_bytes */
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
	pg_atomic_uint64 punched_bytes; /* of free pages, given back to the file system */
	pg_atomic_uint64 filled_bytes;	/* of such pages, taken again */
	pg_atomic_uint64 stale_reads;	/* reads refused because an extent was reused */
	pg_atomic_uint64 damaged_pages; /* pages without their checksum that came into the list */
	pg_atomic_uint64 damage_unlisted;	/* findings of such pages while the list was full */
	pg_atomic_uint64 repaired_pages;	/* listed pages that were written anew */
} BlobStat;

/*
 * What a database adds to the counters of the same names.  Entries are taken by compare-and-swap
 * and read without a lock.  A database may have two of them: their sum counts.
 */
typedef struct BlobDatabaseStat
{
	pg_atomic_uint32 database;	/* invalid: the entry is free */
	pg_atomic_uint64 stored_blobs;
	pg_atomic_uint64 stored_bytes;
	pg_atomic_uint64 content_reads;
	pg_atomic_uint64 content_read_bytes;
	pg_atomic_uint64 stale_reads;
} BlobDatabaseStat;

extern BlobStat *blob_stat;

/* An array of blob_segment_database_room() entries. */
extern BlobDatabaseStat *blob_database_stats;

/*
 * The entry of this process's database, made at the first call.  If all are taken, or the process
 * has no database, it is memory of the process that no view shows.
 */
extern BlobDatabaseStat *blob_stat_of_database(void);

/*
 * Free the entries of a database.  Its DROP has ended all its processes, so none has a pointer to
 * them, and none can connect to a database with the same OID before this returns.
 */
extern void blob_stat_forget_database(Oid database);

extern Size blob_stat_shmem_size(void);
extern void blob_stat_shmem_init(void);

#define blob_stat_count(member, n) pg_atomic_fetch_add_u64(&blob_stat->member, (n))

/* The same, of the server and of the database. */
#define blob_stat_count_in_database(member, n) \
	do { \
		uint64		blob_stat_n = (n); \
		pg_atomic_fetch_add_u64(&blob_stat->member, blob_stat_n); \
		pg_atomic_fetch_add_u64(&blob_stat_of_database()->member, blob_stat_n); \
	} while (0)

#endif							/* BLOB_STAT_H */
