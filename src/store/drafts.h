/*
 * store/drafts.h
 *	  Extents of values that are not complete yet, or never became complete.
 *
 * A *draft* lists the extents that were allocated for a value that is being made.  No descriptor
 * names these extents before the value is complete, so no other process knows them.  A draft
 * belongs to a memory context.  If the context ends before the draft is completed (an error, a
 * cancel, a closed cursor), the draft is *abandoned*, and its extents may be freed without the
 * collector; see "Abandoned extents" in this folder's README.
 *
 * The lists belong to the process.  No function here takes a lock or does I/O.  The end of a
 * context, which may be part of an abort, moves a draft from one list to another, and cannot fail.
 */
#ifndef BLOB_DRAFTS_H
#define BLOB_DRAFTS_H

#include "core/page.h"
#include "core/tier.h"
#include "lib/ilist.h"
#include "store/map.h"
#include "utils/palloc.h"

typedef struct BlobDraft
{
	dlist_node	node;			/* in blob_drafts_abandoned, if abandoned */
	MemoryContext guard;		/* empty; ends with the context that the draft belongs to */
	MemoryContextCallback at_end;	/* of the guard */
	BlobStoreId store;			/* that all extents belong to */
	int			count;
	int			dropped_count;	/* first entries, which the value does not use */
	int			capacity;
	BlobFreedExtent *extents;
} BlobDraft;

/* Begin a draft, without extents, that belongs to this context. */
extern BlobDraft *blob_draft_begin(MemoryContext context);

/*
 * Enter extents that are about to be logged as allocated.  ERROR if there is no memory; therefore
 * entering comes before logging.  If the extents then are not logged, freeing the draft skips them.
 */
extern void blob_draft_enter(BlobDraft *draft, const BlobStoreId *store, const BlobExtent *extents,
							 int count);

/*
 * Note that the value does not use this extent: it stays in the draft when the value is complete.
 */
extern void blob_draft_drop(BlobDraft *draft, BlobGeneration generation);

/*
 * The value is complete, and a descriptor may leave: from here on only the collector frees its
 * extents.  The draft ends; its dropped extents count as abandoned.
 */
extern void blob_draft_complete(BlobDraft *draft);

/* The value will never be complete: abandon the draft, as the end of its context does. */
extern void blob_draft_abandon(BlobDraft *draft);

/* The abandoned drafts of this process, from the oldest on. */
extern dlist_head blob_drafts_abandoned;

/* Take a draft off that list and free its memory. */
extern void blob_draft_forget(BlobDraft *draft);

#endif							/* BLOB_DRAFTS_H */
