/*
 * wal/insert.c
 *	  Insertion of blobext's WAL records, see wal/insert.h and wal/records.h.
 *
 * A record has the lowest version that can express it.  So a server with an older library can
 * replay the WAL until a feature is used that it does not know; see "Versions" in the README.
 */
#include "postgres.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "core/compat.h"
#include "miscadmin.h"
#include "postmaster/walwriter.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "wal/insert.h"

/* A backend that inserts content flushes the WAL itself when more than this is not flushed. */
#define MAX_UNFLUSHED_BYTES (UINT64CONST(8) * 1024 * 1024)

/* A write that is started early has at least so much, unless it is the last one of a value. */
#define MIN_EARLY_BYTES (384 * 1024)

uint32		blob_wal_least_version = BLOB_WAL_VERSION_1;

/* needed_version: the lowest that can express the record. */
static BlobWalHeader
make_header(const BlobStoreId *store, uint32 needed_version)
{
	BlobWalHeader header = {
		.incarnation = store->incarnation,
		.dboid = store->dboid,
		.version = Max(needed_version, blob_wal_least_version)
	};

	return header;
}

/* The fixed part of a record, which begins with its header. */
static void
register_fixed(void *record, uint8 op)
{
	BlobWalHeader *header = record;

	XLogRegisterData(record, (uint32) blob_wal_fixed_bytes(op, header->version));
}

static int
block_flags(bool is_new)
{
	return REGBUF_STANDARD | (is_new ? REGBUF_WILL_INIT : 0);
}

void
blob_wal_prepare_alloc(int block_count)
{
	Assert(block_count <= BLOB_WAL_ALLOC_MAX_BLOCKS);

	XLogEnsureRecordSpace(block_count - 1, block_count + 4);
}

/* Register map pages with their changed entries. */
static void
register_map_blocks(const BlobWalMapBlock *blocks, int block_count)
{
	for (int i = 0; i < block_count; i++)
	{
		XLogRegisterBuffer(i, blocks[i].buffer, block_flags(blocks[i].is_new));
		XLogRegisterBufData(i, (char *) blocks[i].changes,
							blocks[i].change_count * sizeof(BlobWalMapChange));
	}
}

/* Totals and the largest generation are in the record for people who read the WAL. */
void
blob_wal_log_alloc(const BlobStoreId *store, BlobWalMapBlock *blocks, int block_count,
				   const BlobExtent *extents, int extent_count)
{
	BlobWalAlloc record = {
		.header = make_header(store, BLOB_WAL_VERSION_1),
		.extent_count = extent_count
	};
	XLogRecPtr	lsn;

	record.first_page = extents[0].first_page;
	for (int i = 0; i < extent_count; i++)
	{
		record.page_count += extents[i].pages;
		record.generation = Max(record.generation, extents[i].generation);
	}

	XLogBeginInsert();
	register_fixed(&record, BLOB_WAL_ALLOC);
	register_map_blocks(blocks, block_count);
	lsn = XLogInsert(BLOB_RMGR_ID, BLOB_WAL_ALLOC);
	for (int i = 0; i < block_count; i++)
		PageSetLSN(BufferGetPage(blocks[i].buffer), lsn);
}

XLogRecPtr
blob_wal_log_free(const BlobStoreId *store, const BlobWalFree *record,
				  const BlobWalFreeBlock *blocks, int block_count)
{
	BlobWalFree copy = *record;
	XLogRecPtr	lsn;

	copy.header = make_header(store, copy.reuse == BLOB_REUSE_AFTER_CHECKPOINT ?
							  BLOB_WAL_VERSION_1 : BLOB_WAL_VERSION_2);
	XLogBeginInsert();
	register_fixed(&copy, BLOB_WAL_FREE);
	for (int i = 0; i < block_count; i++)
	{
		XLogRegisterBuffer(i, blocks[i].buffer, REGBUF_STANDARD);
		XLogRegisterBufData(i, (char *) blocks[i].slots, blocks[i].slot_count * sizeof(uint16));
	}
	lsn = XLogInsert(BLOB_RMGR_ID, BLOB_WAL_FREE);
	for (int i = 0; i < block_count; i++)
		PageSetLSN(BufferGetPage(blocks[i].buffer), lsn);
	return lsn;
}

XLogRecPtr
blob_wal_log_absence(const BlobStoreId *store, uint8 info, BlobPageNo first_page,
					 BlobPageNo end_page, const BlobWalMapBlock *blocks, int block_count,
					 Buffer meta_buffer)
{
	BlobWalAbsence record = {
		.header = make_header(store, BLOB_WAL_VERSION_1),
		.first_page = first_page,
		.end_page = end_page,
		.place = BLOB_DEFAULT_PLACE
	};
	XLogRecPtr	lsn;

	XLogBeginInsert();
	register_fixed(&record, info);
	register_map_blocks(blocks, block_count);
	/* As an image, which replay of every version restores without a look at the record. */
	if (BufferIsValid(meta_buffer))
		XLogRegisterBuffer(block_count, meta_buffer, REGBUF_STANDARD | REGBUF_FORCE_IMAGE);
	lsn = XLogInsert(BLOB_RMGR_ID, info);
	for (int i = 0; i < block_count; i++)
		PageSetLSN(BufferGetPage(blocks[i].buffer), lsn);
	if (BufferIsValid(meta_buffer))
		PageSetLSN(BufferGetPage(meta_buffer), lsn);
	return lsn;
}

void
blob_wal_log_claim(const BlobStoreId *store, uint8 info, const BlobWalClaim *record,
				   Buffer buffer, const BlobWalMapChange *change)
{
	BlobWalClaim copy = *record;
	XLogRecPtr	lsn;

	copy.header = make_header(store, BLOB_WAL_VERSION_1);
	XLogBeginInsert();
	register_fixed(&copy, info);
	XLogRegisterBuffer(0, buffer, REGBUF_STANDARD);
	XLogRegisterBufData(0, (char *) change, sizeof(*change));
	lsn = XLogInsert(BLOB_RMGR_ID, info);
	PageSetLSN(BufferGetPage(buffer), lsn);
}

void
blob_wal_prepare_sums(int block_count, int part_count)
{
	Assert(block_count <= BLOB_WAL_SUMS_MAX_BLOCKS && part_count <= BLOB_WAL_SUMS_MAX_PARTS);

	XLogEnsureRecordSpace(block_count - 1, 2 * part_count + 4);
}

void
blob_wal_log_sums(const BlobStoreId *store, BlobPageNo entry_page, const Buffer *buffers,
				  const bool *are_new, int block_count, const BlobWalSumsPart *parts,
				  int part_count)
{
	BlobWalSums record = {
		.header = make_header(store, BLOB_WAL_VERSION_3),
		.entry_page = entry_page
	};
	XLogRecPtr	lsn;

	for (int i = 0; i < part_count; i++)
		record.sum_count += parts[i].run.sum_count;
	XLogBeginInsert();
	register_fixed(&record, BLOB_WAL_SUMS);
	for (int i = 0; i < block_count; i++)
		XLogRegisterBuffer(i, buffers[i], block_flags(are_new[i]));
	for (int i = 0; i < part_count; i++)
	{
		XLogRegisterBufData(parts[i].block_no, (char *) &parts[i].run, sizeof(BlobWalSumRun));
		XLogRegisterBufData(parts[i].block_no, (char *) parts[i].sums,
							parts[i].run.sum_count * sizeof(uint32));
	}
	lsn = XLogInsert(BLOB_RMGR_ID, BLOB_WAL_SUMS);
	for (int i = 0; i < block_count; i++)
		PageSetLSN(BufferGetPage(buffers[i]), lsn);
}

XLogRecPtr
blob_wal_log_punch(const BlobStoreId *store, const BlobWalRun *runs, int run_count,
				   const BlobWalMapBlock *blocks, int block_count)
{
	BlobWalPunch record = {
		.header = make_header(store, BLOB_WAL_VERSION_2),
		.run_count = run_count,
		.place = BLOB_DEFAULT_PLACE
	};
	XLogRecPtr	lsn;

	for (int i = 0; i < run_count; i++)
	{
		Assert(blob_segment_of(runs[i].first_page) ==
			   blob_segment_of(runs[i].first_page + runs[i].pages - 1));
		record.page_count += runs[i].pages;
	}

	XLogBeginInsert();
	register_fixed(&record, BLOB_WAL_PUNCH);
	XLogRegisterData((char *) runs, run_count * sizeof(BlobWalRun));
	register_map_blocks(blocks, block_count);
	lsn = XLogInsert(BLOB_RMGR_ID, BLOB_WAL_PUNCH);
	for (int i = 0; i < block_count; i++)
		PageSetLSN(BufferGetPage(blocks[i].buffer), lsn);
	return lsn;
}

static void
log_meta_page(uint8 info, void *record, Buffer meta_buffer, bool is_new, const void *meta,
			  uint32 meta_bytes)
{
	XLogRecPtr	lsn;

	XLogBeginInsert();
	register_fixed(record, info);
	XLogRegisterBuffer(0, meta_buffer, block_flags(is_new));
	XLogRegisterBufData(0, (char *) meta, meta_bytes);
	lsn = XLogInsert(BLOB_RMGR_ID, info);
	PageSetLSN(BufferGetPage(meta_buffer), lsn);
}

void
blob_wal_log_meta(const BlobStoreId *store, Buffer meta_buffer, bool is_new, uint32 map_format,
				  const void *meta, uint32 meta_bytes, BlobGeneration generation_limit)
{
	BlobWalMeta record = {
		.header = make_header(store, map_format),
		.generation_limit = generation_limit
	};

	StaticAssertStmt(BLOB_WAL_NEWEST_VERSION == 3, "a map of format n has META of version n");

	log_meta_page(BLOB_WAL_META, &record, meta_buffer, is_new, meta, meta_bytes);
}

/* A map of format 2 has a longer meta page (store/map_page.h). */
static uint32
segment_version(uint32 meta_bytes)
{
	return meta_bytes == BLOB_WAL_META_PAGE_V1_BYTES ? BLOB_WAL_VERSION_1 : BLOB_WAL_VERSION_2;
}

void
blob_wal_log_segment(const BlobStoreId *store, Buffer meta_buffer, const void *meta,
					 uint32 meta_bytes, BlobPageNo first_page, BlobPageNo end_page)
{
	BlobWalSegment record = {
		.header = make_header(store, segment_version(meta_bytes)),
		.first_page = first_page,
		.end_page = end_page,
		.place = BLOB_DEFAULT_PLACE
	};

	log_meta_page(BLOB_WAL_SEGMENT, &record, meta_buffer, false, meta, meta_bytes);
}

XLogRecPtr
blob_wal_log_drop(const BlobStoreId *store)
{
	BlobWalDrop record = {.header = make_header(store, BLOB_WAL_VERSION_1)};

	XLogBeginInsert();
	register_fixed(&record, BLOB_WAL_DROP);
	return XLogInsert(BLOB_RMGR_ID, BLOB_WAL_DROP);
}

XLogRecPtr
blob_wal_end(void)
{
	XLogRecPtr	next = GetXLogInsertRecPtr();
	uint32		header = XLogSegmentOffset(next, wal_segment_size) < XLOG_BLCKSZ ?
		SizeOfXLogLongPHD : SizeOfXLogShortPHD;

	return next % XLOG_BLCKSZ == header ? next - header : next;
}

/* Flush the WAL if too much of it, up to lsn, is not flushed. */
static void
bound_unflushed(XLogRecPtr lsn)
{
	if (lsn > MAX_UNFLUSHED_BYTES && GetFlushRecPtr(NULL) < lsn - MAX_UNFLUSHED_BYTES)
		XLogFlush(lsn - MAX_UNFLUSHED_BYTES);
}

/*
 * Have content flushed up to lsn while the caller prepares the next piece: by the WAL writer, or by
 * the caller if the WAL writer does not keep up.  See "Flushing content early" in the README.
 */
static void
flush_early(XLogRecPtr lsn)
{
	XLogSetAsyncXactLSN(lsn);
	bound_unflushed(lsn);
}

/*
 * Write the complete pages of the WAL to the kernel, without a sync.  The server has one function
 * that can, which is the WAL writer's: it syncs as the settings of the WAL writer say, so these say
 * "never" meanwhile.  It cannot throw: it either succeeds, or ends the server.
 */
static void
write_without_sync(void)
{
	int			saved_delay = WalWriterDelay;
	int			saved_flush_after = WalWriterFlushAfter;

	WalWriterDelay = INT_MAX;
	WalWriterFlushAfter = INT_MAX;
	(void) XLogBackgroundFlush();
	WalWriterDelay = saved_delay;
	WalWriterFlushAfter = saved_flush_after;
}

/*
 * Have the device begin to write a range of the WAL, as far as it is in the last segment of it.  No
 * result counts: an error of write-back stays for the server's sync to report, because nothing is
 * waited for here.  (pg_flush_data() ends the server at any error.)
 */
static void
start_writeback(XLogRecPtr start, XLogRecPtr end)
{
#ifdef HAVE_SYNC_FILE_RANGE
	XLogSegNo	segment;
	char		path[MAXPGPATH];
	int			fd;

	if (!enableFsync)
		return;
	XLByteToPrevSeg(end, segment, wal_segment_size);
	start = Max(start, segment * (XLogRecPtr) wal_segment_size);
	XLogFilePath(path, GetWALInsertionTimeLine(), segment, wal_segment_size);
	fd = BasicOpenFile(path, O_RDONLY | O_CLOEXEC | PG_BINARY);
	if (fd < 0)
		return;
	(void) sync_file_range(fd, XLogSegmentOffset(start, wal_segment_size), end - start,
						   SYNC_FILE_RANGE_WRITE);
	(void) close(fd);
#endif
}

/* Whether a write to the WAL waits for the device. */
static bool
is_synced_by_writing(void)
{
	return wal_sync_method == WAL_SYNC_METHOD_OPEN || wal_sync_method == WAL_SYNC_METHOD_OPEN_DSYNC;
}

/*
 * Write the WAL from `written` on, and have the device begin with that; false if a process has the
 * lock: it writes or syncs, and this one would have to wait for it.
 */
static bool
write_if_free(XLogRecPtr written)
{
	XLogRecPtr	written_now;

	if (!LWLockConditionalAcquire(WALWriteLock, LW_EXCLUSIVE))
		return false;
	LWLockRelease(WALWriteLock);
	write_without_sync();
	written_now = GetXLogWriteRecPtr();
	if (written_now > written)
		start_writeback(written, written_now);
	return true;
}

void
blob_wal_write_early(bool more_comes, bool asks)
{
	uint64		buffer_bytes = (uint64) XLOGbuffers * XLOG_BLCKSZ;
	uint64		enough_bytes = more_comes ? Min(MIN_EARLY_BYTES, buffer_bytes / 4) : XLOG_BLCKSZ;
	XLogRecPtr	end = blob_wal_end();
	XLogRecPtr	written = GetXLogWriteRecPtr();

	if (is_synced_by_writing())
	{
		if (more_comes)
			flush_early(end);
		return;
	}
	if (end >= written + enough_bytes && !write_if_free(written) &&
		more_comes && (asks || end - written > buffer_bytes / 2))
		XLogSetAsyncXactLSN(end);
	bound_unflushed(end);
}

void
blob_wal_log_content(const BlobStoreId *store, BlobPageNo first_page,
					 const BlobWalContentPart *parts, int part_count, bool flush_soon)
{
	BlobWalContent record = {
		.header = make_header(store, BLOB_WAL_VERSION_1),
		.first_page = first_page,
		.place = BLOB_DEFAULT_PLACE
	};
	XLogRecPtr	lsn;

	Assert(part_count <= BLOB_WAL_CONTENT_MAX_PARTS);
	for (int i = 0; i < part_count; i++)
		record.length_bytes += parts[i].length_bytes;
	Assert(record.length_bytes <= BLOB_WAL_CONTENT_MAX_BYTES);

	XLogEnsureRecordSpace(0, part_count + 1);
	XLogBeginInsert();
	register_fixed(&record, BLOB_WAL_CONTENT);
	for (int i = 0; i < part_count; i++)
		XLogRegisterData((char *) parts[i].data, parts[i].length_bytes);
	lsn = XLogInsert(BLOB_RMGR_ID, BLOB_WAL_CONTENT);
	if (flush_soon)
		flush_early(lsn);
}

void
blob_wal_log_omitted(const BlobStoreId *store, const BlobWalOmitted *record,
					 const BlobGenerationRange *ranges)
{
	BlobWalOmitted copy = *record;

	copy.header = make_header(store, BLOB_WAL_VERSION_1);
	XLogBeginInsert();
	register_fixed(&copy, BLOB_WAL_OMITTED);
	XLogRegisterData((char *) ranges, copy.range_count * sizeof(BlobGenerationRange));
	(void) XLogInsert(BLOB_RMGR_ID, BLOB_WAL_OMITTED);
}

XLogRecPtr
blob_wal_log_fetched(const BlobStoreId *store, const BlobGenerationRange *ranges, int range_count)
{
	BlobWalFetched record = {
		.header = make_header(store, BLOB_WAL_VERSION_2),
		.range_count = range_count
	};

	XLogBeginInsert();
	register_fixed(&record, BLOB_WAL_FETCHED);
	XLogRegisterData((char *) ranges, range_count * sizeof(BlobGenerationRange));
	return XLogInsert(BLOB_RMGR_ID, BLOB_WAL_FETCHED);
}
