/*
 * sql/operators/sample.h
 *	  Statistics of a random sample of blobstate values, without reading content of extents.
 *
 * Of a value in extents, the size, the digest and the first 32 bytes are known; equality is that of
 * digests.  Of an inline value the whole content is known, unless it is too wide to be worth a
 * look.
 */
#ifndef BLOB_SAMPLE_H
#define BLOB_SAMPLE_H

#include "core/descriptor.h"

typedef struct BlobSampleItem
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		prefix[BLOB_PREFIX_BYTES];
	int			prefix_bytes;	/* fewer than BLOB_PREFIX_BYTES: the prefix is all */
	bool		is_wide;		/* digest unknown: unequal to all others */
	const char *content;		/* whole; NULL: not to be stored in statistics */
	uint64		size_bytes;
	int			row_no;			/* position in the sample, in physical order */
} BlobSampleItem;

/* Equal items, which are adjacent in sorted order. */
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

/*
 * A value that may be stored in statistics: its content as far as it is known, and a place that
 * tells bounds of one prefix apart.
 */
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
 * The number of distinct values in the table, in the form of pg_statistic: a number, or a negative
 * multiple of the number of rows.
 */
extern double blob_sample_distinct(const BlobSample *sample);

/*
 * The groups that are significantly more common than the others, at most limit of them, the most
 * common first.  Only groups whose content may be stored are listed.  groups has room for limit.
 * Returns their number.
 */
extern int	blob_sample_common(const BlobSample *sample, double distinct, int limit,
							   BlobSampleGroup *groups);

/*
 * The bounds of a histogram of at most limit bins.  Each bin has equally many of the values that
 * are in no common group; sorts common by position.  Returns the number of bounds, 0 if there are
 * fewer than two such values.  bounds has room for limit + 1.
 */
extern int	blob_sample_histogram(const BlobSample *sample, BlobSampleGroup *common,
								  int common_count, int limit, BlobSampleBound *bounds);

/* The correlation of the order of values with that of rows, of at least two items. */
extern double blob_sample_correlation(const BlobSample *sample);

#endif							/* BLOB_SAMPLE_H */
