/*
 * io/syncer.h
 *	  Content that is in the WAL is made durable in the background; see the README of this folder.
 */
#ifndef BLOB_SYNCER_H
#define BLOB_SYNCER_H

#include "access/xlogdefs.h"
#include "core/page.h"

extern Size blob_syncer_shmem_size(void);
extern void blob_syncer_shmem_init(void);

/* Register the background process; from _PG_init. */
extern void blob_syncer_register(void);

/*
 * Hand a segment over, all of whose writes since `redo` was asked for are complete (or put, see
 * deferred.h) and logged; `redo` is what GetRedoRecPtr() said before the first of these writes was
 * started, and `removals` what blob_segment_removals() said before the file was seen to be
 * there.  True: no checkpoint makes their records superfluous before the segment has been synced,
 * so for what depends on a flush of the WAL they are as good as durable.  False: the caller has
 * to sync. Takes an LWLock; never throws.
 */
extern bool blob_syncer_hand_over(const BlobStoreId *store, uint32 segment_no, XLogRecPtr redo,
								  uint64 removals);

/*
 * The file of a segment, or with BLOB_ALL_SEGMENTS one of a store that goes as a whole, has been
 * removed.  Between blob_deferred_begin_removal() and blob_deferred_end_removal().
 */
extern void blob_syncer_forget(const BlobStoreId *store, uint32 segment_no);

/* Whether a segment that is handed over soon is likely to be taken; if not, ask for that. */
extern bool blob_syncer_is_ready(void);

/* It shall look at the table of deferred writes. */
extern void blob_syncer_wake(void);

extern PGDLLEXPORT void blob_syncer_main(Datum argument);

#endif							/* BLOB_SYNCER_H */
