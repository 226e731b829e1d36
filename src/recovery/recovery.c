/*
 * recovery/recovery.c
 *	  Replay of blobext's WAL records.
 *
 * An extension has no hook into checkpoints, and a restartpoint may come right after a record.  So
 * files that redo makes or lengthens are durable before it returns.  Writes of content go on while
 * the next records are replayed; they are complete, or durable, before a record that needs it
 * (content_queue.h, redo_hooks.h).  Replay is idempotent: map pages go by their LSN, content is
 * written over itself.  A segment file may be missing, because the record of its removal, a later
 * one, has been carried out already.  Then redo skips its action on the file (invalid_segments.h).
 *
 * Replay of CONTENT never destroys newer content for good, although its pages may belong to another
 * value by now.  For the argument, and the rules of minRecoveryPoint, see README.md.
 */
#include "postgres.h"

#include "access/bufmask.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "core/compat.h"
#include "io/engine.h"
#include "io/segment.h"
#include "io/unlogged.h"
#include "recovery/content_queue.h"
#include "recovery/invalid_segments.h"
#include "recovery/recovery.h"
#include "recovery/redo_hooks.h"
#include "recovery/replay_origin.h"
#include "store/map_page.h"
#include "storage/bufmgr.h"
#include "storage/standby.h"
#include "utils/memutils.h"
#include "wal/records.h"

static MemoryContext replay_context;

/* If not, each CONTENT is durable when its redo returns. */
static bool has_redo_hooks = false;

/*
 * Ends of two FREE records: the last one that was replayed, and the last one past which
 * minRecoveryPoint was moved.
 */
static XLogRecPtr last_free_lsn;
static XLogRecPtr crash_safe_lsn;

static BlobStoreId
store_of(const BlobWalHeader *header)
{
	BlobStoreId store = {.dboid = header->dboid, .incarnation = header->incarnation};

	return store;
}

/* No part of the record has been carried out: a library that knows it goes on from it. */
static int
hint_newer(void)
{
	return errhint("Recover with the version of blobext that wrote the WAL, or a later one. "
				   "Nothing is lost until then.");
}

static void
require_known_version(const BlobWalHeader *header)
{
	if (header->version < BLOB_WAL_VERSION_1 || header->version > BLOB_WAL_NEWEST_VERSION)
		ereport(PANIC,
				(errmsg("blobext cannot replay WAL of format version %u", header->version),
				 errdetail("This library reads versions %d to %d.", BLOB_WAL_VERSION_1,
						   BLOB_WAL_NEWEST_VERSION),
				 hint_newer()));
}

/* Only a later library can find the files of another place. */
static void
require_known_place(uint32 place)
{
	if (place != BLOB_DEFAULT_PLACE)
		ereport(PANIC,
				(errmsg("blobext cannot replay WAL of storage place %u", place),
				 errdetail("This library knows the default place only."),
				 hint_newer()));
}

/*
 * PANIC unless is_right: the record is damaged, or its version of the format has no such record.
 * "what" names the problem in the message.
 */
static void
require_format(XLogReaderState *record, bool is_right, const char *what)
{
	if (!is_right)
		elog(PANIC, "blobext: %s record at %X/%X: %s",
			 blob_wal_identify(XLogRecGetInfo(record)), LSN_FORMAT_ARGS(record->ReadRecPtr), what);
}

/* PANIC unless this library knows kind and version of the record, and the fixed part is whole. */
static void
require_known_record(XLogReaderState *record)
{
	const BlobWalHeader *header = (BlobWalHeader *) XLogRecGetData(record);
	size_t		bytes;

	if (blob_wal_identify(XLogRecGetInfo(record)) == NULL)
		elog(PANIC, "blobext: unknown WAL record %u", XLogRecGetInfo(record));
	require_format(record, XLogRecGetDataLen(record) >= sizeof(*header), "too short");
	require_known_version(header);
	bytes = blob_wal_fixed_bytes(XLogRecGetInfo(record) & BLOB_WAL_OP_MASK, header->version);
	require_format(record, bytes > 0, "its version has no such record");
	require_format(record, XLogRecGetDataLen(record) >= bytes, "too short");
}

/*
 * Copy the fixed part of a record; fields that its version does not have become zero.  Returns the
 * data that follows the fixed part, which may be unaligned, and its length.
 */
static const char *
load_record(XLogReaderState *record, void *fixed, size_t struct_bytes, size_t *data_bytes)
{
	const BlobWalHeader *header = (BlobWalHeader *) XLogRecGetData(record);
	size_t		bytes = blob_wal_fixed_bytes(XLogRecGetInfo(record) & BLOB_WAL_OP_MASK,
											 header->version);

	Assert(bytes <= struct_bytes);
	memset(fixed, 0, struct_bytes);
	memcpy(fixed, header, bytes);
	*data_bytes = XLogRecGetDataLen(record) - bytes;
	return (const char *) header + bytes;
}

/* SEGMENT, REMOVE and RESTORE. */
static void
load_segment(XLogReaderState *record, BlobWalSegment *segment)
{
	size_t		data_bytes;

	(void) load_record(record, segment, sizeof(*segment), &data_bytes);
	require_format(record, data_bytes == 0, "too long");
	require_format(record, segment->reserved == 0, "reserved bytes are not zero");
	require_known_place(segment->place);
}

/*
 * Read and lock a map block; a new one is initialised.  True if the record's change has yet to be
 * made.  Either way finish_block() comes next.
 */
static bool
lock_block(XLogReaderState *record, uint8 block_id, Buffer *buffer)
{
	if ((XLogRecGetBlock(record, block_id)->flags & BKPBLOCK_WILL_INIT) == 0)
		return XLogReadBufferForRedo(record, block_id, buffer) == BLK_NEEDS_REDO;

	*buffer = XLogInitBufferForRedo(record, block_id);
	blob_map_page_init(BufferGetPage(*buffer));
	return true;
}

static void
finish_block(XLogReaderState *record, Buffer buffer, bool is_changed)
{
	if (is_changed)
	{
		/* A change is made once, by the page's LSN. */
		Assert(PageGetLSN(BufferGetPage(buffer)) < record->EndRecPtr);
		PageSetLSN(BufferGetPage(buffer), record->EndRecPtr);
		MarkBufferDirty(buffer);
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
}

/*
 * PANIC if the meta page in a record has a wrong length.  It may be in a full-page image instead.
 */
static void
require_meta_page(XLogReaderState *record)
{
	const BlobWalHeader *header = (BlobWalHeader *) XLogRecGetData(record);
	Size		length;
	const char *data;

	require_format(record, XLogRecHasBlockRef(record, 0), "no meta page");
	data = XLogRecGetBlockData(record, 0, &length);
	require_format(record, data == NULL || (header->version == BLOB_WAL_VERSION_1 ?
											length == sizeof(BlobMapMeta) :
											length >= sizeof(BlobMapMeta) &&
											length <= BLOB_MAP_META_MAX_BYTES),
				   "a meta page of another length");
}

/* META and SEGMENT: the meta page gets the content in the record. */
static void
replay_meta_page(XLogReaderState *record)
{
	Buffer		buffer;
	bool		needs_redo = lock_block(record, 0, &buffer);

	if (needs_redo)
	{
		Size		length;
		char	   *data = XLogRecGetBlockData(record, 0, &length);

		blob_map_page_set_meta(BufferGetPage(buffer), data, length);
	}
	finish_block(record, buffer, needs_redo);
}

/*
 * Files that this server reserved itself were durable before the record was inserted.  A copy may
 * be older than a file, or than its end.  There the files are made, each by the record of its first
 * pages only.  So is a file that this recovery has removed: a promoted server may replay records of
 * its predecessor, too.
 */
static void
replay_reservation(const BlobStoreId *store, BlobPageNo first_page, BlobPageNo end_page)
{
	bool		is_own = !blob_replay_is_foreign();

	if (first_page > 0 && blob_invalid_segments_lacks_directory(store))
		return;
	while (first_page < end_page)
	{
		uint32		segment_no = blob_segment_of(first_page);
		BlobPageNo	segment_start = segment_no * BLOB_SEGMENT_PAGES;
		BlobPageNo	stop = Min(end_page, segment_start + BLOB_SEGMENT_PAGES);
		bool		is_there = is_own && !blob_invalid_segments_was_removed(store, segment_no);
		BlobPageNo	expected_end = is_there ? stop : first_page;

		if (!blob_invalid_segments_is_lacking(store, segment_no,
											  (expected_end - segment_start) * BLOB_PAGE_SIZE))
		{
			blob_segment_make_dir(store);
			blob_segment_reserve(store, first_page, stop);
		}
		first_page = stop;
	}
}

static void
replay_segment(XLogReaderState *record)
{
	BlobWalSegment segment;
	BlobStoreId store;

	load_segment(record, &segment);
	require_meta_page(record);
	store = store_of(&segment.header);
	replay_reservation(&store, segment.first_page, segment.end_page);
	replay_meta_page(record);
}

/* Set the changed entries of one map page, unless the page has them by its LSN. */
static void
replay_map_block(XLogReaderState *record, uint8 block_id)
{
	Buffer		buffer;
	bool		needs_redo = lock_block(record, block_id, &buffer);

	if (needs_redo)
	{
		Size		length;
		char	   *data = XLogRecGetBlockData(record, block_id, &length);

		for (Size i = 0; i < length / sizeof(BlobWalMapChange); i++)
		{
			BlobWalMapChange change;
			BlobMapEntry entry;

			memcpy(&change, data + i * sizeof(change), sizeof(change)); /* may be unaligned */
			entry.generation_state = change.generation_state;
			entry.measure = change.measure;
			blob_map_page_set(BufferGetPage(buffer), change.slot, &entry);
		}
	}
	finish_block(record, buffer, needs_redo);
}

/* The high-water mark of one extent grows.  PANIC if the map has another extent there. */
static void
replay_claim(XLogReaderState *record)
{
	Buffer		buffer;
	bool		needs_redo = lock_block(record, 0, &buffer);

	if (needs_redo)
	{
		Page		page = BufferGetPage(buffer);
		Size		length;
		char	   *data = XLogRecGetBlockData(record, 0, &length);
		BlobWalMapChange change;
		BlobMapEntry entry;

		memcpy(&change, data, sizeof(change));	/* may be unaligned */
		entry = blob_map_page_entries(page)[change.slot];
		if (entry.generation_state != change.generation_state)
			elog(PANIC, "blobext: CLAIM of an extent that is not in the map");
		/* Both have the tier in their upper bits. */
		entry.measure = Max(entry.measure, change.measure);
		blob_map_page_set(page, change.slot, &entry);
	}
	finish_block(record, buffer, needs_redo);
}

/* Cancel a standby's queries whose snapshots see horizon as running. */
static void
resolve_conflict(XLogReaderState *record, TransactionId horizon)
{
	RelFileLocator map;

	XLogRecGetBlockTag(record, 0, &map, NULL, NULL);
	blob_resolve_snapshot_conflict(horizon, map);
}

/*
 * Queries of a standby that could still see the freed extents are cancelled first.  Only later
 * records write the pages, see make_freed_crash_safe().  The reuse class makes no difference here,
 * because no write of earlier content is in flight.
 */
static void
replay_free(XLogReaderState *record)
{
	BlobWalFree freed;
	size_t		data_bytes;

	(void) load_record(record, &freed, sizeof(freed), &data_bytes);
	require_format(record, freed.reserved == 0, "reserved bytes are not zero");
	require_format(record, freed.reuse <= BLOB_REUSE_AFTER_FLUSH, "unknown reuse class");
	if (InHotStandby)
		resolve_conflict(record, freed.horizon);
	for (int block_id = 0; block_id <= XLogRecMaxBlockId(record); block_id++)
	{
		static const BlobMapEntry no_entry;
		Buffer		buffer;
		bool		needs_redo = lock_block(record, (uint8) block_id, &buffer);

		if (needs_redo)
		{
			Size		length;
			char	   *data = XLogRecGetBlockData(record, block_id, &length);

			for (Size i = 0; i < length / sizeof(uint16); i++)
			{
				uint16		slot;

				memcpy(&slot, data + i * sizeof(slot), sizeof(slot));	/* may be unaligned */
				blob_map_page_set(BufferGetPage(buffer), slot, &no_entry);
			}
		}
		finish_block(record, buffer, needs_redo);
	}
	last_free_lsn = record->EndRecPtr;
}

/*
 * Move minRecoveryPoint past the last FREE, before freed pages are written.
 *
 * A standby that is stopped and started again replays from its last restartpoint, and lets queries
 * in once it has reached minRecoveryPoint.  If that point lay before a FREE whose pages have been
 * written since, such a query would find old descriptors, a map that agrees with them, and new
 * content.  In recovery XLogFlush() moves minRecoveryPoint.
 */
static void
make_freed_crash_safe(void)
{
	if (crash_safe_lsn >= last_free_lsn)
		return;
	XLogFlush(last_free_lsn);
	crash_safe_lsn = last_free_lsn;
}

static void
replay_map_blocks(XLogReaderState *record)
{
	for (int block_id = 0; block_id <= XLogRecMaxBlockId(record); block_id++)
		replay_map_block(record, (uint8) block_id);
}

/*
 * Files are about to be changed, which cannot be undone: a recovery that begins anew goes on past
 * `end` before it lets queries in.
 */
static void
assert_past(XLogRecPtr end)
{
	Assert(!XLogNeedsFlush(end));
}

/* Remove the file of a segment.  minRecoveryPoint is moved before, as for content after a FREE. */
static void
replay_remove(XLogReaderState *record)
{
	BlobWalAbsence absence;
	BlobStoreId store;

	load_segment(record, &absence);
	store = store_of(&absence.header);
	XLogFlush(record->EndRecPtr);
	replay_map_blocks(record);
	assert_past(record->EndRecPtr);
	(void) blob_segment_remove(&store, blob_segment_of(absence.first_page));
	blob_invalid_segments_removed(&store, blob_segment_of(absence.first_page));
	blob_content_queue_forget(&store, blob_segment_of(absence.first_page));
}

static void
replay_restore(XLogReaderState *record)
{
	BlobWalAbsence absence;
	BlobStoreId store;

	load_segment(record, &absence);
	store = store_of(&absence.header);
	replay_reservation(&store, absence.first_page, absence.end_page);
	replay_map_blocks(record);
}

/* A run of PUNCH; the record has it unaligned.  PANIC if the run is not inside of a segment. */
static BlobWalRun
load_run(XLogReaderState *record, const char *data, uint32 run_no)
{
	BlobWalRun	run;

	memcpy(&run, data + run_no * sizeof(run), sizeof(run));
	require_format(record, run.first_page <= BLOB_MAX_PAGE_NO && run.pages > 0 &&
				   run.pages <= BLOB_SEGMENT_PAGES - run.first_page % BLOB_SEGMENT_PAGES,
				   "a run that is not inside of a segment");
	return run;
}

/*
 * Make the holes of free pages.  As for REMOVE, minRecoveryPoint is moved before.  A file may be
 * missing, because a later record has removed it.  A hole that cannot be made costs space only.
 */
static void
replay_punch(XLogReaderState *record)
{
	BlobWalPunch punch;
	BlobStoreId store;
	size_t		data_bytes;
	const char *data = load_record(record, &punch, sizeof(punch), &data_bytes);

	require_known_place(punch.place);
	require_format(record, data_bytes == punch.run_count * sizeof(BlobWalRun), "runs are missing");
	for (uint32 i = 0; i < punch.run_count; i++)
		(void) load_run(record, data, i);
	store = store_of(&punch.header);
	XLogFlush(record->EndRecPtr);
	replay_map_blocks(record);
	assert_past(record->EndRecPtr);
	for (uint32 i = 0; i < punch.run_count; i++)
	{
		BlobWalRun	run = load_run(record, data, i);
		uint64		end_bytes = (run.first_page % BLOB_SEGMENT_PAGES + run.pages) * BLOB_PAGE_SIZE;

		if (!blob_invalid_segments_is_lacking(&store, blob_segment_of(run.first_page), end_bytes))
			(void) blob_segment_punch(&store, run.first_page, run.first_page + run.pages);
	}
}

/* Remove a store's directory.  The transaction that dropped its map has committed before. */
static void
replay_drop(XLogReaderState *record)
{
	BlobWalDrop drop;
	BlobStoreId store;
	size_t		data_bytes;
	const char *data = load_record(record, &drop, sizeof(drop), &data_bytes);

	require_format(record, drop.reserved == 0, "reserved bytes are not zero");
	require_format(record, data_bytes == drop.place_count * sizeof(uint32), "places are missing");
	for (uint32 i = 0; i < drop.place_count; i++)
	{
		uint32		place;

		memcpy(&place, data + i * sizeof(place), sizeof(place));	/* may be unaligned */
		require_known_place(place);
	}
	store = store_of(&drop.header);
	XLogFlush(record->EndRecPtr);
	assert_past(record->EndRecPtr);
	(void) blob_segment_remove_dir(&store);
	blob_invalid_segments_removed(&store, BLOB_ALL_SEGMENTS);
	blob_content_queue_forget(&store, BLOB_ALL_SEGMENTS);
}

/*
 * Start to write the content in the record, one piece for each segment and buffer.  Pieces for a
 * segment whose file is missing are skipped.
 */
static void
replay_content(XLogReaderState *record)
{
	BlobWalContent content;
	size_t		data_bytes;
	const char *data = load_record(record, &content, sizeof(content), &data_bytes);
	BlobStoreId store = store_of(&content.header);
	BlobPageNo	page = content.first_page;
	uint32		left_bytes = content.length_bytes;

	require_known_place(content.place);
	require_format(record, data_bytes == left_bytes, "bytes are missing");
	while (left_bytes > 0)
	{
		uint64		segment_bytes = (BLOB_SEGMENT_PAGES - page % BLOB_SEGMENT_PAGES) *
			BLOB_PAGE_SIZE;
		uint32		bytes = (uint32) Min(Min(left_bytes, BLOB_IO_BUFFER_BYTES), segment_bytes);
		uint64		end_page = page % BLOB_SEGMENT_PAGES + blob_pages_for(bytes);

		if (!blob_invalid_segments_is_lacking(&store, blob_segment_of(page),
											  end_page * BLOB_PAGE_SIZE))
		{
			make_freed_crash_safe();
			assert_past(last_free_lsn);
			blob_content_queue_write(&store, page, data, bytes);
		}
		page += blob_pages_for(bytes);
		data += bytes;
		left_bytes -= bytes;
	}
	if (!has_redo_hooks)
		blob_content_queue_sync();
}

/* Note the unlogged content of another server.  This server's own content is in its files. */
static void
replay_omitted(XLogReaderState *record)
{
	BlobWalOmitted omitted;
	size_t		data_bytes;
	const char *data = load_record(record, &omitted, sizeof(omitted), &data_bytes);
	BlobStoreId store = store_of(&omitted.header);
	BlobGenerationRange *ranges = palloc(data_bytes);

	require_format(record, data_bytes == omitted.range_count * sizeof(BlobGenerationRange),
				   "ranges are missing");
	if (!blob_replay_is_foreign() || blob_invalid_segments_lacks_directory(&store))
		return;
	memcpy(ranges, data, data_bytes);	/* may be unaligned */
	blob_unlogged_add(&store, ranges, omitted.range_count);
}

/*
 * Content that was unlogged has come, by the CONTENT before this record.  It is durable before the
 * note goes.
 */
static void
replay_fetched(XLogReaderState *record)
{
	BlobWalFetched fetched;
	size_t		data_bytes;
	const char *data = load_record(record, &fetched, sizeof(fetched), &data_bytes);
	BlobStoreId store = store_of(&fetched.header);
	BlobGenerationRange *ranges = palloc(data_bytes);

	require_format(record, fetched.reserved == 0, "reserved bytes are not zero");
	require_format(record, data_bytes == fetched.range_count * sizeof(BlobGenerationRange),
				   "ranges are missing");
	if (blob_invalid_segments_lacks_directory(&store))
		return;
	memcpy(ranges, data, data_bytes);	/* may be unaligned */
	blob_content_queue_sync();
	blob_unlogged_remove(&store, ranges, fetched.range_count);
}

/*
 * Records change pages, files and notes that content depends on, so the content before them is in
 * the files: but for CONTENT, which comes next to it, and ALLOC, whose extents no value has yet.
 */
static void
assert_may_redo(XLogReaderState *record)
{
#ifdef USE_ASSERT_CHECKING
	uint8		op = XLogRecGetInfo(record) & BLOB_WAL_OP_MASK;

	Assert(InRecovery && CurrentMemoryContext == replay_context);
	if (!has_redo_hooks)
		blob_content_queue_check_durable();
	else if (op != BLOB_WAL_CONTENT && op != BLOB_WAL_ALLOC)
		blob_content_queue_check_complete();
#endif
}

/*
 * Replay one record: the redo function of the resource manager.  Files that it makes are durable on
 * return, writes of content may be in flight.  PANIC, before any change, if this library does not
 * know the record or its version.
 */
static void
redo(XLogReaderState *record)
{
	MemoryContext old_context = MemoryContextSwitchTo(replay_context);

	require_known_record(record);
	assert_may_redo(record);
	switch (XLogRecGetInfo(record) & BLOB_WAL_OP_MASK)
	{
		case BLOB_WAL_META:
			require_meta_page(record);
			replay_meta_page(record);
			break;
		case BLOB_WAL_SEGMENT:
			replay_segment(record);
			break;
		case BLOB_WAL_ALLOC:
		case BLOB_WAL_TRIM:
			replay_map_blocks(record);
			break;
		case BLOB_WAL_CLAIM:
			replay_claim(record);
			break;
		case BLOB_WAL_FREE:
			replay_free(record);
			break;
		case BLOB_WAL_REMOVE:
			replay_remove(record);
			break;
		case BLOB_WAL_RESTORE:
			replay_restore(record);
			break;
		case BLOB_WAL_PUNCH:
			replay_punch(record);
			break;
		case BLOB_WAL_DROP:
			replay_drop(record);
			break;
		case BLOB_WAL_CONTENT:
			replay_content(record);
			break;
		case BLOB_WAL_OMITTED:
			replay_omitted(record);
			break;
		case BLOB_WAL_FETCHED:
			replay_fetched(record);
			break;
	}
	if (reachedConsistency)
		blob_invalid_segments_check();
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(replay_context);
}

/* Before the first record; all libraries that are preloaded have been loaded. */
static void
start_up(void)
{
	replay_context = AllocSetContextCreate(CurrentMemoryContext, "blobext replay",
										   ALLOCSET_DEFAULT_SIZES);
	has_redo_hooks = blob_redo_hooks_install();
}

/*
 * The end of the WAL, or the recovery target: all content is durable on return.  FATAL if a segment
 * is still noted as invalid.
 */
static void
clean_up(void)
{
	blob_content_queue_sync();
	blob_content_queue_check_durable();
	blob_invalid_segments_check();
	blob_segment_release_all();
	MemoryContextDelete(replay_context);
}

/* wal_consistency_checking: nothing on a map page may differ but LSN, checksum and hints. */
static void
mask(char *page, BlockNumber block)
{
	mask_page_lsn_and_checksum(page);
}

static const RmgrData resource_manager = {
	.rm_name = BLOB_RMGR_NAME,
	.rm_redo = redo,
	.rm_desc = blob_wal_describe,
	.rm_identify = blob_wal_identify,
	.rm_startup = start_up,
	.rm_cleanup = clean_up,
	.rm_mask = mask
};

StaticAssertDecl(BLOB_RMGR_ID >= RM_MIN_CUSTOM_ID && BLOB_RMGR_ID <= RM_MAX_CUSTOM_ID,
				 "RMGR_ID must be one of PostgreSQL's ids of custom resource managers");

void
blob_recovery_register(void)
{
	RegisterCustomRmgr(BLOB_RMGR_ID, (RmgrData *) &resource_manager);
}
