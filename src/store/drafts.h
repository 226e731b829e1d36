/*
 * store/drafts.h
 *	  Extents of values that are not complete yet, and those that never became complete.
 *
 * A *draft* lists what was allocated for a value that is being made.  No descriptor names these
 * extents before the value is complete, so nobody but this process knows them.  A draft belongs to
 * a memory context: if that goes before the draft is completed (an error, a cancel, a closed
 * cursor), the draft is *abandoned*, and its extents may be freed without the collector; see
 * "Abandoned extents" in this folder's README.
 *
 * The lists belong to the process.  Nothing here takes a lock or does I/O; a context's end, which
 * may be part of an abort, moves a draft from one list to another, and cannot fail.
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
	dlist_node	node;			/* in the list of abandoned ones, if it is one */
	MemoryContext guard;		/* empty; ends with the context that the draft belongs to */
	MemoryContextCallback at_end;	/* of the guard */
	BlobStoreId store;			/* of all entries */
	int			count;
	int			dropped_count;	/* the first entries: the value does not use them */
	int			capacity;
	BlobFreedExtent *extents;
} BlobDraft;

/* A new draft, without extents; it belongs to this context. */
extern BlobDraft *blob_draft_begin(MemoryContext context);

/*
 * Enter extents that are about to be logged as allocated.  May fail for want of memory, so it comes
 * before that: an entry that the map does not have is skipped when the draft is freed.
 */
extern void blob_draft_enter(BlobDraft *draft, const BlobStoreId *store, const BlobExtent *extents,
							 int count);

/* The value does not use this extent: it stays in the draft when the value is complete. */
extern void blob_draft_drop(BlobDraft *draft, BlobGeneration generation);

/*
 * The value is complete, a descriptor may leave: from here on its extents are the collector's
 * alone.  The draft is gone; what was dropped counts as abandoned.
 */
extern void blob_draft_complete(BlobDraft *draft);

/* The value will never be complete.  The same happens when the context ends. */
extern void blob_draft_abandon(BlobDraft *draft);

/* The drafts that were abandoned, from the oldest on; cheap where there is none. */
extern dlist_head blob_drafts_abandoned;

/* Take a draft off that list and free its memory. */
extern void blob_draft_forget(BlobDraft *draft);

#endif							/* BLOB_DRAFTS_H */
