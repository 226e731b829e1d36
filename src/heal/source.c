/*
 * heal/source.c
 *	  What this server gives to others that lack content, see heal/source.h.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "extents/read.h"
#include "extents/verify.h"
#include "heal/source.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "store/store.h"
#include "utils/timestamp.h"

/* How long replay may stand still while a request waits for it, and how often that is looked at. */
#define MAX_STILL_MS 1000
#define POLL_MS 10

void
blob_source_store_name(const BlobStoreId *id, char *name)
{
	snprintf(name, BLOB_SOURCE_STORE_BYTES, "%u.%016llx", id->dboid,
			 (unsigned long long) id->incarnation);
}

static void
require_store(const BlobStoreId *id, const char *name)
{
	char		own_name[BLOB_SOURCE_STORE_BYTES];

	blob_source_store_name(id, own_name);
	if (strcmp(name, own_name) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the other server has another extent store in this database"),
				 errdetail("The stores are %s and %s.", name, own_name)));
}

/* ERROR unless the entry is that of the extent that is asked for, and may be given. */
static void
require_common(const BlobMapEntry *entry, const BlobSourceRequest *request, XLogRecPtr lsn)
{
	const BlobExtent *extent = &request->extent;

	if (extent->generation >= request->common_below ||
		(request->unchanged_since != InvalidXLogRecPtr && lsn > request->unchanged_since))
		ereport(ERROR,
				(errcode(ERRCODE_BLOB_FORKED),
				 errmsg("the extent at page " UINT64_FORMAT " lies beyond the fork of timelines",
						extent->first_page),
				 errdetail("Beyond the fork both servers use the same pages and numbers for "
						   "different content.")));
	if (blob_map_entry_state(entry) != (extent->is_tail ? BLOB_MAP_TAIL : BLOB_MAP_TIER) ||
		blob_map_entry_pages(entry) != extent->pages ||
		blob_map_entry_generation(entry) != extent->generation)
		ereport(ERROR,
				(errcode(ERRCODE_BLOB_STALE),
				 errmsg("the extent at page " UINT64_FORMAT " is not on the other server",
						extent->first_page),
				 errdetail("It was freed there, or is not there yet.")));
}

/* Wait for replay up to a position, as long as it goes on; ERROR if this server is no standby. */
static void
require_replayed(XLogRecPtr position)
{
	XLogRecPtr	last = InvalidXLogRecPtr;
	TimestampTz still_since = 0;

	while (RecoveryInProgress())
	{
		XLogRecPtr	replayed = GetXLogReplayRecPtr(NULL);
		TimestampTz now = GetCurrentTimestamp();

		if (replayed >= position)
			return;
		if (replayed != last)
			still_since = now;
		else if (TimestampDifferenceExceeds(still_since, now, MAX_STILL_MS))
			break;
		last = replayed;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, POLL_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("it has not replayed the WAL up to %X/%X", LSN_FORMAT_ARGS(position)),
			 errdetail("Its bytes may be older than those that the other server has written.")));
}

uint32
blob_source_read(const char *store_name, const BlobSourceRequest *request, char *target)
{
	BlobStore	store;
	BlobStoredExtent stored_extent = {.extent = request->extent};
	BlobStored	stored = {
		.extents = &stored_extent,
		.count = 1,
		.max_generation = request->extent.generation,
		.skips_sums = true
	};
	BlobMapEntry entry;
	XLogRecPtr	lsn;
	uint32		length;

	if (request->replayed_to != InvalidXLogRecPtr)
		require_replayed(request->replayed_to);
	blob_store_open(&store, AccessShareLock);
	require_store(&store.id, store_name);
	entry = blob_map_lookup_lsn(store.map, request->extent.first_page, &lsn);
	require_common(&entry, request, lsn);
	blob_store_close(&store);

	stored_extent.bytes = blob_pages_for(blob_map_entry_high_water(&entry)) * BLOB_PAGE_SIZE;
	stored.total_bytes = stored.value_bytes = stored_extent.bytes;
	if (request->start >= stored_extent.bytes)
		return 0;
	length = (uint32) Min(request->length_bytes, stored_extent.bytes - request->start);
	/*
	 * Looks the extent up again: it has this generation, or the read fails.  Pages that a writer
	 * has claimed, and not written, have no checksum, and are asked for with others.  So all are
	 * given as they are.  The other server compares them with a digest, or leaves them to its own
	 * checksums.
	 */
	stored_extent.extent.generation = BLOB_INVALID_GENERATION;
	blob_stored_read(&stored, NULL, false, request->start, length, target);
	return length;
}
