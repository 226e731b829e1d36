/*
 * store/map_sums.h
 *	  Checksums of pages in the extent map, see store/page_sums.h.
 */
#ifndef BLOB_MAP_SUMS_H
#define BLOB_MAP_SUMS_H

#include "store/page_sums.h"
#include "utils/relcache.h"

/* Sums of consecutive pages of an extent. */
typedef struct BlobSumRun
{
	BlobExtent	extent;
	uint64		page_no;		/* the first page, counted in the extent */
	uint64		count;
	const uint32 *sums;
} BlobSumRun;

/*
 * Set the sums of pages of extents that have sums, and log SUMS.  To be called after their content
 * is known, and before anything refers to the pages.  The caller has allocated or claimed them, and
 * holds RowExclusiveLock on the map.  ERROR XX001 if the map has no room for them where it should.
 */
extern void blob_map_set_sums(Relation map, const BlobSumRun *runs, int run_count);

/*
 * Set the sums of pages of an extent that others may free meanwhile.  False, and those that are
 * left are not set, if the map has the extent no longer.  If the extent hides its sums, its entry
 * says again that it has some.  BLOB_SUM_UNKNOWN takes the place of a damaged entry, or of none,
 * but never of a sum that the map has.  Where the map has these sums nothing is logged: the block
 * keeps its LSN, by which heal/ knows what was changed since a fork.  Exported, so that
 * test/unit/stop_calls.c can take its place.
 */
extern PGDLLEXPORT bool blob_map_repair_sums(Relation map, const BlobSumRun *run);

/*
 * Give an extent sums that it was allocated without, or lacks for some of its pages.  sums[]: those
 * of its first count pages, or BLOB_SUM_UNKNOWN.  *added grows by those that the map did not know.
 * False if the map has the extent no longer.  The caller holds ShareUpdateExclusiveLock on the map,
 * so that one process does this at a time.
 */
extern bool blob_map_add_sums(Relation map, const BlobExtent *extent, const uint32 *sums,
							  uint64 count, uint64 *added);

/*
 * The last step of that: the extent is said to have sums, unless it has more pages below its
 * high-water mark than these, or is gone.  Returns whether it is.  Exported, so that
 * test/unit/stop_calls.c can take its place.
 */
extern PGDLLEXPORT bool blob_map_begin_sums(Relation map, const BlobExtent *extent, uint64 pages,
											const uint32 *sums);

/* The result of a look for sums. */
typedef enum BlobSumsLook
{
	BLOB_SUMS_FOUND,
	BLOB_SUMS_NONE,				/* the extent has none */
	BLOB_SUMS_DAMAGED			/* an entry of the map is damaged, or the extent was freed */
} BlobSumsLook;

/* Get the sums of count pages of an extent.  Share-locks one buffer at a time. */
extern BlobSumsLook blob_map_get_sums(Relation map, const BlobExtent *extent, uint64 page_no,
									  uint64 count, uint32 *sums);

/*
 * Whether an extent whose entry does not say that it has sums has some all the same: the entry is
 * damaged, unless the extent has got them, or was freed, since it was looked up.
 */
extern bool blob_map_hides_sums(Relation map, const BlobExtent *extent);

/* Replay: set the runs that a block's data of SUMS has.  False if they do not fit the page. */
extern bool blob_map_page_apply_sums(Page page, const char *data, Size length);

#endif							/* BLOB_MAP_SUMS_H */
