/*
 * autogc/scrub_worker.c
 *	  The scrubber of one database, see autogc/scrub_worker.h and README.md, "The scrubber".
 */
#include "postgres.h"

#include "access/xact.h"
#include "autogc/process.h"
#include "autogc/scrub_pass.h"
#include "autogc/scrub_results.h"
#include "autogc/scrub_worker.h"
#include "core/background.h"
#include "core/clock.h"
#include "core/settings.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "store/map.h"
#include "store/store.h"

#define NAME "blobext scrubber"

/* How old the last pass over a segment must be: a small store need not be read all the time. */
#define MIN_AGE_MS (60 * 60 * 1000)

bool
blob_scrub_worker_start(Oid database, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	blob_background_describe(&worker, NAME, "blob_scrub_worker_main", BGW_NEVER_RESTART);
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/* The store of this database, and how many segments it has; 0 if it cannot be opened now. */
static uint32
count_segments(BlobStoreId *id)
{
	BlobStore	store;
	BlobMapMeta meta = {0};
	bool		exists;

	StartTransactionCommand();
	if (blob_store_try_open(&store, AccessShareLock, &exists))
	{
		blob_map_read_meta(store.map, &meta);
		*id = store.id;
		blob_store_close(&store);
	}
	CommitTransactionCommand();
	return (uint32) ((meta.reserved_pages + BLOB_SEGMENT_PAGES - 1) / BLOB_SEGMENT_PAGES);
}

/* Whether there are no results, or old ones, of a segment. */
static bool
is_due(const BlobScrubResult *results, uint32 result_count, uint32 segment_no)
{
	return segment_no >= result_count || results[segment_no].ended_at == 0 ||
		blob_clock_has_passed(results[segment_no].ended_at, GetCurrentTimestamp(), MIN_AGE_MS);
}

/* The segment whose last pass is the oldest, the first of those that had none. */
static uint32
oldest_segment(const BlobScrubResult *results, uint32 result_count, uint32 segment_count)
{
	uint32		oldest = 0;

	if (result_count < segment_count)
	{
		while (oldest < result_count && results[oldest].ended_at != 0)
			oldest++;
		return oldest;
	}
	for (uint32 i = 1; i < segment_count; i++)
	{
		if (results[i].ended_at < results[oldest].ended_at)
			oldest = i;
	}
	return oldest;
}

/* A line in the log, after each pass: the list of damaged pages has one when it gets them. */
static void
log_damage(const BlobStoreId *store, uint32 segment_no, const BlobScrubResult *result)
{
	char		path[MAXPGPATH];

	if (result->damaged_pages == 0)
		return;
	blob_segment_path(path, sizeof(path), store, segment_no);
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("blobext scrubber: " UINT64_FORMAT " pages of content in file \"%s\" are "
					"damaged", result->damaged_pages, path),
			 errhint("blobext_check() lists the affected values.")));
}

/*
 * One pass over the store, which begins with the segment that has waited longest, and goes on in
 * their order.
 */
static void
scrub_store(void)
{
	BlobStoreId id;
	BlobScrubResult *results;
	uint32		segment_count = count_segments(&id);
	uint32		result_count;
	uint32		first;

	if (segment_count == 0)
		return;
	result_count = blob_scrub_results_read(&id, &results);
	first = oldest_segment(results, result_count, segment_count);
	for (uint32 i = 0; i < segment_count; i++)
	{
		uint32		segment_no = (first + i) % segment_count;
		BlobScrubResult result;
		BlobScrubEnd end;

		if (!is_due(results, result_count, segment_no))
			continue;
		pgstat_report_activity(STATE_RUNNING,
							   psprintf("blobext: comparing segment %u with its checksums",
										segment_no));
		end = blob_scrub_segment(&id, segment_no, &result);
		if (end == BLOB_SCRUB_STOPPED)
			return;
		if (end != BLOB_SCRUB_WHOLE)
			continue;
		blob_scrub_results_write(&id, segment_no, &result);
		log_damage(&id, segment_no, &result);
	}
}

void
blob_scrub_worker_main(Datum argument)
{
	blob_autogc_process_begin(NAME, DatumGetObjectId(argument));
	blob_autogc_process_pass_for_autovacuum(true);
	PG_TRY();
	{
		scrub_store();
	}
	PG_CATCH();
	{
		/* Not worth a line about a process that "exited with exit code 1". */
		blob_autogc_process_recover();
		proc_exit(0);
	}
	PG_END_TRY();
}
