/*
 * core/tier.c
 *	  The tier table, see core/tier.h.
 */
#include "postgres.h"

#include "core/tier.h"

StaticAssertDecl(BLOB_TIERS_PER_LEVEL >= 1 && BLOB_TIERS_PER_LEVEL <= 32,
				 "tiers per level out of range");
StaticAssertDecl(BLOB_TIER_LEVELS >= 1 && BLOB_TIER_LEVELS <= 127, "tier levels out of range");

/* base ^ exponent, saturating at BLOB_MAX_PAGE_NO so that no product can wrap around. */
static uint64
saturating_power(uint64 base, int exponent)
{
	uint64		result = 1;

	while (exponent-- > 0)
	{
		if (result > BLOB_MAX_PAGE_NO / base)
			return BLOB_MAX_PAGE_NO;
		result *= base;
	}
	return result;
}

uint64
blob_tier_formula(int tiers_per_level, int level, int position)
{
	uint64		low = saturating_power(level + 1, tiers_per_level - position);
	uint64		high = saturating_power(level + 2, position);

	if (low > BLOB_MAX_PAGE_NO / high)
		return BLOB_MAX_PAGE_NO;
	return low * high;
}

uint64
blob_tier_pages(int extent_no)
{
	static uint64 table[BLOB_TIER_COUNT];	/* filled on first use, then constant */

	Assert(extent_no >= 0);

	if (table[BLOB_TIER_COUNT - 1] == 0)
	{
		for (int i = 0; i < BLOB_TIER_COUNT; i++)
			table[i] = blob_tier_formula(BLOB_TIERS_PER_LEVEL, i / BLOB_TIERS_PER_LEVEL,
										 i % BLOB_TIERS_PER_LEVEL);
	}
	return table[Min(extent_no, BLOB_TIER_COUNT - 1)];
}

BlobTierPlan
blob_tier_plan_from(int first_extent_no, uint64 total_pages, bool use_tail)
{
	BlobTierPlan plan = {.first_extent_no = first_extent_no};
	uint64		left = total_pages;

	while (left > 0 && first_extent_no + plan.extent_count < BLOB_MAX_EXTENTS)
	{
		uint64		pages = blob_tier_pages(first_extent_no + plan.extent_count);

		if (pages > left && use_tail)
			break;
		plan.extent_count++;
		plan.total_pages += pages;
		left -= Min(left, pages);
	}
	plan.tail_pages = left;
	plan.total_pages += left;
	return plan;
}

BlobTierPlan
blob_tier_plan(uint64 total_pages, bool use_tail)
{
	return blob_tier_plan_from(0, total_pages, use_tail);
}
