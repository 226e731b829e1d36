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
#define BLOB_DIRTY_TRANCHE "blobext_dirty"
#define BLOB_DIRTY_LOCKS 3
#define BLOB_BUFFER_TRANCHE "blobext_buffer"
#define BLOB_BUFFER_PARTITIONS 16

/* preload.c: raise the ERROR for a library that was not preloaded, and has no shared memory. */
pg_noreturn extern void blob_io_not_preloaded(void);

/* segment.c: fsync() a directory, PANIC on failure. */
extern void blob_segment_sync_directory(const char *path);

/* segment.c: count the removal of this file, see blob_segment_removals(); a full barrier. */
extern void blob_segment_count_removal(const char *path);

/* segment_sync.c */
extern Size blob_segment_sync_shmem_size(void);
extern void blob_segment_sync_shmem_init(void);

#endif							/* BLOB_IO_INTERNAL_H */
