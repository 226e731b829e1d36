/*
 * unit_compressed.c
 *	  Tests of the form for compressed values: core/descriptor.h, core/frame.h.
 *
 * Seen to fail: with the remainder packed in another place; without any one of the conditions of
 * check_compression(), check_frames(), unpack_compressed(), blob_frame_unpack(), blob_node_unpack()
 * and blob_node_entry_unpack(), but those that others imply: of frames whose sum is too long, and
 * of a frame without content; without the comparison of a frame's checksum.
 */
#include "unit.h"

#include "common/pg_prng.h"
#include "blob/framer.h"
#include "blob/mapping.h"
#include "core/codec.h"
#include "utils/memutils.h"

#define FRAME_BITS 16
#define FRAME_BYTES (1 << FRAME_BITS)

/* A compressed value, and what it was made from. */
typedef struct Sample
{
	BlobDescriptor descriptor;
	BlobFrame	frames[BLOB_FRAMES_INLINE];
	BlobExtent	extents[60];
	int			extent_count;
	char		remainder[BLOB_PAGE_SIZE];
	struct varlena *datum;
} Sample;

static void
fill_random(pg_prng_state *random, void *target, size_t length_bytes)
{
	for (size_t i = 0; i < length_bytes; i++)
		((uint8 *) target)[i] = (uint8) pg_prng_uint32(random);
}

/* Extents for the stored bytes: tier_count of tier sizes; a tail at tail_no, if that is >= 0. */
static void
make_extents(pg_prng_state *random, Sample *sample, int tier_count, int tail_no)
{
	BlobDescriptor *descriptor = &sample->descriptor;
	uint64		pages = 0;

	sample->extent_count = tier_count + (tail_no >= 0 ? 1 : 0);
	for (int i = 0, tier = 0; i < sample->extent_count; i++)
	{
		BlobExtent *extent = &sample->extents[i];

		extent->is_tail = i == tail_no;
		extent->pages = extent->is_tail ? 7 : blob_tier_pages(tier++);
		extent->first_page = pg_prng_uint64_range(random, 0, BLOB_MAX_PAGE_NO);
		descriptor->tail_content_pages = tail_no >= 0 ? 5 : 0;
		pages += extent->is_tail ? 5 : extent->pages;
	}
	descriptor->compression.stored_bytes = pages * BLOB_PAGE_SIZE;
}

/* This number of frames in the datum, or a directory of that level. */
static void
make_frames(pg_prng_state *random, Sample *sample, int level, int frame_count)
{
	BlobDescriptor *descriptor = &sample->descriptor;
	BlobCompression *compression = &descriptor->compression;
	uint64		stored_pages = compression->stored_bytes / BLOB_PAGE_SIZE;

	compression->level = level;
	if (level > 0)
	{
		compression->root_offset = pg_prng_uint64_range(random, 0, stored_pages - 1) *
			BLOB_PAGE_SIZE;
		compression->frame_count = 1000;
		descriptor->size_bytes = pg_prng_uint64_range(random, 1000, 1000 * FRAME_BYTES);
		return;
	}
	compression->frame_count = frame_count;
	for (int i = 0; i < frame_count; i++)
	{
		BlobFrame  *frame = &sample->frames[i];

		frame->content_bytes = (uint32) pg_prng_uint64_range(random, 1, FRAME_BYTES);
		frame->content_bytes = (uint32) Min(frame->content_bytes, compression->stored_bytes);
		frame->method = (uint8) pg_prng_uint64_range(random, 0, 3);
		frame->stored_bytes = frame->method == BLOB_METHOD_NONE ? frame->content_bytes :
			(uint32) pg_prng_uint64_range(random, 1, frame->content_bytes);
		frame->stored_offset = pg_prng_uint64_range(random, 0, compression->stored_bytes -
													frame->stored_bytes);
		frame->crc = pg_prng_uint32(random);
		descriptor->size_bytes += frame->content_bytes;
	}
}

static Sample *
make_sample(pg_prng_state *random, int level, int frame_count, int tier_count, int tail_no,
			uint32 remainder_bytes, bool has_page)
{
	Sample	   *sample = palloc0(sizeof(Sample));
	BlobDescriptor *descriptor = &sample->descriptor;
	BlobCompression *compression = &descriptor->compression;
	uint64		pages;

	descriptor->is_compressed = true;
	descriptor->generation = pg_prng_uint64(random) >> 8;
	fill_random(random, descriptor->sha256, BLOB_DIGEST_BYTES);
	fill_random(random, descriptor->state, BLOB_DIGEST_BYTES);
	fill_random(random, descriptor->prefix, BLOB_PREFIX_BYTES);
	fill_random(random, sample->remainder, sizeof(sample->remainder));
	make_extents(random, sample, tier_count, tail_no);
	compression->method = BLOB_METHOD_ZSTD;
	compression->frame_bits = FRAME_BITS;
	make_frames(random, sample, level, frame_count);

	pages = Min(compression->stored_bytes, FRAME_BYTES) / BLOB_PAGE_SIZE;
	compression->open_bytes = pg_prng_uint64_range(random, 0, pages) * BLOB_PAGE_SIZE;
	compression->open_offset = compression->stored_bytes - compression->open_bytes;
	compression->open_crc = compression->open_bytes > 0 ? pg_prng_uint32(random) : 0;
	descriptor->remainder_bytes = remainder_bytes;
	descriptor->remainder = sample->remainder;
	descriptor->has_remainder_page = has_page;
	descriptor->remainder_page = has_page ? 77 : 0;
	compression->has_remainder_crc = has_page && pg_prng_uint32(random) % 2 == 0;
	compression->remainder_crc = compression->has_remainder_crc ? pg_prng_uint32(random) | 1 : 0;
	descriptor->size_bytes += compression->open_bytes + remainder_bytes;
	sample->datum = blob_compressed_pack(descriptor, sample->frames, sample->extents,
										 sample->extent_count);
	return sample;
}

static void
check_compression(const Sample *sample, const BlobDescriptor *unpacked)
{
	const BlobCompression *expected = &sample->descriptor.compression;
	const BlobCompression *found = &unpacked->compression;

	CHECK(found->stored_bytes == expected->stored_bytes, "stored bytes");
	CHECK(found->method == expected->method, "method");
	CHECK(found->frame_bits == expected->frame_bits, "frame bits");
	CHECK(found->level == expected->level, "level");
	CHECK(found->root_offset == expected->root_offset, "root");
	CHECK(found->frame_count == expected->frame_count, "frames");
	CHECK(found->open_offset == expected->open_offset, "open frame");
	CHECK(found->open_bytes == expected->open_bytes, "open frame");
	CHECK(found->open_crc == expected->open_crc, "open frame");
	for (uint64 i = 0; found->level == 0 && i < found->frame_count; i++)
	{
		BlobFrame	frame;

		CHECK(blob_frame_unpack(found->frames + i * BLOB_FRAME_ENTRY_BYTES, found->frame_bits,
								found->stored_bytes, &frame) == NULL, "a frame");
		CHECK(frame.content_bytes == sample->frames[i].content_bytes &&
			  frame.stored_bytes == sample->frames[i].stored_bytes &&
			  frame.stored_offset == sample->frames[i].stored_offset &&
			  frame.method == sample->frames[i].method && frame.crc == sample->frames[i].crc,
			  "frame " UINT64_FORMAT, i);
	}
}

static void
check_sample(const Sample *sample)
{
	const BlobDescriptor *expected = &sample->descriptor;
	const BlobDescriptor *found;
	BlobValue	value;
	BlobKey		key;
	uint64		start = 0;

	CHECK(VARSIZE(sample->datum) < 2032, "%u bytes", (unsigned) VARSIZE(sample->datum));
	blob_key_load(sample->datum, &key);
	CHECK(key.size_bytes == expected->size_bytes &&
		  memcmp(key.sealed_digest, expected->sha256, BLOB_DIGEST_BYTES) == 0 &&
		  memcmp(key.data, expected->prefix, BLOB_PREFIX_BYTES) == 0, "key");

	blob_value_unpack(sample->datum, &value);
	found = &value.descriptor;
	CHECK(!value.is_inline && value.size_bytes == expected->size_bytes, "size");
	CHECK(found->is_compressed && found->generation == expected->generation, "generation");
	CHECK(memcmp(found->sha256, expected->sha256, BLOB_DIGEST_BYTES) == 0, "digest");
	CHECK(memcmp(found->state, expected->state, BLOB_DIGEST_BYTES) == 0, "state");
	CHECK(memcmp(found->prefix, expected->prefix, BLOB_PREFIX_BYTES) == 0, "prefix");
	CHECK(found->remainder_bytes == expected->remainder_bytes, "remainder");
	CHECK(found->has_remainder_page == expected->has_remainder_page, "page of the remainder");
	CHECK(found->compression.has_remainder_crc == expected->compression.has_remainder_crc &&
		  found->compression.remainder_crc == expected->compression.remainder_crc,
		  "checksum of the remainder");
	CHECK(blob_descriptor_inline_bytes(found) == 0 ||
		  memcmp(found->remainder, sample->remainder, found->remainder_bytes) == 0, "remainder");
	CHECK(blob_descriptor_extent_count(found) ==
		  sample->extent_count + (found->has_remainder_page ? 1 : 0), "extents");
	for (int i = 0; i < sample->extent_count; i++)
	{
		BlobExtent	extent = blob_descriptor_extent(found, i);

		CHECK(extent.first_page == sample->extents[i].first_page &&
			  extent.pages == sample->extents[i].pages &&
			  extent.is_tail == sample->extents[i].is_tail, "extent %d", i);
		start += blob_descriptor_extent_stored_bytes(found, i, start);
	}
	CHECK(start == expected->compression.stored_bytes, "stored bytes");
	check_compression(sample, found);
}

/* Packed values are unpacked the same, and are small: all combinations.  Argument: the seed. */
UNIT_TEST(unit_compressed)
{
	static const uint32 remainders[] = {0, 1, BLOB_COMPRESSED_REMAINDER_INLINE_BYTES};
	pg_prng_state random;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	for (int level = 0; level <= BLOB_NODE_MAX_LEVEL; level++)
		for (int frame_count = 0; frame_count <= (level == 0 ? BLOB_FRAMES_INLINE : 0);
			 frame_count++)
			for (int tier_count = 0; tier_count <= 50; tier_count += tier_count < 4 ? 1 : 46)
				for (int tail_no = tier_count == 0 ? 0 : -1; tail_no <= tier_count; tail_no++)
					for (int i = 0; i < (int) lengthof(remainders) + 1; i++)
					{
						bool		has_page = i == lengthof(remainders);

						check_sample(make_sample(&random, level, frame_count, tier_count, tail_no,
												 has_page ? 4095 : remainders[i], has_page));
					}
}

/* The SQLSTATE of what a function throws, or 0. */
static int
catch_error(void (*function) (void *), void *argument)
{
	volatile int sqlstate = 0;
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		function(argument);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		sqlstate = error->sqlerrcode;
	}
	PG_END_TRY();
	return sqlstate;
}

static void
unpack(void *datum)
{
	BlobKey		key;
	BlobValue	value;
	uint64		start = 0;

	blob_key_load(datum, &key);
	blob_value_unpack(datum, &value);
	if (value.is_inline)
		return;
	/* The fields of a damaged value that is not refused must agree with each other. */
	for (int i = 0; i < blob_descriptor_extent_count(&value.descriptor); i++)
		start += blob_descriptor_extent_stored_bytes(&value.descriptor, i, start);
	if (!value.descriptor.is_compressed)
		return;
	CHECK(start == value.descriptor.compression.stored_bytes +
		  (value.descriptor.has_remainder_page ? value.descriptor.remainder_bytes : 0), "extents");
	CHECK(key.size_bytes >= value.descriptor.compression.open_bytes +
		  value.descriptor.remainder_bytes, "size");
}

static bool
is_refused(const struct varlena *datum)
{
	int			sqlstate = catch_error(unpack, (void *) datum);

	CHECK(sqlstate == 0 || sqlstate == ERRCODE_DATA_CORRUPTED, "%s", unpack_sql_state(sqlstate));
	return sqlstate != 0;
}

/* A copy with one field set. */
static struct varlena *
with_field(const struct varlena *datum, int offset, int bytes, uint64 value)
{
	struct varlena *copy = palloc(VARSIZE(datum));

	memcpy(copy, datum, VARSIZE(datum));
	for (int i = 0; i < bytes; i++, value >>= 8)
		((uint8 *) VARDATA(copy))[offset + i] = (uint8) value;
	return copy;
}

/* Offset of the first frame's entry in a value with four extents of tier sizes. */
#define AT_FIRST_FRAME (192 + 4 * 6)

/* A copy whose first frame has another length, and so has the value. */
static struct varlena *
with_frame_bytes(const Sample *sample, uint32 content_bytes)
{
	struct varlena *copy = with_field(sample->datum, AT_FIRST_FRAME, 4, content_bytes);

	return with_field(copy, 12, 8, sample->descriptor.size_bytes -
					  sample->frames[0].content_bytes + content_bytes);
}

/* Entries of frames in the datum. */
static void
damage_frames(const Sample *small)
{
	const BlobFrame *first = &small->frames[0];
	struct varlena *packed = with_field(small->datum, AT_FIRST_FRAME + 14, 1, BLOB_METHOD_LZ4);
	/* Not longer than it is: it may lie at the end of the stored bytes. */
	struct varlena *shorter = with_field(packed, AT_FIRST_FRAME + 4, 4,
										 Min(first->stored_bytes, first->content_bytes / 2));
	uint64		stored_bytes = small->descriptor.compression.stored_bytes;

	CHECK(first->content_bytes > 1 && first->content_bytes < FRAME_BYTES, "the seed is a good one");
	CHECK(!is_refused(packed) && !is_refused(shorter), "sound");
	CHECK(is_refused(with_field(shorter, AT_FIRST_FRAME + 14, 1, BLOB_METHOD_NONE)), "as it is");
	CHECK(is_refused(with_field(packed, AT_FIRST_FRAME + 4, 4, 0)), "nothing is stored");
	CHECK(is_refused(with_field(with_field(packed, AT_FIRST_FRAME + 8, 6, 0), AT_FIRST_FRAME + 4, 4,
								first->content_bytes + 1)), "more is stored than there is");
	CHECK(is_refused(with_field(packed, AT_FIRST_FRAME + 8, 6, stored_bytes)), "stored behind");
	CHECK(is_refused(with_field(packed, AT_FIRST_FRAME + 15, 1, 1)), "a reserved byte");
	CHECK(is_refused(with_field(packed, AT_FIRST_FRAME + 20, 4, 1)), "reserved bytes");
	CHECK(is_refused(with_frame_bytes(small, FRAME_BYTES + 1)), "a frame that is too long");
	CHECK(is_refused(with_field(with_frame_bytes(small, 0), AT_FIRST_FRAME + 4, 4, 0)),
		  "a frame without content");
}

/* Fields that are possible by themselves, in a value with a directory. */
static void
damage_sizes(const Sample *large)
{
	uint64		stored_bytes = large->descriptor.compression.stored_bytes;
	struct varlena *sound = with_field(large->datum, 158, 6, 0);

	sound = with_field(sound, 172, 6, 0);
	sound = with_field(sound, 178, 6, 0);
	sound = with_field(sound, 184, 4, 0);
	sound = with_field(sound, 12, 8, 1000 * 100 + 4095);
	CHECK(!is_refused(sound), "sound");
	CHECK(!is_refused(with_field(sound, 178, 6, FRAME_BYTES)), "an open frame");
	CHECK(is_refused(with_field(sound, 178, 6, FRAME_BYTES + BLOB_PAGE_SIZE)), "too long a one");
	CHECK(is_refused(with_field(sound, 178, 6, 1)), "a part of a page");
	CHECK(is_refused(with_field(sound, 184, 4, 1)), "a checksum of nothing");
	CHECK(!is_refused(with_field(with_field(sound, 178, 6, FRAME_BYTES), 184, 4, 1)), "a checksum");
	CHECK(is_refused(with_field(with_field(sound, 12, 8, UINT64CONST(1) << 63), 164, 8,
								UINT64CONST(1) << 62)), "a size that no bigint has");
	CHECK(!is_refused(with_field(with_field(sound, 12, 8, PG_INT64_MAX), 164, 8,
								 UINT64CONST(1) << 62)), "the largest size");
	CHECK(is_refused(with_field(sound, 144, 8, stored_bytes - 1)), "a part of a page");
	CHECK(is_refused(with_field(with_field(sound, 12, 8, 4095), 164, 8, 0)), "no frames");
	CHECK(is_refused(with_field(with_field(with_field(sound, 178, 6, BLOB_PAGE_SIZE), 12, 8, 5000),
								164, 8, UINT64CONST(1) << 50)), "less than the open frame");
}

static void
damage_lengths_and_bits(struct varlena *sound)
{
	uint32		length = VARSIZE(sound);
	uint8		flags = ((uint8 *) VARDATA(sound))[1];
	bool		has_crc = (flags & BLOB_FLAG_REMAINDER_CRC) != 0;
	bool		may_have_crc = (flags & BLOB_FLAG_REMAINDER_PAGE) != 0 && !has_crc;
	struct varlena *longer = palloc0(length + 100);

	memcpy(longer, sound, length);
	for (uint32 bytes = VARHDRSZ; bytes <= length + 100; bytes++)
	{
		SET_VARSIZE(longer, bytes);
		CHECK(is_refused(longer) == (bytes != length), "%u bytes", bytes);
	}
	for (uint32 bit = 0; bit < (length - VARHDRSZ) * 8; bit++)
	{
		uint32		at = bit / 8;
		uint8		byte = ((uint8 *) VARDATA(sound))[at] ^ 1 << bit % 8;
		bool		refused = is_refused(with_field(sound, at, 1, byte));

		/* A change of these fields must be refused with any values of the others. */
		if (at == 155 || (at >= 188 && at < 192 && !has_crc) ||
			(at == 1 && bit % 8 > (may_have_crc ? 2 : 1) &&
			 1 << bit % 8 != BLOB_FLAG_DIGEST_DEFERRED) ||
			(at >= 2 && at < 4) || (at >= 144 && at < 152))
			CHECK(refused, "bit %u of byte %u", bit % 8, at);
	}
}

/* Every length, every bit, and fields that contradict each other.  Argument: the seed. */
UNIT_TEST(unit_compressed_damage)
{
	pg_prng_state random;
	Sample	   *small;
	Sample	   *large;
	struct varlena *tiny;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	do
		small = make_sample(&random, 0, 3, 4, 2, 100, false);
	while (small->frames[0].content_bytes < 2 || small->frames[0].content_bytes == FRAME_BYTES);
	large = make_sample(&random, 2, 0, 6, -1, 4095, true);
	CHECK(!is_refused(small->datum) && !is_refused(large->datum), "sound");
	damage_lengths_and_bits(small->datum);
	damage_lengths_and_bits(large->datum);
	damage_frames(small);
	damage_sizes(large);

	/* Frames of one byte: of any length that frames may have. */
	tiny = with_field(large->datum, 178, 6, 0);
	tiny = with_field(tiny, 184, 4, 0);
	tiny = with_field(tiny, 12, 8, 1000 + 4095);
	CHECK(!is_refused(with_field(tiny, 153, 1, BLOB_FRAME_MIN_BITS)), "bits");
	CHECK(!is_refused(with_field(tiny, 153, 1, BLOB_FRAME_MAX_BITS)), "bits");
	CHECK(is_refused(with_field(tiny, 153, 1, BLOB_FRAME_MIN_BITS - 1)), "bits");
	CHECK(is_refused(with_field(tiny, 153, 1, BLOB_FRAME_MAX_BITS + 1)), "bits");
	CHECK(is_refused(with_field(large->datum, 154, 1, BLOB_NODE_MAX_LEVEL + 1)), "level");
	CHECK(is_refused(with_field(large->datum, 154, 1, 0)), "no frames in the datum");
	CHECK(is_refused(with_field(small->datum, 154, 1, 1)), "a directory, and frames in the datum");
	CHECK(is_refused(with_field(large->datum, 158, 6, 1)), "a root inside of a page");
	CHECK(is_refused(with_field(large->datum, 158, 6,
								large->descriptor.compression.stored_bytes)), "a root behind");
	CHECK(!is_refused(with_field(large->datum, 158, 6, large->descriptor.compression.stored_bytes -
								 BLOB_PAGE_SIZE)), "a root at the end");
	CHECK(is_refused(with_field(small->datum, 158, 6, BLOB_PAGE_SIZE)), "a root, and no directory");
	CHECK(is_refused(with_field(large->datum, 164, 8, 0)), "no frames");
	CHECK(is_refused(with_field(large->datum, 164, 8, PG_UINT64_MAX)), "more frames than content");
	/* (3 + 2^61) * 24 is 3 * 24 in 64 bits. */
	CHECK(is_refused(with_field(with_field(small->datum, 164, 8, 3 + (UINT64CONST(1) << 61)), 12, 8,
								PG_UINT64_MAX)), "a number of frames that overflows");
	CHECK(is_refused(with_field(small->datum, 172, 6, 1)), "an open frame inside of a page");
	CHECK(is_refused(with_field(small->datum, 172, 6,
								small->descriptor.compression.stored_bytes + BLOB_PAGE_SIZE)),
		  "an open frame behind");
	CHECK(is_refused(with_field(large->datum, 178, 6, FRAME_BYTES + BLOB_PAGE_SIZE)),
		  "an open frame that should be closed");
	CHECK(is_refused(with_field(small->datum, 12, 8, small->descriptor.size_bytes + 1)), "size");
	CHECK(is_refused(with_field(small->datum, 12, 8, small->descriptor.size_bytes - 1)), "size");
	CHECK(is_refused(with_field(large->datum, 12, 8, 4095)), "a size without frames");
	CHECK(is_refused(with_field(large->datum, 12, 8, PG_INT64_MAX)), "more than frames can hold");
	CHECK(!is_refused(with_field(small->datum, 152, 1, 200)), "a method to come");
}

/* ---- the directory ---- */

static bool
node_is_refused(const uint8 *page, int level, uint64 content_bytes, uint64 frame_count)
{
	BlobNode	node;

	return blob_node_unpack(page, level, content_bytes, frame_count, &node) != NULL;
}

/* Nodes of one level over those of another, and every bit of one.  Argument: the seed. */
UNIT_TEST(unit_compressed_node)
{
	static uint8 page[BLOB_PAGE_SIZE];
	pg_prng_state random;
	BlobFrame	frames[BLOB_NODE_ENTRIES];
	BlobNodeEntry entries[BLOB_NODE_ENTRIES];
	uint64		sum = 0;
	BlobNode	node;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	memset(frames, 0, sizeof(frames));
	for (int i = 0; i < BLOB_NODE_ENTRIES; i++)
	{
		frames[i].content_bytes = (uint32) pg_prng_uint64_range(&random, 1, FRAME_BYTES);
		frames[i].stored_bytes = frames[i].content_bytes;
		frames[i].stored_offset = pg_prng_uint64_range(&random, 0, 1 << 30);
		frames[i].crc = pg_prng_uint32(&random);
		sum += frames[i].content_bytes;
		blob_node_pack_frames(page, frames, i + 1);
		CHECK(blob_node_unpack(page, 1, sum, i + 1, &node) == NULL, "a leaf of %d", i + 1);
		CHECK(node.entry_count == i + 1 && node.content_bytes == sum, "a leaf");
		CHECK(node_is_refused(page, 2, sum, i + 1), "another level");
		CHECK(node_is_refused(page, 1, sum + 1, i + 1), "more content than the node above says");
		CHECK(node_is_refused(page, 1, sum, i + 2), "more frames than the node above says");
		entries[i] = (BlobNodeEntry)
		{
			sum, i + 1, i * BLOB_PAGE_SIZE
		};
	}
	for (int i = 0; i < BLOB_NODE_ENTRIES; i++)
	{
		BlobFrame	frame;

		CHECK(blob_frame_unpack(blob_node_frame(page, i), FRAME_BITS, UINT64CONST(1) << 40,
								&frame) == NULL, "a frame");
		CHECK(frame.crc == frames[i].crc && frame.stored_offset == frames[i].stored_offset,
			  "frame %d", i);
	}
	for (int bit = 0; bit < BLOB_PAGE_SIZE * 8; bit++)
	{
		page[bit / 8] ^= 1 << bit % 8;
		CHECK(node_is_refused(page, 1, sum, BLOB_NODE_ENTRIES), "bit %d", bit);
		page[bit / 8] ^= 1 << bit % 8;
	}

	blob_node_pack(page, 3, entries, BLOB_NODE_ENTRIES);
	for (int i = 0; i < BLOB_NODE_ENTRIES; i++)
	{
		BlobNodeEntry entry;

		CHECK(blob_node_entry_unpack(page, i, BLOB_NODE_ENTRIES * BLOB_PAGE_SIZE, &entry) == NULL,
			  "entry %d", i);
		CHECK(entry.content_bytes == entries[i].content_bytes &&
			  entry.frame_count == entries[i].frame_count &&
			  entry.stored_offset == entries[i].stored_offset, "entry %d", i);
		CHECK((blob_node_entry_unpack(page, i, i * BLOB_PAGE_SIZE, &entry) == NULL) == false,
			  "a node behind the stored bytes");
	}

	/* Sums that are right in 64 bits only. */
	entries[0].content_bytes = PG_UINT64_MAX;
	entries[1].content_bytes = 2;
	blob_node_pack(page, 2, entries, 2);
	CHECK(node_is_refused(page, 2, 1, entries[0].frame_count + entries[1].frame_count), "overflow");
	entries[0].content_bytes = 5;
	entries[0].frame_count = PG_UINT64_MAX;
	entries[1].frame_count = 2;
	blob_node_pack(page, 2, entries, 2);
	CHECK(node_is_refused(page, 2, 7, 1), "overflow of the frames");
}

/* ---- reading ---- */

/* The stored bytes of a value in memory. */
typedef struct Stored
{
	char	   *bytes;
	uint64		length_bytes;
	uint64		capacity_bytes;
	int			nodes_read;
} Stored;

/* A BlobFramerPut. */
static void
put(void *context, const char *bytes, uint64 length_bytes)
{
	Stored	   *stored = context;

	if (stored->length_bytes + length_bytes > stored->capacity_bytes)
	{
		stored->capacity_bytes = 2 * (stored->length_bytes + length_bytes);
		stored->bytes = stored->bytes == NULL ?
			MemoryContextAllocHuge(CurrentMemoryContext, stored->capacity_bytes) :
			repalloc_huge(stored->bytes, stored->capacity_bytes);
	}
	memcpy(stored->bytes + stored->length_bytes, bytes, length_bytes);
	stored->length_bytes += length_bytes;
}

/* A BlobMappingFetch. */
static void
fetch(void *context, uint64 stored_offset, uint64 length_bytes, bool is_node, char *target)
{
	Stored	   *stored = context;

	if (stored_offset + length_bytes > stored->length_bytes)
		elog(ERROR, "stored bytes behind the end were asked for");
	memcpy(target, stored->bytes + stored_offset, length_bytes);
	stored->nodes_read += is_node;
}

/* A value of this content, in frames of 4 kB, so that its directory has several levels. */
static BlobDescriptor
frame_content(Stored *stored, BlobMethod method, const char *content, uint64 size_bytes)
{
	BlobDescriptor descriptor = {.size_bytes = size_bytes, .is_compressed = true};
	BlobDescriptor base = {.compression.frame_bits = BLOB_FRAME_MIN_BITS};
	BlobFramer *framer;
	const BlobFrame *frames;
	const char *remainder;

	base.compression.method = (uint8) method;
	framer = blob_framer_begin_with(&base, 0, put, stored);
	blob_framer_add(framer, content, size_bytes);
	CHECK(blob_framer_finish(framer, false, &remainder) == 0, "no remainder");
	frames = blob_framer_describe(framer, &descriptor.compression);
	descriptor.compression.stored_bytes = stored->length_bytes;
	if (frames != NULL)
	{
		uint8	   *entries = palloc(BLOB_FRAMES_INLINE * BLOB_FRAME_ENTRY_BYTES);

		for (uint64 i = 0; i < descriptor.compression.frame_count; i++)
			blob_frame_pack(entries + i * BLOB_FRAME_ENTRY_BYTES, &frames[i]);
		descriptor.compression.frames = entries;
	}
	blob_framer_free(framer);
	return descriptor;
}

/* Half of the content can be compressed. */
static char *
make_content(pg_prng_state *random, uint64 size_bytes)
{
	char	   *content = palloc0(size_bytes + 1);

	for (uint64 at = 0; at < size_bytes; at += 3000)
		fill_random(random, content + at, Min(1500, size_bytes - at));
	return content;
}

static void
check_ranges(pg_prng_state *random, const BlobDescriptor *descriptor,
			 const BlobMappingSource *source, const char *content)
{
	char	   *target = palloc(descriptor->size_bytes + 1);

	for (int i = 0; i < 50; i++)
	{
		uint64		from = pg_prng_uint64_range(random, 0, descriptor->size_bytes);
		uint64		length = pg_prng_uint64_range(random, 0, descriptor->size_bytes - from);

		if (i % 2 == 0)
			length = Min(length, 5000);
		blob_mapping_read(descriptor, from, length, target, source);
		CHECK(memcmp(target, content + from, length) == 0, "%d bytes at %d", (int) length,
			  (int) from);
	}
	pfree(target);
}

/* Content becomes frames, and is read from them: all levels of a directory. */
UNIT_TEST(unit_compressed_reading)
{
	static const uint64 sizes[] = {1, 4095, 4096, 4097, 16 * 4096, 16 * 4096 + 1, 169 * 4096,
	169 * 4096 + 1, 170 * 4096, 169 * 169 * 4096 + 5};
	static const int levels[] = {0, 0, 0, 0, 0, 1, 1, 2, 2, 3};
	pg_prng_state random;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	for (int i = 0; i < (int) lengthof(sizes); i++)
	{
		for (int method = BLOB_METHOD_NONE; method <= BLOB_METHOD_ZSTD; method++)
		{
			Stored		stored = {0};
			BlobMappingSource source = {.fetch = fetch, .context = &stored};
			BlobDescriptor descriptor;
			char	   *content;

			if (!blob_method_is_built_in((uint8) method))
				continue;
			content = make_content(&random, sizes[i]);
			descriptor = frame_content(&stored, (BlobMethod) method, content, sizes[i]);
			fill_random(&random, descriptor.sha256, BLOB_DIGEST_BYTES);
			CHECK(descriptor.compression.level == levels[i], "level");
			CHECK(stored.length_bytes % BLOB_PAGE_SIZE == 0, "whole pages");
			CHECK(method == BLOB_METHOD_NONE || sizes[i] < 100000 ||
				  stored.length_bytes < sizes[i] * 9 / 10, "shorter");
			check_ranges(&random, &descriptor, &source, content);
			CHECK(levels[i] > 0 || stored.nodes_read == 0, "nodes");
			pfree(content);
			pfree(stored.bytes);
		}
	}
}

/* A value one of whose stored bytes has changed. */
typedef struct Damaged
{
	const BlobDescriptor *descriptor;
	const BlobMappingSource *source;
	char	   *target;
} Damaged;

static void
read_all(void *argument)
{
	Damaged    *damaged = argument;

	blob_mapping_read(damaged->descriptor, 0, damaged->descriptor->size_bytes, damaged->target,
					  damaged->source);
}

/*
 * One flipped bit of the stored bytes is an error, or lies between frames.  A directory or a frame
 * whose checksum was made to fit the damage is never a crash.
 */
UNIT_TEST(unit_compressed_flips)
{
	const uint64 size_bytes = 400 * 4096 + 77;
	pg_prng_state random;
	int			refused = 0;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	for (int method = BLOB_METHOD_NONE; method <= BLOB_METHOD_ZSTD; method++)
	{
		Stored		stored = {0};
		BlobMappingSource source = {.fetch = fetch, .context = &stored, .is_past_buffer = true};
		char	   *content = make_content(&random, size_bytes);
		BlobDescriptor descriptor;
		Damaged		damaged = {&descriptor, &source, palloc(size_bytes)};

		if (!blob_method_is_built_in((uint8) method))
			continue;
		descriptor = frame_content(&stored, (BlobMethod) method, content, size_bytes);
		for (int i = 0; i < 300; i++)
		{
			uint64		at = pg_prng_uint64_range(&random, 0, stored.length_bytes - 1);
			uint8		bit = (uint8) (1 << pg_prng_uint64_range(&random, 0, 7));
			int			sqlstate;

			stored.bytes[at] ^= bit;
			sqlstate = catch_error(read_all, &damaged);
			stored.bytes[at] ^= bit;
			CHECK(sqlstate == ERRCODE_DATA_CORRUPTED ||
				  (sqlstate == 0 && memcmp(damaged.target, content, size_bytes) == 0),
				  "method %d, byte %d: %s", method, (int) at, unpack_sql_state(sqlstate));
			refused += sqlstate != 0;
		}
	}
	CHECK(refused > 280, "%d of the flips were refused", refused);
}

/* Frames of any bytes: decompression ends, and stays in its bounds. */
UNIT_TEST(unit_compressed_garbage)
{
	pg_prng_state random;

	pg_prng_seed(&random, (uint64) PG_GETARG_INT64(0));
	for (int i = 0; i < 3000; i++)
	{
		uint32		content_bytes = (uint32) pg_prng_uint64_range(&random, 1, 8192);
		uint32		stored_bytes = (uint32) pg_prng_uint64_range(&random, 1, content_bytes);
		uint8		method = i % 2 == 0 ? BLOB_METHOD_LZ4 : BLOB_METHOD_ZSTD;
		char	   *target = palloc(content_bytes + 1);
		char	   *stored = palloc(content_bytes);

		if (!blob_method_is_built_in(method))
			continue;
		fill_random(&random, stored, content_bytes);
		memset(stored + content_bytes / 4, 7, content_bytes / 2);
		if (i % 4 < 2)
		{
			uint32		bytes = blob_codec_compress((BlobMethod) method, stored, content_bytes,
													target, content_bytes);

			if (bytes > 0)
			{
				memcpy(stored, target, bytes);
				stored_bytes = bytes;
				stored[pg_prng_uint64_range(&random, 0, bytes - 1)] ^= 16;
			}
		}
		target[content_bytes] = 'x';
		(void) blob_codec_decompress(method, stored, stored_bytes, target, content_bytes);
		CHECK(target[content_bytes] == 'x', "bound");
		pfree(target);
		pfree(stored);
	}
}
