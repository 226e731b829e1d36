/*
 * wal/insert.c
 *	  Insertion of blobext's WAL records, see wal/insert.h and wal/records.h.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "wal/insert.h"

static BlobWalHeader
make_header(const BlobStoreId *store)
{
	BlobWalHeader header = {
		.incarnation = store->incarnation,
		.dboid = store->dboid,
		.version = BLOB_WAL_VERSION
	};

	return header;
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

void
blob_wal_log_alloc(const BlobStoreId *store, BlobWalMapBlock *blocks, int block_count,
				   const BlobExtent *extents, int extent_count)
{
	BlobWalAlloc record = {.header = make_header(store), .extent_count = extent_count};
	XLogRecPtr	lsn;

	record.first_page = extents[0].first_page;
	for (int i = 0; i < extent_count; i++)
	{
		record.page_count += extents[i].pages;
		record.generation = Max(record.generation, extents[i].generation);
	}

	XLogBeginInsert();
	XLogRegisterData((char *) &record, sizeof(record));
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

	copy.header = make_header(store);
	XLogBeginInsert();
	XLogRegisterData((char *) &copy, sizeof(copy));
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
					 BlobPageNo end_page, const BlobWalMapBlock *blocks, int block_count)
{
	BlobWalAbsence record = {
		.header = make_header(store),
		.first_page = first_page,
		.end_page = end_page
	};
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData((char *) &record, sizeof(record));
	register_map_blocks(blocks, block_count);
	lsn = XLogInsert(BLOB_RMGR_ID, info);
	for (int i = 0; i < block_count; i++)
		PageSetLSN(BufferGetPage(blocks[i].buffer), lsn);
	return lsn;
}

void
blob_wal_log_claim(const BlobStoreId *store, uint8 info, const BlobWalClaim *record,
				   Buffer buffer, const BlobWalMapChange *change)
{
	BlobWalClaim copy = *record;
	XLogRecPtr	lsn;

	copy.header = make_header(store);
	XLogBeginInsert();
	XLogRegisterData((char *) &copy, sizeof(copy));
	XLogRegisterBuffer(0, buffer, REGBUF_STANDARD);
	XLogRegisterBufData(0, (char *) change, sizeof(*change));
	lsn = XLogInsert(BLOB_RMGR_ID, info);
	PageSetLSN(BufferGetPage(buffer), lsn);
}

static void
log_meta_page(uint8 info, void *record, uint32 record_bytes, Buffer meta_buffer, bool is_new,
			  const void *meta, uint32 meta_bytes)
{
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData(record, record_bytes);
	XLogRegisterBuffer(0, meta_buffer, block_flags(is_new));
	XLogRegisterBufData(0, (char *) meta, meta_bytes);
	lsn = XLogInsert(BLOB_RMGR_ID, info);
	PageSetLSN(BufferGetPage(meta_buffer), lsn);
}

void
blob_wal_log_meta(const BlobStoreId *store, Buffer meta_buffer, bool is_new,
				  const void *meta, uint32 meta_bytes, BlobGeneration generation_limit)
{
	BlobWalMeta record = {
		.header = make_header(store),
		.generation_limit = generation_limit
	};

	log_meta_page(BLOB_WAL_META, &record, sizeof(record), meta_buffer, is_new, meta, meta_bytes);
}

void
blob_wal_log_segment(const BlobStoreId *store, Buffer meta_buffer, const void *meta,
					 uint32 meta_bytes, BlobPageNo first_page, BlobPageNo end_page)
{
	BlobWalSegment record = {
		.header = make_header(store),
		.first_page = first_page,
		.end_page = end_page
	};

	log_meta_page(BLOB_WAL_SEGMENT, &record, sizeof(record), meta_buffer, false, meta, meta_bytes);
}

XLogRecPtr
blob_wal_log_drop(const BlobStoreId *store)
{
	BlobWalDrop record = {.header = make_header(store)};

	XLogBeginInsert();
	XLogRegisterData((char *) &record, sizeof(record));
	return XLogInsert(BLOB_RMGR_ID, BLOB_WAL_DROP);
}

void
blob_wal_log_content(const BlobStoreId *store, BlobPageNo first_page, const char *data,
					 uint32 length_bytes, bool flush_soon)
{
	BlobWalContent record = {
		.header = make_header(store),
		.first_page = first_page,
		.length_bytes = length_bytes
	};

	XLogRecPtr	lsn;

	Assert(length_bytes <= BLOB_WAL_CONTENT_MAX_BYTES);

	XLogBeginInsert();
	XLogRegisterData((char *) &record, sizeof(record));
	XLogRegisterData((char *) data, length_bytes);
	lsn = XLogInsert(BLOB_RMGR_ID, BLOB_WAL_CONTENT);
	if (flush_soon)
		XLogSetAsyncXactLSN(lsn);
}

void
blob_wal_log_omitted(const BlobStoreId *store, const BlobWalOmitted *record,
					 const BlobGenerationRange *ranges)
{
	BlobWalOmitted copy = *record;

	copy.header = make_header(store);
	XLogBeginInsert();
	XLogRegisterData((char *) &copy, sizeof(copy));
	XLogRegisterData((char *) ranges, copy.range_count * sizeof(BlobGenerationRange));
	(void) XLogInsert(BLOB_RMGR_ID, BLOB_WAL_OMITTED);
}
