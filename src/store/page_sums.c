/*
 * store/page_sums.c
 *	  Checksums of the pages of extents, see store/page_sums.h.
 */
#include "postgres.h"

#include "port/pg_crc32c.h"
#include "store/page_sums.h"

/* The sums of an entry: of 32 bits each, the first one behind the state. */
#define FIRST_SUM_SHIFT 8

/* Pages whose sums are computed together. */
#define TOGETHER 3

/* The pages that wait for being summed. */
typedef struct Together
{
	int			count;
	const char *data[TOGETHER];
	uint64		inputs[TOGETHER][2];	/* what precedes the bytes: the generation, the page */
	uint32	   *sums[TOGETHER];
} Together;

static pg_crc32c
sum_one(const Together *pages, int i)
{
	pg_crc32c	sum;

	INIT_CRC32C(sum);
	COMP_CRC32C(sum, pages->inputs[i], sizeof(pages->inputs[i]));
	COMP_CRC32C(sum, pages->data[i], BLOB_PAGE_SIZE);
	FIN_CRC32C(sum);
	return sum;
}

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
sum_together(const Together *pages)
{
	uint64		sums[TOGETHER];

	for (int i = 0; i < TOGETHER; i++)
	{
		INIT_CRC32C(sums[i]);
		sums[i] = __builtin_ia32_crc32di((uint32) sums[i], pages->inputs[i][0]);
		sums[i] = __builtin_ia32_crc32di(sums[i], pages->inputs[i][1]);
	}
	for (int at = 0; at < BLOB_PAGE_SIZE; at += sizeof(uint64))
	{
		uint64		words[TOGETHER];

		for (int i = 0; i < TOGETHER; i++)
			memcpy(&words[i], pages->data[i] + at, sizeof(uint64));
		for (int i = 0; i < TOGETHER; i++)
			sums[i] = __builtin_ia32_crc32di(sums[i], words[i]);
	}
	for (int i = 0; i < TOGETHER; i++)
	{
		*pages->sums[i] = (uint32) sums[i];
		FIN_CRC32C(*pages->sums[i]);
	}
}

#else

static bool
can_sum_together(void)
{
	return false;
}

static void
sum_together(const Together *pages)
{
	for (int i = 0; i < TOGETHER; i++)
		*pages->sums[i] = sum_one(pages, i);
}

#endif

/* Sum the pages that wait, fewer than TOGETHER at the end. */
static void
sum_waiting(Together *pages)
{
	uint32		unused;

	if (pages->count == 1 || !can_sum_together())
	{
		for (int i = 0; i < pages->count; i++)
			*pages->sums[i] = sum_one(pages, i);
	}
	else if (pages->count > 0)
	{
		for (int i = pages->count; i < TOGETHER; i++)
		{
			pages->data[i] = pages->data[0];
			memcpy(pages->inputs[i], pages->inputs[0], sizeof(pages->inputs[i]));
			pages->sums[i] = &unused;
		}
		sum_together(pages);
	}
	pages->count = 0;
}

static void
add_page(Together *pages, BlobGeneration generation, BlobPageNo page, const char *data,
		 uint32 *sum)
{
	int			i = pages->count++;

	pages->data[i] = data;
	pages->inputs[i][0] = generation;
	pages->inputs[i][1] = page;
	pages->sums[i] = sum;
	if (pages->count == TOGETHER)
		sum_waiting(pages);
}

void
blob_page_sums(const BlobSummedPages *parts, int count, uint32 *sums)
{
	Together	together = {0};
	uint32		done = 0;

	for (int i = 0; i < count; i++)
	{
		const BlobSummedPages *part = &parts[i];

		for (uint32 page_no = 0; page_no < part->pages; page_no++)
			add_page(&together, part->generation, part->first_page + page_no,
					 part->data + (size_t) page_no * BLOB_PAGE_SIZE, &sums[done++]);
	}
	sum_waiting(&together);
	for (uint32 i = 0; i < done; i++)
	{
		if (sums[i] == BLOB_SUM_UNKNOWN)
			sums[i] = 0;
	}
}

int
blob_sums_find_damage(const uint32 *now, const uint32 *sums, uint32 count)
{
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

uint64
blob_sums_in_block(const BlobSumPlace *place, uint64 count)
{
	uint32		entries = BLOB_MAP_ENTRIES - blob_map_slot_of(place->entry_page);

	if (place->sum_no == BLOB_SUM_OWN)
		return 1;
	return Min(count, (uint64) entries * BLOB_SUMS_PER_ENTRY - place->sum_no);
}

void
blob_sums_advance(uint32 *slot, int *sum_no)
{
	if (++*sum_no >= BLOB_SUMS_PER_ENTRY)
	{
		*sum_no = 0;
		++*slot;
	}
}

bool
blob_sums_have(const BlobMapEntry *entry, int sum_no)
{
	return sum_no == BLOB_SUM_OWN ? blob_sum_fits(entry, sum_no) :
		blob_map_entry_state(entry) == BLOB_MAP_SUMS;
}
