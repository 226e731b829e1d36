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
#include "blob/known_digests.h"
#include "core/compat.h"
#include "extents/damaged_pages.h"
#include "io/engine.h"
#include "io/segment.h"
#include "recovery/content_queue.h"
#include "recovery/invalid_segments.h"
#include "recovery/record.h"
#include "recovery/recovery.h"
#include "recovery/redo_hooks.h"
#include "recovery/replay_origin.h"
#include "store/map_page.h"
#include "store/map_sums.h"
#include "storage/bufmgr.h"
#include "storage/standby.h"
#include "store/store.h"
#include "store/unlogged.h"
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

/* Change a page of the map as the data of the record's block say; these may be unaligned. */
typedef void (*PageChange) (Page page, const void *data, size_t length);

/*
 * Change a block of the map, by the page's LSN once; a new one is initialised.  Returns its buffer,
 * which is locked, or InvalidBuffer if the map has it no longer.
 */
static Buffer
change_block(XLogReaderState *record, uint8 block_id, PageChange change)
{
	bool		is_new = (XLogRecGetBlock(record, block_id)->flags & BKPBLOCK_WILL_INIT) != 0;
	bool		needs_redo = true;
	Buffer		buffer;

	if (is_new)
	{
		buffer = XLogInitBufferForRedo(record, block_id);
		blob_map_page_init(BufferGetPage(buffer));
	}
	else
		needs_redo = XLogReadBufferForRedo(record, block_id, &buffer) == BLK_NEEDS_REDO;
	if (needs_redo)
	{
		Page		page = BufferGetPage(buffer);
		Size		length;
		const char *data = XLogRecGetBlockData(record, block_id, &length);

		Assert(PageGetLSN(page) < record->EndRecPtr);
		change(page, data, length);
		PageSetLSN(page, record->EndRecPtr);
		MarkBufferDirty(buffer);
	}
	return buffer;
}

static void
replay_block(XLogReaderState *record, uint8 block_id, PageChange change)
{
	Buffer		buffer = change_block(record, block_id, change);

	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
}

/* All blocks of a record; a query of a standby sees none of the changes, or all of them. */
static void
replay_blocks(XLogReaderState *record, PageChange change)
{
	Buffer		buffers[XLR_MAX_BLOCK_ID + 1];
	int			count = XLogRecMaxBlockId(record) + 1;

	for (int i = 0; i < count; i++)
		buffers[i] = change_block(record, (uint8) i, change);
	for (int i = 0; i < count; i++)
		if (BufferIsValid(buffers[i]))
			UnlockReleaseBuffer(buffers[i]);
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

	blob_record_load_segment(record, &segment);
	blob_record_require_meta_page(record);
	store = blob_record_store(&segment.header);
	replay_reservation(&store, segment.first_page, segment.end_page);
	replay_block(record, 0, blob_map_page_set_meta);
}

/* A change of an entry, of those that the data are. */
static BlobWalMapChange
load_change(const void *data, size_t change_no)
{
	BlobWalMapChange change;

	memcpy(&change, (const char *) data + change_no * sizeof(change), sizeof(change));
	return change;
}

static void
set_entries(Page page, const void *data, size_t length)
{
	for (size_t i = 0; i < length / sizeof(BlobWalMapChange); i++)
	{
		BlobWalMapChange change = load_change(data, i);
		BlobMapEntry entry = {change.generation_state, change.measure};

		blob_map_page_set(page, change.slot, &entry);
	}
}

/* CLAIM: the high-water mark of one extent grows.  PANIC if the map has another extent there. */
static void
raise_mark(Page page, const void *data, size_t length)
{
	BlobWalMapChange change = load_change(data, 0);
	BlobMapEntry entry = blob_map_page_entries(page)[change.slot];

	if (entry.generation_state != change.generation_state)
		elog(PANIC, "blobext: CLAIM of an extent that is not in the map");
	blob_map_entry_raise_high_water(&entry, change.measure);
	blob_map_page_set(page, change.slot, &entry);
}

/* FREE: these entries go. */
static void
clear_entries(Page page, const void *data, size_t length)
{
	static const BlobMapEntry no_entry;

	for (size_t i = 0; i < length / sizeof(uint16); i++)
	{
		uint16		slot;

		memcpy(&slot, (const char *) data + i * sizeof(slot), sizeof(slot));
		blob_map_page_set(page, slot, &no_entry);
	}
}

/* SUMS: checksums of pages.  PANIC if the map has no place for them where the record says. */
static void
set_sums(Page page, const void *data, size_t length)
{
	if (!blob_map_page_apply_sums(page, data, length))
		elog(PANIC, "blobext: SUMS that the map has no place for");
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

	(void) blob_record_load(record, &freed, sizeof(freed), &data_bytes);
	blob_record_require(record, freed.reserved == 0, "reserved bytes are not zero");
	blob_record_require(record, freed.reuse <= BLOB_REUSE_AFTER_FLUSH, "unknown reuse class");
	if (InHotStandby)
		resolve_conflict(record, freed.horizon);
	replay_blocks(record, clear_entries);
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

	blob_record_load_segment(record, &absence);
	store = blob_record_store(&absence.header);
	XLogFlush(record->EndRecPtr);
	replay_blocks(record, set_entries);
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

	blob_record_load_segment(record, &absence);
	store = blob_record_store(&absence.header);
	replay_reservation(&store, absence.first_page, absence.end_page);
	replay_blocks(record, set_entries);
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
	const char *data = blob_record_load(record, &punch, sizeof(punch), &data_bytes);

	blob_record_require_known_place(punch.place);
	blob_record_require(record, data_bytes == punch.run_count * sizeof(BlobWalRun),
						"runs are missing");
	for (uint32 i = 0; i < punch.run_count; i++)
		(void) blob_record_load_run(record, data, i);
	store = blob_record_store(&punch.header);
	XLogFlush(record->EndRecPtr);
	replay_blocks(record, set_entries);
	assert_past(record->EndRecPtr);
	for (uint32 i = 0; i < punch.run_count; i++)
	{
		BlobWalRun	run = blob_record_load_run(record, data, i);
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
	const char *data = blob_record_load(record, &drop, sizeof(drop), &data_bytes);

	blob_record_require(record, drop.reserved == 0, "reserved bytes are not zero");
	blob_record_require(record, data_bytes == drop.place_count * sizeof(uint32),
						"places are missing");
	for (uint32 i = 0; i < drop.place_count; i++)
	{
		uint32		place;

		memcpy(&place, data + i * sizeof(place), sizeof(place));	/* may be unaligned */
		blob_record_require_known_place(place);
	}
	store = blob_record_store(&drop.header);
	XLogFlush(record->EndRecPtr);
	assert_past(record->EndRecPtr);
	(void) blob_segment_remove_dir(&store);
	blob_unlogged_file_removed();
	blob_known_digests_forget_store(&store);
	blob_damaged_pages_forget_store(&store);
	blob_store_note_drop(record->EndRecPtr);
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
	const char *data = blob_record_load(record, &content, sizeof(content), &data_bytes);
	BlobStoreId store = blob_record_store(&content.header);
	BlobPageNo	page = content.first_page;
	uint32		left_bytes = content.length_bytes;

	blob_record_require_known_place(content.place);
	blob_record_require(record, data_bytes == left_bytes, "bytes are missing");
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

/* The ranges behind the fixed part of OMITTED and FETCHED. */
static BlobGenerationRange *
load_ranges(XLogReaderState *record, const char *data, size_t data_bytes, uint32 count)
{
	BlobGenerationRange *ranges = palloc(data_bytes);

	blob_record_require(record, data_bytes == count * sizeof(BlobGenerationRange),
						"ranges are missing");
	memcpy(ranges, data, data_bytes);	/* may be unaligned */
	return ranges;
}

/*
 * Note the unlogged content of another server.  This server's own content is in its files; but if
 * this recovery has dropped the store, the notes went with it, and what comes is its predecessor's:
 * a server makes a store that it has dropped only after a checkpoint past that.
 */
static void
replay_omitted(XLogReaderState *record)
{
	BlobWalOmitted omitted;
	size_t		data_bytes;
	const char *data = blob_record_load(record, &omitted, sizeof(omitted), &data_bytes);
	BlobStoreId store = blob_record_store(&omitted.header);
	BlobGenerationRange *ranges = load_ranges(record, data, data_bytes, omitted.range_count);

	if ((blob_replay_is_foreign() ||
		 blob_invalid_segments_was_removed(&store, BLOB_ALL_SEGMENTS)) &&
		!blob_invalid_segments_lacks_directory(&store))
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
	const char *data = blob_record_load(record, &fetched, sizeof(fetched), &data_bytes);
	BlobStoreId store = blob_record_store(&fetched.header);
	BlobGenerationRange *ranges = load_ranges(record, data, data_bytes, fetched.range_count);

	blob_record_require(record, fetched.reserved == 0, "reserved bytes are not zero");
	if (blob_invalid_segments_lacks_directory(&store))
		return;
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
	else if (op != BLOB_WAL_CONTENT && op != BLOB_WAL_ALLOC && op != BLOB_WAL_SUMS)
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

	blob_record_require_known(record);
	assert_may_redo(record);
	switch (XLogRecGetInfo(record) & BLOB_WAL_OP_MASK)
	{
		case BLOB_WAL_META:
			blob_record_require_meta_page(record);
			replay_block(record, 0, blob_map_page_set_meta);
			break;
		case BLOB_WAL_SEGMENT:
			replay_segment(record);
			break;
		case BLOB_WAL_ALLOC:
		case BLOB_WAL_TRIM:
			replay_blocks(record, set_entries);
			break;
		case BLOB_WAL_CLAIM:
			replay_block(record, 0, raise_mark);
			break;
		case BLOB_WAL_SUMS:
			replay_blocks(record, set_sums);
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
