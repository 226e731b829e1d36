/*
 * sql/administration/scrub_view.c
 *	  View blobext_scrub: the results of the scrubber.
 */
#include "postgres.h"

#include "autogc/scrub_results.h"
#include "fmgr.h"
#include "funcapi.h"
#include "io/segment.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(blobext_scrub_results);

#define COLUMN_COUNT 6

/* The segments of a store that were looked at. */
static void
put_store(const ReturnSetInfo *output, const BlobStoreId *store)
{
	BlobScrubResult *results;
	uint32		count = blob_scrub_results_read(store, &results);

	for (uint32 i = 0; i < count; i++)
	{
		Datum		values[COLUMN_COUNT];
		bool		nulls[COLUMN_COUNT] = {0};

		if (results[i].ended_at == 0)
			continue;
		values[0] = ObjectIdGetDatum(store->dboid);
		values[1] = Int32GetDatum((int32) i);
		values[2] = TimestampTzGetDatum(results[i].ended_at);
		values[3] = Int64GetDatum((int64) results[i].verified_pages);
		values[4] = Int64GetDatum((int64) results[i].plain_pages);
		values[5] = Int64GetDatum((int64) results[i].damaged_pages);
		tuplestore_putvalues(output->setResult, output->setDesc, values, nulls);
	}
}

/*
 * Rows (datid, segment, last_pass, verified_pages, pages_without_checksums, damaged_pages) of all
 * stores of the server.
 */
Datum
blobext_scrub_results(PG_FUNCTION_ARGS)
{
	BlobStoreId *stores;
	int			count;

	InitMaterializedSRF(fcinfo, 0);
	count = blob_segment_list_stores(&stores);
	for (int i = 0; i < count; i++)
		put_store((ReturnSetInfo *) fcinfo->resultinfo, &stores[i]);
	return (Datum) 0;
}
