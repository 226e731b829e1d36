/*
 * store/page_sums.c
 *	  Checksums of the pages of extents, see store/page_sums.h.
 */
#include "postgres.h"

#include "port/pg_crc32c.h"
#include "store/page_sums.h"

/* The sums of an entry: of 32 bits each, the first one behind the state. */
#define FIRST_SUM_SHIFT 8

/* The beginning of a page's sum: what precedes its bytes. */
static pg_crc32c
begin_sum(BlobGeneration generation, BlobPageNo page)
{
	pg_crc32c	sum;

	INIT_CRC32C(sum);
	COMP_CRC32C(sum, &generation, sizeof(generation));
	COMP_CRC32C(sum, &page, sizeof(page));
	return sum;
}

static pg_crc32c
sum_one(pg_crc32c sum, const char *data)
{
	COMP_CRC32C(sum, data, BLOB_PAGE_SIZE);
	return sum;
}

/* Pages whose sums are computed together, if the processor can. */
#define TOGETHER 3

#if defined(__x86_64__) && defined(__GNUC__)

static bool
can_sum_together(void)
{
	return __builtin_cpu_supports("sse4.2");
}

/*
 * The instruction takes three cycles, and one can begin in each: so three sums take as long as one.
 * (The server's function computes one sum at a time.)
 */
__attribute__((target("sse4.2")))
static void
sum_together(const char *data, pg_crc32c *sums)
{
	uint64		first = sums[0];
	uint64		second = sums[1];
	uint64		third = sums[2];

	for (int at = 0; at < BLOB_PAGE_SIZE; at += sizeof(uint64))
	{
		uint64		words[TOGETHER];

		for (int i = 0; i < TOGETHER; i++)
			memcpy(&words[i], data + i * BLOB_PAGE_SIZE + at, sizeof(uint64));
		first = __builtin_ia32_crc32di(first, words[0]);
		second = __builtin_ia32_crc32di(second, words[1]);
		third = __builtin_ia32_crc32di(third, words[2]);
	}
	sums[0] = (pg_crc32c) first;
	sums[1] = (pg_crc32c) second;
	sums[2] = (pg_crc32c) third;
}

#else

static bool
can_sum_together(void)
{
	return false;
}

static void
sum_together(const char *data, pg_crc32c *sums)
{
	for (int i = 0; i < TOGETHER; i++)
		sums[i] = sum_one(sums[i], data + i * BLOB_PAGE_SIZE);
}

#endif

void
blob_page_sums(BlobGeneration generation, BlobPageNo page, const char *data, uint32 count,
			   uint32 *sums)
{
	uint32		done = 0;

	for (uint32 i = 0; i < count; i++)
		sums[i] = begin_sum(generation, page + i);
	for (; can_sum_together() && done + TOGETHER <= count; done += TOGETHER)
		sum_together(data + (size_t) done * BLOB_PAGE_SIZE, sums + done);
	for (; done < count; done++)
		sums[done] = sum_one(sums[done], data + (size_t) done * BLOB_PAGE_SIZE);
	for (uint32 i = 0; i < count; i++)
	{
		FIN_CRC32C(sums[i]);
		if (sums[i] == BLOB_SUM_UNKNOWN)
			sums[i] = 0;
	}
}

int
blob_sums_find_damage(BlobGeneration generation, BlobPageNo page, const char *data, uint32 count,
					  const uint32 *sums)
{
	uint32		now[BLOB_SUMS_MAX_PAGES];

	Assert(count <= BLOB_SUMS_MAX_PAGES);
	blob_page_sums(generation, page, data, count, now);
	for (uint32 i = 0; i < count; i++)
	{
		if (!blob_sum_matches(now[i], sums[i]))
			return (int) i;
	}
	return -1;
}

bool
blob_sum_fits(const BlobMapEntry *entry, int sum_no)
{
	if (sum_no == BLOB_SUM_OWN)
		return blob_map_entry_has_sums(entry) && blob_map_entry_pages(entry) == 1;
	return blob_map_entry_is_vacant(entry) || blob_map_entry_is_damaged(entry);
}

bool
blob_sums_have_more(const BlobMapEntry *entry)
{
	return (entry->generation_state & ~((uint64) UINT32_MAX << FIRST_SUM_SHIFT)) != BLOB_MAP_SUMS;
}

/* How far the sum is shifted in the measure of an extent of one page. */
static int
own_sum_shift(const BlobMapEntry *entry)
{
	return blob_map_entry_state(entry) == BLOB_MAP_TIER ? BLOB_MAP_TIER_SUM_SHIFT :
		BLOB_MAP_TAIL_SUM_SHIFT;
}

/* The word of an entry that has a sum, and how far the sum is shifted there. */
static uint64 *
word_of(BlobMapEntry *entry, int sum_no, int *shift)
{
	switch (sum_no)
	{
		case 0:
			*shift = FIRST_SUM_SHIFT;
			return &entry->generation_state;
		case BLOB_SUM_OWN:
			*shift = own_sum_shift(entry);
			return &entry->measure;
		default:
			*shift = 32 * (sum_no - 1);
			return &entry->measure;
	}
}

uint32
blob_sum_get(const BlobMapEntry *entry, int sum_no)
{
	int			shift;
	uint64	   *word = word_of((BlobMapEntry *) entry, sum_no, &shift);

	return (uint32) (*word >> shift);
}

void
blob_sum_set(BlobMapEntry *entry, int sum_no, uint32 sum)
{
	int			shift;
	uint64	   *word;

	Assert(blob_sum_fits(entry, sum_no));
	if (sum_no != BLOB_SUM_OWN && blob_map_entry_is_damaged(entry))
	{
		entry->generation_state = (uint64) BLOB_SUM_UNKNOWN << FIRST_SUM_SHIFT | BLOB_MAP_SUMS;
		entry->measure = PG_UINT64_MAX;
	}
	else if (blob_map_entry_state(entry) == BLOB_MAP_FREE)
		entry->generation_state = BLOB_MAP_SUMS;
	word = word_of(entry, sum_no, &shift);
	*word = (*word & ~((uint64) UINT32_MAX << shift)) | (uint64) sum << shift;
}
