/*
 * extents/content_log.c
 *	  CONTENT records of this process, and when their WAL is written; see extents/content_log.h, and
 *	  "Flushing content early" in the README of wal/.
 */
#include "postgres.h"

#include "access/xact.h"
#include "extents/content_log.h"
#include "io/stat.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"

/* How often a transaction of many values asks for a flush of the WAL. */
#define FLUSH_INTERVAL_BYTES (1024 * 1024)

/* The commit of a transaction that has logged more than this is not expected soon. */
#define NEAR_COMMIT_BYTES (16 * 1024 * 1024)

/* Content that the transaction has logged. */
static struct
{
	TransactionId xid;
	uint64		bytes;
	uint64		bytes_flushed;	/* of these, before the last request for a flush, or early write */
} logged;

static void
count_logged(uint64 bytes)
{
	TransactionId xid = GetTopTransactionIdIfAny();

	if (xid != logged.xid)
	{
		logged.xid = xid;
		logged.bytes = logged.bytes_flushed = 0;
	}
	logged.bytes += bytes;
	blob_stat_count(wal_content_bytes, bytes);
}

/*
 * Whether the commit comes soon, as far as can be said, and its own sync is all that it waits for.
 * A standby gets only WAL that is flushed, so a commit that waits for one wants it flushed early.
 */
static bool
is_commit_near(void)
{
	bool		waits_for_standby = SyncRepRequested() && SyncRepStandbyNames != NULL &&
		SyncRepStandbyNames[0] != '\0';

	return logged.bytes <= NEAR_COMMIT_BYTES && !waits_for_standby;
}

void
blob_content_log(const BlobStoreId *store, BlobPageNo first_page, const BlobWalContentPart *parts,
				 int part_count, bool more_comes, bool is_whole, bool has_time)
{
	bool		is_near;
	bool		writes_early;
	bool		flush_soon;

	for (int i = 0; i < part_count; i++)
		count_logged(parts[i].length_bytes);
	is_near = is_commit_near();
	writes_early = is_whole && (has_time || (more_comes && is_near));

	/* Each value leaves its end to the commit; many of them together do not. */
	flush_soon = !writes_early &&
		(more_comes || logged.bytes - logged.bytes_flushed > FLUSH_INTERVAL_BYTES);
	blob_wal_log_content(store, first_page, parts, part_count, flush_soon);
	if (writes_early)
		blob_wal_write_early(more_comes, !is_near);
	if (writes_early || flush_soon)
		logged.bytes_flushed = logged.bytes;
}
