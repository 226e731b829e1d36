/*
 * unit_sample.c
 *	  Tests of src/sql/operators/sample.c on random samples of known populations.
 */
#include "unit.h"

#include <math.h>

#include "common/pg_prng.h"
#include "sql/operators/sample.h"

static pg_prng_state prng;

/* A value that is the text of a number after a common prefix, in extents or inline. */
static void
make_item(BlobSampleItem *item, int row_no, uint64 number, int common_bytes, bool is_inline)
{
	char	   *content = palloc(common_bytes + 21);

	memset(content, 'x', common_bytes);
	item->size_bytes = common_bytes + sprintf(content + common_bytes, "%010llu",
											  (unsigned long long) number);
	item->prefix_bytes = (int) Min(item->size_bytes, BLOB_PREFIX_BYTES);
	memcpy(item->prefix, content, item->prefix_bytes);
	blob_digest_bytes(content, item->size_bytes, item->sha256);
	item->content = is_inline ? content : NULL;
	item->is_wide = false;
	item->row_no = row_no;
}

static BlobSample
make_sample(int row_count, double table_row_count)
{
	BlobSample	sample = {.row_count = row_count, .table_row_count = table_row_count};

	sample.items = palloc0(sizeof(BlobSampleItem) * row_count);
	sample.item_count = row_count;
	return sample;
}

/* Items drawn from the given number of distinct values. */
static BlobSample
make_uniform(int row_count, double table_row_count, uint64 distinct, int common_bytes,
			 bool is_inline)
{
	BlobSample	sample = make_sample(row_count, table_row_count);

	for (int i = 0; i < row_count; i++)
		make_item(&sample.items[i], i, pg_prng_uint64_range(&prng, 0, distinct - 1), common_bytes,
				  is_inline);
	blob_sample_sort(&sample);
	return sample;
}

static bool
is_same(const BlobSampleItem *a, const BlobSampleItem *b)
{
	return !a->is_wide && !b->is_wide && memcmp(a->sha256, b->sha256, BLOB_DIGEST_BYTES) == 0;
}

/* Groups are all and only the equal values; the order is that of prefixes. */
static void
check_groups(const BlobSample *sample)
{
	int			next = 0;
	int			repeated = 0;

	for (int g = 0; g < sample->group_count; g++)
	{
		const BlobSampleGroup *group = &sample->groups[g];
		const BlobSampleItem *first = &sample->items[group->first];

		CHECK(group->first == next, "group %d at %d", g, group->first);
		next += group->count;
		repeated += group->count > 1;
		for (int i = 0; i < sample->item_count; i++)
			CHECK(is_same(first, &sample->items[i]) ==
				  (i >= group->first && i < next && !first->is_wide), "group %d, item %d", g, i);
	}
	CHECK(next == sample->item_count, "%d items in groups", next);
	CHECK(repeated == sample->repeated_group_count, "%d repeated", repeated);
	for (int i = 1; i < sample->item_count; i++)
		CHECK(memcmp(sample->items[i - 1].prefix, sample->items[i].prefix,
					 Min(sample->items[i - 1].prefix_bytes, sample->items[i].prefix_bytes)) <= 0,
			  "item %d", i);
}

UNIT_TEST(unit_sample_groups)
{
	pg_prng_seed(&prng, PG_GETARG_INT64(0));
	for (int round = 0; round < 20; round++)
	{
		BlobSample	sample = make_sample(200, 10000);

		for (int i = 0; i < sample.item_count; i++)
		{
			make_item(&sample.items[i], i, pg_prng_uint64_range(&prng, 0, 20 * round),
					  round % 3 * 20, pg_prng_uint64_range(&prng, 0, 3) <= (uint64) (round % 4));
			if (round % 5 == 0 && i % 7 == 0)
			{
				sample.items[i].is_wide = true;
				sample.items[i].content = NULL;
			}
		}
		blob_sample_sort(&sample);
		check_groups(&sample);
		CHECK(sample.wide_count == (round % 5 == 0 ? 29 : 0), "%d wide", sample.wide_count);
	}
}

/* The estimate for populations in which all values are equally common. */
UNIT_TEST(unit_sample_distinct)
{
	const double table_rows = 1000000;

	pg_prng_seed(&prng, PG_GETARG_INT64(0));
	for (uint64 distinct = 10; distinct <= 3000; distinct *= 3)
	{
		BlobSample	sample = make_uniform(3000, table_rows, distinct, 40, false);
		double		estimate = blob_sample_distinct(&sample);

		CHECK(fabs(estimate / distinct - 1) < 0.25, "%f of " UINT64_FORMAT, estimate, distinct);
	}
	{
		BlobSample	sample = make_uniform(3000, table_rows, PG_UINT64_MAX, 40, false);

		CHECK(blob_sample_distinct(&sample) == -1, "unique");
		sample.row_count *= 2;
		CHECK(blob_sample_distinct(&sample) == -0.5, "unique, half of the rows null");
	}
}

static int
count_common(const BlobSample *sample, int limit)
{
	BlobSampleGroup groups[100];

	return blob_sample_common(sample, blob_sample_distinct(sample), limit, groups);
}

UNIT_TEST(unit_sample_common)
{
	BlobSampleGroup groups[100];
	BlobSample	sample;
	int			count;

	pg_prng_seed(&prng, PG_GETARG_INT64(0));

	/* A complete list; one that is too long; nothing that may be stored. */
	sample = make_uniform(3000, 1000000, 20, 0, true);
	CHECK(count_common(&sample, 100) == 20, "complete");
	CHECK(count_common(&sample, 10) < 5, "all are as common as the others");
	sample = make_uniform(3000, 1000000, 20, 40, false);
	CHECK(count_common(&sample, 100) == 0, "not stored");

	/* A fifth of the rows has one value, a tenth another; the others are nearly unique. */
	sample = make_sample(3000, 1000000);
	for (int i = 0; i < sample.item_count; i++)
		make_item(&sample.items[i], i, i % 10 < 2 ? 1 : i % 10 == 2 ? 2 :
				  pg_prng_uint64_range(&prng, 3, 100000), 0, true);
	blob_sample_sort(&sample);
	count = blob_sample_common(&sample, blob_sample_distinct(&sample), 100, groups);
	CHECK(count == 2, "%d common values", count);
	CHECK(groups[0].count == 600 && groups[1].count == 300, "%d, %d", groups[0].count,
		  groups[1].count);
}

/* As many values between any two neighbouring bounds, and none of the common ones. */
static void
check_histogram(const BlobSample *sample, BlobSampleGroup *common, int common_count, int limit)
{
	BlobSampleBound *bounds = palloc(sizeof(BlobSampleBound) * (limit + 1));
	int			count = blob_sample_histogram(sample, common, common_count, limit, bounds);

	CHECK(count == limit + 1, "%d bounds", count);
	for (int i = 1; i < count; i++)
	{
		const BlobSampleBound *low = &bounds[i - 1];
		const BlobSampleBound *high = &bounds[i];
		int			order = memcmp(low->data, high->data, Min(low->data_bytes, high->data_bytes));

		CHECK(order < 0 || (order == 0 && low->place < high->place), "bound %d", i);
		for (int j = 0; j < common_count; j++)
			CHECK(memcmp(high->data, sample->items[common[j].first].prefix,
						 Min(high->data_bytes, BLOB_PREFIX_BYTES)) != 0, "bound %d is common", i);
	}
	CHECK(memcmp(bounds[0].data, sample->items[0].prefix, bounds[0].data_bytes) == 0, "first");
	CHECK(memcmp(bounds[count - 1].data, sample->items[sample->item_count - 1].prefix,
				 Min(bounds[count - 1].data_bytes, BLOB_PREFIX_BYTES)) == 0, "last");
}

UNIT_TEST(unit_sample_histogram)
{
	BlobSampleGroup groups[100];
	BlobSampleBound bounds[101];
	BlobSample	sample;
	int			count;

	pg_prng_seed(&prng, PG_GETARG_INT64(0));
	sample = make_uniform(3000, 1000000, PG_UINT64_MAX, 0, true);
	check_histogram(&sample, NULL, 0, 100);
	sample = make_uniform(3000, 1000000, PG_UINT64_MAX, 0, false);
	check_histogram(&sample, NULL, 0, 100);
	/* Nothing but one prefix. */
	sample = make_uniform(3000, 1000000, PG_UINT64_MAX, 40, false);
	check_histogram(&sample, NULL, 0, 100);

	/* Without the common ones, of which the least and the greatest value are none. */
	sample = make_sample(3000, 1000000);
	for (int i = 0; i < sample.item_count; i++)
		make_item(&sample.items[i], i, i % 4 == 0 ? 500000 : (uint64) i * 1000, 0, i % 4 == 0);
	blob_sample_sort(&sample);
	count = blob_sample_common(&sample, blob_sample_distinct(&sample), 100, groups);
	CHECK(count == 1, "%d common values", count);
	check_histogram(&sample, groups, count, 50);

	/* No histogram of one value. */
	sample = make_uniform(3000, 1000000, 1, 40, false);
	CHECK(blob_sample_histogram(&sample, NULL, 0, 100, bounds) == 0, "one value");
}

UNIT_TEST(unit_sample_correlation)
{
	for (int direction = -1; direction <= 1; direction += 2)
	{
		BlobSample	sample = make_sample(1000, 1000);

		for (int i = 0; i < sample.item_count; i++)
			make_item(&sample.items[i], i, 5000 + direction * i, 0, i % 2 == 0);
		blob_sample_sort(&sample);
		CHECK(fabs(blob_sample_correlation(&sample) - direction) < 1e-9, "%d", direction);
	}
	pg_prng_seed(&prng, PG_GETARG_INT64(0));
	{
		BlobSample	sample = make_uniform(3000, 3000, PG_UINT64_MAX, 0, true);

		CHECK(fabs(blob_sample_correlation(&sample)) < 0.1, "random");
	}
}
