/*
 * unit_compare.c
 *	  The comparator of src/blob on a store of our own: the pages that it reads, also of values that
 *	  share extents, and that its answers are those of memcmp().
 *
 * The functions of src/blob/reader.c, src/blob/valid.c and src/extents/durability.c that it calls
 * are defined here instead.
 */
#include "unit.h"

#include "blob/blob.h"
#include "blob/compare.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "extents/durability.h"
#include "common/pg_prng.h"
#include "io/stat.h"

#define STORE_PAGES 2000
#define VALUE_PAGES 511			/* tiers 1 to 9 */
#define MAX_TIERS 9

static char store[STORE_PAGES * BLOB_PAGE_SIZE];
static BlobStat counters;
BlobStat   *blob_stat = &counters;

static uint64 read_count;
static uint64 read_bytes;
static uint64 required_count;
static uint64 request_count;

static void
read_store(const BlobValue *value, uint64 offset_bytes, uint64 length_bytes, char *target)
{
	uint64		start = 0;

	read_count++;
	read_bytes += length_bytes;
	for (int i = 0; i < blob_descriptor_extent_count(&value->descriptor); i++)
	{
		BlobExtent	extent = blob_descriptor_extent(&value->descriptor, i);
		uint64		end = start + extent.pages * BLOB_PAGE_SIZE;

		if (length_bytes > 0 && offset_bytes < end)
		{
			uint64		part = Min(length_bytes, end - offset_bytes);

			memcpy(target, store + extent.first_page * BLOB_PAGE_SIZE + (offset_bytes - start),
				   part);
			offset_bytes += part;
			target += part;
			length_bytes -= part;
		}
		start = end;
	}
	CHECK(length_bytes == 0, "read past the end of a value");
}

void
blob_reader_begin(BlobReader *reader, const BlobValue *value, int flags)
{
	reader->value = value;
	reader->position = 0;
}

void
blob_reader_seek(BlobReader *reader, uint64 offset_bytes)
{
	reader->position = offset_bytes;
}

uint64
blob_reader_read(BlobReader *reader, void *buffer, uint64 length_bytes)
{
	uint64		length = Min(length_bytes, reader->value->size_bytes - reader->position);

	read_store(reader->value, reader->position, length, buffer);
	reader->position += length;
	return length;
}

/* A cache that has every third range, and otherwise leaves rubbish in the buffer. */
bool
blob_reader_read_buffered(BlobReader *reader, char *buffer, uint64 length_bytes)
{
	static int	call_count;

	CHECK(length_bytes <= reader->value->size_bytes - reader->position, "cached range");
	memset(buffer, 3, length_bytes);
	if (call_count++ % 3 != 0)
		return false;
	read_store(reader->value, reader->position, length_bytes, buffer);
	reader->position += length_bytes;
	return true;
}

void
blob_reader_request(BlobReader *reader, uint64 end_bytes)
{
	request_count++;
}

void
blob_reader_end(BlobReader *reader)
{
}

void
blob_require_extent(const BlobDescriptor *descriptor, int extent_no)
{
	required_count++;
}

/* Nothing here waits to be synced. */
bool
blob_durability_is_pending(void)
{
	return false;
}

void
blob_durability_make_crash_safe(void)
{
}

typedef struct Value
{
	BlobExtent	extents[MAX_TIERS];
	int			extent_count;
	uint64		size_bytes;
	struct varlena *datum;
	char	   *content;
} Value;

static void
pack(Value *value)
{
	BlobDescriptor descriptor = {.generation = 1, .size_bytes = value->size_bytes};
	BlobValue	unpacked;

	blob_digest_bytes("", 0, descriptor.sha256);
	value->datum = blob_descriptor_pack(&descriptor, value->extents, value->extent_count);
	blob_value_unpack(value->datum, &unpacked);
	value->content = palloc(value->size_bytes + 1);
	read_store(&unpacked, 0, value->size_bytes, value->content);

	blob_digest_bytes(value->content, value->size_bytes, descriptor.sha256);
	memcpy(descriptor.prefix, value->content, Min(value->size_bytes, BLOB_PREFIX_BYTES));
	value->datum = blob_descriptor_pack(&descriptor, value->extents, value->extent_count);
}

/* A value in pages of its own from first_page on. */
static void
make_value(Value *value, BlobPageNo first_page, uint64 size_bytes)
{
	BlobTierPlan plan = blob_tier_plan(blob_pages_for(size_bytes), false);

	value->size_bytes = size_bytes;
	value->extent_count = plan.extent_count;
	for (int i = 0; i < plan.extent_count; i++)
	{
		value->extents[i] = (BlobExtent) {first_page, blob_tier_pages(i), 1, false};
		first_page += blob_tier_pages(i);
	}
}

static int
sign(int order)
{
	return order < 0 ? -1 : order > 0;
}

static int
expected_order(const Value *a, const Value *b)
{
	int			order = memcmp(a->content, b->content, Min(a->size_bytes, b->size_bytes));

	if (order != 0)
		return sign(order);
	return a->size_bytes < b->size_bytes ? -1 : a->size_bytes > b->size_bytes;
}

/* All ways to ask, in both directions. */
static void
check_pair(const Value *a, const Value *b)
{
	int			expected = expected_order(a, b);
	BlobSortMemory *memory = NULL;
	BlobKey		keys[2];
	BlobKey		inline_keys[2];

	blob_key_load(a->datum, &keys[0]);
	blob_key_load(b->datum, &keys[1]);
	blob_key_of_bytes(a->content, a->size_bytes, &inline_keys[0]);
	blob_key_of_bytes(b->content, b->size_bytes, &inline_keys[1]);

	CHECK(sign(blob_compare(&keys[0], &keys[1])) == expected, "order of descriptors");
	CHECK(sign(blob_compare(&keys[1], &keys[0])) == -expected, "order, the other way round");
	CHECK(sign(blob_compare(&keys[0], &inline_keys[1])) == expected, "descriptor and inline");
	CHECK(sign(blob_compare(&inline_keys[0], &keys[1])) == expected, "inline and descriptor");
	CHECK(sign(blob_compare(&inline_keys[0], &inline_keys[1])) == expected, "inline values");
	blob_compare_expect(&keys[0], &memory, CurrentMemoryContext);
	blob_compare_expect(&inline_keys[1], &memory, CurrentMemoryContext);
	for (int i = 0; i < 2; i++)
		CHECK(sign(blob_compare_in_sort(&keys[0], &keys[1], &memory, CurrentMemoryContext)) ==
			  expected, "order in a sort");
	CHECK(blob_equal(&keys[0], &keys[1]) == (expected == 0), "equality");
	CHECK(blob_equal(&inline_keys[0], &keys[1]) == (expected == 0), "equality, one inline");
	CHECK((blob_compare_digests(&keys[0], &inline_keys[1]) == 0) == (expected == 0), "digests");
	if (memory != NULL)
		pfree(memory);
}

static void
fill_store(pg_prng_state *random)
{
	for (size_t i = 0; i < sizeof(store); i++)
		store[i] = (char) (pg_prng_uint32(random) % 7 == 0);
}

/*
 * b is a, some extents shared, the others copied, some bytes changed, and cut or not.
 */
UNIT_TEST(unit_compare)
{
	pg_prng_state random;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	fill_store(&random);
	for (int round = 0; round < 300; round++)
	{
		uint64		size = pg_prng_uint64_range(&random, 1, VALUE_PAGES * BLOB_PAGE_SIZE);
		Value		a;
		Value		b;

		if (round % 3 == 0)
			size = pg_prng_uint64_range(&random, 1, 40);
		make_value(&a, 0, size);
		make_value(&b, 1000, round % 2 == 0 ? size : pg_prng_uint64_range(&random, 1, size));
		memcpy(store + 1000 * BLOB_PAGE_SIZE, store, VALUE_PAGES * BLOB_PAGE_SIZE);
		for (int i = 0; i < b.extent_count; i++)
		{
			if (pg_prng_bool(&random))
				b.extents[i].first_page = a.extents[i].first_page;
		}
		if (round % 5 != 0)
			store[1000 * BLOB_PAGE_SIZE + pg_prng_uint64_range(&random, 0, size - 1)] ^= 1;
		pack(&a);
		pack(&b);
		check_pair(&a, &b);
	}
	CHECK(request_count > 0, "no sort has requested a value");
}

static int
compare_counted(const Value *a, const Value *b)
{
	BlobKey		a_key;
	BlobKey		b_key;

	blob_key_load(a->datum, &a_key);
	blob_key_load(b->datum, &b_key);
	read_count = read_bytes = required_count = 0;
	return sign(blob_compare(&a_key, &b_key));
}

/* Shared extents are looked up, not read; only the extents that differ are read. */
UNIT_TEST(unit_compare_shared)
{
	const uint64 size = VALUE_PAGES * BLOB_PAGE_SIZE;
	pg_prng_state random;
	Value		a;
	Value		b;

	pg_prng_seed(&random, 1);
	fill_store(&random);
	for (int own = 0; own < MAX_TIERS; own++)
	{
		uint64		own_bytes = blob_tier_pages(own) * BLOB_PAGE_SIZE;

		make_value(&a, 0, size);
		make_value(&b, 0, size);
		b.extents[own].first_page = 1000;
		memcpy(store + 1000 * BLOB_PAGE_SIZE,
			   store + a.extents[own].first_page * BLOB_PAGE_SIZE, own_bytes);
		store[1000 * BLOB_PAGE_SIZE + own_bytes - 1] = 2;
		pack(&a);
		pack(&b);
		CHECK(compare_counted(&a, &b) == -1, "extent %d is another", own);
		CHECK(read_bytes == 2 * (own_bytes - (own == 0 ? BLOB_PREFIX_BYTES : 0)),
			  UINT64_FORMAT " bytes read of extent %d", read_bytes, own);
		CHECK(required_count == (uint64) own, UINT64_FORMAT " extents looked up", required_count);
	}

	/* A value that was cut, with all extents shared: nothing to read. */
	make_value(&a, 0, size);
	make_value(&b, 0, size - 5000);
	pack(&a);
	pack(&b);
	CHECK(compare_counted(&a, &b) == 1, "the shorter first");
	CHECK(read_count == 0, UINT64_FORMAT " reads", read_count);
}
