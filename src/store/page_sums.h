/*
 * store/page_sums.h
 *	  Checksums of the pages of extents, and where the extent map has them.
 *
 * The sum of a page is the CRC-32C of the generation of its extent, of its number, and of its
 * bytes.  So the sum of another page, or of an earlier life of this one, does not match.
 *
 * The extent map uses the entries that an extent leaves empty, those of its pages behind the first:
 * three sums in each, in the order of the pages, the first page's own included.  So n pages have
 * them in the first n / 3 of n - 1 entries, rounded up.  An extent of one page has no such entry;
 * its sum is in its own (store/map_page.h).  Entries with sums stay when their extent is freed, and
 * are written over by those of the next extents.
 *
 * An extent that got its sums when it had content already may have pages whose content no digest
 * covered.  Their sum is BLOB_SUM_UNKNOWN, which matches whatever they hold.
 */
#ifndef BLOB_PAGE_SUMS_H
#define BLOB_PAGE_SUMS_H

#include "core/page.h"
#include "store/map_page.h"

#define BLOB_SUMS_PER_ENTRY 3

/* Where the sum of a page is: the page whose entry has it, and which of the entry's sums it is. */
typedef struct BlobSumPlace
{
	BlobPageNo	entry_page;
	int			sum_no;			/* BLOB_SUM_OWN: in the entry of the extent itself */
} BlobSumPlace;

#define BLOB_SUM_OWN BLOB_SUMS_PER_ENTRY

/*
 * Of a run in SUMS: not a place, but that the extent at this entry has checksums from now on.  The
 * run has its sum if it has one page.
 */
#define BLOB_SUM_BEGIN (BLOB_SUM_OWN + 1)

/* No page has this sum: blob_page_sums() gives another one in its place. */
#define BLOB_SUM_UNKNOWN UINT32_MAX

/* Whether a page that has the sum `now` may be what the map has `sum` for. */
static inline bool
blob_sum_matches(uint32 now, uint32 sum)
{
	return now == sum || sum == BLOB_SUM_UNKNOWN;
}

/* Pages of an extent, the first one's number, and where their bytes are. */
typedef struct BlobSummedPages
{
	BlobGeneration generation;	/* of the extent */
	BlobPageNo	first_page;
	const char *data;
	uint32		pages;
} BlobSummedPages;

/*
 * The sums of all pages of some parts, in their order.  Those of several parts are computed faster
 * in one call than one by one.  May be called by a signal handler.
 */
extern void blob_page_sums(const BlobSummedPages *parts, int count, uint32 *sums);

/* The pages of one request of the device, at most. */
#define BLOB_SUMS_MAX_PAGES 64

/*
 * Compare sums with those that the map has.  The number of the first page that differs, from 0 on,
 * or -1.  A sum that is not known does not differ.
 */
extern int	blob_sums_find_damage(const uint32 *now, const uint32 *sums, uint32 count);

/* The place of the sum of an extent's page_no-th page, from 0 on. */
static inline BlobSumPlace
blob_sum_place(const BlobExtent *extent, uint64 page_no)
{
	BlobSumPlace place = {.entry_page = extent->first_page, .sum_no = BLOB_SUM_OWN};

	Assert(page_no < extent->pages);
	if (extent->pages > 1)
	{
		place.entry_page += 1 + page_no / BLOB_SUMS_PER_ENTRY;
		place.sum_no = (int) (page_no % BLOB_SUMS_PER_ENTRY);
	}
	return place;
}

/* Whether an entry can have this sum: of a place in it, or its own as an extent of one page. */
extern bool blob_sum_fits(const BlobMapEntry *entry, int sum_no);

/* Whether an entry of state SUMS has bits that belong to none of its sums. */
extern bool blob_sums_have_more(const BlobMapEntry *entry);

/*
 * Get or set a sum of an entry that can have it.  A vacant entry gets state SUMS.  So does a
 * damaged one, and its other sums become BLOB_SUM_UNKNOWN.
 */
extern uint32 blob_sum_get(const BlobMapEntry *entry, int sum_no);
extern void blob_sum_set(BlobMapEntry *entry, int sum_no, uint32 sum);

/* How many of count sums, from a place on, lie in the block of that place. */
extern uint64 blob_sums_in_block(const BlobSumPlace *place, uint64 count);

/* Go on to the place of the sum behind this one, in the same block. */
extern void blob_sums_advance(uint32 *slot, int *sum_no);

/* Whether an entry has a sum there, which may be BLOB_SUM_UNKNOWN. */
extern bool blob_sums_have(const BlobMapEntry *entry, int sum_no);

#endif							/* BLOB_PAGE_SUMS_H */
