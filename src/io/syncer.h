/*
 * io/syncer.h
 *	  The syncer: a background process that makes logged content durable; see "Durable in the
 *	  background" in the README of this folder.
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
 * Hand a segment over to the syncer.  All writes to it since `redo` was read are complete (or put,
 * see dirty.h) and logged.  `redo` is the result of GetRedoRecPtr() before the first of these
 * writes was started; `removals` is that of blob_segment_removals() before the file was looked up
 * and found.
 *
 * True: no checkpoint makes the records superfluous before the segment has been synced.  So the
 * content is crash-safe: as far as a flush of the WAL goes, it is as good as durable.  False: the
 * caller has to sync.  Takes an LWLock; never throws.
 */
extern bool blob_syncer_hand_over(const BlobStoreId *store, uint32 segment_no, XLogRecPtr redo,
								  uint64 removals);

/*
 * Take a segment, or with BLOB_ALL_SEGMENTS a whole store, off the list, because a file of it has
 * been removed.  To be called between blob_dirty_begin_removal() and
 * blob_dirty_end_removal().
 */
extern void blob_syncer_forget(const BlobStoreId *store, uint32 segment_no);

/*
 * Say that this process stores logged content, or would if the syncer accepted its segment.  If the
 * syncer sleeps, it wakes up; and it stays awake for some seconds, so that the writes of a long
 * transaction are deferred, too.  True if a segment that is handed over soon is likely to be
 * accepted.  Takes an LWLock; never throws.
 */
extern bool blob_syncer_want(void);

/* Wake the syncer, so that it looks at the dirty pages. */
extern void blob_syncer_wake(void);

extern PGDLLEXPORT void blob_syncer_main(Datum argument);

#endif							/* BLOB_SYNCER_H */
