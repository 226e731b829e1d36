/*
 * core/tier.h
 *	  The tier table: how many pages the n-th extent of a blob has.
 *
 * With k tiers per level, tier (level l, position p) has (l+1)^(k-p) * (l+2)^p pages (Nguyen and
 * Leis, "Why Files If You Have a DBMS?", ICDE 2024, section III-B).  Inside a level sizes grow by
 * the factor (l+2)/(l+1).  So the growth slows down from doubling towards constant, and so does the
 * share of a blob that a half filled last extent can waste.  After the last level sizes stay
 * constant.
 *
 * The number of tiers per level and the number of levels are part of the on-disk format, because a
 * descriptor holds no lengths.  They may be set at build time (make
 * BLOBEXT_CPPFLAGS='-DBLOB_TIERS_PER_LEVEL=…').  The extent map records them, and a library built
 * with other numbers refuses the store.
 */
#ifndef BLOB_TIER_H
#define BLOB_TIER_H

#include "core/page.h"

#ifndef BLOB_TIERS_PER_LEVEL
#define BLOB_TIERS_PER_LEVEL 10
#endif

#ifndef BLOB_TIER_LEVELS
#define BLOB_TIER_LEVELS 5
#endif

#define BLOB_TIER_COUNT (BLOB_TIERS_PER_LEVEL * BLOB_TIER_LEVELS)

/* Most extents of one blob, without the tail: a descriptor counts them in 16 bits. */
#define BLOB_MAX_EXTENTS 65535

/* The division of a blob of known size into extents. */
typedef struct BlobTierPlan
{
	int			first_extent_no;	/* tier of the first extent */
	int			extent_count;	/* extents of tier sizes, from that tier on */
	uint64		tail_pages;		/* exact last extent, or 0 for none */
	uint64		total_pages;	/* of all extents and the tail */
} BlobTierPlan;

/* The formula itself, for any parameters; saturates at BLOB_MAX_PAGE_NO. */
extern uint64 blob_tier_formula(int tiers_per_level, int level, int position);

/* Pages of the extent_no-th extent (from 0), with this build's parameters. */
extern uint64 blob_tier_pages(int extent_no);

/*
 * Divide total_pages into as many whole tiers as fit, and a tail extent for the remaining pages.
 * Without a tail the next tier takes the remaining pages, and may stay partly empty.
 */
extern BlobTierPlan blob_tier_plan(uint64 total_pages, bool use_tail);

/* The same for pages that follow first_extent_no extents of tier sizes. */
extern BlobTierPlan blob_tier_plan_from(int first_extent_no, uint64 total_pages, bool use_tail);

#endif							/* BLOB_TIER_H */
