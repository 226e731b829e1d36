/*
 * store/map_page.h
 *	  Layout of the extent map's pages, shared by the map, redo and the check.
 *
 * Block 0 is the meta page.  Block b > 0 has one entry for each page of the store in [(b - 1) *
 * BLOB_MAP_ENTRIES, b * BLOB_MAP_ENTRIES).  The entry of an extent's first page describes the whole
 * extent; all other entries are zero.  An all-zero block is valid and empty.  If the file of a
 * segment was removed, or is restored in part only, an entry of state absent covers the pages from
 * there to the end of the segment.  In format 2 an entry of state punched covers free pages without
 * blocks in their file.  Bytes from pd_lower on are always zero, so that full-page
 * images can leave them out.
 *
 * Direct addressing costs 0.4 % of the store (16 bytes for each 4,096), mostly zeros.  It buys
 * look-ups without a search, appends without reorganisation and redo without a logical step.
 */
#ifndef BLOB_MAP_PAGE_H
#define BLOB_MAP_PAGE_H

#include "core/page.h"
#include "core/tier.h"
#include "storage/block.h"
#include "storage/bufpage.h"

#define BLOB_MAP_MAGIC 0x626c6f62	/* "blob" */

/*
 * Formats of a map.  Format 1 is that of 0.1 and 0.2, and of every new map.  A map gets format 2
 * (logged by a META of WAL version 2) before the first thing is put into it that format 1 has not:
 * an entry of state punched, or a place run on the meta page.  It never goes back.  A library that
 * does not know the format refuses every use of the store.
 */
#define BLOB_MAP_VERSION_1 1
#define BLOB_MAP_VERSION_2 2
#define BLOB_MAP_META_BLOCK 0

typedef struct BlobMapMeta
{
	uint32		magic;
	uint32		version;
	uint64		incarnation;
	Oid			dboid;			/* database that the store was made for */
	uint32		page_bytes;
	uint64		segment_pages;
	uint32		tiers_per_level;
	uint32		tier_levels;
	BlobGeneration generation_limit;	/* numbers from here on were never drawn */
	uint64		reserved_pages; /* files are reserved for pages below this one */
} BlobMapMeta;

StaticAssertDecl(sizeof(BlobMapMeta) == 56, "map meta page layout");

/* From this segment on, to that of the next run, segments lie in this storage place. */
typedef struct BlobMapPlaceRun
{
	uint32		first_segment_no;
	uint32		place;
} BlobMapPlaceRun;

/*
 * The meta page of format 2.  Segments before the first run, that is all segments of a map of
 * format 1, lie in the default place.  The runs are sorted by segment.  Segment files have the same
 * names in all places.  (This library refuses a map with runs.)
 */
typedef struct BlobMapMetaV2
{
	BlobMapMeta v1;
	uint32		place_run_count;
	uint32		reserved;		/* zero */
	BlobMapPlaceRun place_runs[FLEXIBLE_ARRAY_MEMBER];
} BlobMapMetaV2;

StaticAssertDecl(offsetof(BlobMapMetaV2, place_runs) == 64, "map meta page layout");

#define BLOB_MAP_META_MAX_BYTES (BLCKSZ - MAXALIGN(SizeOfPageHeaderData))

typedef enum BlobMapState
{
	BLOB_MAP_FREE = 0,			/* free, or inside of an extent */
	BLOB_MAP_TIER = 1,			/* first page of an extent of tier size */
	BLOB_MAP_TAIL = 2,			/* first page of a tail extent */
	BLOB_MAP_ABSENT = 3,		/* first of the pages of a segment that have no file */
	BLOB_MAP_PUNCHED = 4		/* format 2: first of free pages of one segment without blocks */
} BlobMapState;

typedef struct BlobMapEntry
{
	uint64		generation_state;	/* generation << 8 | BlobMapState */
	uint64		measure;		/* tier: tier << 56 | high-water mark in bytes; else pages */
} BlobMapEntry;

StaticAssertDecl(sizeof(BlobMapEntry) == 16, "map entry layout");
StaticAssertDecl(BLOB_TIER_COUNT <= 256, "tier numbers have 8 bits in the map");

#define BLOB_MAP_ENTRIES \
	((BLCKSZ - MAXALIGN(SizeOfPageHeaderData)) / sizeof(BlobMapEntry))

#define BLOB_MAP_HIGH_WATER_BITS 56
#define BLOB_MAP_HIGH_WATER_MASK ((UINT64CONST(1) << BLOB_MAP_HIGH_WATER_BITS) - 1)

/*
 * The block of a page's entry; InvalidBlockNumber, which no relation has, for a page that no map
 * can have.
 */
static inline BlockNumber
blob_map_block_of(BlobPageNo page)
{
	return (BlockNumber) Min(page / BLOB_MAP_ENTRIES + 1, InvalidBlockNumber);
}

static inline uint32
blob_map_slot_of(BlobPageNo page)
{
	return (uint32) (page % BLOB_MAP_ENTRIES);
}

static inline BlobPageNo
blob_map_page_at(BlockNumber block, uint32 slot)
{
	return (BlobPageNo) (block - 1) * BLOB_MAP_ENTRIES + slot;
}

static inline BlobMapState
blob_map_entry_state(const BlobMapEntry *entry)
{
	return (BlobMapState) (entry->generation_state & 0xFF);
}

static inline BlobGeneration
blob_map_entry_generation(const BlobMapEntry *entry)
{
	return entry->generation_state >> 8;
}

/* Whether this entry is that of an extent's first page. */
static inline bool
blob_map_entry_is_extent(const BlobMapEntry *entry)
{
	return blob_map_entry_state(entry) == BLOB_MAP_TIER ||
		blob_map_entry_state(entry) == BLOB_MAP_TAIL;
}

/* Pages of the extent, or absent or punched ones, that start at this entry; 0 if none do. */
static inline uint64
blob_map_entry_pages(const BlobMapEntry *entry)
{
	switch (blob_map_entry_state(entry))
	{
		case BLOB_MAP_TIER:
			return blob_tier_pages((int) (entry->measure >> BLOB_MAP_HIGH_WATER_BITS));
		case BLOB_MAP_TAIL:
		case BLOB_MAP_ABSENT:
		case BLOB_MAP_PUNCHED:
			return entry->measure;
		default:
			return 0;
	}
}

static inline BlobMapEntry *
blob_map_page_entries(Page page)
{
	return (BlobMapEntry *) PageGetContents(page);
}

/*
 * The high-water mark: bytes, from the start of the extent, that belong to values.  Claims raise it
 * (blob_store_claim); a tail is used as a whole.
 */
static inline uint64
blob_map_entry_high_water(const BlobMapEntry *entry)
{
	return blob_map_entry_state(entry) == BLOB_MAP_TIER ?
		entry->measure & BLOB_MAP_HIGH_WATER_MASK : blob_map_entry_pages(entry) * BLOB_PAGE_SIZE;
}

/* Make an empty map page of a zeroed or unknown one. */
static inline void
blob_map_page_init(Page page)
{
	PageInit(page, BLCKSZ, 0);
	((PageHeader) page)->pd_lower = MAXALIGN(SizeOfPageHeaderData);
}

/*
 * Which entry may follow which, in the map and in its replay: an extent becomes another one only by
 * way of a free page, so that a look at its generation tells; its high-water mark never falls.
 */
static inline void
blob_map_entry_assert_follows(const BlobMapEntry *old, const BlobMapEntry *entry)
{
#ifdef USE_ASSERT_CHECKING
	BlobMapState from = blob_map_entry_state(old);
	BlobMapState to = blob_map_entry_state(entry);
	bool		is_same = blob_map_entry_generation(old) == blob_map_entry_generation(entry);

	Assert(to <= BLOB_MAP_PUNCHED);
	Assert(blob_map_entry_is_extent(entry) ==
		   (blob_map_entry_generation(entry) != BLOB_INVALID_GENERATION));
	if (blob_map_entry_is_extent(entry) && blob_map_entry_is_extent(old))
		Assert(is_same && (to == BLOB_MAP_TAIL ?
						   blob_map_entry_pages(entry) < blob_map_entry_pages(old) :
						   from == BLOB_MAP_TIER && entry->measure >= old->measure &&
						   blob_map_entry_pages(entry) == blob_map_entry_pages(old)));
	else if (blob_map_entry_is_extent(entry))
		Assert(from == BLOB_MAP_FREE);
	else if (blob_map_entry_is_extent(old))
		Assert(to == BLOB_MAP_FREE);
	else
		Assert(from != BLOB_MAP_ABSENT || to != BLOB_MAP_PUNCHED);
#endif
}

/* Set one entry; keeps pd_lower above the last entry that was set. */
static inline void
blob_map_page_set(Page page, uint32 slot, const BlobMapEntry *entry)
{
	PageHeader	header = (PageHeader) page;
	uint32		end = MAXALIGN(SizeOfPageHeaderData) + (slot + 1) * sizeof(BlobMapEntry);

	Assert(slot < BLOB_MAP_ENTRIES);
	blob_map_entry_assert_follows(&blob_map_page_entries(page)[slot], entry);
	blob_map_page_entries(page)[slot] = *entry;
	header->pd_lower = Max(header->pd_lower, end);
}

/* Bytes of the meta page that are in use, all of them behind the page header. */
static inline uint32
blob_map_page_meta_bytes(Page page)
{
	return ((PageHeader) page)->pd_lower - MAXALIGN(SizeOfPageHeaderData);
}

/* Replace the content of the meta page.  Bytes behind meta_bytes become zero. */
static inline void
blob_map_page_set_meta(Page page, const void *meta, size_t meta_bytes)
{
	memcpy(PageGetContents(page), meta, meta_bytes);
	memset(PageGetContents(page) + meta_bytes, 0, BLOB_MAP_META_MAX_BYTES - meta_bytes);
	((PageHeader) page)->pd_lower = MAXALIGN(SizeOfPageHeaderData) + meta_bytes;
}

/* Change the part that both formats have.  The bytes behind it stay. */
static inline void
blob_map_page_update_meta(Page page, const BlobMapMeta *meta)
{
	memcpy(PageGetContents(page), meta, sizeof(*meta));
}

#endif							/* BLOB_MAP_PAGE_H */
