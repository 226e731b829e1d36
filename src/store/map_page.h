/*
 * store/map_page.h
 *	  Layout of the extent map's pages, shared by the map, redo and the check.
 *
 * Block 0 is the meta page.  Block b > 0 has one entry for each page of the store in [(b - 1) *
 * BLOB_MAP_ENTRIES, b * BLOB_MAP_ENTRIES).  The entry of an extent's first page describes the whole
 * extent; all other entries are zero.  An all-zero block is valid and empty.  If the file of a
 * segment was removed, or is restored in part only, an entry of state absent covers the pages from
 * there to the end of the segment.  In format 2 an entry of state punched covers free pages without
 * blocks in their file.  In format 3 entries have checksums of pages (store/page_sums.h).  Bytes
 * from pd_lower on are always zero, so that full-page images can leave them out.
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
 * Formats of a map.  Format 1 is that of 0.1 and 0.2.  A map gets format 2 (logged by a META of WAL
 * version 2) before the first thing is put into it that format 1 has not: an entry of state
 * punched, or a place run on the meta page.  Format 3 (a META of WAL version 3) has checksums of
 * pages as well: of a new store, or since blobext_enable_checksums().  A map never goes back.  A
 * library that does not know the format refuses every use of the store.
 */
#define BLOB_MAP_VERSION_1 1
#define BLOB_MAP_VERSION_2 2
#define BLOB_MAP_VERSION_3 3
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
	BLOB_MAP_PUNCHED = 4,		/* format 2: first of free pages of one segment without blocks */
	BLOB_MAP_SUMS = 0x78		/* format 3: checksums; the page is free, or inside of an extent */
} BlobMapState;

/*
 * Entries with checksums are many, so their state differs from all others in four bits and more:
 * one that flips there makes no extent, which a round would free.
 */

/* Format 3, beside TIER and TAIL: the pages of this extent have checksums. */
#define BLOB_MAP_HAS_SUMS 0x80

typedef struct BlobMapEntry
{
	uint64		generation_state;	/* generation << 8 | BLOB_MAP_HAS_SUMS, or not | BlobMapState */
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
	return (BlobMapState) (entry->generation_state & 0xFF & ~BLOB_MAP_HAS_SUMS);
}

/* Whether no extent, and no pages without blocks, begin at this entry. */
static inline bool
blob_map_entry_is_vacant(const BlobMapEntry *entry)
{
	return blob_map_entry_state(entry) == BLOB_MAP_FREE ||
		blob_map_entry_state(entry) == BLOB_MAP_SUMS;
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

/* Whether this entry is that of free pages without blocks: punched, or absent ones. */
static inline bool
blob_map_entry_is_hollow(const BlobMapEntry *entry)
{
	return blob_map_entry_state(entry) == BLOB_MAP_PUNCHED ||
		blob_map_entry_state(entry) == BLOB_MAP_ABSENT;
}

/* Whether the pages of the extent that starts at this entry have checksums. */
static inline bool
blob_map_entry_has_sums(const BlobMapEntry *entry)
{
	return blob_map_entry_is_extent(entry) && (entry->generation_state & BLOB_MAP_HAS_SUMS) != 0;
}

/*
 * An extent of one page with checksums has its own in the measure: of a tier, in bits that the
 * high-water mark of so small an extent leaves; of a tail, above its length.
 */
#define BLOB_MAP_TIER_SUM_SHIFT 16
#define BLOB_MAP_TAIL_SUM_SHIFT 32

/* Pages of the extent, or hollow ones, that start at this entry; 0 if none do. */
static inline uint64
blob_map_entry_pages(const BlobMapEntry *entry)
{
	switch (blob_map_entry_state(entry))
	{
		case BLOB_MAP_TIER:
			return blob_tier_pages((int) (entry->measure >> BLOB_MAP_HIGH_WATER_BITS));
		case BLOB_MAP_TAIL:
			return blob_map_entry_has_sums(entry) ? (uint32) entry->measure : entry->measure;
		case BLOB_MAP_ABSENT:
		case BLOB_MAP_PUNCHED:
			return entry->measure;
		default:
			return 0;
	}
}

/*
 * The high-water mark: bytes, from the start of the extent, that belong to values.  Claims raise it
 * (blob_store_claim); a tail is used as a whole.
 */
static inline uint64
blob_map_entry_high_water(const BlobMapEntry *entry)
{
	uint64		mark = entry->measure & BLOB_MAP_HIGH_WATER_MASK;

	if (blob_map_entry_state(entry) != BLOB_MAP_TIER)
		return blob_map_entry_pages(entry) * BLOB_PAGE_SIZE;
	if (blob_map_entry_has_sums(entry) && blob_map_entry_pages(entry) == 1)
		mark &= (1 << BLOB_MAP_TIER_SUM_SHIFT) - 1;
	return mark;
}

/*
 * Whether no library writes such an entry: it says nothing.  Inside of an extent the place of
 * checksums can be damaged so, and is written over; elsewhere it may have been that of an extent.
 */
static inline bool
blob_map_entry_is_damaged(const BlobMapEntry *entry)
{
	bool		has_generation = blob_map_entry_generation(entry) != BLOB_INVALID_GENERATION;

	switch (blob_map_entry_state(entry))
	{
		case BLOB_MAP_FREE:
			return entry->generation_state != 0 || entry->measure != 0;
		case BLOB_MAP_TIER:
			return !has_generation ||
				entry->measure >> BLOB_MAP_HIGH_WATER_BITS >= BLOB_TIER_COUNT ||
				blob_map_entry_high_water(entry) > blob_map_entry_pages(entry) * BLOB_PAGE_SIZE;
		case BLOB_MAP_TAIL:
			return !has_generation || blob_map_entry_pages(entry) == 0;
		case BLOB_MAP_ABSENT:
		case BLOB_MAP_PUNCHED:
			return entry->measure == 0 || entry->generation_state != blob_map_entry_state(entry);
		case BLOB_MAP_SUMS:
			return false;
		default:
			return true;
	}
}

static inline BlobMapEntry *
blob_map_page_entries(Page page)
{
	return (BlobMapEntry *) PageGetContents(page);
}

/* CLAIM: the mark becomes that of the other measure, if this is higher.  A checksum stays. */
static inline void
blob_map_entry_raise_high_water(BlobMapEntry *entry, uint64 measure)
{
	BlobMapEntry other = {entry->generation_state, measure};
	uint64		mark = blob_map_entry_high_water(entry);
	uint64		other_mark = blob_map_entry_high_water(&other);

	if (other_mark > mark)
		entry->measure += other_mark - mark;
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

	if (blob_map_entry_is_damaged(old))
		return;
	Assert(to == BLOB_MAP_SUMS || to <= BLOB_MAP_PUNCHED);
	Assert(to == BLOB_MAP_SUMS || blob_map_entry_is_extent(entry) ==
		   (blob_map_entry_generation(entry) != BLOB_INVALID_GENERATION));
	if (blob_map_entry_is_extent(entry) && blob_map_entry_is_extent(old))
	{
		bool		gains_sums = blob_map_entry_has_sums(entry) && !blob_map_entry_has_sums(old);

		Assert(is_same && blob_map_entry_has_sums(entry) >= blob_map_entry_has_sums(old));
		Assert(to == BLOB_MAP_TAIL ?
			   blob_map_entry_pages(entry) < blob_map_entry_pages(old) ||
			   (from == to && blob_map_entry_pages(entry) == blob_map_entry_pages(old) &&
				(gains_sums || blob_map_entry_pages(entry) == 1)) :
			   from == BLOB_MAP_TIER &&
			   blob_map_entry_high_water(entry) >= blob_map_entry_high_water(old) &&
			   blob_map_entry_pages(entry) == blob_map_entry_pages(old));
	}
	else if (blob_map_entry_is_extent(entry))
		Assert(blob_map_entry_is_vacant(old));
	else if (blob_map_entry_is_extent(old))
		Assert(to == BLOB_MAP_FREE);
	else if (to == BLOB_MAP_SUMS)
		Assert(blob_map_entry_is_vacant(old));
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
