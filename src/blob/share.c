/*
 * blob/share.c
 *	  Two values of the same content, see blob/share.h.
 */
#include "postgres.h"

#include "blob/reader.h"
#include "blob/share.h"

/* Content is compared in steps of this size. */
#define STEP_BYTES (UINT64CONST(1024) * 1024)

/* One of two values: its next bytes. */
typedef struct Side
{
	const BlobValue *value;
	BlobReader	reader;			/* of a value in extents */
	char	   *buffer;
	uint64		done;			/* of an inline value */
} Side;

/*
 * Past the buffer: each content is read once, and others should not lose theirs for it.
 */
static void
begin_side(Side *side, const BlobValue *value)
{
	side->value = value;
	side->buffer = NULL;
	side->done = 0;
	if (value->is_inline)
		return;
	side->buffer = palloc(Min(value->size_bytes, STEP_BYTES));
	blob_reader_begin(&side->reader, value, BLOB_READER_ALL | BLOB_READER_UNCACHED);
}

static const char *
next_bytes(Side *side, uint64 *bytes)
{
	const char *data;

	if (side->value->is_inline)
	{
		data = side->value->inline_data + side->done;
		*bytes = Min(STEP_BYTES, side->value->size_bytes - side->done);
		side->done += *bytes;
		return data;
	}
	*bytes = blob_reader_next(&side->reader, side->buffer, STEP_BYTES);
	return side->buffer;
}

static void
end_side(Side *side)
{
	if (side->value->is_inline)
		return;
	blob_reader_end(&side->reader);
	pfree(side->buffer);
}

bool
blob_share_is_same(const BlobValue *a, const BlobValue *b)
{
	Side		sides[2];
	uint64		bytes[2];
	bool		is_same;

	if (a->size_bytes != b->size_bytes)
		return false;
	begin_side(&sides[0], a);
	begin_side(&sides[1], b);
	do
	{
		const char *first = next_bytes(&sides[0], &bytes[0]);
		const char *second = next_bytes(&sides[1], &bytes[1]);

		is_same = bytes[0] == bytes[1] && memcmp(first, second, bytes[0]) == 0;
	}
	while (is_same && bytes[0] > 0);
	end_side(&sides[0]);
	end_side(&sides[1]);
	return is_same;
}

bool
blob_share_is_sound(const BlobValue *value)
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		state[BLOB_DIGEST_BYTES];
	BlobDigest	digest;
	Side		side;
	uint64		bytes;

	if (value->is_inline)
		return true;
	blob_digest_begin(&digest);
	begin_side(&side, value);
	do
	{
		const char *data = next_bytes(&side, &bytes);

		blob_digest_update(&digest, data, bytes);
	}
	while (bytes > 0);
	end_side(&side);
	blob_digest_finish(&digest, sha256, state);
	return memcmp(sha256, value->descriptor.sha256, sizeof(sha256)) == 0;
}

static bool
has_extent(const BlobValue *value, BlobPageNo first_page)
{
	if (value == NULL || value->is_inline)
		return false;
	for (int i = 0; i < blob_descriptor_extent_count(&value->descriptor); i++)
	{
		if (blob_descriptor_extent(&value->descriptor, i).first_page == first_page)
			return true;
	}
	return false;
}

uint64
blob_share_spares(const BlobValue *value, const BlobValue *other)
{
	uint64		pages = 0;

	if (value->is_inline)
		return 0;
	for (int i = 0; i < blob_descriptor_extent_count(&value->descriptor); i++)
	{
		BlobExtent	extent = blob_descriptor_extent(&value->descriptor, i);

		if (!has_extent(other, extent.first_page))
			pages += extent.pages;
	}
	return pages * BLOB_PAGE_SIZE;
}
