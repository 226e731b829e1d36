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

	if (record->range_count == MAX_RANGES ||
		!blob_store_id_equals(&omission->store, &run->store))
		log_omission(omission);
	if (record->range_count == 0)
	{
		omission->store = run->store;
		record->first_page = run->first_page;
	}
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

/* How many runs from the first one on are of one store. */
static int
count_of_store(const NotedRun *runs, int count)
{
	int			same = 1;

	while (same < count && blob_store_id_equals(&runs[same].store, &runs[0].store))
		same++;
	return same;
}

/*
 * Log runs of one store, while it is locked: OMITTED must not come behind the DROP of a store, as a
 * server that replays it takes that for damage.  False, and nothing done, if it is not there.
 */
static bool
log_store(const NotedRun *runs, int count)
{
	Oid			map = blob_store_lock(&runs[0].store);
	Omission   *omission;

	if (!OidIsValid(map))
		return false;
	omission = palloc0(sizeof(Omission));
	for (int i = 0; i < count; i++)
		add_run(omission, &runs[i]);
	log_omission(omission);
	pfree(omission);
	blob_store_unlock(map);
	return true;
}

/*
 * If logging is an error, the runs stay noted: a server may learn twice what it lacks.  So do those
 * of a store that this transaction has dropped, for it may roll that back.
 */
void
blob_omissions_log_noted(void)
{
	int			kept = 0;
	int			count;
	for (int i = 0; i < noted_count; i += count)
	{
		count = count_of_store(&noted[i], noted_count - i);
		if (log_store(&noted[i], count))
			continue;
		memmove(&noted[kept], &noted[i], count * sizeof(*noted));
		kept += count;
	}
	noted_count = unlogged_count = kept;
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
