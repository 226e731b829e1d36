/*
 * blob/abandoned.h
 *	  Frees the extents that failed stores have allocated; see "Abandoned extents" in
 *	  ../store/README.md.
 */
#ifndef BLOB_ABANDONED_H
#define BLOB_ABANDONED_H

#include "store/drafts.h"

/* Whether this process has abandoned drafts. */
static inline bool
blob_abandoned_exists(void)
{
	return !dlist_is_empty(&blob_drafts_abandoned);
}

/*
 * Free the extents of this process's abandoned drafts (store/drafts.h), if that is possible now
 * without waiting for another process.  Called at the beginning of a statement.  Costs nothing if
 * there are no such drafts.
 */
extern void blob_abandoned_free(void);

#endif							/* BLOB_ABANDONED_H */
