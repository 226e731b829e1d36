/*
 * unit_store.c
 *	  SQL functions for tests that call the allocator of the running extension: extents without
 *	  content, freed without the collector.
 *
 * The functions are looked up in the extension's library when they are called, because this
 * library is also loaded where that one is not.
 */
#include "unit.h"

#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "store/store_internal.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(unit_store_allocate);
PG_FUNCTION_INFO_V1(unit_store_free);
PG_FUNCTION_INFO_V1(unit_store_reclaim);
PG_FUNCTION_INFO_V1(unit_store_cutoff);
PG_FUNCTION_INFO_V1(unit_store_longest);
PG_FUNCTION_INFO_V1(unit_store_lock_freeing);

/* The function of the extension's library. */
#define IN_EXTENSION(name) \
	((typeof(&name)) load_external_function("$libdir/blobext", #name, true, NULL))

/* Argument: pages.  Allocates a tail extent of that length; returns its first page. */
Datum
unit_store_allocate(PG_FUNCTION_ARGS)
{
	BlobTierPlan plan = {
		.total_pages = PG_GETARG_INT64(0),
		.tail_pages = PG_GETARG_INT64(0)
	};
	BlobExtent	extents[1];
	BlobStore	store;

	(void) GetTopTransactionId();
	IN_EXTENSION(blob_store_open) (&store, RowExclusiveLock);
	(void) IN_EXTENSION(blob_store_allocate) (&store, &plan, plan.total_pages * BLOB_PAGE_SIZE,
											  NULL, extents);
	IN_EXTENSION(blob_store_close) (&store);
	PG_RETURN_INT64(extents[0].first_page);
}

/* The lock that those who free hold. */
static void
freeing_tag(LOCKTAG *tag, const BlobStore *store)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, RelationRelationId, RelationGetRelid(store->map),
					   BLOB_STORE_FREEING_LOCK);
}

/* Arguments: first pages in ascending order, generations, horizon. Returns the record's end. */
Datum
unit_store_free(PG_FUNCTION_ARGS)
{
	BlobFreedExtent *extents;
	BlobStore	store;
	Datum	   *pages;
	Datum	   *generations;
	int			count;
	int			generation_count;
	uint64		freed_pages;
	XLogRecPtr	lsn;
	LOCKTAG		tag;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), INT8OID, 8, true, TYPALIGN_DOUBLE, &pages, NULL,
					  &count);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), INT8OID, 8, true, TYPALIGN_DOUBLE, &generations,
					  NULL, &generation_count);
	if (count != generation_count)
		elog(ERROR, "%d pages, %d generations", count, generation_count);
	extents = palloc0(sizeof(*extents) * (count + 1));
	IN_EXTENSION(blob_store_open) (&store, RowExclusiveLock);
	for (int i = 0; i < count; i++)
	{
		BlobMapEntry entry = IN_EXTENSION(blob_map_lookup) (store.map, DatumGetInt64(pages[i]));

		extents[i].first_page = DatumGetInt64(pages[i]);
		extents[i].pages = blob_map_entry_pages(&entry);
		extents[i].generation = DatumGetInt64(generations[i]);
	}
	freeing_tag(&tag, &store);
	(void) LockAcquire(&tag, ShareLock, false, false);	/* blob_store_free() asserts it */
	lsn = IN_EXTENSION(blob_store_free) (&store, extents, count, PG_GETARG_TRANSACTIONID(2),
										 &freed_pages);
	LockRelease(&tag, ShareLock, false);
	IN_EXTENSION(blob_store_release) (&store, lsn); /* as the collector does */
	IN_EXTENSION(blob_store_close) (&store);
	PG_RETURN_LSN(lsn);
}

static bool
always(void *argument)
{
	return true;
}

/* Returns the number of files removed. */
Datum
unit_store_reclaim(PG_FUNCTION_ARGS)
{
	BlobStore	store;
	int			removed;

	IN_EXTENSION(blob_store_open) (&store, RowExclusiveLock);
	removed = IN_EXTENSION(blob_store_reclaim) (&store, always, NULL);
	IN_EXTENSION(blob_store_close) (&store);
	PG_RETURN_INT32(removed);
}

Datum
unit_store_cutoff(PG_FUNCTION_ARGS)
{
	BlobStore	store;
	BlobGeneration cutoff;

	IN_EXTENSION(blob_store_open) (&store, AccessShareLock);
	cutoff = IN_EXTENSION(blob_store_cutoff) (&store);
	IN_EXTENSION(blob_store_close) (&store);
	PG_RETURN_INT64(cutoff);
}

/*
 * Keep others from freeing, also after the transaction's end, since the collector waits for
 * transactions.  Arguments: as the collector does, or an owner; take or release.
 */
Datum
unit_store_lock_freeing(PG_FUNCTION_ARGS)
{
	LOCKMODE	mode = PG_GETARG_BOOL(0) ? ExclusiveLock : ShareLock;
	BlobStore	store;
	LOCKTAG		tag;

	IN_EXTENSION(blob_store_open) (&store, AccessShareLock);
	freeing_tag(&tag, &store);
	if (PG_GETARG_BOOL(1))
		(void) LockAcquire(&tag, mode, true, false);
	else
		(void) LockRelease(&tag, mode, true);
	IN_EXTENSION(blob_store_close) (&store);
	PG_RETURN_VOID();
}

/* Length of the longest free run. */
Datum
unit_store_longest(PG_FUNCTION_ARGS)
{
	BlobStore	store;
	BlobStoreShared *shared;
	uint64		longest;

	IN_EXTENSION(blob_store_open) (&store, AccessShareLock);
	shared = IN_EXTENSION(blob_store_shared) (&store.id);
	IN_EXTENSION(blob_store_load) (&store, shared);
	LWLockAcquire(&shared->lock, LW_SHARED);
	longest = blob_free_runs_longest(*IN_EXTENSION(blob_store_area), &shared->free_runs);
	LWLockRelease(&shared->lock);
	IN_EXTENSION(blob_store_close) (&store);
	PG_RETURN_INT64(longest);
}
