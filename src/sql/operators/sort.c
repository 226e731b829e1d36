/*
 * sql/operators/sort.c
 *	  Sort support of blobstate_ops: abbreviated keys.
 *
 * The first eight bytes of the content, as an unsigned integer that compares like them, short
 * content filled up with zeros.  Values with equal abbreviated keys are compared in full, which for
 * descriptors mostly means their prefixes.  If most values begin alike, abbreviation is given up.
 * Two hyperloglog counters tell: one of abbreviated keys, one of the values as far as they are
 * known without reading (content of inline values, digests of others).
 */
#include "postgres.h"

#include "blob/compare.h"
#include "extents/durability.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "lib/hyperloglog.h"
#include "port/pg_bswap.h"
#include "sql/operators/operand.h"
#include "utils/sortsupport.h"

PG_FUNCTION_INFO_V1(blobstate_sortsupport);

/* Bits of a hash that choose a register: 1024 registers, an error of about 3 %. */
#define ESTIMATE_BITS 10

/* Below this many values, and with this many different keys, nothing is decided. */
#define MIN_ABORT_VALUES 10000
#define ENOUGH_ABBREVIATED 100000

/* Prefixes that are remembered, to notice that another value has the same. */
#define PREFIX_SLOTS 16384

/* Hashing more of an inline value would cost more than the estimate is worth. */
#define MAX_HASHED_BYTES 256

/* A prefix that a value had, and its content: hashes of both; 0, 0: none. */
typedef struct SeenPrefix
{
	uint32		prefix;
	uint32		content;
} SeenPrefix;

typedef struct SortState
{
	BlobSortMemory *memory;		/* of the comparator */
	/* with abbreviated keys only */
	int64		value_count;
	hyperLogLogState abbreviated;
	hyperLogLogState full;
	SeenPrefix *seen;			/* PREFIX_SLOTS */
} SortState;

/* Does not leak: a sort calls it millions of times in one memory context. */
static int
compare_values(Datum x, Datum y, SortSupport ssup)
{
	SortState  *state = ssup->ssup_extra;
	BlobOperand a;
	BlobOperand b;
	int			order;

	if (blob_operand_load_pair(x, blob_operand_load, y, blob_operand_load, false, &a, &b, &order))
		return order;
	order = blob_compare_in_sort(&a.key, &b.key, &state->memory, ssup->ssup_cxt);
	blob_operand_release(&a);
	blob_operand_release(&b);
	return order;
}

/* Of a value in extents. */
static uint32
hash_identity(const BlobKey *key)
{
	uint8		identity[BLOB_DIGEST_BYTES];
	BlobValue	value;

	if (key->kind == BLOB_KEY_SEALED)
		return DatumGetUInt32(hash_any(key->sealed_digest, BLOB_DIGEST_BYTES));
	blob_value_unpack(key->datum, &value);
	blob_descriptor_identity(&value.descriptor, identity);
	return DatumGetUInt32(hash_any(identity, BLOB_DIGEST_BYTES));
}

/* A hash of the value as far as it is known without reading: identity, or content and size. */
static uint32
hash_value(const BlobKey *key)
{
	if (key->kind != BLOB_KEY_INLINE)
		return hash_identity(key);
	return DatumGetUInt32(hash_any((const unsigned char *) key->data,
								   (int) Min(key->size_bytes, MAX_HASHED_BYTES))) ^
		murmurhash32((uint32) key->size_bytes);
}

/*
 * Values of equal prefix and different content will be compared by content, which may wait for the
 * device.  So when the second such value comes, its first bytes are had or requested before the
 * sort begins.
 */
static void
expect_comparison(SortState *state, const BlobKey *key, SortSupport ssup)
{
	uint32		prefix = DatumGetUInt32(hash_any((const unsigned char *) key->data,
												 BLOB_PREFIX_BYTES));
	SeenPrefix *seen = &state->seen[prefix % PREFIX_SLOTS];
	uint32		content = hash_identity(key);

	if (seen->prefix == prefix && seen->content != content)
		blob_compare_expect(key, &state->memory, ssup->ssup_cxt);
	seen->prefix = prefix;
	seen->content = content;
}

/* The abbreviated key; counts it, and the value, for should_abort(). */
static Datum
abbreviate(Datum original, SortSupport ssup)
{
	SortState  *state = ssup->ssup_extra;
	struct varlena *plain = PG_DETOAST_DATUM_PACKED(original);
	BlobKey		key;
	Datum		result = 0;

	blob_key_load(plain, &key);
	memcpy(&result, key.data, Min(key.size_bytes, sizeof(result)));
	addHyperLogLog(&state->abbreviated,
				   DatumGetUInt32(hash_any((unsigned char *) &result, sizeof(result))));
	addHyperLogLog(&state->full, hash_value(&key));
	state->value_count++;
	if (key.kind != BLOB_KEY_INLINE && key.size_bytes > BLOB_PREFIX_BYTES)
		expect_comparison(state, &key, ssup);
	if ((Pointer) plain != DatumGetPointer(original))
		pfree(plain);
	return DatumBigEndianToNative(result);
}

/*
 * Give up if distinct abbreviated keys are less than a twentieth of the distinct values: then
 * most comparisons would be made twice.  Asked at growing intervals.
 */
static bool
should_abort(int memtuple_count, SortSupport ssup)
{
	SortState  *state = ssup->ssup_extra;
	double		abbreviated;
	double		full;

	if (memtuple_count < MIN_ABORT_VALUES || state->value_count < MIN_ABORT_VALUES)
		return false;
	abbreviated = estimateHyperLogLog(&state->abbreviated);
	full = estimateHyperLogLog(&state->full);
	if (abbreviated > ENOUGH_ABBREVIATED)
		return false;
	return abbreviated < full / 20;
}

/* blobstate_sortsupport(internal) returns void */
Datum
blobstate_sortsupport(PG_FUNCTION_ARGS)
{
	SortSupport ssup = (SortSupport) PG_GETARG_POINTER(0);
	SortState  *state = MemoryContextAlloc(ssup->ssup_cxt, sizeof(SortState));

	/* The build of an index may begin: it may have one key only, so no comparison. */
	blob_durability_before_compare();
	state->memory = NULL;
	ssup->ssup_extra = state;
	ssup->comparator = compare_values;
	if (ssup->abbreviate)
	{
		MemoryContext caller_context = MemoryContextSwitchTo(ssup->ssup_cxt);

		state->value_count = 0;
		initHyperLogLog(&state->abbreviated, ESTIMATE_BITS);
		initHyperLogLog(&state->full, ESTIMATE_BITS);
		state->seen = palloc0(PREFIX_SLOTS * sizeof(SeenPrefix));
		MemoryContextSwitchTo(caller_context);

		ssup->comparator = ssup_datum_unsigned_cmp;
		ssup->abbrev_converter = abbreviate;
		ssup->abbrev_abort = should_abort;
		ssup->abbrev_full_comparator = compare_values;
	}
	PG_RETURN_VOID();
}
