/*
 * blob/sample.h
 *	  Statistics of a random sample of blobstate values, without reading content of extents.
 *
 * What is known of a value in extents is its size, its digest and its first 32 bytes; equality is
 * that of digests.  An inline value is known whole, if it is not too wide to be worth it.
 */
#ifndef BLOB_SAMPLE_H
#define BLOB_SAMPLE_H

#include "core/descriptor.h"

typedef struct BlobSampleItem
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		prefix[BLOB_PREFIX_BYTES];
	int			prefix_bytes;	/* fewer than BLOB_PREFIX_BYTES: the prefix is all */
	bool		is_wide;		/* not looked at: digest unknown, taken for unlike any other */
	const char *content;		/* all of it, or NULL: not to be stored in statistics */
	uint64		size_bytes;
	int			row_no;			/* position in the sample, in physical order */
} BlobSampleItem;

/* Neighbours in sorted order that are equal. */
typedef struct BlobSampleGroup
{
	int			first;
	int			count;
} BlobSampleGroup;

typedef struct BlobSample
{
	int			row_count;		/* of the sample, nulls included */
	double		table_row_count;	/* of the table, an estimate */
	BlobSampleItem *items;		/* values that are not null */
	int			item_count;
	BlobSampleGroup *groups;	/* by blob_sample_sort() */
	int			group_count;
	int			repeated_group_count;	/* groups of more than one */
	int			wide_count;
	bool		is_exact;		/* all content is known: order and bounds are exact */
} BlobSample;

/* A value that may stand in statistics: prefix_bytes of content, and more to tell bounds apart. */
typedef struct BlobSampleBound
{
	const void *data;
	int			data_bytes;
	int			place;			/* spreads bounds of one prefix, of BLOB_SAMPLE_PLACES; or -1 */
} BlobSampleBound;

#define BLOB_SAMPLE_PLACES 65536

/* Sort the items by content, as far as it is known, and find the groups. */
extern void blob_sample_sort(BlobSample *sample);

/*
 * Distinct values in the table, as pg_statistic has it: a number, or a negative multiple of the
 * number of rows.
 */
extern double blob_sample_distinct(const BlobSample *sample);

/*
 * The groups that are significantly more common than the others, at most limit of them, the most
 * common first.  Only values whose content may be stored; groups has room for limit.
 */
extern int	blob_sample_common(const BlobSample *sample, double distinct, int limit,
							   BlobSampleGroup *groups);

/*
 * Bounds of a histogram of at most limit bins with equally many of the values that are not in one
 * of the common groups (which get sorted by position).  Returns their number, 0 where there are
 * fewer than two; bounds has room for limit + 1.
 */
extern int	blob_sample_histogram(const BlobSample *sample, BlobSampleGroup *common,
								  int common_count, int limit, BlobSampleBound *bounds);

/* Correlation of the order of values with that of rows, of at least two items. */
extern double blob_sample_correlation(const BlobSample *sample);

#endif							/* BLOB_SAMPLE_H */
