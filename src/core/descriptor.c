/*
 * core/descriptor.c
 *	  Packing and unpacking of blobstate datums, see core/descriptor.h.
 */
#include "postgres.h"

#include "access/detoast.h"
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
	AT_EXTENT_STARTS = 128,
	/* with remainder: */
	AT_TAIL_POSITION = 128,
	AT_TAIL_CONTENT_PAGES = 130,
	AT_REMAINDER_BYTES = 136,
	AT_REMAINDER_PAGE = 138,
	AT_REMAINDER_EXTENT_STARTS = 144
};

StaticAssertDecl(AT_STATE == AT_SHA256 + BLOB_DIGEST_BYTES, "descriptor layout");
StaticAssertDecl(AT_TAIL_FIRST_PAGE == AT_PREFIX + BLOB_PREFIX_BYTES, "descriptor layout");
StaticAssertDecl(AT_EXTENT_STARTS == BLOB_DESCRIPTOR_FIXED_BYTES, "descriptor layout");
StaticAssertDecl(AT_REMAINDER_EXTENT_STARTS == BLOB_DESCRIPTOR_REMAINDER_FIXED_BYTES,
				 "descriptor layout");

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
	int			count = blob_descriptor_extent_count(descriptor);

	Assert(extent_no >= 0 && extent_no < count);

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
		load_integer(descriptor->extent_starts + extent_no * BLOB_EXTENT_START_BYTES,
					 BLOB_EXTENT_START_BYTES);
	extent.pages = blob_tier_pages(extent_no);
	return extent;
}

uint64
blob_descriptor_extent_bytes(const BlobDescriptor *descriptor, int extent_no, uint64 start)
{
	uint64		end = descriptor->size_bytes - descriptor->remainder_bytes;
	uint64		pages;

	if (descriptor->has_remainder_page && extent_no == blob_descriptor_extent_count(descriptor) - 1)
		return descriptor->remainder_bytes;
	if (descriptor->has_tail && extent_no == descriptor->tail_position)
		pages = descriptor->tail_content_pages;
	else
		pages = blob_tier_pages(extent_no -
								(descriptor->has_tail && extent_no > descriptor->tail_position));
	return Min(pages * BLOB_PAGE_SIZE, end - Min(start, end));
}

static void
report_corrupt_datum(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid blobstate value"),
			 errdetail_internal("%s", detail)));
}

/*
 * The extents must hold the content, else a range read could run off their end; each of them some
 * of it.
 */
static void
check_capacity(const BlobDescriptor *descriptor)
{
	uint64		start = 0;

	for (int i = 0; i < blob_descriptor_extent_count(descriptor); i++)
		start += blob_descriptor_extent_bytes(descriptor, i, start);
	if (start + blob_descriptor_inline_bytes(descriptor) != descriptor->size_bytes)
		report_corrupt_datum("The extents are shorter than the content.");
}

/* What only a descriptor with remainder has.  Returns the length that the datum should have. */
static size_t
unpack_remainder(const uint8 *data, size_t length_bytes, BlobDescriptor *descriptor)
{
	size_t		starts_bytes = (size_t) descriptor->tier_extent_count * BLOB_EXTENT_START_BYTES;
	size_t		expected = BLOB_DESCRIPTOR_REMAINDER_FIXED_BYTES + starts_bytes;

	if (length_bytes < expected)
		report_corrupt_datum("The descriptor is too short.");
	descriptor->tail_position = (int) load_integer(data + AT_TAIL_POSITION, 2);
	descriptor->tail_content_pages = load_integer(data + AT_TAIL_CONTENT_PAGES,
												  BLOB_EXTENT_START_BYTES);
	descriptor->remainder_bytes = (uint32) load_integer(data + AT_REMAINDER_BYTES, 2);
	descriptor->has_remainder_page = (data[AT_FLAGS] & BLOB_FLAG_REMAINDER_PAGE) != 0;
	descriptor->remainder_page = load_integer(data + AT_REMAINDER_PAGE, BLOB_EXTENT_START_BYTES);
	descriptor->extent_starts = data + AT_REMAINDER_EXTENT_STARTS;
	if (descriptor->remainder_bytes >= BLOB_PAGE_SIZE ||
		descriptor->remainder_bytes > descriptor->size_bytes ||
		(descriptor->size_bytes - descriptor->remainder_bytes) % BLOB_PAGE_SIZE != 0 ||
		descriptor->tail_position > descriptor->tier_extent_count ||
		descriptor->tail_content_pages > descriptor->tail_pages ||
		(descriptor->has_remainder_page && descriptor->remainder_bytes == 0))
		report_corrupt_datum("Tail and remainder contradict the size.");
	if (descriptor->has_remainder_page || descriptor->remainder_bytes == 0)
		return expected;
	descriptor->remainder = (const char *) data + AT_REMAINDER_EXTENT_STARTS + starts_bytes;
	return expected + descriptor->remainder_bytes;
}

static void
unpack_descriptor(const uint8 *data, size_t length_bytes, BlobDescriptor *descriptor)
{
	size_t		expected;

	if (length_bytes < BLOB_DESCRIPTOR_FIXED_BYTES)
		report_corrupt_datum("The descriptor is too short.");

	descriptor->tier_extent_count = (int) load_integer(data + AT_EXTENT_COUNT, 2);
	descriptor->generation = load_integer(data + AT_GENERATION, 8);
	descriptor->size_bytes = load_integer(data + AT_SIZE, 8);
	memcpy(descriptor->sha256, data + AT_SHA256, BLOB_DIGEST_BYTES);
	memcpy(descriptor->state, data + AT_STATE, BLOB_DIGEST_BYTES);
	memcpy(descriptor->prefix, data + AT_PREFIX, BLOB_PREFIX_BYTES);
	descriptor->has_tail = (data[AT_FLAGS] & BLOB_FLAG_TAIL) != 0;
	descriptor->tail_first_page = load_integer(data + AT_TAIL_FIRST_PAGE, BLOB_EXTENT_START_BYTES);
	descriptor->tail_pages = load_integer(data + AT_TAIL_PAGES, BLOB_EXTENT_START_BYTES);
	descriptor->tail_position = descriptor->tier_extent_count;
	descriptor->tail_content_pages = descriptor->tail_pages;
	descriptor->extent_starts = data + AT_EXTENT_STARTS;
	descriptor->remainder_bytes = 0;
	descriptor->remainder = NULL;
	descriptor->has_remainder_page = false;
	descriptor->remainder_page = 0;

	if (data[AT_FORM] == BLOB_FORM_DESCRIPTOR_V2)
		expected = unpack_remainder(data, length_bytes, descriptor);
	else
		expected = BLOB_DESCRIPTOR_FIXED_BYTES +
			(size_t) descriptor->tier_extent_count * BLOB_EXTENT_START_BYTES;
	if (length_bytes != expected)
		report_corrupt_datum("The descriptor's length does not match its extent count.");
	check_capacity(descriptor);
}

static bool
is_descriptor(uint8 form)
{
	return form == BLOB_FORM_DESCRIPTOR_V1 || form == BLOB_FORM_DESCRIPTOR_V2;
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
	if (!is_descriptor(data[AT_FORM]))
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
	if (!is_descriptor(data[AT_FORM]))
		report_unknown_form(data[AT_FORM]);

	value->inline_data = NULL;
	unpack_descriptor(data, length_bytes, &value->descriptor);
	value->size_bytes = value->descriptor.size_bytes;
}

/*
 * A pointer to a TOAST table has a header of one byte, too, so VARATT_IS_SHORT() alone does not
 * tell that the value is here.  (What lz4 has compressed and is out of the row is fetched whole.)
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
	store_integer(data + AT_EXTENT_COUNT, 2, tier_extent_count);
	store_integer(data + AT_GENERATION, 8, descriptor->generation);
	store_integer(data + AT_SIZE, 8, descriptor->size_bytes);
	memcpy(data + AT_SHA256, descriptor->sha256, BLOB_DIGEST_BYTES);
	memcpy(data + AT_STATE, descriptor->state, BLOB_DIGEST_BYTES);
	memcpy(data + AT_PREFIX, descriptor->prefix, BLOB_PREFIX_BYTES);
	if (tail == NULL)
		return;
	data[AT_FLAGS] |= BLOB_FLAG_TAIL;
	store_integer(data + AT_TAIL_FIRST_PAGE, BLOB_EXTENT_START_BYTES, tail->first_page);
	store_integer(data + AT_TAIL_PAGES, BLOB_EXTENT_START_BYTES, tail->pages);
}

static void
pack_remainder(uint8 *data, const BlobDescriptor *descriptor, int tier_extent_count, int tail_no)
{
	data[AT_FORM] = BLOB_FORM_DESCRIPTOR_V2;
	if (tail_no >= 0)
	{
		store_integer(data + AT_TAIL_POSITION, 2, tail_no);
		store_integer(data + AT_TAIL_CONTENT_PAGES, BLOB_EXTENT_START_BYTES,
					  descriptor->tail_content_pages);
	}
	store_integer(data + AT_REMAINDER_BYTES, 2, descriptor->remainder_bytes);
	if (descriptor->has_remainder_page)
	{
		data[AT_FLAGS] |= BLOB_FLAG_REMAINDER_PAGE;
		store_integer(data + AT_REMAINDER_PAGE, BLOB_EXTENT_START_BYTES,
					  descriptor->remainder_page);
	}
	else if (descriptor->remainder_bytes > 0)
		memcpy(data + AT_REMAINDER_EXTENT_STARTS + tier_extent_count * BLOB_EXTENT_START_BYTES,
			   descriptor->remainder,
			   descriptor->remainder_bytes);
}

struct varlena *
blob_descriptor_pack(const BlobDescriptor *descriptor, const BlobExtent *extents, int extent_count)
{
	int			tail_no = -1;
	int			tier_extent_count = extent_count;
	bool		is_plain;
	size_t		length_bytes;
	struct varlena *datum;
	uint8	   *head;

	for (int i = 0; i < extent_count; i++)
	{
		Assert(!extents[i].is_tail || tail_no < 0);
		if (extents[i].is_tail)
			tail_no = i;
	}
	if (tail_no >= 0)
		tier_extent_count--;
	is_plain = descriptor->remainder_bytes == 0 && (tail_no < 0 || tail_no == extent_count - 1);

	length_bytes = is_plain ? AT_EXTENT_STARTS : AT_REMAINDER_EXTENT_STARTS;
	length_bytes += (size_t) tier_extent_count * BLOB_EXTENT_START_BYTES;
	if (!descriptor->has_remainder_page)
		length_bytes += descriptor->remainder_bytes;
	datum = palloc0(VARHDRSZ + length_bytes);
	SET_VARSIZE(datum, VARHDRSZ + length_bytes);

	pack_common((uint8 *) VARDATA(datum), descriptor, tier_extent_count,
				tail_no < 0 ? NULL : &extents[tail_no]);
	if (is_plain)
		*VARDATA(datum) = BLOB_FORM_DESCRIPTOR_V1;
	else
		pack_remainder((uint8 *) VARDATA(datum), descriptor, tier_extent_count, tail_no);

	head = (uint8 *) VARDATA(datum) + (is_plain ? AT_EXTENT_STARTS : AT_REMAINDER_EXTENT_STARTS);
	for (int i = 0; i < extent_count; i++)
	{
		if (extents[i].is_tail)
			continue;
		store_integer(head, BLOB_EXTENT_START_BYTES, extents[i].first_page);
		head += BLOB_EXTENT_START_BYTES;
	}
	return datum;
}

struct varlena *
blob_descriptor_copy(const BlobDescriptor *descriptor)
{
	int			count = descriptor->tier_extent_count + (descriptor->has_tail ? 1 : 0);
	BlobExtent *extents = palloc(sizeof(BlobExtent) * (count + 1));
	struct varlena *datum;

	for (int i = 0; i < count; i++)
		extents[i] = blob_descriptor_extent(descriptor, i);
	datum = blob_descriptor_pack(descriptor, extents, count);
	pfree(extents);
	return datum;
}
