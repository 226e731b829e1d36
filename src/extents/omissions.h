/*
 * extents/omissions.h
 *	  OMITTED records: which content this process has written and not logged.
 *
 * OMITTED follows the write, and precedes all that makes the content visible to others.  So runs
 * are noted when they are put, and the records come when their segments have been made crash-safe.
 */
#ifndef BLOB_OMISSIONS_H
#define BLOB_OMISSIONS_H

#include "extents/layout.h"

/* Allocate memory for this number of runs; call it before writing.  May throw. */
extern void blob_omissions_prepare(int run_count);

/* Note runs that were put.  Never throws after blob_omissions_prepare(). */
extern void blob_omissions_note(const BlobStoreId *store, const BlobWriteRun *runs,
								int run_count);

/*
 * Log all runs that were noted.  To be called when their segments have been synced, before the
 * process returns the values, or commits.  Runs of a store that is not there stay noted.
 */
extern void blob_omissions_log_noted(void);

/* The same before a commit, by which the stores are dropped that are not there. */
extern void blob_omissions_log_all(void);

/* Whether any are noted; whether that are 10,000 or more, to be logged before others come. */
extern bool blob_omissions_are_noted(void);
extern bool blob_omissions_are_many(void);

#endif							/* BLOB_OMISSIONS_H */
