/*
 * store/map_meta.c
 *	  The meta page of the extent map: a new map, its identity, its limits, its format.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "core/settings.h"
#include "miscadmin.h"
#include "store/map.h"
#include "store/map_internal.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "wal/insert.h"

/* See first_generation().  A generation has 56 bits in the map. */
#define NUMBERS_PER_BYTE 16
#define MAX_FIRST_GENERATION (UINT64CONST(1) << 55)

/*
 * The first generation of a new store: it is larger than all that earlier stores of this database
 * have drawn.  A process may still have a value of such a store in memory, if the extension was
 * dropped and created again meanwhile.  The same pages belong to other values now, and a reader
 * notices that by their generations, as ever.
 *
 * The numbers follow the position in the WAL, times NUMBERS_PER_BYTE.  A number that is drawn takes
 * 24 bytes of WAL (ALLOC).  A start gives up at most GENERATION_BATCH (8,192) reserved numbers,
 * that is 512 bytes of WAL, and takes more: checkpoint, META, ALLOC with the image of a map page,
 * commit.  CREATE EXTENSION writes some hundred thousand bytes besides.  So no store's numbers
 * overtake the position.  Beyond 2 PiB of WAL new stores begin at one number, and lose this.
 */
static BlobGeneration
first_generation(void)
{
	return Min(GetXLogInsertRecPtr(), MAX_FIRST_GENERATION / NUMBERS_PER_BYTE) * NUMBERS_PER_BYTE;
}

static void
fill_new_meta(BlobMapMeta *meta)
{
	memset(meta, 0, sizeof(*meta));
	meta->magic = BLOB_MAP_MAGIC;
	meta->version = blob_page_checksums ? BLOB_MAP_VERSION_3 : BLOB_MAP_VERSION_1;
	meta->dboid = MyDatabaseId;
	meta->page_bytes = BLOB_PAGE_SIZE;
	meta->segment_pages = BLOB_SEGMENT_PAGES;
	meta->tiers_per_level = BLOB_TIERS_PER_LEVEL;
	meta->tier_levels = BLOB_TIER_LEVELS;
	meta->generation_limit = first_generation();
	if (!pg_strong_random(&meta->incarnation, sizeof(meta->incarnation)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a random number")));
}

/* Log META for the meta page as it is: a record of the version that the map's format needs. */
static void
log_meta(const BlobStoreId *store, Buffer buffer, bool is_new)
{
	Page		page = BufferGetPage(buffer);
	const BlobMapMeta *meta = (BlobMapMeta *) PageGetContents(page);

	blob_wal_log_meta(store, buffer, is_new, meta->version, meta, blob_map_page_meta_bytes(page),
					  meta->generation_limit);
}

void
blob_map_create(Relation map)
{
	BlobMapMetaV2 meta;
	size_t		meta_bytes;
	BlobStoreId store;
	Buffer		buffer;

	if (RelationGetNumberOfBlocks(map) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extent map \"%s\" exists already", RelationGetRelationName(map))));

	memset(&meta, 0, sizeof(meta));
	fill_new_meta(&meta.v1);
	meta_bytes = meta.v1.version == BLOB_MAP_VERSION_1 ? sizeof(meta.v1) : sizeof(meta);
	store.dboid = meta.v1.dboid;
	store.incarnation = meta.v1.incarnation;
	buffer = ReadBufferExtended(map, MAIN_FORKNUM, P_NEW, RBM_ZERO_AND_LOCK, NULL);
	Assert(BufferGetBlockNumber(buffer) == BLOB_MAP_META_BLOCK);

	START_CRIT_SECTION();
	blob_map_page_init(BufferGetPage(buffer));
	blob_map_page_set_meta(BufferGetPage(buffer), &meta, meta_bytes);
	MarkBufferDirty(buffer);
	log_meta(&store, buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/* ERROR unless the meta page is that of a map that this library can use in this database. */
static void
check_meta(Relation map, const BlobMapMeta *meta)
{
	if (meta->magic != BLOB_MAP_MAGIC)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("relation \"%s\" is not an extent map", RelationGetRelationName(map))));
	if (meta->version < BLOB_MAP_VERSION_1 || meta->version > BLOB_MAP_VERSION_3 ||
		meta->page_bytes != BLOB_PAGE_SIZE ||
		meta->segment_pages != BLOB_SEGMENT_PAGES ||
		meta->tiers_per_level != BLOB_TIERS_PER_LEVEL || meta->tier_levels != BLOB_TIER_LEVELS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extent store was written by an incompatible build of blobext"),
				 errdetail("Store: format %u, pages of %u bytes, %u tiers per level, %u levels; "
						   "library: formats %u to %u, pages of %u bytes, %u tiers per level, "
						   "%u levels.",
						   meta->version, meta->page_bytes, meta->tiers_per_level,
						   meta->tier_levels, BLOB_MAP_VERSION_1, BLOB_MAP_VERSION_3,
						   BLOB_PAGE_SIZE,
						   BLOB_TIERS_PER_LEVEL, BLOB_TIER_LEVELS)));
	if (meta->dboid != MyDatabaseId && meta->reserved_pages > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extent store of this database belongs to another database"),
				 errdetail("The store was made for the database with OID %u, this one has OID %u.",
						   meta->dboid, MyDatabaseId),
				 errhint("The database was copied from a template that holds blobs. Drop and "
						 "create the extension here.")));
}

/* (A map of format 1 has zeros there.) */
static void
require_default_place(const BlobMapMetaV2 *meta)
{
	if (meta->place_run_count == 0 && meta->reserved == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the extent store has segments in other storage places"),
			 errdetail("This version of blobext knows the default place only."),
			 errhint("Install the version of blobext that was used before, or a later one, and "
					 "restart the server.")));
}

XLogRecPtr
blob_map_read_meta_lsn(Relation map, BlobMapMeta *meta)
{
	Buffer		buffer = ReadBuffer(map, BLOB_MAP_META_BLOCK);
	BlobMapMetaV2 page_meta;
	XLogRecPtr	lsn;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(&page_meta, PageGetContents(BufferGetPage(buffer)), sizeof(page_meta));
	lsn = PageGetLSN(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	*meta = page_meta.v1;
	check_meta(map, meta);
	if (meta->version >= BLOB_MAP_VERSION_2)
		require_default_place(&page_meta);
	return lsn;
}

void
blob_map_read_meta(Relation map, BlobMapMeta *meta)
{
	(void) blob_map_read_meta_lsn(map, meta);
}

void
blob_map_load_cache(Relation map)
{
	BlobMapMeta meta;
	BlobMapCache *cache;

	blob_map_read_meta(map, &meta);
	cache = MemoryContextAllocZero(CacheMemoryContext, sizeof(*cache));
	cache->store.dboid = MyDatabaseId;
	cache->store.incarnation = meta.incarnation;
	map->rd_amcache = cache;
}

bool
blob_map_has_sums(Relation map)
{
	BlobMapMeta meta;

	blob_map_read_meta(map, &meta);
	return meta.version >= BLOB_MAP_VERSION_3;
}

BlobStoreId
blob_map_store_id(Relation map)
{
	return blob_map_cache(map)->store;
}

Buffer
blob_map_lock_meta(Relation map, BlobMapMeta *meta)
{
	Buffer		buffer = ReadBuffer(map, BLOB_MAP_META_BLOCK);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	memcpy(meta, PageGetContents(BufferGetPage(buffer)), sizeof(*meta));
	return buffer;
}

void
blob_map_set_generation_limit(Relation map, BlobGeneration limit)
{
	BlobStoreId store = blob_map_store_id(map);
	BlobMapMeta meta;
	Buffer		buffer = blob_map_lock_meta(map, &meta);

	Assert(limit > meta.generation_limit);

	START_CRIT_SECTION();
	meta.generation_limit = limit;
	blob_map_page_update_meta(BufferGetPage(buffer), &meta);
	MarkBufferDirty(buffer);
	log_meta(&store, buffer, false);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

void
blob_map_set_reserved(Relation map, BlobPageNo end_page)
{
	BlobStoreId store = blob_map_store_id(map);
	BlobMapMeta meta;
	Buffer		buffer = blob_map_lock_meta(map, &meta);
	BlobPageNo	first_page = meta.reserved_pages;

	Assert(end_page > first_page);

	START_CRIT_SECTION();
	meta.reserved_pages = end_page;
	meta.dboid = MyDatabaseId;	/* an empty store may come from a template */
	blob_map_page_update_meta(BufferGetPage(buffer), &meta);
	MarkBufferDirty(buffer);
	blob_wal_log_segment(&store, buffer, PageGetContents(BufferGetPage(buffer)),
						 blob_map_page_meta_bytes(BufferGetPage(buffer)), first_page, end_page);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

bool
blob_map_raise_format(Relation map, uint32 version)
{
	BlobStoreId store = blob_map_store_id(map);
	BlobMapMeta meta;
	Buffer		buffer = blob_map_lock_meta(map, &meta);
	Page		page = BufferGetPage(buffer);
	bool		is_older = meta.version < version;
	BlobMapMetaV2 raised;

	if (is_older)
	{
		memset(&raised, 0, sizeof(raised));
		raised.v1 = meta;
		raised.v1.version = version;
		START_CRIT_SECTION();
		if (meta.version == BLOB_MAP_VERSION_1)
			blob_map_page_set_meta(page, &raised, sizeof(raised));
		else
			blob_map_page_update_meta(page, &raised.v1);
		MarkBufferDirty(buffer);
		log_meta(&store, buffer, false);
		END_CRIT_SECTION();
	}
	UnlockReleaseBuffer(buffer);
	return is_older;
}
