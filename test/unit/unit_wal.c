/*
 * unit_wal.c
 *	  WAL records of any version, as another library would insert them: for t/wal_versions.pl.
 *
 * The records, and the changes of the map that they are about, are made by copies of store/map.c
 * and wal/insert.c in this library.  The allocator of the server does not learn of them: the server
 * has to be restarted before it is used for something else.
 */
#include "unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/table.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "store/map.h"
#include "store/map_sums.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "wal/insert.h"

PG_FUNCTION_INFO_V1(unit_wal);
PG_FUNCTION_INFO_V1(unit_wal_raw);

static const BlobMapEntry no_entry;

/* Files of all pages, durable before the record; holes will do. */
static void
lengthen_files(const BlobStoreId *store, BlobPageNo end_page)
{
	for (BlobPageNo page = 0; page < end_page; page += BLOB_SEGMENT_PAGES)
	{
		char		path[MAXPGPATH];
		uint64		pages = Min(BLOB_SEGMENT_PAGES, end_page - page);
		int			fd;

		snprintf(path, sizeof(path), "pg_blobext/%u.%016llx/%08x", store->dboid,
				 (unsigned long long) store->incarnation, blob_segment_of(page));
		fd = open(path, O_RDWR | O_CREAT, 0600);
		if (fd < 0 || (lseek(fd, 0, SEEK_END) < (off_t) (pages * BLOB_PAGE_SIZE) &&
					   ftruncate(fd, pages * BLOB_PAGE_SIZE) != 0) ||
			fsync(fd) != 0 || close(fd) != 0)
			elog(ERROR, "could not lengthen \"%s\": %m", path);
	}
}

static void
allocate(Relation map, const BlobStoreId *store, BlobPageNo first_page, uint64 pages,
		 BlobGeneration generation, int tier)
{
	BlobExtent	extent = {
		.first_page = first_page,
		.pages = tier < 0 ? pages : blob_tier_pages(tier),
		.generation = generation,
		.is_tail = tier < 0
	};
	int			logged_count;

	blob_map_allocate(map, store, &extent, 1, Max(tier, 0), BLOB_PAGE_SIZE, &logged_count);
}

/* Lock the block of a page, which the map has. */
static Buffer
lock_block_of(Relation map, BlobPageNo page)
{
	Buffer		buffer = ReadBuffer(map, blob_map_block_of(page));

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	return buffer;
}

static void
free_extent(Relation map, const BlobStoreId *store, BlobPageNo first_page, uint32 reuse)
{
	BlobWalFree record = {.extent_count = 1, .first_page = first_page, .reuse = reuse};
	uint16		slot = (uint16) blob_map_slot_of(first_page);
	BlobWalFreeBlock block = {.slots = &slot, .slot_count = 1};

	block.buffer = lock_block_of(map, first_page);
	START_CRIT_SECTION();
	blob_map_page_set(BufferGetPage(block.buffer), slot, &no_entry);
	MarkBufferDirty(block.buffer);
	(void) blob_wal_log_free(store, &record, &block, 1);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(block.buffer);
}

/* The map gets format 2. */
static void
raise_format(Relation map, const BlobStoreId *store, uint32 place_run_count)
{
	Buffer		buffer = ReadBuffer(map, BLOB_MAP_META_BLOCK);
	BlobMapMetaV2 meta;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(&meta, PageGetContents(BufferGetPage(buffer)), sizeof(meta));
	meta.v1.version = Max(meta.v1.version, BLOB_MAP_VERSION_2);
	meta.place_run_count = place_run_count;
	START_CRIT_SECTION();
	blob_map_page_set_meta(BufferGetPage(buffer), &meta, sizeof(meta));
	MarkBufferDirty(buffer);
	blob_wal_log_meta(store, buffer, false, meta.v1.version, &meta, sizeof(meta),
					  meta.v1.generation_limit);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/* The record only: that replay makes the hole can be seen. */
static void
punch(Relation map, const BlobStoreId *store, BlobPageNo first_page, uint64 pages)
{
	BlobMapEntry entry = {.generation_state = BLOB_MAP_PUNCHED, .measure = pages};
	BlobWalRun	run = {first_page, pages};
	BlobWalMapChange change = {
		.slot = blob_map_slot_of(first_page),
		.generation_state = entry.generation_state,
		.measure = entry.measure
	};
	BlobWalMapBlock block = {.changes = &change, .change_count = 1};

	block.buffer = lock_block_of(map, first_page);
	block.is_new = PageIsNew(BufferGetPage(block.buffer));
	START_CRIT_SECTION();
	if (block.is_new)
		blob_map_page_init(BufferGetPage(block.buffer));
	blob_map_page_set(BufferGetPage(block.buffer), change.slot, &entry);
	MarkBufferDirty(block.buffer);
	(void) blob_wal_log_punch(store, &run, 1, &block, 1);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(block.buffer);
}

/* Made-up checksums of the first pages of a tail. */
static void
set_sums(Relation map, BlobPageNo first_page, uint64 pages, BlobGeneration generation, uint64 count)
{
	uint32	   *sums = palloc(count * sizeof(uint32));
	BlobSumRun	run = {
		.extent = {first_page, pages, generation, true, true},
		.count = count,
		.sums = sums
	};

	for (uint64 i = 0; i < count; i++)
		sums[i] = (uint32) (i + 1);
	blob_map_set_sums(map, &run, 1);
}

static void
omit(const BlobStoreId *store, BlobGeneration generation)
{
	BlobGenerationRange range = {generation, generation};
	BlobWalOmitted record = {.range_count = 1};

	blob_wal_log_omitted(store, &record, &range);
}

static void
log_content(const BlobStoreId *store, BlobPageNo first_page, uint32 length_bytes, char byte)
{
	char	   *content = palloc(length_bytes);
	BlobWalContentPart part = {.data = content, .length_bytes = length_bytes};

	memset(content, byte, length_bytes);

	blob_wal_log_content(store, first_page, &part, 1, false);
}

static void
claim(Relation map, BlobPageNo first_page, int tier, uint64 from_bytes, uint64 to_bytes)
{
	BlobExtent	extent = {.first_page = first_page, .pages = blob_tier_pages(tier)};

	if (blob_map_claim(map, &extent, PG_UINT64_MAX, from_bytes, to_bytes) != BLOB_CLAIM_WON)
		elog(ERROR, "claim is lost");
}

static void
trim(Relation map, BlobPageNo first_page, uint64 pages, BlobGeneration generation, uint64 to_pages)
{
	BlobExtent	extent = {.first_page = first_page,.pages = pages,.generation = generation};

	blob_map_trim(map, &extent, to_pages, 0);
}

/*
 * unit_wal(map regclass, version int, what text, VARIADIC arguments bigint[]): make a change of the
 * map and log it, with a record of that version at least.
 */
Datum
unit_wal(PG_FUNCTION_ARGS)
{
	Relation	map = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	char	   *what = text_to_cstring(PG_GETARG_TEXT_PP(2));
	char	   *array = (char *) PG_GETARG_ARRAYTYPE_P(3);	/* without nulls */
	int64	   *a = (int64 *) (array + ARR_OVERHEAD_NONULLS(1));
	BlobStoreId store = blob_map_store_id(map);

	blob_wal_least_version = PG_GETARG_INT32(1);
	if (strcmp(what, "META") == 0)
		blob_map_set_generation_limit(map, a[0]);
	else if (strcmp(what, "format") == 0)
		raise_format(map, &store, (uint32) a[0]);
	else if (strcmp(what, "SEGMENT") == 0)
	{
		lengthen_files(&store, a[0]);
		blob_map_set_reserved(map, a[0]);
	}
	else if (strcmp(what, "ALLOC") == 0)
		allocate(map, &store, a[0], a[1], a[2], (int) a[3]);
	else if (strcmp(what, "CONTENT") == 0)
		log_content(&store, a[0], (uint32) a[1], (char) a[2]);
	else if (strcmp(what, "OMITTED") == 0)
		omit(&store, a[0]);
	else if (strcmp(what, "CLAIM") == 0)
		claim(map, a[0], (int) a[1], a[2], a[3]);
	else if (strcmp(what, "TRIM") == 0)
		trim(map, a[0], a[1], a[2], a[3]);
	else if (strcmp(what, "FREE") == 0)
		free_extent(map, &store, a[0], (uint32) a[1]);
	else if (strcmp(what, "REMOVE") == 0)
		(void) blob_map_set_absent(map, (uint32) a[0]);
	else if (strcmp(what, "RESTORE") == 0)
	{
		lengthen_files(&store, a[1]);
		(void) blob_map_fill(map, a[0], a[1]);
	}
	else if (strcmp(what, "PUNCH") == 0)
		punch(map, &store, a[0], a[1]);
	else if (strcmp(what, "SUMS") == 0)
		set_sums(map, a[0], a[1], a[2], a[3]);
	else if (strcmp(what, "DROP") == 0)
		(void) blob_wal_log_drop(&store);
	else
		elog(ERROR, "unknown record \"%s\"", what);
	/* Not where the next record begins: behind a page's end that is behind the next header. */
	XLogFlush(XactLastRecEnd);
	table_close(map, NoLock);
	PG_RETURN_VOID();
}

/*
 * unit_wal_raw(map regclass, version int, info int, rest bytea): a record of these bytes behind the
 * header, and nothing else: for what replay must refuse before it looks at blocks.
 */
Datum
unit_wal_raw(PG_FUNCTION_ARGS)
{
	Relation	map = table_open(PG_GETARG_OID(0), AccessShareLock);
	BlobStoreId store = blob_map_store_id(map);
	BlobWalHeader header = {store.incarnation, store.dboid, PG_GETARG_INT32(1)};
	bytea	   *rest = PG_GETARG_BYTEA_PP(3);

	table_close(map, NoLock);
	XLogBeginInsert();
	XLogRegisterData((char *) &header, sizeof(header));
	XLogRegisterData(VARDATA_ANY(rest), VARSIZE_ANY_EXHDR(rest));
	XLogFlush(XLogInsert(BLOB_RMGR_ID, (uint8) PG_GETARG_INT32(2)));
	PG_RETURN_VOID();
}
