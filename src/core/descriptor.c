/*
 * core/descriptor.c
 *	  Packing and unpacking of blobstate datums, see core/descriptor.h.
 */
#include "postgres.h"

#include "core/descriptor.h"
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
	AT_HEADS = 128
};

StaticAssertDecl(AT_STATE == AT_SHA256 + BLOB_DIGEST_BYTES, "descriptor layout");
StaticAssertDecl(AT_TAIL_FIRST_PAGE == AT_PREFIX + BLOB_PREFIX_BYTES, "descriptor layout");
StaticAssertDecl(AT_HEADS == BLOB_DESCRIPTOR_FIXED_BYTES, "descriptor layout");

static uint64
load_integer(const uint8 *at, int bytes)
{
	uint64		value = 0;

	for (int i = bytes - 1; i >= 0; i--)
		value = value << 8 | at[i];
	return value;
}

static void
store_integer(uint8 *at, int bytes, uint64 value)
{
	for (int i = 0; i < bytes; i++, value >>= 8)
		at[i] = (uint8) value;
	Assert(value == 0);
}

BlobExtent
blob_descriptor_extent(const BlobDescriptor *descriptor, int extent_no)
{
	BlobExtent	extent = {0};

	Assert(extent_no >= 0 && extent_no < blob_descriptor_extent_count(descriptor));

	if (extent_no == descriptor->tier_extent_count)
	{
		extent.first_page = descriptor->tail_first_page;
		extent.pages = descriptor->tail_pages;
		extent.is_tail = true;
		return extent;
	}
	extent.first_page = load_integer(descriptor->heads + extent_no * BLOB_HEAD_BYTES,
									 BLOB_HEAD_BYTES);
	extent.pages = blob_tier_pages(extent_no);
	return extent;
}

static void
report_corrupt_datum(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid blobstate value"),
			 errdetail_internal("%s", detail)));
}

/* The extents must hold the content, else a range read could run off their end. */
static void
check_capacity(const BlobDescriptor *descriptor)
{
	uint64		pages = 0;

	for (int i = 0; i < blob_descriptor_extent_count(descriptor); i++)
		pages += blob_descriptor_extent(descriptor, i).pages;
	if (blob_pages_for(descriptor->size_bytes) > pages)
		report_corrupt_datum("The extents are shorter than the content.");
}

static void
unpack_descriptor(const uint8 *data, size_t length_bytes, BlobDescriptor *descriptor)
{
	if (length_bytes < BLOB_DESCRIPTOR_FIXED_BYTES)
		report_corrupt_datum("The descriptor is too short.");

	descriptor->tier_extent_count = (int) load_integer(data + AT_EXTENT_COUNT, 2);
	descriptor->generation = load_integer(data + AT_GENERATION, 8);
	descriptor->size_bytes = load_integer(data + AT_SIZE, 8);
	memcpy(descriptor->sha256, data + AT_SHA256, BLOB_DIGEST_BYTES);
	memcpy(descriptor->state, data + AT_STATE, BLOB_DIGEST_BYTES);
	memcpy(descriptor->prefix, data + AT_PREFIX, BLOB_PREFIX_BYTES);
	descriptor->has_tail = (data[AT_FLAGS] & BLOB_FLAG_TAIL) != 0;
	descriptor->tail_first_page = load_integer(data + AT_TAIL_FIRST_PAGE, BLOB_HEAD_BYTES);
	descriptor->tail_pages = load_integer(data + AT_TAIL_PAGES, BLOB_HEAD_BYTES);
	descriptor->heads = data + AT_HEADS;

	if (length_bytes != BLOB_DESCRIPTOR_FIXED_BYTES +
		(size_t) descriptor->tier_extent_count * BLOB_HEAD_BYTES)
		report_corrupt_datum("The descriptor's length does not match its extent count.");
	check_capacity(descriptor);
}

static void
report_unknown_form(uint8 form)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("blobstate value has unknown format %d", form),
			 errhint("The value may have been written by a newer version of blobext.")));
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
		key->sha256 = NULL;
		return;
	}
	if (data[AT_FORM] != BLOB_FORM_DESCRIPTOR_V1)
		report_unknown_form(data[AT_FORM]);
	if (length_bytes < BLOB_DESCRIPTOR_FIXED_BYTES)
		report_corrupt_datum("The descriptor is too short.");
	key->data = (const char *) data + AT_PREFIX;
	key->size_bytes = load_integer(data + AT_SIZE, 8);
	key->sha256 = data + AT_SHA256;
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
	if (data[AT_FORM] != BLOB_FORM_DESCRIPTOR_V1)
		report_unknown_form(data[AT_FORM]);

	value->inline_data = NULL;
	unpack_descriptor(data, length_bytes, &value->descriptor);
	value->size_bytes = value->descriptor.size_bytes;
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

struct varlena *
blob_descriptor_pack(const BlobDescriptor *descriptor, const BlobExtent *extents, int extent_count)
{
	int			tier_extent_count = extent_count;
	size_t		length_bytes;
	struct varlena *datum;
	uint8	   *data;

	if (extent_count > 0 && extents[extent_count - 1].is_tail)
		tier_extent_count--;

	length_bytes = BLOB_DESCRIPTOR_FIXED_BYTES + (size_t) tier_extent_count * BLOB_HEAD_BYTES;
	datum = palloc0(VARHDRSZ + length_bytes);
	SET_VARSIZE(datum, VARHDRSZ + length_bytes);
	data = (uint8 *) VARDATA(datum);

	data[AT_FORM] = BLOB_FORM_DESCRIPTOR_V1;
	store_integer(data + AT_EXTENT_COUNT, 2, tier_extent_count);
	store_integer(data + AT_GENERATION, 8, descriptor->generation);
	store_integer(data + AT_SIZE, 8, descriptor->size_bytes);
	memcpy(data + AT_SHA256, descriptor->sha256, BLOB_DIGEST_BYTES);
	memcpy(data + AT_STATE, descriptor->state, BLOB_DIGEST_BYTES);
	memcpy(data + AT_PREFIX, descriptor->prefix, BLOB_PREFIX_BYTES);
	if (tier_extent_count < extent_count)
	{
		data[AT_FLAGS] |= BLOB_FLAG_TAIL;
		store_integer(data + AT_TAIL_FIRST_PAGE, BLOB_HEAD_BYTES,
					  extents[tier_extent_count].first_page);
		store_integer(data + AT_TAIL_PAGES, BLOB_HEAD_BYTES, extents[tier_extent_count].pages);
	}
	for (int i = 0; i < tier_extent_count; i++)
		store_integer(data + AT_HEADS + i * BLOB_HEAD_BYTES, BLOB_HEAD_BYTES,
					  extents[i].first_page);
	return datum;
}
