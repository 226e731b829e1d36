/*
 * extents/omissions.h
 *	  OMITTED records: which content this process has written and not logged.
 *
 * OMITTED follows the write, and precedes all that makes the content visible to others.  If the
 * write is left to a later moment (io/dirty.h), so is the record: the generations are noted until
 * then.
 */
#ifndef BLOB_OMISSIONS_H
#define BLOB_OMISSIONS_H

#include "extents/layout.h"

/* Allocate memory for this number of runs; call it before writing.  May throw. */
extern void blob_omissions_prepare(int run_count);

/* Note runs whose writes have yet to complete.  Never throws after blob_omissions_prepare(). */
extern void blob_omissions_note(const BlobStoreId *store, const BlobWriteRun *runs,
								int run_count);

/* Log runs whose writes have completed. */
extern void blob_omissions_log(const BlobStoreId *store, const BlobWriteRun *runs,
							   int run_count);

/*
 * Log all runs that were noted.  To be called when their segments have been synced, before the
 * process returns the values, or commits.  Runs of a store that is not there stay noted.
 */
extern void blob_omissions_log_noted(void);

/* The same before a commit, by which the stores are dropped that are not there. */
extern void blob_omissions_log_all(void);

/*
 * Functions that src/blobext.c registers.  lock_store() waits for the lock that a drop of this
 * store excludes, and returns what unlock_store() takes; InvalidOid if the store is not there, or
 * another one is.
 */
extern void blob_omissions_set_locks(Oid (*lock_store) (const BlobStoreId *store),
									 void (*unlock_store) (Oid lock));

/* Whether any are noted. */
extern bool blob_omissions_are_noted(void);

#endif							/* BLOB_OMISSIONS_H */
