/*
 * heal/fork.c
 *	  Where the histories of two servers part, see heal/fork.h.
 */
#include "postgres.h"

#include "access/timeline.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "heal/fork.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "store/limits.h"
#include "utils/rel.h"

/* One entry of a history; the last one has no end. */
typedef struct Step
{
	TimeLineID	timeline;
	XLogRecPtr	end;
} Step;

static TimeLineID
own_timeline(void)
{
	TimeLineID	timeline;

	if (!RecoveryInProgress())
		return GetWALInsertionTimeLine();
	(void) GetXLogReplayRecPtr(&timeline);
	return timeline;
}

char *
blob_fork_history(void)
{
	TimeLineID	own = own_timeline();
	List	   *entries = readTimeLineHistory(own);
	StringInfoData text;

	/* Without the file the result is the last timeline alone. */
	if (own != 1 && list_length(entries) < 2)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FILE),
				 errmsg("the history of timeline %u is not known", own),
				 errdetail("There is no file \"pg_wal/%08X.history\".", own),
				 errhint("Bring the file back, from the archive or from another server.")));
	initStringInfo(&text);
	for (int i = list_length(entries) - 1; i >= 0; i--)
	{
		TimeLineHistoryEntry *entry = list_nth(entries, i);

		appendStringInfo(&text, "%u", entry->tli);
		if (i > 0)
			appendStringInfo(&text, " %X/%X,", LSN_FORMAT_ARGS(entry->end));
	}
	return text.data;
}

/* Read the next entry of a history, and advance *text behind it. */
static Step
next_step(const char **text)
{
	Step		step = {.end = BLOB_NO_FORK};
	uint32		high;
	uint32		low;
	int			length = 0;
	int			fields = sscanf(*text, "%u %X/%X,%n", &step.timeline, &high, &low, &length);

	if (fields < 1 || step.timeline == 0 || (fields != 1 && length == 0))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the other server sent an invalid history of timelines")));
	if (fields == 3)
		step.end = (uint64) high << 32 | low;
	*text += length;
	return step;
}

XLogRecPtr
blob_fork_find(const char *history, const char *other)
{
	XLogRecPtr	common = InvalidXLogRecPtr;

	for (;;)
	{
		Step		own_step = next_step(&history);
		Step		other_step = next_step(&other);

		if (own_step.timeline != other_step.timeline)
			break;
		common = Min(own_step.end, other_step.end);
		if (own_step.end != other_step.end || common == BLOB_NO_FORK)
			break;
	}
	if (common == InvalidXLogRecPtr)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the two servers have no history in common")));
	return common;
}

/* The largest generation in a block of the map; 0 if it has no extent. */
static BlobGeneration
largest_generation(Page page)
{
	BlobGeneration largest = BLOB_INVALID_GENERATION;

	for (uint32 slot = 0; slot < BLOB_MAP_ENTRIES; slot++)
	{
		const BlobMapEntry *entry = &blob_map_page_entries(page)[slot];

		if (blob_map_entry_is_extent(entry))
			largest = Max(largest, blob_map_entry_generation(entry));
	}
	return largest;
}

BlobGeneration
blob_fork_common_below(BlobStore *store, XLogRecPtr fork)
{
	BlockNumber block_count = RelationGetNumberOfBlocks(store->map);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	BlobGeneration below = blob_limits_at(&store->id, fork);
	PGAlignedBlock copy;

	for (BlockNumber block = BLOB_MAP_META_BLOCK; block < block_count; block++)
	{
		CHECK_FOR_INTERRUPTS();
		blob_map_copy_block(store->map, block, strategy, (Page) copy.data);
		if (PageIsNew((Page) copy.data) || PageGetLSN((Page) copy.data) > fork)
			continue;
		if (block == BLOB_MAP_META_BLOCK)
		{
			below = Max(below,
						((BlobMapMeta *) PageGetContents((Page) copy.data))->generation_limit);
			break;
		}
		below = Max(below, largest_generation((Page) copy.data) + 1);
	}
	FreeAccessStrategy(strategy);
	return below;
}
