/*
 * unit_page_sums.c
 *	  Checksums in the entries of map pages: extents of all lengths come and go, also across blocks,
 *	  and each page of a living one has the sum that was set last.
 */
#include "unit.h"

#include "common/pg_prng.h"
#include "core/compat.h"
#include "port/pg_crc32c.h"
#include "store/map_sums.h"
#include "store/page_sums.h"
#include "wal/records.h"

#define BLOCKS 4
#define PAGES (BLOCKS * BLOB_MAP_ENTRIES)

static PGAlignedBlock blocks[BLOCKS];

/* The model: the extents in use by their first page, and the sum of each page. */
static BlobExtent extents[PAGES];	/* pages 0: none begins here */
static bool is_used[PAGES];
static uint32 sums[PAGES];
static bool has_sum[PAGES];

/* Lengths at which the layout changes. */
static const uint64 corners[] = {1, 2, 3, 4, 5, 509, 510, 511, 512, 1021};

static Page
page_of(BlobPageNo page)
{
	return (Page) blocks[blob_map_block_of(page) - 1].data;
}

static void
set_entry(BlobPageNo page, const BlobMapEntry *entry)
{
	blob_map_page_set(page_of(page), blob_map_slot_of(page), entry);
}

static const BlobMapEntry *
entry_of(BlobPageNo page)
{
	return &blob_map_page_entries(page_of(page))[blob_map_slot_of(page)];
}

/* Whether the map takes a run that says that an extent has sums, with own_count of its own. */
static bool
begin_sums(BlobPageNo first_page, uint32 own_count)
{
	struct
	{
		BlobWalSumRun run;
		uint32		sums[2];
	}			data = {{(uint16) blob_map_slot_of(first_page), BLOB_SUM_BEGIN, own_count}, {4711}};

	return blob_map_page_apply_sums(page_of(first_page), (char *) &data,
									sizeof(data.run) + own_count * sizeof(uint32));
}

/* An extent without sums gets them, and stays what it is. */
static void
check_begin(const BlobExtent *extent)
{
	const BlobMapEntry *entry = entry_of(extent->first_page);
	uint64		mark = blob_map_entry_high_water(entry);
	uint32		own_count = extent->pages == 1 ? 1 : 0;

	CHECK(!blob_map_entry_has_sums(entry), "an extent without sums");
	CHECK(!begin_sums(extent->first_page, own_count + 1), "too many sums of its own");
	CHECK(own_count == 0 || !begin_sums(extent->first_page, 0), "no sum of its own");
	CHECK(begin_sums(extent->first_page, own_count),
		  "the extent at page " UINT64_FORMAT " gets sums", extent->first_page);
	CHECK(blob_map_entry_has_sums(entry) && blob_map_entry_pages(entry) == extent->pages &&
		  blob_map_entry_high_water(entry) == mark, "with sums it is what it was");
	CHECK(own_count == 0 || blob_sum_get(entry, BLOB_SUM_OWN) == 4711, "its own sum");
}

/*
 * Allocate an extent, if all of its pages are free: with sums, or without, so that it gets them
 * then.
 */
static void
allocate(BlobPageNo first_page, uint64 pages, BlobGeneration generation, bool is_tail)
{
	int			tier = 0;
	BlobMapEntry entry;

	while (!is_tail && blob_tier_pages(tier) < pages)
		tier++;
	if (!is_tail)
		pages = blob_tier_pages(tier);
	for (uint64 i = 0; i < pages; i++)
	{
		if (first_page + i >= PAGES || is_used[first_page + i])
			return;
	}
	extents[first_page] = (BlobExtent) {first_page, pages, generation, is_tail, true};
	memset(&is_used[first_page], true, pages);
	memset(&has_sum[first_page], false, pages);
	entry.generation_state = generation << 8 | (generation % 2 == 0 ? BLOB_MAP_HAS_SUMS : 0) |
		(is_tail ? BLOB_MAP_TAIL : BLOB_MAP_TIER);
	entry.measure = is_tail ? pages : (uint64) tier << BLOB_MAP_HIGH_WATER_BITS | BLOB_PAGE_SIZE;
	set_entry(first_page, &entry);
	if (generation % 2 != 0)
		check_begin(&extents[first_page]);
}

static void
free_extent(BlobPageNo first_page)
{
	static const BlobMapEntry no_entry;

	memset(&is_used[first_page], false, extents[first_page].pages);
	extents[first_page].pages = 0;
	set_entry(first_page, &no_entry);
	CHECK(!begin_sums(first_page, 0) && !begin_sums(first_page, 1), "no extent, no sums");
}

/* Set the sums of some pages of an extent, one by one, or by runs as replay does. */
static void
set_sums(const BlobExtent *extent, pg_prng_state *random)
{
	uint64		first = pg_prng_uint64_range(random, 0, extent->pages - 1);
	uint64		count = pg_prng_uint64_range(random, 1, extent->pages - first);

	for (uint64 i = first; i < first + count;)
	{
		BlobSumPlace place = blob_sum_place(extent, i);
		struct
		{
			BlobWalSumRun run;
			uint32		sums[16];
		}			data = {
			.run = {
				.slot = (uint16) blob_map_slot_of(place.entry_page),
				.sum_no = (uint16) place.sum_no
			}
		};
		uint64		part = pg_prng_uint64_range(random, 1, 16);

		for (uint64 k = i; k < first + count && data.run.sum_count < part &&
			 page_of(blob_sum_place(extent, k).entry_page) == page_of(place.entry_page); k++)
		{
			BlobPageNo	page = extent->first_page + k;

			sums[page] = pg_prng_uint32(random);
			has_sum[page] = true;
			data.sums[data.run.sum_count++] = sums[page];
		}
		CHECK(blob_map_page_apply_sums(page_of(place.entry_page), (char *) &data,
									   sizeof(data.run) + data.run.sum_count * sizeof(uint32)),
			  "sums of page " UINT64_FORMAT " have a place", extent->first_page + i);
		i += data.run.sum_count;
	}
}

/* All living extents are as they were, with their sums. */
static void
compare(void)
{
	for (BlobPageNo first = 0; first < PAGES; first++)
	{
		const BlobExtent *extent = &extents[first];

		if (extent->pages == 0)
			continue;
		CHECK(blob_map_entry_has_sums(entry_of(first)) &&
			  blob_map_entry_pages(entry_of(first)) == extent->pages &&
			  blob_map_entry_generation(entry_of(first)) == extent->generation,
			  "the extent at page " UINT64_FORMAT, first);
		if (!extent->is_tail)
			CHECK(blob_map_entry_high_water(entry_of(first)) == BLOB_PAGE_SIZE,
				  "the high-water mark of the extent at page " UINT64_FORMAT, first);
		for (uint64 i = 0; i < extent->pages; i++)
		{
			BlobSumPlace place = blob_sum_place(extent, i);

			if (has_sum[first + i])
				CHECK(blob_sum_get(entry_of(place.entry_page), place.sum_no) == sums[first + i],
					  "the sum of page " UINT64_FORMAT, first + i);
		}
	}
}

/* The sum of a page that the model has, or has not. */
static void
check_page(BlobPageNo first_page, uint64 page_no)
{
	BlobSumPlace place = blob_sum_place(&extents[first_page], page_no);

	CHECK(blob_sum_get(entry_of(place.entry_page), place.sum_no) == sums[first_page + page_no],
		  "the sum of page " UINT64_FORMAT " of the extent at page " UINT64_FORMAT, page_no,
		  first_page);
}

/* Set all sums of an extent, the last one first. */
static void
set_all_sums(BlobPageNo first_page, pg_prng_state *random)
{
	for (uint64 i = extents[first_page].pages; i-- > 0;)
	{
		BlobSumPlace place = blob_sum_place(&extents[first_page], i);
		BlobMapEntry entry = *entry_of(place.entry_page);

		CHECK(place.entry_page < first_page + extents[first_page].pages,
			  "the sum of page " UINT64_FORMAT " lies in its extent", i);
		CHECK(blob_sum_fits(&entry, place.sum_no), "page " UINT64_FORMAT " has a place", i);
		sums[first_page + i] = pg_prng_uint32(random);
		has_sum[first_page + i] = true;
		blob_sum_set(&entry, place.sum_no, sums[first_page + i]);
		set_entry(place.entry_page, &entry);
	}
	for (uint64 i = 0; i < extents[first_page].pages; i++)
		check_page(first_page, i);
}

/* TRIM: the extent gets shorter, and keeps the sums of its pages. */
static void
trim(BlobPageNo first_page, uint64 pages)
{
	BlobExtent *extent = &extents[first_page];
	BlobMapEntry entry = {
		.generation_state = extent->generation << 8 | BLOB_MAP_HAS_SUMS | BLOB_MAP_TAIL,
		.measure = pages
	};
	BlobSumPlace place = blob_sum_place(extent, 0);

	if (pages == 1)
		entry.measure |= (uint64) blob_sum_get(entry_of(place.entry_page), place.sum_no) <<
			BLOB_MAP_TAIL_SUM_SHIFT;
	set_entry(first_page, &entry);
	memset(&is_used[first_page + pages], false, extent->pages - pages);
	extent->pages = pages;
	extent->is_tail = true;
	CHECK(blob_map_entry_pages(entry_of(first_page)) == pages &&
		  blob_map_entry_high_water(entry_of(first_page)) == pages * BLOB_PAGE_SIZE,
		  "a cut extent of " UINT64_FORMAT " pages has its length", pages);
	for (uint64 i = 0; i < pages; i++)
		check_page(first_page, i);
}

/* CLAIM, and its replay: the mark rises to the end, and never falls; sums stay. */
static void
claim_all(BlobPageNo first_page)
{
	uint64		bytes = extents[first_page].pages * BLOB_PAGE_SIZE;
	BlobMapEntry entry = *entry_of(first_page);
	BlobMapEntry claimed = entry;

	claimed.measure += bytes - blob_map_entry_high_water(&entry);
	blob_map_entry_raise_high_water(&entry, claimed.measure);
	CHECK(entry.measure == claimed.measure && blob_map_entry_high_water(&entry) == bytes,
		  "the mark of the extent at page " UINT64_FORMAT " is its end", first_page);
	/* An older record, whose measure has another sum, or none. */
	blob_map_entry_raise_high_water(&entry, claimed.measure & ~BLOB_MAP_HIGH_WATER_MASK);
	CHECK(entry.measure == claimed.measure, "an older CLAIM changes nothing");
	set_entry(first_page, &entry);
	for (uint64 i = 0; i < extents[first_page].pages; i++)
		check_page(first_page, i);
}

/* A page without an extent is punched, absent, and free again; then it has no sums. */
static void
hollow(BlobPageNo page)
{
	static const BlobMapEntry no_entry;
	const BlobMapEntry punched = {BLOB_MAP_PUNCHED, 1};
	const BlobMapEntry absent = {BLOB_MAP_ABSENT, 1};

	set_entry(page, &punched);
	CHECK(!blob_sum_fits(entry_of(page), 0), "a hole has no place for a sum");
	set_entry(page, &absent);
	CHECK(!blob_sum_fits(entry_of(page), 2), "an absent page has no place for a sum");
	set_entry(page, &no_entry);
	CHECK(blob_sum_fits(entry_of(page), 1), "a page that is filled again has a place");
}

/*
 * Extents of each corner, in the middle of a block and over its end, are written, claimed, cut to
 * other lengths, freed, punched, and followed by another extent that begins one page later.
 */
static void
check_corner(uint64 pages, bool is_tail, bool crosses, pg_prng_state *random)
{
	BlobPageNo	first = crosses ? BLOB_MAP_ENTRIES - Min(pages, 2) : 7;
	BlobGeneration generation = 100000 + pages;

	allocate(first, pages, generation, is_tail);
	CHECK(extents[first].pages >= pages, "an extent of " UINT64_FORMAT " pages", pages);
	set_all_sums(first, random);
	if (!is_tail)
		claim_all(first);
	for (uint64 left = extents[first].pages - 1; left > 0; left -= Max(left / 3, 1))
		trim(first, left);
	CHECK(extents[first].pages == 1, "the extent has been cut to one page");
	free_extent(first);
	for (uint64 i = 0; i < pages; i += 1 + pages / 9)
		hollow(first + i);
	allocate(first + 1, pages, generation + 1, !is_tail);
	set_all_sums(first + 1, random);
	free_extent(first + 1);
}

static void
check_corners(pg_prng_state *random)
{
	for (size_t i = 0; i < lengthof(corners) * 4; i++)
		check_corner(corners[i / 4], i % 2 == 0, i % 4 < 2, random);
}

/* No bit that flips in the state makes an extent, which a round would free, or a hole, of sums. */
static void
check_state_flips(void)
{
	for (int bit = 0; bit < 64; bit++)
	{
		BlobMapEntry entry = {(uint64) 0xABCDEF01 << 8 | BLOB_MAP_SUMS, 1};
		bool		is_sum = bit >= 8 && bit < 40;

		CHECK(!blob_sums_have_more(&entry), "an entry with sums has nothing else");
		entry.generation_state ^= UINT64CONST(1) << bit;
		CHECK(!blob_map_entry_is_extent(&entry) && !blob_map_entry_is_hollow(&entry),
			  "bit %d makes no extent and no hole", bit);
		CHECK(blob_sums_have_more(&entry) == !is_sum, "bit %d is noticed unless a sum has it", bit);
		CHECK(blob_map_entry_is_damaged(&entry) == (bit < 7), "bit %d hides the sums", bit);
	}
}

/* An entry in which one bit has flipped. */
static BlobMapEntry
flip(BlobMapEntry entry, int bit)
{
	if (bit < 64)
		entry.generation_state ^= UINT64CONST(1) << bit;
	else
		entry.measure ^= UINT64CONST(1) << (bit - 64);
	return entry;
}

/* A bit that flips in an entry makes no extent of an empty one, and no empty one of an extent. */
static void
check_damage(void)
{
	const BlobMapEntry whole[] = {
		{0, 0},
		{(uint64) 4711 << 8 | BLOB_MAP_TIER, (uint64) 3 << BLOB_MAP_HIGH_WATER_BITS | 4096},
		{(uint64) 4711 << 8 | BLOB_MAP_TAIL | BLOB_MAP_HAS_SUMS, 12},
		{BLOB_MAP_PUNCHED, 100},
		{BLOB_MAP_ABSENT, 100}
	};

	for (size_t i = 0; i < lengthof(whole); i++)
	{
		CHECK(!blob_map_entry_is_damaged(&whole[i]), "entry %zu is whole", i);
		for (int bit = 0; bit < (i == 0 ? 128 : 7); bit++)
		{
			BlobMapEntry entry = flip(whole[i], bit);

			CHECK(blob_map_entry_is_damaged(&entry), "bit %d of entry %zu is noticed", bit, i);
			CHECK(blob_sum_fits(&entry, 1), "checksums are written over it");
		}
	}
}

/* A damaged entry that gets a checksum has no others. */
static void
check_mending(void)
{
	for (int bit = 0; bit < 7; bit++)
	{
		for (int sum_no = 0; sum_no < BLOB_SUMS_PER_ENTRY; sum_no++)
		{
			BlobMapEntry entry = {(uint64) 0xABCDEF01 << 8 | BLOB_MAP_SUMS, 1};

			entry = flip(entry, bit);
			blob_sum_set(&entry, sum_no, 4711);
			CHECK(blob_map_entry_state(&entry) == BLOB_MAP_SUMS && !blob_sums_have_more(&entry),
				  "the entry is whole again");
			for (int i = 0; i < BLOB_SUMS_PER_ENTRY; i++)
				CHECK(blob_sum_get(&entry, i) == (i == sum_no ? 4711 : BLOB_SUM_UNKNOWN),
					  "sum %d of a mended entry", i);
		}
	}
}

static uint32
sum_of(BlobGeneration generation, BlobPageNo page, const char *bytes)
{
	BlobSummedPages part = {generation, page, bytes, 1};
	uint32		sum;

	blob_page_sums(&part, 1, &sum);
	return sum;
}

/*
 * Sum seven pages of generation 7, from page 11 on, in parts of any sizes, that lie apart, and may
 * have no page.
 */
static void
sum_parts(const char *data, pg_prng_state *random, uint32 *sums)
{
	BlobSummedPages parts[14];
	uint32		done = 0;
	int			count = 0;

	while (count < (int) lengthof(parts) - 1)
	{
		uint32		pages = (uint32) pg_prng_uint64_range(random, 0, 7 - done);
		char	   *copy = palloc(Max(1, pages * BLOB_PAGE_SIZE));

		memcpy(copy, data + done * BLOB_PAGE_SIZE, pages * BLOB_PAGE_SIZE);
		parts[count++] = (BlobSummedPages) {7, 11 + done, copy, pages};
		done += pages;
	}
	parts[count++] = (BlobSummedPages) {7, 11 + done, data + done * BLOB_PAGE_SIZE, 7 - done};
	blob_page_sums(parts, count, sums);
}

static int
find_damage(const char *data, const uint32 *sums)
{
	BlobSummedPages part = {7, 11, data, 7};
	uint32		now[7];

	blob_page_sums(&part, 1, now);
	return blob_sums_find_damage(now, sums, 7);
}

/* A sum is that of one page in one life, and of its bytes; however many are computed together. */
static void
check_sums(pg_prng_state *random)
{
	static char data[7 * BLOB_PAGE_SIZE];
	uint32		of_all[7];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char) pg_prng_uint32(random);
	sum_parts(data, random, of_all);
	for (uint32 i = 0; i < 7; i++)
	{
		BlobGeneration generation = 7;
		BlobPageNo	page = 11 + i;
		const char *bytes = data + i * BLOB_PAGE_SIZE;
		uint32		sum;
		pg_crc32c	expected;

		sum = sum_of(generation, page, bytes);
		CHECK(sum == of_all[i], "page %u has the same sum alone", i);
		INIT_CRC32C(expected);
		COMP_CRC32C(expected, &generation, sizeof(generation));
		COMP_CRC32C(expected, &page, sizeof(page));
		COMP_CRC32C(expected, bytes, BLOB_PAGE_SIZE);
		FIN_CRC32C(expected);
		CHECK(sum == expected, "the sum of page %u is that of the server's function", i);
		sum = sum_of(generation + 1, page, bytes);
		CHECK(sum != of_all[i], "another generation, another sum");
		sum = sum_of(generation, page + 1, bytes);
		CHECK(sum != of_all[i], "another page, another sum");
	}
	for (int i = 0; i < 1000; i++)
	{
		int			byte = (int) pg_prng_uint64_range(random, 0, sizeof(data) - 1);
		char		bit = (char) (1 << pg_prng_uint64_range(random, 0, 7));

		data[byte] ^= bit;
		CHECK(find_damage(data, of_all) == byte / BLOB_PAGE_SIZE,
			  "bit of byte %d", byte);
		data[byte] ^= bit;
	}
	CHECK(find_damage(data, of_all) < 0, "no damage");
	data[3 * BLOB_PAGE_SIZE + 5] ^= 1;
	data[5 * BLOB_PAGE_SIZE + 5] ^= 1;
	of_all[3] = BLOB_SUM_UNKNOWN;
	CHECK(find_damage(data, of_all) == 5, "a sum that is unknown matches");
	of_all[5] = BLOB_SUM_UNKNOWN;
	CHECK(find_damage(data, of_all) < 0, "unknown sums match");
	of_all[6] = 0;
	CHECK(find_damage(data, of_all) == 6, "zero is not unknown");
}

UNIT_TEST(unit_page_sums)
{
	pg_prng_state random;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	memset(extents, 0, sizeof(extents));
	memset(is_used, 0, sizeof(is_used));
	for (int i = 0; i < BLOCKS; i++)
		blob_map_page_init((Page) blocks[i].data);
	check_corners(&random);
	check_state_flips();
	check_damage();
	check_mending();
	for (BlobGeneration generation = 1; generation <= 20000; generation++)
	{
		BlobPageNo	page = pg_prng_uint64_range(&random, 0, PAGES - 1);
		uint64		pages = pg_prng_bool(&random) ?
			corners[pg_prng_uint64_range(&random, 0, lengthof(corners) - 1)] :
			pg_prng_uint64_range(&random, 1, 40);

		if (extents[page].pages > 0 && pg_prng_bool(&random))
			free_extent(page);
		else if (extents[page].pages == 0)
			allocate(page, pages, generation, pg_prng_bool(&random));
		if (extents[page].pages > 0)
			set_sums(&extents[page], &random);
		if (generation % 50 == 0)
			compare();
		/* Old extents make room. */
		for (BlobPageNo i = 0; i < PAGES && generation % 100 == 0; i++)
		{
			if (extents[i].pages > 0 && pg_prng_bool(&random))
				free_extent(i);
		}
	}
	compare();
	check_sums(&random);
}
