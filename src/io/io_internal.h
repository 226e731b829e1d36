/*
 * io/io_internal.h
 *	  Declarations that the files of this folder share, and no other folder should use.
 */
#ifndef BLOB_IO_INTERNAL_H
#define BLOB_IO_INTERNAL_H

#include "core/compat.h"
#include "core/page.h"

/* LWLock tranches (names are shown as wait events) and how many locks each has. */
#define BLOB_SYNC_TRANCHE "blobext_sync"
#define BLOB_SYNC_SLOTS 1024
#define BLOB_SYNCER_TRANCHE "blobext_syncer"
#define BLOB_DEFERRED_TRANCHE "blobext_deferred"
#define BLOB_DEFERRED_LOCKS 2
#define BLOB_CACHE_TRANCHE "blobext_cache"
#define BLOB_CACHE_PARTITIONS 16

/* preload.c: raise the ERROR for a library that was not preloaded, and has no shared memory. */
pg_noreturn extern void blob_io_not_preloaded(void);

/* segment.c: fsync() a directory, PANIC on failure. */
extern void blob_segment_sync_directory(const char *path);

/* segment.c: count the removal of a file, see blob_segment_removals(); a full barrier. */
extern void blob_segment_count_removal(void);

/* segment_sync.c */
extern Size blob_segment_sync_shmem_size(void);
extern void blob_segment_sync_shmem_init(void);

#endif							/* BLOB_IO_INTERNAL_H */
