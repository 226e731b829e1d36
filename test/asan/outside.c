/*
 * outside.c
 *	  What of the C modules runs outside of a server, so that the compiler's checks of addresses can
 *	  be on: their unit tests, as they are, and mutated datums in memory that ends where they do.
 *
 * This gives them the few functions of a server that they call.  palloc() is malloc() here, from
 * PostgreSQL's library for programs; a pointer into dynamic shared memory is an address.
 */
#include "unit.h"

#include <setjmp.h>
#include <signal.h>

#include "blob/footprint.h"
#include "common/pg_prng.h"
#include "core/descriptor.h"
#include "utils/dsa.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* ---- a server's functions ---- */

volatile sig_atomic_t InterruptPending = false;
sigjmp_buf *PG_exception_stack = NULL;
ErrorContextCallback *error_context_stack = NULL;
MemoryContext CurrentMemoryContext = NULL;
MemoryContext TopMemoryContext = NULL;

static ErrorData last_error;
static char message[2][1024];

void
ProcessInterrupts(void)
{
}

bool
errstart_cold(int elevel, const char *domain)
{
	last_error.sqlerrcode = ERRCODE_INTERNAL_ERROR;
	message[1][0] = '\0';
	return true;
}

int
errcode(int sqlerrcode)
{
	last_error.sqlerrcode = sqlerrcode;
	return 0;
}

#define FORMAT_TO(target) \
	do { \
		va_list		arguments; \
		va_start(arguments, format); \
		vsnprintf(target, sizeof(target), format, arguments); \
		va_end(arguments); \
		return 0; \
	} while (0)

int
errmsg(const char *format,...)
{
	FORMAT_TO(message[0]);
}

int
errmsg_internal(const char *format,...)
{
	FORMAT_TO(message[0]);
}

int
errdetail_internal(const char *format,...)
{
	FORMAT_TO(message[1]);
}

int
errdetail(const char *format,...)
{
	FORMAT_TO(message[1]);
}

int
errhint(const char *format,...)
{
	return 0;
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	if (PG_exception_stack != NULL)
		siglongjmp(*PG_exception_stack, 1);
	printf("not ok - %s:%d: %s: %s\n", filename, lineno, message[0], message[1]);
	exit(1);
}

ErrorData *
CopyErrorData(void)
{
	return &last_error;
}

void
FlushErrorState(void)
{
}

char *
unpack_sql_state(int sql_state)
{
	return sql_state == 0 ? "none" : "another one";
}

/* The tested modules refer to it, and do not call it. */
struct varlena *
detoast_attr_slice(struct varlena *attr, int32 offset, int32 length)
{
	abort();
}

Datum
toast_compress_datum(Datum value, char method)
{
	abort();
}

void
blob_footprint(const BlobValue *value, BlobFootprint *footprint)
{
	abort();
}

TimestampTz
GetCurrentTimestamp(void)
{
	abort();
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	return palloc(size);
}

void *
MemoryContextAllocZero(MemoryContext context, Size size)
{
	return palloc0(size);
}

void *
MemoryContextAllocHuge(MemoryContext context, Size size)
{
	return palloc(size);
}

void *
repalloc_huge(void *pointer, Size size)
{
	return repalloc(pointer, size);
}

void
ExceptionalCondition(const char *condition,
#if PG_VERSION_NUM < 160000
					 const char *type,
#endif
					 const char *filename, int lineno)
{
	printf("not ok - %s:%d: assertion %s\n", filename, lineno, condition);
	abort();
}

int
LWLockNewTrancheId(void)
{
	return 0;
}

#if PG_VERSION_NUM >= 170000
dsa_area *
dsa_create_ext(int tranche_id, size_t init_segment_size, size_t max_segment_size)
#else
dsa_area *
dsa_create(int tranche_id)
#endif
{
	return NULL;
}

void
dsa_detach(dsa_area *area)
{
}

dsa_pointer
dsa_allocate_extended(dsa_area *area, size_t size, int flags)
{
	return (dsa_pointer) (uintptr_t) ((flags & DSA_ALLOC_ZERO) ? palloc0(size) : palloc(size));
}

void
dsa_free(dsa_area *area, dsa_pointer pointer)
{
	pfree((void *) (uintptr_t) pointer);
}

void *
dsa_get_address(dsa_area *area, dsa_pointer pointer)
{
	return (void *) (uintptr_t) pointer;
}

void
qsort_interruptible(void *base, size_t count, size_t size, qsort_arg_comparator compare, void *arg)
{
	qsort_arg(base, count, size, compare, arg);
}

/* ---- mutated datums ---- */

/* The same extents, with up to three frames, or with a directory. */
static struct varlena *
make_compressed(pg_prng_state *random, BlobDescriptor *descriptor, uint64 stored_bytes,
				const BlobExtent *extents, int count)
{
	BlobCompression *compression = &descriptor->compression;
	BlobFrame	frames[3] = {0};

	descriptor->is_compressed = true;
	compression->stored_bytes = stored_bytes;
	compression->method = BLOB_METHOD_LZ4;
	compression->frame_bits = 16;
	compression->level = (int) pg_prng_uint64_range(random, 0, 2);
	compression->frame_count = pg_prng_uint64_range(random, 1, lengthof(frames));
	descriptor->size_bytes = 0;
	for (uint64 i = 0; i < compression->frame_count; i++)
	{
		frames[i].content_bytes = (uint32) pg_prng_uint64_range(random, 2000, 65536);
		frames[i].stored_bytes = 1000;
		frames[i].stored_offset = i * 500;
		frames[i].method = BLOB_METHOD_LZ4;
		frames[i].crc = 1;
		descriptor->size_bytes += frames[i].content_bytes;
	}
	compression->open_bytes = pg_prng_bool(random) ? BLOB_PAGE_SIZE : 0;
	descriptor->size_bytes += compression->open_bytes + descriptor->remainder_bytes;
	return blob_compressed_pack(descriptor, frames, extents, count);
}

/* A tree of one to eight slots. */
static struct varlena *
make_tree(pg_prng_state *random)
{
	BlobDescriptor descriptor = {
		.generation = 7,
		.size_bytes = 100000,
		.compression = {.frame_bits = 17, .level = 1, .frame_count = 3}
	};
	BlobSlot	slots[8];
	int			count = (int) pg_prng_uint64_range(random, 1, lengthof(slots));
	uint64		end = 0;

	memset(slots, 0, sizeof(slots));
	for (int i = 0; i < count; i++)
	{
		BlobSlot   *slot = &slots[i];

		slot->tier = i == 2 ? BLOB_SLOT_TAIL : (uint8) pg_prng_uint64_range(random, 2, 9);
		slot->extent.is_tail = i == 2;
		slot->extent.pages = i == 2 ? 9 : blob_tier_pages(slot->tier);
		slot->extent.first_page = pg_prng_uint64_range(random, 0, BLOB_MAX_PAGE_NO);
		slot->start = end + pg_prng_uint64_range(random, 0, 1) * 5 * BLOB_PAGE_SIZE;
		slot->bytes = pg_prng_uint64_range(random, 1, slot->extent.pages) * BLOB_PAGE_SIZE;
		slot->live_bytes = pg_prng_uint64_range(random, 1, slot->bytes);
		end = slot->start + slot->bytes;
	}
	descriptor.compression.root_offset = end - BLOB_PAGE_SIZE;
	return blob_tree_pack(&descriptor, slots, count);
}

static struct varlena *
make_sound(pg_prng_state *random)
{
	BlobExtent	extents[8];
	int			count = (int) pg_prng_uint64_range(random, 1, lengthof(extents));
	int			tail_no = (int) pg_prng_uint64_range(random, 0, lengthof(extents));
	char		remainder[BLOB_PAGE_SIZE] = {0};
	BlobDescriptor descriptor = {.generation = 7, .remainder = remainder};
	uint64		stored_bytes;

	if (pg_prng_uint64_range(random, 0, 3) == 0)
		return make_tree(random);
	memset(extents, 0, sizeof(extents));
	for (int i = 0, tier = 0; i < count; i++)
	{
		extents[i].first_page = pg_prng_uint64_range(random, 0, BLOB_MAX_PAGE_NO);
		extents[i].is_tail = i == tail_no;
		extents[i].pages = i == tail_no ? 3 : blob_tier_pages(tier++);
		descriptor.size_bytes += extents[i].pages * BLOB_PAGE_SIZE;
	}
	descriptor.tail_content_pages = tail_no < count ? 3 : 0;
	stored_bytes = descriptor.size_bytes;
	if (pg_prng_bool(random))
		descriptor.remainder_bytes = (uint32) pg_prng_uint64_range(random, 1, BLOB_PAGE_SIZE - 1);
	descriptor.has_remainder_page = descriptor.remainder_bytes > 0 && pg_prng_bool(random);
	if (pg_prng_bool(random))
		return make_compressed(random, &descriptor, stored_bytes, extents, count);
	descriptor.size_bytes += descriptor.remainder_bytes;
	return blob_descriptor_pack(&descriptor, extents, count);
}

/* The same bytes, some changed, in memory that ends with the datum, which may be shorter. */
static struct varlena *
mutate(pg_prng_state *random, const struct varlena *sound)
{
	Size		length = VARSIZE(sound);
	struct varlena *datum;

	if (pg_prng_uint64_range(random, 0, 3) == 0)
		length = pg_prng_uint64_range(random, VARHDRSZ, length);
	datum = palloc(length);
	memcpy(datum, sound, length);
	SET_VARSIZE(datum, length);
	for (uint64 i = pg_prng_uint64_range(random, 0, 3); i > 0 && length > VARHDRSZ; i--)
	{
		uint64		end = pg_prng_bool(random) ? length : Min(length, VARHDRSZ + 192);
		uint64		at = pg_prng_uint64_range(random, VARHDRSZ, end - 1);

		((uint8 *) datum)[at] ^= 1 << pg_prng_uint64_range(random, 0, 7);
	}
	return datum;
}

/* Look at all that an unpacked value says. */
static void
use(const BlobValue *value)
{
	const BlobDescriptor *descriptor = &value->descriptor;
	uint64		start = 0;
	volatile char last;

	if (value->is_inline)
	{
		if (value->size_bytes > 0)
			last = value->inline_data[value->size_bytes - 1];
		return;
	}
	for (int i = 0; i < blob_descriptor_extent_count(descriptor); i++)
	{
		(void) blob_descriptor_extent(descriptor, i);
		start += blob_descriptor_extent_stored_bytes(descriptor, i, start);
	}
	if (descriptor->is_compressed)
	{
		if (descriptor->is_tree)
			(void) blob_descriptor_slots_hold(descriptor, descriptor->compression.root_offset,
											  UINT64CONST(1) << 40);
		if (descriptor->compression.level == 0)
			last = descriptor->compression.frames[descriptor->compression.frame_count *
												  BLOB_FRAME_ENTRY_BYTES - 1];
		if (blob_descriptor_inline_bytes(descriptor) > 0)
			last = descriptor->remainder[descriptor->remainder_bytes - 1];
		pfree(blob_descriptor_copy(descriptor));
		return;
	}
	if (blob_descriptor_inline_bytes(descriptor) > 0)
		last = descriptor->remainder[descriptor->remainder_bytes - 1];
	CHECK(start + blob_descriptor_inline_bytes(descriptor) == value->size_bytes, "size");
	pfree(blob_descriptor_copy(descriptor));
	(void) last;
}

static bool
unpack_and_use(struct varlena *datum)
{
	volatile bool is_sound = false;

	PG_TRY();
	{
		BlobKey		key;
		BlobValue	value;

		blob_key_load(datum, &key);
		blob_value_unpack(datum, &value);
		use(&value);
		is_sound = true;
	}
	PG_CATCH();
	{
		if (last_error.sqlerrcode != ERRCODE_DATA_CORRUPTED)
		{
			printf("not ok - %s: %s\n", message[0], message[1]);
			exit(1);
		}
	}
	PG_END_TRY();
	return is_sound;
}

static void
unpack_mutated(uint64 seed)
{
	pg_prng_state random;
	int			sound_count = 0;
	int			count = 300000;

	pg_prng_seed(&random, seed);
	for (int i = 0; i < count; i++)
	{
		struct varlena *sound = make_sound(&random);
		struct varlena *datum = mutate(&random, sound);

		sound_count += unpack_and_use(datum);
		pfree(datum);
		pfree(sound);
	}
	printf("ok - %d mutated datums, %d of them well-formed\n", count, sound_count);
}

/* ---- unit tests ---- */

#define RUN(name, first, second) \
	do { \
		extern Datum name(PG_FUNCTION_ARGS); \
		LOCAL_FCINFO(fcinfo, 2); \
		memset(fcinfo, 0, SizeForFunctionCallInfo(2)); \
		fcinfo->args[0].value = Int64GetDatum(first); \
		fcinfo->args[1].value = Int64GetDatum(second); \
		printf("ok - %s: " INT64_FORMAT " checks\n", #name, DatumGetInt64(name(fcinfo))); \
	} while (0)

int
main(int argc, char **argv)
{
	int64		seed = argc > 1 ? strtoll(argv[1], NULL, 10) : 1;

	printf("# seed " INT64_FORMAT "\n", seed);
	RUN(unit_tier_formula, 0, 0);
	RUN(unit_tier_waste, 0, 0);
	RUN(unit_tier_table, 0, 0);
	RUN(unit_tier_plan, seed, 0);
	RUN(unit_descriptor, seed, 0);
	RUN(unit_descriptor_damage, 0, 0);
	RUN(unit_compressed, seed, 0);
	RUN(unit_compressed_damage, seed, 0);
	RUN(unit_compressed_node, seed, 0);
	RUN(unit_compressed_reading, seed, 0);
	RUN(unit_compressed_flips, seed, 0);
	RUN(unit_compressed_garbage, seed, 0);
	RUN(unit_tree_form, 0, 0);
	RUN(unit_tree_open, 0, 0);
	RUN(unit_tree, seed, 60);
	RUN(unit_inline, 0, 0);
	RUN(unit_digest, seed, 0);
	RUN(unit_free_runs, seed, 20000);
	RUN(unit_free_runs_large, 0, 0);
	RUN(unit_pending, seed, 600);
	RUN(unit_sample_groups, seed, 0);
	RUN(unit_sample_distinct, seed, 0);
	RUN(unit_sample_common, seed, 0);
	RUN(unit_sample_histogram, seed, 0);
	RUN(unit_sample_correlation, seed, 0);
	unpack_mutated((uint64) seed);
	return 0;
}
