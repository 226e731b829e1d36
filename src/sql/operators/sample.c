/*
 * sql/operators/sample.c
 *	  Statistics of a sample, see sql/operators/sample.h.
 *
 * The measures are those that PostgreSQL's own type analysis uses, so that the planner's estimators
 * interpret them alike: the Duj1 estimator of Haas and Stokes for distinct values, an equi-depth
 * histogram, rank correlation.
 */
#include "postgres.h"

#include <math.h>

#include "sql/operators/sample.h"

/* Order by bytes, then by length. */
static int
compare_bytes(const void *a, uint64 a_bytes, const void *b, uint64 b_bytes)
{
	int			order = memcmp(a, b, Min(a_bytes, b_bytes));

	if (order != 0)
		return order;
	return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

static bool
is_equal(const BlobSampleItem *a, const BlobSampleItem *b)
{
	return !a->is_wide && !b->is_wide && a->size_bytes == b->size_bytes &&
		memcmp(a->sha256, b->sha256, BLOB_DIGEST_BYTES) == 0;
}

/*
 * Order of items.  Values of one prefix whose further content is not known are sorted by digest:
 * that is a random order, but it puts equal values side by side.
 */
static int
compare_items(const void *left, const void *right, void *arg)
{
	const BlobSampleItem *a = left;
	const BlobSampleItem *b = right;
	const BlobSample *sample = arg;
	int			order;

	if (sample->is_exact)
		order = compare_bytes(a->content, a->size_bytes, b->content, b->size_bytes);
	else
		order = compare_bytes(a->prefix, a->prefix_bytes, b->prefix, b->prefix_bytes);
	if (order == 0 && !sample->is_exact)
		order = (int) a->is_wide - (int) b->is_wide;
	if (order == 0 && !sample->is_exact && !a->is_wide)
		order = memcmp(a->sha256, b->sha256, BLOB_DIGEST_BYTES);
	return order != 0 ? order : a->row_no - b->row_no;
}

void
blob_sample_sort(BlobSample *sample)
{
	sample->is_exact = true;
	sample->wide_count = 0;
	for (int i = 0; i < sample->item_count; i++)
	{
		if (sample->items[i].content == NULL)
			sample->is_exact = false;
		if (sample->items[i].is_wide)
			sample->wide_count++;
	}
	qsort_interruptible(sample->items, sample->item_count, sizeof(BlobSampleItem), compare_items,
						sample);

	sample->groups = palloc(sizeof(BlobSampleGroup) * Max(sample->item_count, 1));
	sample->group_count = 0;
	sample->repeated_group_count = 0;
	for (int i = 0; i < sample->item_count;)
	{
		BlobSampleGroup *group = &sample->groups[sample->group_count++];

		group->first = i++;
		while (i < sample->item_count &&
			   is_equal(&sample->items[group->first], &sample->items[i]))
			i++;
		group->count = i - group->first;
		if (group->count > 1)
			sample->repeated_group_count++;
	}
}

double
blob_sample_distinct(const BlobSample *sample)
{
	double		not_null_fraction = (double) sample->item_count / sample->row_count;
	double		sampled = sample->item_count;
	double		total = sample->table_row_count * not_null_fraction;
	double		once = sample->group_count - sample->repeated_group_count;
	double		distinct;

	/* No value twice: the column is unique.  All values more than once: there are no others. */
	if (sample->repeated_group_count == 0)
		return -not_null_fraction;
	if (once == 0)
		distinct = sample->group_count;
	else
	{
		distinct = sampled * sample->group_count / (sampled - once + once * sampled / total);
		distinct = floor(Max(sample->group_count, Min(distinct, total)) + 0.5);
	}
	/* A large part of the rows: the number will grow with the table. */
	if (distinct > 0.1 * sample->table_row_count)
		distinct = -distinct / sample->table_row_count;
	return distinct;
}

static int
compare_group_counts(const void *left, const void *right)
{
	const BlobSampleGroup *a = left;
	const BlobSampleGroup *b = right;

	return a->count != b->count ? b->count - a->count : a->first - b->first;
}

static int
compare_group_places(const void *left, const void *right)
{
	return ((const BlobSampleGroup *) left)->first - ((const BlobSampleGroup *) right)->first;
}

/*
 * Whether the last of the common groups is significantly more common than the planner would assume
 * if the group were not listed: outside of the list all values count as equally common.  The
 * difference must be more than two standard deviations of the count in a random sample of this
 * size.
 */
static bool
is_last_significant(const BlobSample *sample, double distinct, const BlobSampleGroup *groups,
					int count)
{
	double		sampled = sample->row_count;
	double		total = sample->table_row_count;
	double		others = sample->item_count;
	double		last = groups[count - 1].count;
	double		expected = total * last / sampled;
	double		deviation;

	for (int i = 0; i < count - 1; i++)
		others -= groups[i].count;
	if (distinct - (count - 1) > 1)
		others /= distinct - (count - 1);
	deviation = sqrt(Max(sampled * expected * (total - expected) * (total - sampled) /
						 (total * total * (total - 1)), 0));
	return last > others + 2 * deviation + 0.5;
}

int
blob_sample_common(const BlobSample *sample, double distinct, int limit, BlobSampleGroup *groups)
{
	BlobSampleGroup *candidates;
	int			count = 0;

	candidates = palloc(sizeof(BlobSampleGroup) * Max(sample->repeated_group_count, 1));
	for (int i = 0; i < sample->group_count; i++)
	{
		if (sample->groups[i].count > 1 && sample->items[sample->groups[i].first].content != NULL)
			candidates[count++] = sample->groups[i];
	}
	qsort(candidates, count, sizeof(BlobSampleGroup), compare_group_counts);

	/* A complete list is kept as it is; so is the list of a table that was sampled as a whole. */
	if (count != sample->group_count || distinct < 0 || count > limit)
	{
		double		distinct_count = distinct < 0 ? -distinct * sample->table_row_count : distinct;

		count = Min(count, limit);
		if (sample->table_row_count > Max(sample->row_count, 1))
		{
			while (count > 0 && !is_last_significant(sample, distinct_count, candidates, count))
				count--;
		}
	}
	memcpy(groups, candidates, sizeof(BlobSampleGroup) * count);
	pfree(candidates);
	return count;
}

/* The positions of the items that belong to no common group.  common is sorted by position. */
static int
list_other_items(const BlobSample *sample, const BlobSampleGroup *common, int common_count,
				 int *positions)
{
	int			count = 0;

	for (int i = 0; i < sample->item_count;)
	{
		if (common_count > 0 && common->first == i)
		{
			i += common->count;
			common++;
			common_count--;
		}
		else
			positions[count++] = i++;
	}
	return count;
}

/*
 * Spread the bounds that have one and the same cut-off prefix by their place in their run.
 * Otherwise they would say that all values with this prefix are smaller than any constant that has
 * it too.
 */
static void
spread_bounds(BlobSampleBound *bounds, int count)
{
	int			first = 0;

	for (int i = 1; i <= count; i++)
	{
		const BlobSampleBound *run = &bounds[first];

		if (i < count && compare_bytes(bounds[i].data, bounds[i].data_bytes, run->data,
									   run->data_bytes) == 0)
			continue;
		for (int j = first; i - first > 1 && run->data_bytes == BLOB_PREFIX_BYTES && j < i; j++)
			bounds[j].place = (int) ((int64) (BLOB_SAMPLE_PLACES - 1) * (j - first) /
									 (i - first - 1));
		first = i;
	}
}

int
blob_sample_histogram(const BlobSample *sample, BlobSampleGroup *common, int common_count,
					  int limit, BlobSampleBound *bounds)
{
	int			distinct_count = sample->group_count - common_count;
	int		   *positions;
	int			item_count;
	int			count;

	if (distinct_count < 2)
		return 0;
	positions = palloc(sizeof(int) * sample->item_count);
	qsort(common, common_count, sizeof(BlobSampleGroup), compare_group_places);
	item_count = list_other_items(sample, common, common_count, positions);

	/*
	 * Values without known content were not listed as common.  They may be few, and take several
	 * bins each.
	 */
	count = Min(sample->is_exact ? distinct_count : item_count, limit + 1);
	for (int i = 0; i < count; i++)
	{
		int			position = positions[(int64) i * (item_count - 1) / (count - 1)];
		const BlobSampleItem *item = &sample->items[position];

		bounds[i].data = sample->is_exact ? (const void *) item->content : item->prefix;
		bounds[i].data_bytes = sample->is_exact ? (int) item->size_bytes : item->prefix_bytes;
		bounds[i].place = -1;
	}
	if (!sample->is_exact)
		spread_bounds(bounds, count);
	pfree(positions);
	return count;
}

double
blob_sample_correlation(const BlobSample *sample)
{
	double		n = sample->item_count;
	double		mean = (n - 1) / 2;
	double		products = 0;
	double		squares = 0;

	/* Both ranks are 0 to n - 1. */
	for (int i = 0; i < sample->item_count; i++)
	{
		products += (i - mean) * (sample->items[i].row_no - mean);
		squares += (i - mean) * (i - mean);
	}
	return products / squares;
}
