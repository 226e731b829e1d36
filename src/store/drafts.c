/*
 * store/drafts.c
 *	  Extents of values that are not complete yet, see store/drafts.h.
 */
#include "postgres.h"

#include "store/drafts.h"
#include "utils/memutils.h"

#define MIN_CAPACITY 16

dlist_head	blob_drafts_abandoned = DLIST_STATIC_INIT(blob_drafts_abandoned);

/*
 * Callback of the guard's end, perhaps in the middle of an abort: it must not fail, allocate or
 * lock.
 */
static void
at_end_of_guard(void *argument)
{
	BlobDraft  *draft = argument;

	draft->guard = NULL;
	dlist_push_tail(&blob_drafts_abandoned, &draft->node);
}

BlobDraft *
blob_draft_begin(MemoryContext context)
{
	MemoryContext guard = AllocSetContextCreate(context, "blobext draft", ALLOCSET_SMALL_SIZES);
	BlobDraft  *draft = MemoryContextAllocZero(TopMemoryContext, sizeof(BlobDraft));

	draft->guard = guard;
	draft->at_end.func = at_end_of_guard;
	draft->at_end.arg = draft;
	MemoryContextRegisterResetCallback(guard, &draft->at_end);
	return draft;
}

/* Make room for more extents.  May throw. */
static void
reserve(BlobDraft *draft, int count)
{
	int			needed = draft->count + count;

	if (needed <= draft->capacity)
		return;
	needed = Max(needed, Max(MIN_CAPACITY, 2 * draft->capacity));
	if (draft->extents == NULL)
		draft->extents = MemoryContextAlloc(TopMemoryContext, needed * sizeof(BlobFreedExtent));
	else
		draft->extents = repalloc(draft->extents, needed * sizeof(BlobFreedExtent));
	draft->capacity = needed;
}

void
blob_draft_enter(BlobDraft *draft, const BlobStoreId *store, const BlobExtent *extents, int count)
{
	reserve(draft, count);
	/* If the extension was created anew meanwhile, the old store is dropped as a whole. */
	if (!blob_store_id_equals(&draft->store, store))
		draft->count = draft->dropped_count = 0;
	draft->store = *store;
	for (int i = 0; i < count; i++)
	{
		draft->extents[draft->count].first_page = extents[i].first_page;
		draft->extents[draft->count++].generation = extents[i].generation;
	}
}

void
blob_draft_drop(BlobDraft *draft, BlobGeneration generation)
{
	for (int i = draft->dropped_count; i < draft->count; i++)
	{
		BlobFreedExtent dropped = draft->extents[i];

		if (dropped.generation != generation)
			continue;
		draft->extents[i] = draft->extents[draft->dropped_count];
		draft->extents[draft->dropped_count++] = dropped;
		return;
	}
	Assert(false);
}

void
blob_draft_abandon(BlobDraft *draft)
{
	MemoryContextDelete(draft->guard);
}

void
blob_draft_complete(BlobDraft *draft)
{
	draft->count = draft->dropped_count;
	blob_draft_abandon(draft);
	if (draft->count == 0)
		blob_draft_forget(draft);
}

void
blob_draft_forget(BlobDraft *draft)
{
	Assert(draft->guard == NULL);
	dlist_delete(&draft->node);
	if (draft->extents != NULL)
		pfree(draft->extents);
	pfree(draft);
}
