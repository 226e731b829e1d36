/*
 * core/descriptor.c
 *	  Packing and unpacking of blobstate datums, see core/descriptor.h.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "core/descriptor.h"
#include "core/integer.h"
#include "utils/memutils.h"

enum
{
	AT_FORM = 0,
	AT_FLAGS = 1,
	AT_EXTENT_COUNT = 2,
	AT_GENERATION = 4,
	AT_SIZE = 12,
	AT_SHA256 = 20,
	AT_STATE = 52,
	AT_PREFIX = 84,
	AT_TAIL_FIRST_PAGE = 116,
	AT_TAIL_PAGES = 122,
	AT_EXTENT_STARTS = 128,
	/* with remainder: */
	AT_TAIL_POSITION = 128,
	AT_TAIL_CONTENT_PAGES = 130,
	AT_REMAINDER_BYTES = 136,
	AT_REMAINDER_PAGE = 138,
	AT_REMAINDER_EXTENT_STARTS = 144,
	/* compressed: */
	AT_STORED = 144,
	AT_METHOD = 152,
	AT_FRAME_BITS = 153,
	AT_LEVEL = 154,
	AT_ZERO = 155,
	AT_FRAMES_INLINE = 156,
	AT_ROOT_OFFSET = 158,
	AT_FRAME_COUNT = 164,
	AT_OPEN_OFFSET = 172,
	AT_OPEN_BYTES = 178,
	AT_OPEN_CRC = 184,
	AT_REMAINDER_CRC = 188,
	AT_COMPRESSED_EXTENT_STARTS = 192,
	/* of a tree: */
	AT_TREE_ZEROS = 128,
	AT_TREE_METHOD_ZEROS = 155,
	AT_TREE_END_ZEROS = 172,
	AT_SLOTS = 192
};

/* Of a slot. */
enum
{
	AT_SLOT_FIRST_PAGE = 0,
	AT_SLOT_START = 6,
	AT_SLOT_PAGES = 12,
	AT_SLOT_LIVE = 18,
	AT_SLOT_TIER = 24
};

StaticAssertDecl(AT_STATE == AT_SHA256 + BLOB_DIGEST_BYTES, "descriptor layout");
StaticAssertDecl(AT_TAIL_FIRST_PAGE == AT_PREFIX + BLOB_PREFIX_BYTES, "descriptor layout");
StaticAssertDecl(AT_EXTENT_STARTS == BLOB_DESCRIPTOR_FIXED_BYTES, "descriptor layout");
StaticAssertDecl(AT_REMAINDER_EXTENT_STARTS == BLOB_DESCRIPTOR_REMAINDER_FIXED_BYTES,
				 "descriptor layout");
StaticAssertDecl(AT_REMAINDER_CRC + 4 == AT_COMPRESSED_EXTENT_STARTS, "descriptor layout");
StaticAssertDecl(AT_COMPRESSED_EXTENT_STARTS == BLOB_DESCRIPTOR_COMPRESSED_FIXED_BYTES,
				 "descriptor layout");

/* An item of a btree has at most 2,704 bytes; 1 TiB has 50 extents of tier sizes. */
StaticAssertDecl(BLOB_DESCRIPTOR_COMPRESSED_FIXED_BYTES + 50 * BLOB_EXTENT_START_BYTES +
				 BLOB_FRAMES_INLINE * BLOB_FRAME_ENTRY_BYTES +
				 BLOB_COMPRESSED_REMAINDER_INLINE_BYTES < 2032 - VARHDRSZ, "descriptor size");
StaticAssertDecl(AT_SLOTS == BLOB_DESCRIPTOR_COMPRESSED_FIXED_BYTES, "tree layout");
StaticAssertDecl(AT_SLOT_TIER + 1 == BLOB_SLOT_BYTES, "tree layout");
StaticAssertDecl(AT_SLOTS + BLOB_TREE_MAX_SLOTS * BLOB_SLOT_BYTES < 2032 - VARHDRSZ,
				 "size of a tree's datum");
StaticAssertDecl(BLOB_TIER_COUNT < BLOB_SLOT_TAIL, "tiers of slots");

BlobSlot
blob_descriptor_slot(const BlobDescriptor *descriptor, int slot_no)
{
	const uint8 *at = descriptor->slots + slot_no * BLOB_SLOT_BYTES;
	BlobSlot	slot = {.tier = at[AT_SLOT_TIER]};

	Assert(descriptor->is_tree && slot_no >= 0 && slot_no < descriptor->slot_count);
	slot.extent.first_page = blob_load_integer(at + AT_SLOT_FIRST_PAGE, 6);
	slot.extent.is_tail = slot.tier == BLOB_SLOT_TAIL;
	slot.extent.pages = slot.extent.is_tail ? descriptor->tail_pages : blob_tier_pages(slot.tier);
	slot.start = blob_load_integer(at + AT_SLOT_START, 6) * BLOB_PAGE_SIZE;
	slot.bytes = blob_load_integer(at + AT_SLOT_PAGES, 6) * BLOB_PAGE_SIZE;
	slot.live_bytes = blob_load_integer(at + AT_SLOT_LIVE, 6);
	return slot;
}

bool
blob_descriptor_slots_hold(const BlobDescriptor *descriptor, uint64 stored_offset,
						   uint64 length_bytes)
{
	uint64		end = stored_offset + length_bytes;

	for (int i = 0; i < descriptor->slot_count && stored_offset < end; i++)
	{
		BlobSlot	slot = blob_descriptor_slot(descriptor, i);

		if (stored_offset < slot.start)
			return false;
		if (stored_offset < slot.start + slot.bytes)
			stored_offset = slot.start + slot.bytes;
	}
	return stored_offset >= end;
}

BlobExtent
blob_descriptor_extent(const BlobDescriptor *descriptor, int extent_no)
{
	BlobExtent	extent = {0};
	int			count = blob_descriptor_extent_count(descriptor);

	Assert(extent_no >= 0 && extent_no < count);

	if (descriptor->is_tree)
		return blob_descriptor_slot(descriptor, extent_no).extent;
	if (descriptor->has_remainder_page && extent_no == count - 1)
	{
		extent.first_page = descriptor->remainder_page;
		extent.pages = 1;
		extent.is_tail = true;
		return extent;
	}
	if (descriptor->has_tail && extent_no == descriptor->tail_position)
	{
		extent.first_page = descriptor->tail_first_page;
		extent.pages = descriptor->tail_pages;
		extent.is_tail = true;
		return extent;
	}
	if (descriptor->has_tail && extent_no > descriptor->tail_position)
		extent_no--;
	extent.first_page =
		blob_load_integer(descriptor->extent_starts + extent_no * BLOB_EXTENT_START_BYTES,
						  BLOB_EXTENT_START_BYTES);
	extent.pages = blob_tier_pages(extent_no);
	return extent;
}

/* Bytes of the extents, the page of the remainder not counted, that belong to the value. */
static uint64
get_stored_bytes(const BlobDescriptor *descriptor)
{
	return descriptor->is_compressed ? descriptor->compression.stored_bytes :
		descriptor->size_bytes - descriptor->remainder_bytes;
}

uint64
blob_descriptor_extent_start(const BlobDescriptor *descriptor, int extent_no, uint64 start)
{
	return descriptor->is_tree ? blob_descriptor_slot(descriptor, extent_no).start : start;
}

uint64
blob_descriptor_extent_stored_bytes(const BlobDescriptor *descriptor, int extent_no, uint64 start)
{
	uint64		end = get_stored_bytes(descriptor);
	uint64		pages;

	if (descriptor->is_tree)
		return blob_descriptor_slot(descriptor, extent_no).bytes;
	if (descriptor->has_remainder_page && extent_no == blob_descriptor_extent_count(descriptor) - 1)
		return descriptor->remainder_bytes;
	if (descriptor->has_tail && extent_no == descriptor->tail_position)
		pages = descriptor->tail_content_pages;
	else
		pages = blob_tier_pages(extent_no -
								(descriptor->has_tail && extent_no > descriptor->tail_position));
	return Min(pages * BLOB_PAGE_SIZE, end - Min(start, end));
}

BlobPageNo
blob_descriptor_page_of(const BlobDescriptor *descriptor, uint64 stored_offset)
{
	uint64		start = 0;

	for (int i = 0; i < blob_descriptor_extent_count(descriptor); i++)
	{
		uint64		bytes = blob_descriptor_extent_stored_bytes(descriptor, i, start);

		start = blob_descriptor_extent_start(descriptor, i, start);
		if (stored_offset >= start && stored_offset < start + bytes)
			return blob_descriptor_extent(descriptor, i).first_page +
				(stored_offset - start) / BLOB_PAGE_SIZE;
		start += bytes;
	}
	return 0;
}

static void
report_corrupt_datum(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid blobstate value"),
			 errdetail_internal("%s", detail)));
}

/* The extents must hold the stored bytes, else a range read could run off their end. */
static void
check_capacity(const BlobDescriptor *descriptor)
{
	uint64		expected = get_stored_bytes(descriptor);
	uint64		start = 0;

	if (descriptor->has_remainder_page)
		expected += descriptor->remainder_bytes;
	for (int i = 0; i < blob_descriptor_extent_count(descriptor); i++)
		start += blob_descriptor_extent_stored_bytes(descriptor, i, start);
	if (start != expected)
		report_corrupt_datum("The extents are shorter than the content.");
}

/*
 * Unpack the fields that all descriptors with remainder have.  The datum is long enough for the
 * fixed part; the extent starts are at starts_offset, followed by more_bytes of other fields.
 * Returns the length that the datum should have.  ERROR if tail and remainder contradict the size.
 */
static size_t
unpack_remainder(const uint8 *data, size_t starts_offset, size_t more_bytes,
				 BlobDescriptor *descriptor)
{
	size_t		starts_bytes = (size_t) descriptor->tier_extent_count * BLOB_EXTENT_START_BYTES;
	size_t		expected = starts_offset + starts_bytes + more_bytes;

	descriptor->tail_position = (int) blob_load_integer(data + AT_TAIL_POSITION, 2);
	descriptor->tail_content_pages = blob_load_integer(data + AT_TAIL_CONTENT_PAGES,
													   BLOB_EXTENT_START_BYTES);
	descriptor->remainder_bytes = (uint32) blob_load_integer(data + AT_REMAINDER_BYTES, 2);
	descriptor->has_remainder_page = (data[AT_FLAGS] & BLOB_FLAG_REMAINDER_PAGE) != 0;
	descriptor->remainder_page = blob_load_integer(data + AT_REMAINDER_PAGE,
												   BLOB_EXTENT_START_BYTES);
	descriptor->extent_starts = data + starts_offset;
	if (descriptor->remainder_bytes >= BLOB_PAGE_SIZE ||
		descriptor->remainder_bytes > descriptor->size_bytes ||
		get_stored_bytes(descriptor) % BLOB_PAGE_SIZE != 0 ||
		descriptor->tail_position > descriptor->tier_extent_count ||
		descriptor->tail_content_pages > descriptor->tail_pages ||
		(descriptor->has_remainder_page && descriptor->remainder_bytes == 0))
		report_corrupt_datum("Tail and remainder contradict the size.");
	if (descriptor->has_remainder_page || descriptor->remainder_bytes == 0)
		return expected;
	descriptor->remainder = (const char *) data + expected;
	return expected + descriptor->remainder_bytes;
}

/*
 * Check the frames whose entries are in the datum: together with the open frame and the remainder
 * they are all of the content.
 */
static void
check_frames(const BlobDescriptor *descriptor)
{
	const BlobCompression *compression = &descriptor->compression;
	uint64		left_bytes = descriptor->size_bytes - descriptor->remainder_bytes -
		compression->open_bytes;

	for (uint64 i = 0; i < compression->frame_count; i++)
	{
		BlobFrame	frame;
		const char *problem = blob_frame_unpack(compression->frames + i * BLOB_FRAME_ENTRY_BYTES,
												compression->frame_bits,
												compression->stored_bytes, &frame);

		if (problem != NULL)
			report_corrupt_datum(problem);
		if (frame.is_run)
			report_corrupt_datum("A run is among the frames.");
		if (frame.content_bytes > left_bytes)
			report_corrupt_datum("The frames are longer than the content.");
		left_bytes -= frame.content_bytes;
	}
	if (left_bytes != 0)
		report_corrupt_datum("The frames are shorter than the content.");
}

/* Check the fields of a compressed value, as far as possible without its stored bytes. */
static void
check_compression(const uint8 *data, const BlobDescriptor *descriptor)
{
	const BlobCompression *compression = &descriptor->compression;
	uint64		in_frames;

	if (data[AT_ZERO] != 0 ||
		(data[AT_FLAGS] & ~(BLOB_FLAG_TAIL | BLOB_FLAG_REMAINDER_PAGE |
							BLOB_FLAG_REMAINDER_CRC | BLOB_FLAG_DIGEST_DEFERRED)) != 0)
		report_corrupt_datum("Reserved bytes are not zero.");
	if (compression->has_remainder_crc ? !descriptor->has_remainder_page :
		compression->remainder_crc != 0)
		report_corrupt_datum("The checksum of the remainder contradicts its place.");
	if (compression->frame_bits < BLOB_FRAME_MIN_BITS ||
		compression->frame_bits > BLOB_FRAME_MAX_BITS ||
		compression->level > BLOB_NODE_MAX_LEVEL ||
		(compression->level == 0 ? compression->root_offset != 0 : compression->frame_count == 0))
		report_corrupt_datum("The directory of frames is not possible.");
	if (compression->open_bytes % BLOB_PAGE_SIZE != 0 ||
		compression->open_bytes > UINT64CONST(1) << compression->frame_bits ||
		compression->open_offset % BLOB_PAGE_SIZE != 0 ||
		compression->open_offset + compression->open_bytes > compression->stored_bytes ||
		(compression->open_bytes == 0 && compression->open_crc != 0))
		report_corrupt_datum("The open frame lies outside of the stored bytes.");
	if (compression->level > 0 &&
		(compression->root_offset % BLOB_PAGE_SIZE != 0 ||
		 compression->root_offset + BLOB_PAGE_SIZE > compression->stored_bytes))
		report_corrupt_datum("The directory of frames lies outside of the stored bytes.");
	if (descriptor->size_bytes > PG_INT64_MAX)
		report_corrupt_datum("The size is impossible.");
	if (compression->open_bytes + descriptor->remainder_bytes > descriptor->size_bytes)
		report_corrupt_datum("The open frame and the remainder are longer than the content.");
	in_frames = descriptor->size_bytes - descriptor->remainder_bytes - compression->open_bytes;
	if (compression->frame_count > in_frames ||
		compression->frame_count < in_frames >> compression->frame_bits)
		report_corrupt_datum("The number of frames contradicts the size.");
	if (compression->level == 0)
		check_frames(descriptor);
}

/* Returns the length that the datum should have; it has at least the fixed part. */
static size_t
unpack_compressed(const uint8 *data, size_t length_bytes, BlobDescriptor *descriptor)
{
	BlobCompression *compression = &descriptor->compression;
	size_t		starts_bytes = (size_t) descriptor->tier_extent_count * BLOB_EXTENT_START_BYTES;
	uint64		inline_count = blob_load_integer(data + AT_FRAMES_INLINE, 2);
	size_t		expected;

	descriptor->is_compressed = true;
	compression->stored_bytes = blob_load_integer(data + AT_STORED, 8);
	compression->method = data[AT_METHOD];
	compression->frame_bits = data[AT_FRAME_BITS];
	compression->level = data[AT_LEVEL];
	compression->root_offset = blob_load_integer(data + AT_ROOT_OFFSET, 6);
	compression->frame_count = blob_load_integer(data + AT_FRAME_COUNT, 8);
	compression->open_offset = blob_load_integer(data + AT_OPEN_OFFSET, 6);
	compression->open_bytes = blob_load_integer(data + AT_OPEN_BYTES, 6);
	compression->open_crc = (uint32) blob_load_integer(data + AT_OPEN_CRC, 4);
	compression->has_remainder_crc = (data[AT_FLAGS] & BLOB_FLAG_REMAINDER_CRC) != 0;
	compression->remainder_crc = (uint32) blob_load_integer(data + AT_REMAINDER_CRC, 4);
	expected = unpack_remainder(data, AT_COMPRESSED_EXTENT_STARTS,
								inline_count * BLOB_FRAME_ENTRY_BYTES, descriptor);
	if (length_bytes != expected)
		report_corrupt_datum("The descriptor's length does not match its extent count.");
	if (inline_count != (compression->level == 0 ? compression->frame_count : 0))
		report_corrupt_datum("The directory of frames is not possible.");
	compression->frames = data + AT_COMPRESSED_EXTENT_STARTS + starts_bytes;
	check_compression(data, descriptor);
	return expected;
}

/* ---- trees ---- */

static bool
are_zeros(const uint8 *data, size_t from, size_t to)
{
	while (from < to)
	{
		if (data[from++] != 0)
			return false;
	}
	return true;
}

/* Check the slots: each alone, and their order. */
static void
check_slots(const BlobDescriptor *descriptor)
{
	uint64		end = 0;
	int			tail_count = 0;

	for (int i = 0; i < descriptor->slot_count; i++)
	{
		uint8		tier = descriptor->slots[i * BLOB_SLOT_BYTES + AT_SLOT_TIER];
		BlobSlot	slot;

		if (tier != BLOB_SLOT_TAIL && tier >= BLOB_TIER_COUNT)
			report_corrupt_datum("A slot has an unknown tier.");
		slot = blob_descriptor_slot(descriptor, i);
		tail_count += slot.extent.is_tail;
		if (slot.bytes == 0 || slot.bytes / BLOB_PAGE_SIZE > slot.extent.pages ||
			slot.live_bytes == 0 || slot.live_bytes > slot.bytes)
			report_corrupt_datum("A slot has an impossible number of bytes.");
		if (slot.start < end || slot.start + slot.bytes > UINT64CONST(1) << 48)
			report_corrupt_datum("The slots overlap.");
		end = slot.start + slot.bytes;
	}
	if ((tail_count == 1) != (descriptor->tail_pages > 0))
		report_corrupt_datum("The slots contradict the tail.");
}

/* Check what is in the datum of a tree beside its slots. */
static void
check_tree(const uint8 *data, const BlobDescriptor *descriptor)
{
	const BlobCompression *compression = &descriptor->compression;

	if ((data[AT_FLAGS] & ~(BLOB_FLAG_TAIL | BLOB_FLAG_DIGEST_OPEN |
							BLOB_FLAG_DIGEST_DEFERRED)) != 0 ||
		(descriptor->is_open && !are_zeros(data, AT_SHA256, AT_PREFIX)) ||
		((data[AT_FLAGS] & BLOB_FLAG_TAIL) != 0) != (descriptor->tail_pages > 0) ||
		!are_zeros(data, AT_TAIL_FIRST_PAGE, AT_TAIL_PAGES) ||
		!are_zeros(data, AT_TREE_ZEROS, AT_METHOD) ||
		!are_zeros(data, AT_TREE_METHOD_ZEROS, AT_ROOT_OFFSET) ||
		!are_zeros(data, AT_TREE_END_ZEROS, AT_SLOTS))
		report_corrupt_datum("Reserved bytes are not zero.");
	if (compression->frame_bits < BLOB_FRAME_MIN_BITS ||
		compression->frame_bits > BLOB_FRAME_MAX_BITS ||
		compression->level < 1 || compression->level > BLOB_NODE_MAX_LEVEL)
		report_corrupt_datum("The directory of pieces is not possible.");
	if (compression->root_offset % BLOB_PAGE_SIZE != 0 ||
		!blob_descriptor_slots_hold(descriptor, compression->root_offset, BLOB_PAGE_SIZE))
		report_corrupt_datum("The directory of pieces lies outside of the slots.");
	if (descriptor->size_bytes > PG_INT64_MAX)
		report_corrupt_datum("The size is impossible.");
	if (compression->frame_count == 0 || compression->frame_count > descriptor->size_bytes ||
		compression->frame_count < descriptor->size_bytes / BLOB_RUN_MAX_BYTES)
		report_corrupt_datum("The number of pieces contradicts the size.");
}

/* As unpack_compressed(), for a tree. */
static size_t
unpack_tree(const uint8 *data, size_t length_bytes, BlobDescriptor *descriptor)
{
	BlobCompression *compression = &descriptor->compression;
	size_t		expected;

	memset(compression, 0, sizeof(*compression));
	descriptor->is_compressed = descriptor->is_tree = true;
	descriptor->slot_count = descriptor->tier_extent_count;
	descriptor->slots = data + AT_SLOTS;
	descriptor->tier_extent_count = 0;
	descriptor->has_tail = false;
	compression->method = data[AT_METHOD];
	compression->frame_bits = data[AT_FRAME_BITS];
	compression->level = data[AT_LEVEL];
	compression->root_offset = blob_load_integer(data + AT_ROOT_OFFSET, 6);
	compression->frame_count = blob_load_integer(data + AT_FRAME_COUNT, 8);

	expected = AT_SLOTS + (size_t) descriptor->slot_count * BLOB_SLOT_BYTES;
	if (length_bytes != expected)
		report_corrupt_datum("The descriptor's length does not match its extent count.");
	if (descriptor->slot_count < 1 || descriptor->slot_count > BLOB_TREE_MAX_SLOTS)
		report_corrupt_datum("The number of slots is impossible.");
	check_slots(descriptor);
	compression->stored_bytes =
		blob_descriptor_slot(descriptor, descriptor->slot_count - 1).start +
		blob_descriptor_slot(descriptor, descriptor->slot_count - 1).bytes;
	check_tree(data, descriptor);
	return expected;
}

/* ---- all descriptors ---- */

static size_t
get_fixed_bytes(uint8 form)
{
	switch (form)
	{
		case BLOB_FORM_DESCRIPTOR_V2:
			return BLOB_DESCRIPTOR_REMAINDER_FIXED_BYTES;
		case BLOB_FORM_COMPRESSED_V1:
		case BLOB_FORM_TREE_V1:
			return BLOB_DESCRIPTOR_COMPRESSED_FIXED_BYTES;
		default:
			return BLOB_DESCRIPTOR_FIXED_BYTES;
	}
}

/* Whether a descriptor is one of unknown digest: the other forms reserve the flag. */
static bool
is_open(const uint8 *data)
{
	return data[AT_FORM] == BLOB_FORM_TREE_V1 && (data[AT_FLAGS] & BLOB_FLAG_DIGEST_OPEN) != 0;
}

/* Unpack a descriptor of any form.  ERROR if lengths and sizes contradict each other. */
static void
unpack_descriptor(const uint8 *data, size_t length_bytes, BlobDescriptor *descriptor)
{
	size_t		expected = get_fixed_bytes(data[AT_FORM]);

	if (length_bytes < expected)
		report_corrupt_datum("The descriptor is too short.");

	descriptor->tier_extent_count = (int) blob_load_integer(data + AT_EXTENT_COUNT, 2);
	descriptor->generation = blob_load_integer(data + AT_GENERATION, 8);
	descriptor->size_bytes = blob_load_integer(data + AT_SIZE, 8);
	memcpy(descriptor->sha256, data + AT_SHA256, BLOB_DIGEST_BYTES);
	memcpy(descriptor->state, data + AT_STATE, BLOB_DIGEST_BYTES);
	memcpy(descriptor->prefix, data + AT_PREFIX, BLOB_PREFIX_BYTES);
	descriptor->has_tail = (data[AT_FLAGS] & BLOB_FLAG_TAIL) != 0;
	descriptor->tail_first_page = blob_load_integer(data + AT_TAIL_FIRST_PAGE,
													BLOB_EXTENT_START_BYTES);
	descriptor->tail_pages = blob_load_integer(data + AT_TAIL_PAGES, BLOB_EXTENT_START_BYTES);
	descriptor->tail_position = descriptor->tier_extent_count;
	descriptor->tail_content_pages = descriptor->tail_pages;
	descriptor->extent_starts = data + AT_EXTENT_STARTS;
	descriptor->remainder_bytes = 0;
	descriptor->remainder = NULL;
	descriptor->has_remainder_page = false;
	descriptor->remainder_page = 0;
	descriptor->is_compressed = false;
	descriptor->is_tree = false;
	descriptor->defers_digest = (data[AT_FLAGS] & BLOB_FLAG_DIGEST_DEFERRED) != 0;
	descriptor->is_open = is_open(data);
	descriptor->slot_count = 0;

	if (data[AT_FORM] == BLOB_FORM_TREE_V1)
		expected = unpack_tree(data, length_bytes, descriptor);
	else if (data[AT_FORM] == BLOB_FORM_COMPRESSED_V1)
		expected = unpack_compressed(data, length_bytes, descriptor);
	else if (data[AT_FORM] == BLOB_FORM_DESCRIPTOR_V2)
		expected = unpack_remainder(data, AT_REMAINDER_EXTENT_STARTS, 0, descriptor);
	else
		expected += (size_t) descriptor->tier_extent_count * BLOB_EXTENT_START_BYTES;
	if (length_bytes != expected)
		report_corrupt_datum("The descriptor's length does not match its extent count.");
	if (!descriptor->is_tree)
		check_capacity(descriptor);
}

static bool
is_descriptor(uint8 form)
{
	return form == BLOB_FORM_DESCRIPTOR_V1 || form == BLOB_FORM_DESCRIPTOR_V2 ||
		form == BLOB_FORM_COMPRESSED_V1 || form == BLOB_FORM_TREE_V1;
}

static void
report_unknown_form(uint8 form)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("blobstate value has unknown format %d", form),
			 errhint("The value may have been written by a newer version of blobext: install that "
					 "for this server and restart it.")));
}

void
blob_key_load(const struct varlena *datum, BlobKey *key)
{
	const uint8 *data = (const uint8 *) VARDATA_ANY(datum);
	size_t		length_bytes = VARSIZE_ANY_EXHDR(datum);

	if (length_bytes < BLOB_FORM_BYTES)
		report_corrupt_datum("The form byte is missing.");

	key->datum = datum;
	if (data[AT_FORM] == BLOB_FORM_INLINE_V1)
	{
		key->data = (const char *) data + BLOB_FORM_BYTES;
		key->size_bytes = length_bytes - BLOB_FORM_BYTES;
		key->kind = BLOB_KEY_INLINE;
		key->sealed_digest = NULL;
		return;
	}
	if (!is_descriptor(data[AT_FORM]))
		report_unknown_form(data[AT_FORM]);
	if (length_bytes < BLOB_DESCRIPTOR_FIXED_BYTES)
		report_corrupt_datum("The descriptor is too short.");
	key->data = (const char *) data + AT_PREFIX;
	key->size_bytes = blob_load_integer(data + AT_SIZE, 8);
	key->kind = is_open(data) ? BLOB_KEY_OPEN : BLOB_KEY_SEALED;
	key->sealed_digest = key->kind == BLOB_KEY_SEALED ? data + AT_SHA256 : NULL;
}

void
blob_value_unpack(const struct varlena *datum, BlobValue *value)
{
	const uint8 *data = (const uint8 *) VARDATA_ANY(datum);
	size_t		length_bytes = VARSIZE_ANY_EXHDR(datum);

	if (length_bytes < BLOB_FORM_BYTES)
		report_corrupt_datum("The form byte is missing.");

	value->is_inline = data[AT_FORM] == BLOB_FORM_INLINE_V1;
	if (value->is_inline)
	{
		value->inline_data = (const char *) data + BLOB_FORM_BYTES;
		value->size_bytes = length_bytes - BLOB_FORM_BYTES;
		return;
	}
	if (!is_descriptor(data[AT_FORM]))
		report_unknown_form(data[AT_FORM]);

	value->inline_data = NULL;
	unpack_descriptor(data, length_bytes, &value->descriptor);
	value->size_bytes = value->descriptor.size_bytes;
}

void
blob_value_sealed_digest(const BlobValue *value, uint8 *sha256)
{
	Assert(value->is_inline || !value->descriptor.is_open);
	if (value->is_inline)
		blob_digest_bytes(value->inline_data, value->size_bytes, sha256);
	else
		memcpy(sha256, value->descriptor.sha256, BLOB_DIGEST_BYTES);
}

void
blob_descriptor_identity(const BlobDescriptor *descriptor, uint8 identity[BLOB_DIGEST_BYTES])
{
	memset(identity, 0, BLOB_DIGEST_BYTES);
	if (descriptor->is_open)
		blob_store_integer(identity, sizeof(BlobGeneration), descriptor->generation);
	else
		memcpy(identity, descriptor->sha256, BLOB_DIGEST_BYTES);
}

/*
 * A pointer to a TOAST table has a header of one byte, too, so VARATT_IS_SHORT() alone does not
 * tell that the value is here.  (A value out of the row that lz4 has compressed is fetched whole.)
 */
bool
blob_datum_is_inline(Datum datum)
{
	struct varlena *varlena = (struct varlena *) DatumGetPointer(datum);
	struct varlena *start = varlena;
	bool		is_inline;

	if (VARATT_IS_EXTERNAL(varlena) || VARATT_IS_COMPRESSED(varlena))
		start = detoast_attr_slice(varlena, 0, BLOB_FORM_BYTES);
	is_inline = VARSIZE_ANY_EXHDR(start) >= BLOB_FORM_BYTES &&
		((uint8 *) VARDATA_ANY(start))[AT_FORM] == BLOB_FORM_INLINE_V1;
	if (start != varlena)
		pfree(start);
	return is_inline;
}

bool
blob_datum_defers_digest(const struct varlena *datum)
{
	const uint8 *data = (const uint8 *) VARDATA_ANY(datum);

	return VARSIZE_ANY_EXHDR(datum) >= BLOB_DESCRIPTOR_FIXED_BYTES &&
		is_descriptor(data[AT_FORM]) && (data[AT_FLAGS] & BLOB_FLAG_DIGEST_DEFERRED) != 0;
}

void
blob_datum_set_defers_digest(struct varlena *datum, bool defers)
{
	uint8	   *data = (uint8 *) VARDATA_ANY(datum);

	if (VARSIZE_ANY_EXHDR(datum) < BLOB_DESCRIPTOR_FIXED_BYTES || !is_descriptor(data[AT_FORM]))
		return;
	if (defers)
		data[AT_FLAGS] |= BLOB_FLAG_DIGEST_DEFERRED;
	else
		data[AT_FLAGS] &= ~BLOB_FLAG_DIGEST_DEFERRED;
}

struct varlena *
blob_descriptor_seal(const struct varlena *datum, const uint8 *sha256, const uint8 *state)
{
	size_t		length_bytes = VARSIZE_ANY_EXHDR(datum);
	struct varlena *sealed = palloc(VARHDRSZ + length_bytes);
	uint8	   *data = (uint8 *) VARDATA(sealed);

	SET_VARSIZE(sealed, VARHDRSZ + length_bytes);
	memcpy(data, VARDATA_ANY(datum), length_bytes);
	Assert(length_bytes >= BLOB_DESCRIPTOR_FIXED_BYTES && is_open(data));
	data[AT_FLAGS] &= ~(BLOB_FLAG_DIGEST_OPEN | BLOB_FLAG_DIGEST_DEFERRED);
	memcpy(data + AT_SHA256, sha256, BLOB_DIGEST_BYTES);
	memcpy(data + AT_STATE, state, BLOB_DIGEST_BYTES);
	return sealed;
}

void
blob_check_datum_size(uint64 size_bytes)
{
	if (size_bytes > MaxAllocSize - VARHDRSZ)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("content of " UINT64_FORMAT " bytes does not fit into one value in memory",
						size_bytes),
				 errhint("Read it in ranges with blob_read().")));
}

struct varlena *
blob_inline_make(uint64 size_bytes)
{
	struct varlena *datum;

	blob_check_datum_size(BLOB_FORM_BYTES + size_bytes);
	datum = palloc(VARHDRSZ + BLOB_FORM_BYTES + size_bytes);
	SET_VARSIZE(datum, VARHDRSZ + BLOB_FORM_BYTES + size_bytes);
	*VARDATA(datum) = BLOB_FORM_INLINE_V1;
	return datum;
}

char *
blob_inline_content(struct varlena *datum)
{
	return VARDATA(datum) + BLOB_FORM_BYTES;
}

/* Write what all descriptors have. */
static void
pack_common(uint8 *data, const BlobDescriptor *descriptor, int tier_extent_count,
			const BlobExtent *tail)
{
	blob_store_integer(data + AT_EXTENT_COUNT, 2, tier_extent_count);
	blob_store_integer(data + AT_GENERATION, 8, descriptor->generation);
	blob_store_integer(data + AT_SIZE, 8, descriptor->size_bytes);
	memcpy(data + AT_SHA256, descriptor->sha256, BLOB_DIGEST_BYTES);
	memcpy(data + AT_STATE, descriptor->state, BLOB_DIGEST_BYTES);
	memcpy(data + AT_PREFIX, descriptor->prefix, BLOB_PREFIX_BYTES);
	if (descriptor->defers_digest)
		data[AT_FLAGS] |= BLOB_FLAG_DIGEST_DEFERRED;
	if (descriptor->is_open)
		data[AT_FLAGS] |= BLOB_FLAG_DIGEST_OPEN;
	if (tail == NULL)
		return;
	data[AT_FLAGS] |= BLOB_FLAG_TAIL;
	blob_store_integer(data + AT_TAIL_FIRST_PAGE, BLOB_EXTENT_START_BYTES, tail->first_page);
	blob_store_integer(data + AT_TAIL_PAGES, BLOB_EXTENT_START_BYTES, tail->pages);
}

/* remainder_at: where the remainder begins, if it has no page. */
static void
pack_remainder(uint8 *data, const BlobDescriptor *descriptor, int tail_no, size_t remainder_at)
{
	if (tail_no >= 0)
	{
		blob_store_integer(data + AT_TAIL_POSITION, 2, tail_no);
		blob_store_integer(data + AT_TAIL_CONTENT_PAGES, BLOB_EXTENT_START_BYTES,
						   descriptor->tail_content_pages);
	}
	blob_store_integer(data + AT_REMAINDER_BYTES, 2, descriptor->remainder_bytes);
	if (descriptor->has_remainder_page)
	{
		data[AT_FLAGS] |= BLOB_FLAG_REMAINDER_PAGE;
		blob_store_integer(data + AT_REMAINDER_PAGE, BLOB_EXTENT_START_BYTES,
						   descriptor->remainder_page);
	}
	else if (descriptor->remainder_bytes > 0)
		memcpy(data + remainder_at, descriptor->remainder, descriptor->remainder_bytes);
}

/*
 * Pack the fields of the compressed form.  With level 0 the entries of the frames go to frames_at
 * in the datum; otherwise the datum has the offset of the directory's root.
 */
static void
pack_compression(uint8 *data, const BlobCompression *compression, const BlobFrame *frames,
				 size_t frames_at)
{
	blob_store_integer(data + AT_STORED, 8, compression->stored_bytes);
	data[AT_METHOD] = compression->method;
	data[AT_FRAME_BITS] = (uint8) compression->frame_bits;
	data[AT_LEVEL] = (uint8) compression->level;
	blob_store_integer(data + AT_FRAME_COUNT, 8, compression->frame_count);
	blob_store_integer(data + AT_OPEN_OFFSET, 6, compression->open_offset);
	blob_store_integer(data + AT_OPEN_BYTES, 6, compression->open_bytes);
	blob_store_integer(data + AT_OPEN_CRC, 4, compression->open_crc);
	if (compression->has_remainder_crc)
	{
		data[AT_FLAGS] |= BLOB_FLAG_REMAINDER_CRC;
		blob_store_integer(data + AT_REMAINDER_CRC, 4, compression->remainder_crc);
	}
	if (compression->level > 0)
	{
		blob_store_integer(data + AT_ROOT_OFFSET, 6, compression->root_offset);
		return;
	}
	blob_store_integer(data + AT_FRAMES_INLINE, 2, compression->frame_count);
	for (uint64 i = 0; i < compression->frame_count; i++)
		blob_frame_pack(data + frames_at + i * BLOB_FRAME_ENTRY_BYTES, &frames[i]);
}

/* The number of the tail among the extents, or -1. */
static int
find_tail(const BlobExtent *extents, int extent_count)
{
	int			tail_no = -1;

	for (int i = 0; i < extent_count; i++)
	{
		Assert(!extents[i].is_tail || tail_no < 0);
		if (extents[i].is_tail)
			tail_no = i;
	}
	return tail_no;
}

/* Pack a descriptor of this form; frames: of a compressed one of level 0. */
static struct varlena *
pack(uint8 form, const BlobDescriptor *descriptor, const BlobFrame *frames,
	 const BlobExtent *extents, int extent_count)
{
	const BlobCompression *compression = &descriptor->compression;
	int			tail_no = find_tail(extents, extent_count);
	int			tier_extent_count = extent_count - (tail_no >= 0 ? 1 : 0);
	size_t		starts_at = get_fixed_bytes(form);
	size_t		frames_at = starts_at + (size_t) tier_extent_count * BLOB_EXTENT_START_BYTES;
	size_t		length_bytes = frames_at;
	struct varlena *datum;
	uint8	   *data;
	uint8	   *start;

	if (form == BLOB_FORM_COMPRESSED_V1 && compression->level == 0)
		length_bytes += compression->frame_count * BLOB_FRAME_ENTRY_BYTES;
	if (!descriptor->has_remainder_page)
		length_bytes += descriptor->remainder_bytes;
	datum = palloc0(VARHDRSZ + length_bytes);
	SET_VARSIZE(datum, VARHDRSZ + length_bytes);
	data = (uint8 *) VARDATA(datum);

	data[AT_FORM] = form;
	pack_common(data, descriptor, tier_extent_count, tail_no < 0 ? NULL : &extents[tail_no]);
	if (form != BLOB_FORM_DESCRIPTOR_V1)
		pack_remainder(data, descriptor, tail_no, length_bytes - descriptor->remainder_bytes);
	if (form == BLOB_FORM_COMPRESSED_V1)
		pack_compression(data, compression, frames, frames_at);

	start = data + starts_at;
	for (int i = 0; i < extent_count; i++)
	{
		if (extents[i].is_tail)
			continue;
		blob_store_integer(start, BLOB_EXTENT_START_BYTES, extents[i].first_page);
		start += BLOB_EXTENT_START_BYTES;
	}
	return datum;
}

struct varlena *
blob_descriptor_pack(const BlobDescriptor *descriptor, const BlobExtent *extents, int extent_count)
{
	int			tail_no = find_tail(extents, extent_count);
	bool		is_plain = descriptor->remainder_bytes == 0 &&
		(tail_no < 0 || tail_no == extent_count - 1);

	return pack(is_plain ? BLOB_FORM_DESCRIPTOR_V1 : BLOB_FORM_DESCRIPTOR_V2, descriptor, NULL,
				extents, extent_count);
}

struct varlena *
blob_compressed_pack(const BlobDescriptor *descriptor, const BlobFrame *frames,
					 const BlobExtent *extents, int extent_count)
{
	return pack(BLOB_FORM_COMPRESSED_V1, descriptor, frames, extents, extent_count);
}

struct varlena *
blob_tree_pack(const BlobDescriptor *descriptor, const BlobSlot *slots, int slot_count)
{
	const BlobCompression *compression = &descriptor->compression;
	size_t		length_bytes = AT_SLOTS + (size_t) slot_count * BLOB_SLOT_BYTES;
	struct varlena *datum = palloc0(VARHDRSZ + length_bytes);
	uint8	   *data = (uint8 *) VARDATA(datum);

	Assert(slot_count >= 1 && slot_count <= BLOB_TREE_MAX_SLOTS);
	SET_VARSIZE(datum, VARHDRSZ + length_bytes);
	data[AT_FORM] = BLOB_FORM_TREE_V1;
	pack_common(data, descriptor, slot_count, NULL);
	data[AT_METHOD] = compression->method;
	data[AT_FRAME_BITS] = (uint8) compression->frame_bits;
	data[AT_LEVEL] = (uint8) compression->level;
	blob_store_integer(data + AT_ROOT_OFFSET, 6, compression->root_offset);
	blob_store_integer(data + AT_FRAME_COUNT, 8, compression->frame_count);
	for (int i = 0; i < slot_count; i++)
	{
		uint8	   *at = data + AT_SLOTS + i * BLOB_SLOT_BYTES;

		blob_store_integer(at + AT_SLOT_FIRST_PAGE, 6, slots[i].extent.first_page);
		blob_store_integer(at + AT_SLOT_START, 6, slots[i].start / BLOB_PAGE_SIZE);
		blob_store_integer(at + AT_SLOT_PAGES, 6, slots[i].bytes / BLOB_PAGE_SIZE);
		blob_store_integer(at + AT_SLOT_LIVE, 6, slots[i].live_bytes);
		at[AT_SLOT_TIER] = slots[i].tier;
		if (slots[i].tier == BLOB_SLOT_TAIL)
		{
			data[AT_FLAGS] |= BLOB_FLAG_TAIL;
			blob_store_integer(data + AT_TAIL_PAGES, 6, slots[i].extent.pages);
		}
	}
	return datum;
}

/* A tree's datum anew. */
static struct varlena *
copy_tree(const BlobDescriptor *descriptor)
{
	BlobSlot	slots[BLOB_TREE_MAX_SLOTS];

	for (int i = 0; i < descriptor->slot_count; i++)
		slots[i] = blob_descriptor_slot(descriptor, i);
	return blob_tree_pack(descriptor, slots, descriptor->slot_count);
}

/* The frames whose entries are in the datum, which was checked. */
static BlobFrame *
unpack_frames(const BlobDescriptor *descriptor)
{
	const BlobCompression *compression = &descriptor->compression;
	int			count = compression->level == 0 ? (int) compression->frame_count : 0;
	BlobFrame  *frames = palloc(sizeof(BlobFrame) * (count + 1));

	for (int i = 0; i < count; i++)
	{
		const char *problem = blob_frame_unpack(compression->frames + i * BLOB_FRAME_ENTRY_BYTES,
												compression->frame_bits,
												compression->stored_bytes, &frames[i]);

		if (problem != NULL)
			report_corrupt_datum(problem);
	}
	return frames;
}

struct varlena *
blob_descriptor_copy(const BlobDescriptor *descriptor)
{
	int			count = descriptor->tier_extent_count + (descriptor->has_tail ? 1 : 0);
	BlobExtent *extents;
	BlobFrame  *frames;
	struct varlena *datum;

	if (descriptor->is_tree)
		return copy_tree(descriptor);
	extents = palloc(sizeof(BlobExtent) * (count + 1));
	for (int i = 0; i < count; i++)
		extents[i] = blob_descriptor_extent(descriptor, i);
	if (descriptor->is_compressed)
	{
		frames = unpack_frames(descriptor);
		datum = blob_compressed_pack(descriptor, frames, extents, count);
		pfree(frames);
	}
	else
		datum = blob_descriptor_pack(descriptor, extents, count);
	pfree(extents);
	return datum;
}
