/*
 * blob/abandoned.h
 *	  Freeing what stores that failed have allocated; see "Abandoned extents" in ../space/README.md.
 */
#ifndef BLOB_ABANDONED_H
#define BLOB_ABANDONED_H

/*
 * Free the extents of this process's abandoned drafts (space/drafts.h), if that is possible now and
 * nobody must be waited for.  Called where a statement begins; costs nothing where there are none.
 */
extern void blob_abandoned_free(void);

#endif							/* BLOB_ABANDONED_H */
