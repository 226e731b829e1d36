/*
 * extents/omissions.c
 *	  OMITTED records, see extents/omissions.h.
 *
 * The list of noted runs belongs to the process, like that of written segments (durability.c), and
 * for the same reason: an abort does not make their content useless.
 */
#include "postgres.h"

#include "extents/omissions.h"
#include "store/store.h"
#include "utils/memutils.h"
#include "wal/insert.h"

/* Ranges that one record has at most. */
#define MAX_RANGES 1024

/* More runs than these are not kept: 500 kB. */
#define MAX_NOTED 10000

/* What one record says: ranges of one store. */
typedef struct Omission
{
	BlobStoreId store;
	BlobWalOmitted record;
	BlobGenerationRange ranges[MAX_RANGES];
} Omission;

/* A run that was noted. */
typedef struct NotedRun
{
	BlobStoreId store;
	BlobPageNo	first_page;
	uint64		pages;
	BlobGeneration generation;
} NotedRun;

static NotedRun *noted;
static int	noted_count;
static int	noted_capacity;
static int	unlogged_count;		/* of these, the first ones: their store was not there */

void
blob_omissions_prepare(int run_count)
{
	int			needed = noted_count + run_count;

	if (needed <= noted_capacity)
		return;
	needed = Max(needed, 2 * noted_capacity);
	if (noted == NULL)
		noted = MemoryContextAlloc(TopMemoryContext, needed * sizeof(*noted));
	else
		noted = repalloc_huge(noted, needed * sizeof(*noted));
	noted_capacity = needed;
}

static NotedRun
make_run(const BlobStoreId *store, const BlobWriteRun *run)
{
	NotedRun	result = {
		.store = *store,
		.first_page = run->extent.first_page + run->page_in_extent,
		.pages = run->pages,
		.generation = run->extent.generation
	};

	Assert(result.generation != BLOB_INVALID_GENERATION);
	return result;
}

/* An extent is often written in several calls, one after the other. */
void
blob_omissions_note(const BlobStoreId *store, const BlobWriteRun *runs, int run_count)
{
	for (int i = 0; i < run_count; i++)
	{
		NotedRun	run = make_run(store, &runs[i]);
		NotedRun   *last = noted_count > 0 ? &noted[noted_count - 1] : NULL;

		if (last != NULL && last->generation == run.generation &&
			blob_store_id_equals(&last->store, store))
		{
			last->pages += run.pages;
			continue;
		}
		Assert(noted_count < noted_capacity);
		noted[noted_count++] = run;
	}
}

static void
log_omission(Omission *omission)
{
	if (omission->record.range_count > 0)
		blob_wal_log_omitted(&omission->store, &omission->record, omission->ranges);
	omission->record.range_count = 0;
	omission->record.page_count = 0;
}

/* Add a run to a record that is being made.  Adjacent generations are joined to one range. */
static void
add_run(Omission *omission, const NotedRun *run)
{
	BlobWalOmitted *record = &omission->record;
	BlobGeneration generation = run->generation;
	BlobGenerationRange *last;

	if (record->range_count == MAX_RANGES)
		log_omission(omission);
	if (record->range_count == 0)
		record->first_page = run->first_page;
	last = record->range_count > 0 ? &omission->ranges[record->range_count - 1] : NULL;
	record->page_count += run->pages;
	if (last != NULL && generation >= last->first && generation <= last->last + 1)
		last->last = Max(last->last, generation);
	else
	{
		omission->ranges[record->range_count].first = generation;
		omission->ranges[record->range_count++].last = generation;
	}
}

static void
log_runs(const BlobStoreId *store)
{
	Omission   *omission = palloc0(sizeof(Omission));

	omission->store = *store;
	for (int i = 0; i < noted_count; i++)
	{
		if (blob_store_id_equals(&noted[i].store, store))
			add_run(omission, &noted[i]);
	}
	log_omission(omission);
	pfree(omission);
}

static void
forget_runs(const BlobStoreId *store)
{
	int			kept = 0;

	for (int i = 0; i < noted_count; i++)
	{
		if (!blob_store_id_equals(&noted[i].store, store))
			noted[kept++] = noted[i];
	}
	noted_count = kept;
}

/*
 * The store is locked meanwhile: OMITTED must not come behind the DROP of a store, as a server that
 * replays it takes that for damage.  If logging is an error, the runs stay noted: a server may
 * learn twice what it lacks.  So do those of a store that this transaction has dropped, for it may
 * roll that back.
 *
 * The lock of the map comes first.  It may receive an invalidation by which the relation cache
 * calls this function again (blob_assign_content_index_changed()), which changes the list.
 */
void
blob_omissions_log_noted(void)
{
	BlobStoreId store;
	Oid			map;

	if (noted_count == 0)
		return;
	map = blob_store_lock(&store);
	if (OidIsValid(map))
	{
		log_runs(&store);
		forget_runs(&store);
		blob_store_unlock(map);
	}
	unlogged_count = noted_count;
}

void
blob_omissions_log_all(void)
{
	blob_omissions_log_noted();
	noted_count = unlogged_count = 0;
}

bool
blob_omissions_are_noted(void)
{
	return noted_count > 0;
}

bool
blob_omissions_are_many(void)
{
	return noted_count - unlogged_count >= MAX_NOTED;
}
