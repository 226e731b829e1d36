/*
 * recovery/recovery.c
 *	  Replay of blobext's WAL records.
 *
 * An extension has no hook into checkpoints, so what replay writes to segment files is durable
 * before it returns: a restartpoint may come right after.  Replay is idempotent: map pages go by
 * their LSN, content is written over itself.  A segment file may be missing, because a later record
 * of its removal has been carried out already: what is about it is left out (invalid_segments.h).
 *
 * Replaying CONTENT over pages that now belong to another value cannot happen: pages are given to
 * another value only after a completed checkpoint that lies past the record of their release.
 */
#include "postgres.h"

#include "access/bufmask.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "core/compat.h"
#include "io/engine.h"
#include "io/unlogged.h"
#include "io/segment.h"
#include "recovery/replay_origin.h"
#include "recovery/recovery.h"
#include "recovery/invalid_segments.h"
#include "store/map_page.h"
#include "storage/bufmgr.h"
#include "storage/standby.h"
#include "utils/memutils.h"
#include "wal/records.h"

static MemoryContext replay_context;

/* Ends of the last FREE record that was replayed, and of the last that secure_freed() saw. */
static XLogRecPtr last_free_lsn;
static XLogRecPtr secured_lsn;

static BlobStoreId
store_of(const BlobWalHeader *header)
{
	BlobStoreId store = {.dboid = header->dboid, .incarnation = header->incarnation};

	if (header->version != BLOB_WAL_VERSION)
		ereport(PANIC,
				(errmsg("blobext cannot replay WAL of format version %u", header->version),
				 errdetail("This library writes and reads version %d.", BLOB_WAL_VERSION),
				 errhint("Recover with the version of blobext that wrote the WAL.")));
	return store;
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
		PageSetLSN(BufferGetPage(buffer), record->EndRecPtr);
		MarkBufferDirty(buffer);
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
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
		BlobMapMeta meta;

		if (length != sizeof(meta))
			elog(PANIC, "blobext: meta page record has %zu bytes", length);
		memcpy(&meta, data, sizeof(meta));	/* the data may be unaligned */
		blob_map_page_set_meta(BufferGetPage(buffer), &meta);
	}
	finish_block(record, buffer, needs_redo);
}

/*
 * What this server reserved itself was durable before the record.  In a copy, files and their ends
 * may be younger than the copy: they are made, each by the record of its first pages only.
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
		BlobPageNo	expected_end = is_own ? stop : first_page;

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
	BlobWalSegment *segment = (BlobWalSegment *) XLogRecGetData(record);
	BlobStoreId store = store_of(&segment->header);

	replay_reservation(&store, segment->first_page, segment->end_page);
	replay_meta_page(record);
}

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

/* The high-water mark of one extent grows. */
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
 * Queries of a standby that could still see what was freed are cancelled first.  The pages
 * are written by later records only; see secure_freed().
 */
static void
replay_free(XLogReaderState *record)
{
	BlobWalFree *freed = (BlobWalFree *) XLogRecGetData(record);

	if (InHotStandby)
		resolve_conflict(record, freed->horizon);
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
 * A standby that is stopped and started again replays from its last restartpoint and lets queries
 * in once it has reached minRecoveryPoint.  That must not lie before a FREE whose pages have been
 * written since: such a query would find old descriptors, a map that agrees with them, and new
 * content.  In recovery XLogFlush() moves minRecoveryPoint.
 */
static void
secure_freed(void)
{
	if (secured_lsn >= last_free_lsn)
		return;
	XLogFlush(last_free_lsn);
	secured_lsn = last_free_lsn;
}

static void
replay_map_blocks(XLogReaderState *record)
{
	for (int block_id = 0; block_id <= XLogRecMaxBlockId(record); block_id++)
		replay_map_block(record, (uint8) block_id);
}

/* As for FREE and content, minRecoveryPoint comes before the file goes. */
static void
replay_remove(XLogReaderState *record)
{
	BlobWalAbsence *absence = (BlobWalAbsence *) XLogRecGetData(record);
	BlobStoreId store = store_of(&absence->header);

	XLogFlush(record->EndRecPtr);
	replay_map_blocks(record);
	(void) blob_segment_remove(&store, blob_segment_of(absence->first_page));
	blob_invalid_segments_removed(&store, blob_segment_of(absence->first_page));
}

static void
replay_restore(XLogReaderState *record)
{
	BlobWalAbsence *absence = (BlobWalAbsence *) XLogRecGetData(record);
	BlobStoreId store = store_of(&absence->header);

	replay_reservation(&store, absence->first_page, absence->end_page);
	replay_map_blocks(record);
}

/* The transaction that dropped the store has committed: nobody has its map any more. */
static void
replay_drop(XLogReaderState *record)
{
	BlobWalDrop *drop = (BlobWalDrop *) XLogRecGetData(record);
	BlobStoreId store = store_of(&drop->header);

	XLogFlush(record->EndRecPtr);
	(void) blob_segment_remove_dir(&store);
	blob_invalid_segments_removed(&store, BLOB_ALL_SEGMENTS);
}

/* Write one piece, which lies in one segment, and wait. */
static void
write_piece(const BlobStoreId *store, BlobPageNo first_page, const char *data, uint32 length_bytes)
{
	static BlobIoRequest request;	/* static, like the buffers */
	uint32		page_bytes = (uint32) blob_pages_for(length_bytes) * BLOB_PAGE_SIZE;
	char	   *buffer = blob_io_buffer(0);

	secure_freed();
	memcpy(buffer, data, length_bytes);
	memset(buffer + length_bytes, 0, page_bytes - length_bytes);
	request.is_write = true;
	request.fd = blob_segment_open(store, blob_segment_of(first_page), BLOB_SEGMENT_CREATE);
	request.file_offset = (first_page % BLOB_SEGMENT_PAGES) * BLOB_PAGE_SIZE;
	request.buffer_no = 0;
	request.length = page_bytes;
	blob_io_start(&request);
	blob_io_wait(&request);
	if (request.error != 0)
	{
		errno = request.error;
		ereport(PANIC,
				(errcode_for_file_access(),
				 errmsg("could not replay content of page " UINT64_FORMAT ": %m", first_page)));
	}
}

static void
replay_content(XLogReaderState *record)
{
	BlobWalContent *content = (BlobWalContent *) XLogRecGetData(record);
	BlobStoreId store = store_of(&content->header);
	const char *data = (const char *) content + sizeof(*content);
	BlobPageNo	page = content->first_page;
	uint32		left_bytes = content->length_bytes;

	blob_io_begin();
	while (left_bytes > 0)
	{
		uint64		segment_bytes = (BLOB_SEGMENT_PAGES - page % BLOB_SEGMENT_PAGES) *
			BLOB_PAGE_SIZE;
		uint32		bytes = (uint32) Min(Min(left_bytes, BLOB_IO_BUFFER_BYTES), segment_bytes);
		bool		leaves_segment = bytes == left_bytes || bytes == segment_bytes;
		uint64		end_page = page % BLOB_SEGMENT_PAGES + blob_pages_for(bytes);

		if (!blob_invalid_segments_is_lacking(&store, blob_segment_of(page),
											  end_page * BLOB_PAGE_SIZE))
		{
			write_piece(&store, page, data, bytes);
			if (leaves_segment)
				blob_segment_sync(&store, blob_segment_of(page));
		}
		page += blob_pages_for(bytes);
		data += bytes;
		left_bytes -= bytes;
	}
	blob_io_end();
}

/* Our own content is in our files; another server's is not. */
static void
replay_omitted(XLogReaderState *record)
{
	BlobWalOmitted *omitted = (BlobWalOmitted *) XLogRecGetData(record);
	BlobStoreId store = store_of(&omitted->header);
	BlobGenerationRange *ranges = palloc(omitted->range_count * sizeof(BlobGenerationRange));

	if (!blob_replay_is_foreign() || blob_invalid_segments_lacks_directory(&store))
		return;
	/* the data may be unaligned */
	memcpy(ranges, (char *) omitted + sizeof(*omitted),
		   omitted->range_count * sizeof(BlobGenerationRange));
	blob_unlogged_add(&store, ranges, omitted->range_count);
}

static void
redo(XLogReaderState *record)
{
	MemoryContext old_context = MemoryContextSwitchTo(replay_context);

	(void) store_of((BlobWalHeader *) XLogRecGetData(record));
	switch (XLogRecGetInfo(record) & BLOB_WAL_OP_MASK)
	{
		case BLOB_WAL_META:
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
		case BLOB_WAL_DROP:
			replay_drop(record);
			break;
		case BLOB_WAL_CONTENT:
			replay_content(record);
			break;
		case BLOB_WAL_OMITTED:
			replay_omitted(record);
			break;
		default:
			elog(PANIC, "blobext: unknown WAL record %u", XLogRecGetInfo(record));
	}
	if (reachedConsistency)
		blob_invalid_segments_check();
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(replay_context);
}

static void
start_up(void)
{
	replay_context = AllocSetContextCreate(CurrentMemoryContext, "blobext replay",
										   ALLOCSET_DEFAULT_SIZES);
}

/* The end of the WAL, or of what shall be replayed. */
static void
clean_up(void)
{
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

void
blob_recovery_register(void)
{
	RegisterCustomRmgr(BLOB_RMGR_ID, (RmgrData *) &resource_manager);
}
