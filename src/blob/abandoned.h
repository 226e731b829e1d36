/*
 * blob/abandoned.h
 *	  Freeing what stores that failed have allocated; see "Abandoned extents" in ../store/README.md.
 */
#ifndef BLOB_ABANDONED_H
#define BLOB_ABANDONED_H

/*
 * Free the extents of this process's abandoned drafts (store/drafts.h), if that is possible now and
 * nobody must be waited for.  Called where a statement begins; costs nothing where there are none.
 */
extern void blob_abandoned_free(void);

#endif							/* BLOB_ABANDONED_H */
