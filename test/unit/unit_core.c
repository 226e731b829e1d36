/*
 * unit_core.c
 *	  Tests of src/core: tier table, descriptor, digest, clock.
 */
#include "unit.h"

#include "access/detoast.h"
#include "access/toast_compression.h"
#include "access/toast_internals.h"
#include "common/pg_prng.h"
#include "blob/footprint.h"
#include "core/clock.h"
#include "core/descriptor.h"
#include "core/digest.h"
#include "core/tier.h"

PG_MODULE_MAGIC;

int64		unit_check_count;

/* Content sizes up to here must have a descriptor of under 500 bytes: 1 TiB. */
#define LARGEST_PROMISED_PAGES (UINT64CONST(1) << 28)

/* ---- tier table ---- */

/* (l+1)^(k-p) * (l+2)^p, the slow way. */
static uint64
formula_by_multiplication(int tiers_per_level, int level, int position)
{
	uint64		pages = 1;

	for (int i = 0; i < tiers_per_level; i++)
		pages *= i < position ? level + 2 : level + 1;
	return pages;
}

/* The paper's own example, the formula for other parameters, and saturation. */
UNIT_TEST(unit_tier_formula)
{
	static const uint64 paper[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2304};

	for (int i = 0; i < (int) lengthof(paper); i++)
	{
		uint64		pages = blob_tier_formula(10, i / 10, i % 10);

		CHECK(pages == paper[i], "tier %d of the paper: " UINT64_FORMAT, i, pages);
	}
	for (int k = 1; k <= 12; k++)
		for (int level = 0; level < 20; level++)
			for (int position = 0; position < k; position++)
			{
				/* 21^12 exceeds 48 bits: compared only where it cannot saturate */
				uint64		pages = blob_tier_formula(k, level, position);

				if (k <= 10)
					CHECK(pages == formula_by_multiplication(k, level, position),
						  "%d tiers, level %d, position %d: " UINT64_FORMAT, k, level, position,
						  pages);
				CHECK(pages >= 1 && pages <= BLOB_MAX_PAGE_NO, "saturates");
			}
	CHECK(blob_tier_formula(32, 126, 31) == BLOB_MAX_PAGE_NO, "saturates");
	CHECK(blob_tier_formula(32, 126, 0) == BLOB_MAX_PAGE_NO, "saturates");
}

/*
 * Share of the last extent, in hundredths of a percent, when the given number of extents is in use.
 */
static void
waste_of(int tiers_per_level, int extent_count, uint64 *total_pages, uint64 *waste)
{
	uint64		last = 0;

	*total_pages = 0;
	for (int i = 0; i < extent_count; i++)
	{
		last = blob_tier_formula(tiers_per_level, i / tiers_per_level, i % tiers_per_level);
		*total_pages += last;
	}
	*waste = last * 10000 / *total_pages;
}

/*
 * The paper's figures for 5 tiers per level: a blob whose last extent has just been begun wastes
 * about 25 % at 20 MB and 7.3 % at 51 GB.  Waste is the last extent's share of all extents, sizes
 * are binary; 17 extents are 19.9 MiB, 75 are 51.2 GiB.
 */
UNIT_TEST(unit_tier_waste)
{
	uint64		pages;
	uint64		waste;

	waste_of(5, 17, &pages, &waste);
	CHECK(pages * BLOB_PAGE_SIZE / 1024 / 1024 == 19, "17 extents: " UINT64_FORMAT " pages", pages);
	CHECK(waste / 100 == 25, "at 20 MiB: " UINT64_FORMAT, waste);
	waste_of(5, 75, &pages, &waste);
	CHECK(pages / (1024 * 1024 / 4) == 51, "75 extents: " UINT64_FORMAT " pages", pages);
	CHECK(waste / 10 == 73, "at 51 GiB: " UINT64_FORMAT, waste);
}

/* This build's table: the formula, growing inside the levels, constant after the last. */
UNIT_TEST(unit_tier_table)
{
	uint64		last = 0;

	for (int i = 0; i < BLOB_TIER_COUNT; i++)
	{
		uint64		pages = blob_tier_pages(i);

		CHECK(pages == formula_by_multiplication(BLOB_TIERS_PER_LEVEL, i / BLOB_TIERS_PER_LEVEL,
												 i % BLOB_TIERS_PER_LEVEL),
			  "tier %d: " UINT64_FORMAT, i, pages);
		CHECK(pages > last, "tier %d is larger than the one before", i);
		last = pages;
	}
	for (int i = BLOB_TIER_COUNT; i < BLOB_TIER_COUNT + 1000; i++)
		CHECK(blob_tier_pages(i) == last, "constant after the last level");
	CHECK(blob_tier_pages(BLOB_MAX_EXTENTS) == last, "constant after the last level");
}

static void
check_plan(uint64 total_pages, bool use_tail)
{
	BlobTierPlan plan = blob_tier_plan(total_pages, use_tail);
	uint64		tiers = 0;

	for (int i = 0; i < plan.extent_count; i++)
		tiers += blob_tier_pages(i);
	CHECK(plan.extent_count <= BLOB_MAX_EXTENTS, "%d extents", plan.extent_count);
	CHECK(tiers + plan.tail_pages == plan.total_pages, "sum for " UINT64_FORMAT, total_pages);
	CHECK(plan.total_pages >= total_pages, "room for " UINT64_FORMAT, total_pages);
	if (use_tail)
	{
		CHECK(plan.total_pages == total_pages, "a tail fits exactly, " UINT64_FORMAT, total_pages);
		CHECK(plan.tail_pages < blob_tier_pages(plan.extent_count) ||
			  plan.extent_count == BLOB_MAX_EXTENTS,
			  "a tail is smaller than its tier, " UINT64_FORMAT, total_pages);
	}
	else if (plan.extent_count > 0 && plan.tail_pages == 0)
		CHECK(tiers - blob_tier_pages(plan.extent_count - 1) < total_pages,
			  "the last extent is needed, " UINT64_FORMAT, total_pages);
	if (plan.extent_count < BLOB_MAX_EXTENTS && !use_tail)
		CHECK(plan.tail_pages == 0, "no tail, " UINT64_FORMAT, total_pages);
}

/* All small sizes, sizes around each tier's end, and random large ones.  Argument: the seed. */
UNIT_TEST(unit_tier_plan)
{
	pg_prng_state random;
	uint64		sum = 0;

	CHECK(blob_tier_plan(0, true).total_pages == 0, "nothing for nothing");
	CHECK(blob_tier_plan(0, false).extent_count == 0, "nothing for nothing");
	for (uint64 pages = 0; pages < 20000; pages++)
	{
		check_plan(pages, true);
		check_plan(pages, false);
	}
	for (int i = 0; i < BLOB_TIER_COUNT + 20; i++)
	{
		sum += blob_tier_pages(i);
		for (int d = -1; d <= 1; d++)
		{
			check_plan(sum + d, true);
			check_plan(sum + d, false);
		}
		CHECK(blob_tier_plan(sum, true).tail_pages == 0, "no tail where tiers fit exactly");
		CHECK(blob_tier_plan(sum, true).extent_count == i + 1, "tiers that fit exactly");
	}
	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	for (int i = 0; i < 2000; i++)
	{
		uint64		pages = pg_prng_uint64_range(&random, 0, LARGEST_PROMISED_PAGES) >>
			pg_prng_uint64_range(&random, 0, 27);

		check_plan(pages, true);
		check_plan(pages, false);
	}
}

/* ---- descriptor ---- */

static void
fill_random(pg_prng_state *random, void *target, size_t length_bytes)
{
	for (size_t i = 0; i < length_bytes; i++)
		((uint8 *) target)[i] = (uint8) pg_prng_uint32(random);
}

/* A datum with a short header, at an odd address, as it lies in a tuple. */
static struct varlena *
as_short_datum(const struct varlena *datum)
{
	Size		length = VARSIZE(datum) - VARHDRSZ;
	char	   *copy = (char *) palloc(length + 16) + 1;

	if (length + VARHDRSZ_SHORT > VARATT_SHORT_MAX)
		return NULL;
	SET_VARSIZE_SHORT(copy, length + VARHDRSZ_SHORT);
	memcpy(copy + VARHDRSZ_SHORT, VARDATA(datum), length);
	return (struct varlena *) copy;
}

static void
check_unpacked(const struct varlena *datum, const BlobDescriptor *expected,
			   const BlobExtent *extents, int extent_count)
{
	BlobValue	value;

	blob_value_unpack(datum, &value);
	CHECK(!value.is_inline, "a descriptor");
	CHECK(value.size_bytes == expected->size_bytes, "size");
	CHECK(value.descriptor.size_bytes == expected->size_bytes, "size");
	CHECK(value.descriptor.generation == expected->generation, "generation");
	CHECK(memcmp(value.descriptor.sha256, expected->sha256, BLOB_DIGEST_BYTES) == 0, "digest");
	CHECK(memcmp(value.descriptor.state, expected->state, BLOB_DIGEST_BYTES) == 0, "state");
	CHECK(memcmp(value.descriptor.prefix, expected->prefix, BLOB_PREFIX_BYTES) == 0, "prefix");
	CHECK(blob_descriptor_extent_count(&value.descriptor) == extent_count, "extent count");
	for (int i = 0; i < extent_count; i++)
	{
		BlobExtent	extent = blob_descriptor_extent(&value.descriptor, i);

		CHECK(extent.first_page == extents[i].first_page, "first page of extent %d", i);
		CHECK(extent.pages == extents[i].pages, "pages of extent %d", i);
		CHECK(extent.is_tail == extents[i].is_tail, "kind of extent %d", i);
	}
}

static void
check_round_trip(pg_prng_state *random, uint64 size_bytes, bool use_tail)
{
	BlobTierPlan plan = blob_tier_plan(blob_pages_for(size_bytes), use_tail);
	BlobExtent *extents = palloc0(sizeof(BlobExtent) * (plan.extent_count + 1));
	BlobDescriptor descriptor = {.size_bytes = size_bytes};
	int			extent_count = plan.extent_count;
	struct varlena *datum;
	struct varlena *as_short;

	descriptor.generation = pg_prng_uint64(random) >> 8;
	fill_random(random, descriptor.sha256, BLOB_DIGEST_BYTES);
	fill_random(random, descriptor.state, BLOB_DIGEST_BYTES);
	fill_random(random, descriptor.prefix, BLOB_PREFIX_BYTES);
	for (int i = 0; i < extent_count; i++)
	{
		extents[i].first_page = pg_prng_uint64_range(random, 0, BLOB_MAX_PAGE_NO);
		extents[i].pages = blob_tier_pages(i);
	}
	if (plan.tail_pages > 0)
	{
		extents[extent_count].first_page = BLOB_MAX_PAGE_NO;
		extents[extent_count].pages = plan.tail_pages;
		extents[extent_count++].is_tail = true;
	}

	datum = blob_descriptor_pack(&descriptor, extents, extent_count);
	/* other tier parameters may give more extents; that is their price */
	if (blob_pages_for(size_bytes) <= LARGEST_PROMISED_PAGES && BLOB_TIERS_PER_LEVEL == 10)
		CHECK(VARSIZE(datum) < 500, "%u bytes for " UINT64_FORMAT, (unsigned) VARSIZE(datum),
			  size_bytes);
	check_unpacked(datum, &descriptor, extents, extent_count);
	as_short = as_short_datum(datum);
	if (as_short != NULL)
		check_unpacked(as_short, &descriptor, extents, extent_count);
}

/* A packed descriptor is unpacked the same, and is small, up to 1 TiB.  Argument: the seed. */
UNIT_TEST(unit_descriptor)
{
	pg_prng_state random;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	for (int bits = 0; bits <= 40; bits++)
		for (int d = -1; d <= 1; d++)
		{
			uint64		size_bytes = (UINT64CONST(1) << bits) + d;

			/* 1 TiB + 1 byte needs one page more than is promised */
			check_round_trip(&random, size_bytes, true);
			check_round_trip(&random, size_bytes, false);
		}
	for (int i = 0; i < 500; i++)
	{
		uint64		size_bytes = (pg_prng_uint64(&random) & ((UINT64CONST(1) << 40) - 1)) >>
			pg_prng_uint64_range(&random, 0, 39);

		check_round_trip(&random, size_bytes, i % 2 == 0);
	}
}

static bool
unpack_fails(struct varlena *datum)
{
	volatile bool failed = false;
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		BlobValue	value;

		blob_value_unpack(datum, &value);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		failed = error->sqlerrcode == ERRCODE_DATA_CORRUPTED;
	}
	PG_END_TRY();
	return failed;
}

/* Damaged descriptors are refused with XX001, not followed. */
UNIT_TEST(unit_descriptor_damage)
{
	BlobExtent	extents[3] = {{.pages = blob_tier_pages(0)}, {.pages = blob_tier_pages(1)},
	{.pages = 1, .is_tail = true}};
	BlobDescriptor descriptor = {.size_bytes = 1, .generation = 1};
	uint64		capacity = (blob_tier_pages(0) + blob_tier_pages(1) + 1) * BLOB_PAGE_SIZE;
	struct varlena *datum;

	descriptor.size_bytes = capacity;
	datum = blob_descriptor_pack(&descriptor, extents, 3);
	CHECK(!unpack_fails(datum), "sound");
	SET_VARSIZE(datum, VARSIZE(datum) - 1);
	CHECK(unpack_fails(datum), "truncated");
	SET_VARSIZE(datum, VARHDRSZ + BLOB_DESCRIPTOR_FIXED_BYTES - 1);
	CHECK(unpack_fails(datum), "shorter than the fixed part");
	SET_VARSIZE(datum, VARHDRSZ);
	CHECK(unpack_fails(datum), "empty");

	descriptor.size_bytes = capacity + 1;
	CHECK(unpack_fails(blob_descriptor_pack(&descriptor, extents, 3)), "more content than extents");
	descriptor.size_bytes = PG_UINT64_MAX;
	CHECK(unpack_fails(blob_descriptor_pack(&descriptor, extents, 3)), "more content than extents");

	for (int form = 0; form < 256; form++)
	{
		descriptor.size_bytes = 1;
		datum = blob_descriptor_pack(&descriptor, extents, 3);
		*(uint8 *) VARDATA(datum) = (uint8) form;
		CHECK(unpack_fails(datum) ==
			  (form != BLOB_FORM_INLINE_V1 && form != BLOB_FORM_DESCRIPTOR_V1), "form %d", form);
	}
}

/* The runs of a value of extents 1 and 2 of tier sizes, at these pages, and a tail behind them. */
static BlobFootprint
measure(BlobPageNo first, BlobPageNo second, BlobPageNo tail, uint64 tail_pages, uint64 size_bytes)
{
	BlobExtent	extents[3] = {{.first_page = first, .pages = blob_tier_pages(0)},
	{.first_page = second, .pages = blob_tier_pages(1)},
	{.first_page = tail, .pages = tail_pages, .is_tail = true}};
	BlobDescriptor descriptor = {.size_bytes = size_bytes, .generation = 1};
	BlobFootprint footprint;
	BlobValue	value;

	blob_value_unpack(blob_descriptor_pack(&descriptor, extents, 3), &value);
	blob_footprint(&value, &footprint);
	return footprint;
}

/* Runs end with a segment file, and where the next extent lies elsewhere; extents have an order. */
UNIT_TEST(unit_footprint)
{
	uint64		a = blob_tier_pages(0);
	uint64		b = blob_tier_pages(1);
	uint64		all = (a + b + 3) * BLOB_PAGE_SIZE;
	BlobPageNo	end = BLOB_SEGMENT_PAGES * 7;
	BlobFootprint footprint;

	footprint = measure(100, 100 + a, 100 + a + b, 3, all);
	CHECK(footprint.runs == 1, "adjacent");
	CHECK(footprint.pages == a + b + 3, "all pages");
	CHECK(blob_footprint_dead_pages(&footprint) == 0, "no page is dead");
	CHECK(footprint.natural_runs == 1, "less than a megabyte");
	CHECK(measure(100, 101 + a, 101 + a + b, 3, all).runs == 2, "a gap");
	CHECK(measure(100 + b, 100, 100 + a + b, 3, all).runs == 3, "adjacent, in another order");
	CHECK(measure(100, 200, 300, 3, all).runs == 3, "each by itself");
	CHECK(measure(end - a - b, end - b, end, 3, all).runs == 2, "adjacent, in two files");
	CHECK(measure(end - a - b - 1, end - b - 1, end - 1, 3, all).runs == 2, "a tail in two files");
	CHECK(measure(100, 200, end - 1, BLOB_SEGMENT_PAGES + 2,
				  (a + b + BLOB_SEGMENT_PAGES + 2) * BLOB_PAGE_SIZE).runs == 5,
		  "a tail in three files");
	footprint = measure(100, 100 + a, 100 + a + b, 3000, (a + b + 3000) * BLOB_PAGE_SIZE);
	CHECK(footprint.natural_runs == (a + b + 3000 + 255) / 256, "one for each started megabyte");
}

/* Inline values. */
UNIT_TEST(unit_inline)
{
	for (int size = 0; size < 300; size++)
	{
		struct varlena *datum = blob_inline_make(size);
		BlobValue	value;

		memset(blob_inline_content(datum), size, size);
		blob_value_unpack(datum, &value);
		CHECK(value.is_inline && value.size_bytes == (uint64) size, "size %d", size);
		CHECK(value.inline_data == blob_inline_content(datum), "content %d", size);
		if (as_short_datum(datum) != NULL)
		{
			blob_value_unpack(as_short_datum(datum), &value);
			CHECK(value.is_inline && value.size_bytes == (uint64) size, "short, size %d", size);
			CHECK(size == 0 || (uint8) value.inline_data[size - 1] == (uint8) size, "content");
		}
	}
}

static Datum
indirect_to(const struct varlena *target)
{
	struct varatt_indirect pointer = {.pointer = (struct varlena *) target};
	char	   *datum = palloc(INDIRECT_POINTER_SIZE);

	SET_VARTAG_EXTERNAL(datum, VARTAG_INDIRECT);
	memcpy(VARDATA_EXTERNAL(datum), &pointer, sizeof(pointer));
	return PointerGetDatum(datum);
}

/*
 * The form of values that are toasted, but for cases that need a TOAST table
 * (test/pgtap/toasted.sql).  Seen to fail for a pointer to a descriptor: the tag of such pointers
 * is the number of the inline form.
 */
UNIT_TEST(unit_toasted_form)
{
	BlobExtent	extent = {.first_page = 1, .pages = 1};
	BlobDescriptor descriptor = {.size_bytes = BLOB_PAGE_SIZE, .generation = 1};
	struct varlena *stored = blob_descriptor_pack(&descriptor, &extent, 1);
	struct varlena *content = blob_inline_make(100000);
	struct varlena *small = blob_inline_make(10);
	Datum		compressed;

	memset(blob_inline_content(content), BLOB_FORM_DESCRIPTOR_V1, 100000);
	memset(blob_inline_content(small), BLOB_FORM_DESCRIPTOR_V1, 10);
	compressed = toast_compress_datum(PointerGetDatum(content), TOAST_PGLZ_COMPRESSION);
	CHECK(DatumGetPointer(compressed) != NULL && VARATT_IS_COMPRESSED(DatumGetPointer(compressed)),
		  "is compressed");

	CHECK(blob_datum_is_inline(PointerGetDatum(content)), "content");
	CHECK(blob_datum_is_inline(PointerGetDatum(as_short_datum(small))), "with a short header");
	CHECK(blob_datum_is_inline(compressed), "compressed");
	CHECK(blob_datum_is_inline(indirect_to(content)), "somewhere else");
	CHECK(blob_datum_is_inline(indirect_to((struct varlena *) DatumGetPointer(compressed))),
		  "somewhere else and compressed");
	CHECK(blob_datum_is_inline(PointerGetDatum(blob_inline_make(0))), "nothing");
	CHECK(!blob_datum_is_inline(PointerGetDatum(stored)), "a descriptor");
	CHECK(!blob_datum_is_inline(indirect_to(stored)), "a descriptor somewhere else");
}

/* ---- digest ---- */

/* Continue hashing from the chaining words, as growth will. */
static void
resume(const uint8 *state, const uint8 *data, size_t state_bytes, size_t length_bytes,
	   uint8 *sha256)
{
	BlobDigest	digest;
	uint64		bits = (uint64) state_bytes * 8;

	blob_digest_begin(&digest);
	for (int i = 0; i < 8; i++)
		digest.context.h[i] = (uint32) state[4 * i] << 24 | (uint32) state[4 * i + 1] << 16 |
			(uint32) state[4 * i + 2] << 8 | state[4 * i + 3];
	digest.context.Nl = (uint32) bits;
	digest.context.Nh = (uint32) (bits >> 32);
	blob_digest_update(&digest, data + state_bytes, length_bytes - state_bytes);
	blob_digest_finish(&digest, sha256, NULL);
}

/* Known digests; any split gives the same; the state resumes.  Argument: the seed. */
UNIT_TEST(unit_digest)
{
	static const uint8 of_abc[] = {
		0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22,
		0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00,
	0x15, 0xad};
	enum
	{
		LENGTH = 1000
	};
	pg_prng_state random;
	uint8		data[LENGTH];
	char		copy[LENGTH + 1];
	uint8		expected[BLOB_DIGEST_BYTES];
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		state[BLOB_DIGEST_BYTES];

	blob_digest_bytes("abc", 3, sha256);
	CHECK(memcmp(sha256, of_abc, sizeof(of_abc)) == 0, "of abc");

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	fill_random(&random, data, LENGTH);
	blob_digest_bytes(data, LENGTH, expected);
	for (size_t cut = 0; cut <= LENGTH; cut++)
	{
		BlobDigest	digest;

		blob_digest_begin(&digest);
		blob_digest_update(&digest, data, cut);
		blob_digest_update(&digest, data + cut, LENGTH - cut);
		blob_digest_finish(&digest, sha256, NULL);
		CHECK(memcmp(sha256, expected, sizeof(sha256)) == 0, "cut at %zu", cut);

		/* the same with a copy of the second part, which ends where it should */
		memset(copy, 'x', sizeof(copy));
		blob_digest_begin(&digest);
		blob_digest_update(&digest, data, cut);
		blob_digest_update_copy(&digest, (char *) data + cut, LENGTH - cut, copy);
		blob_digest_finish(&digest, sha256, NULL);
		CHECK(memcmp(sha256, expected, sizeof(sha256)) == 0, "cut at %zu, copied", cut);
		CHECK(memcmp(copy, data + cut, LENGTH - cut) == 0 && copy[LENGTH - cut] == 'x',
			  "copy from %zu", cut);

		/* the state that a descriptor keeps of the first part, then the remaining bytes */
		blob_digest_begin(&digest);
		blob_digest_update(&digest, data, cut);
		blob_digest_finish(&digest, sha256, state);
		resume(state, data, cut - cut % BLOB_DIGEST_BLOCK_BYTES, LENGTH, sha256);
		CHECK(memcmp(sha256, expected, sizeof(sha256)) == 0, "resumed at %zu", cut);
	}
}

/* ---- clock ---- */

/* Times before and after another one, by a second or more, and a clock that was set back. */
UNIT_TEST(unit_clock)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz hour = USECS_PER_HOUR;

	CHECK(blob_clock_has_passed(0, now, 1000), "never before");
	CHECK(blob_clock_has_passed(now - 1000000, now, 1000), "just passed");
	CHECK(!blob_clock_has_passed(now - 999999, now, 1000), "not yet");
	CHECK(!blob_clock_has_passed(now, now, 1), "at once");
	CHECK(blob_clock_has_passed(now, now - hour, 1000), "set back");
	CHECK(blob_clock_is_before(now, now + 1000000, 1000), "just set");
	CHECK(blob_clock_is_before(now, now + 1, 1000), "almost over");
	CHECK(!blob_clock_is_before(now, now, 1000), "over");
	CHECK(!blob_clock_is_before(now - hour, now + 1000000, 1000), "set back while it lasts");
}
