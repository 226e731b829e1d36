/*
 * blob/share.c
 *	  Two values of the same content, see blob/share.h.
 */
#include "postgres.h"

#include "blob/reader.h"
#include "blob/share.h"
#include "extents/buffered.h"
#include "miscadmin.h"

/* Content is compared in steps of this size. */
#define STEP_BYTES (UINT64CONST(1024) * 1024)

/* One of two contents: its next bytes. */
typedef struct Side
{
	uint64		size_bytes;
	uint64		done;
	const char *memory;			/* where all of it is, or NULL: it is read */
	BlobReader	reader;
	char	   *buffer;
	bool		asks_buffer;
} Side;

static void
begin_memory_side(Side *side, const char *memory, uint64 size_bytes)
{
	side->size_bytes = size_bytes;
	side->done = 0;
	side->memory = memory;
	side->buffer = NULL;
	side->asks_buffer = false;
}

/*
 * A value, which stays where it is until end_side().  Bytes that are read from the device do not
 * go into the buffer, where others should not lose theirs for them.  asks_buffer: bytes that the
 * buffer has are taken from there; otherwise they are those of the files.
 */
static void
begin_side(Side *side, const BlobValue *value, bool asks_buffer)
{
	begin_memory_side(side, value->is_inline ? value->inline_data : NULL, value->size_bytes);
	if (value->is_inline)
		return;
	side->buffer = palloc(Min(value->size_bytes, STEP_BYTES));
	side->asks_buffer = asks_buffer && !value->descriptor.is_compressed;
	blob_reader_begin(&side->reader, value, BLOB_READER_ALL | BLOB_READER_PAST_BUFFER);
}

/*
 * Read the next bytes from the buffer, as many as it has; asks it no more when it lacks some.
 * Returns their number, at most length_bytes.
 */
static uint64
read_buffered(Side *side, uint64 length_bytes)
{
	uint64		got = 0;

	while (side->asks_buffer && got < length_bytes)
	{
		uint64		bytes = Min(length_bytes - got, BLOB_BUFFERED_MAX_BYTES);

		CHECK_FOR_INTERRUPTS();
		if (blob_reader_read_buffered(&side->reader, side->buffer + got, bytes))
			got += bytes;
		else
			side->asks_buffer = false;
	}
	return got;
}

/* At most STEP_BYTES, from memory, from the buffer or from the device; 0 at the end. */
static const char *
next_bytes(Side *side, uint64 *bytes)
{
	const char *data = side->buffer;
	uint64		got;

	*bytes = Min(STEP_BYTES, side->size_bytes - side->done);
	if (side->memory != NULL)
		data = side->memory + side->done;
	else
	{
		got = read_buffered(side, *bytes);
		if (got < *bytes)
			(void) blob_reader_next(&side->reader, side->buffer + got, *bytes - got);
	}
	side->done += *bytes;
	return data;
}

static void
end_side(Side *side)
{
	if (side->buffer == NULL)
		return;
	blob_reader_end(&side->reader);
	pfree(side->buffer);
}

static bool
are_same(Side *a, Side *b)
{
	uint64		bytes[2];
	bool		is_same;

	do
	{
		const char *first = next_bytes(a, &bytes[0]);
		const char *second = next_bytes(b, &bytes[1]);

		is_same = bytes[0] == bytes[1] && memcmp(first, second, bytes[0]) == 0;
	}
	while (is_same && bytes[0] > 0);
	return is_same;
}

bool
blob_share_is_same(const BlobValue *stays, const BlobValue *goes)
{
	Side		sides[2];
	bool		is_same;

	if (stays->size_bytes != goes->size_bytes)
		return false;
	begin_side(&sides[0], stays, false);
	begin_side(&sides[1], goes, true);
	is_same = are_same(&sides[0], &sides[1]);
	end_side(&sides[0]);
	end_side(&sides[1]);
	return is_same;
}

char *
blob_share_read(const BlobValue *stays)
{
	char	   *content;
	BlobReader	reader;

	if (stays->is_inline || stays->size_bytes > STEP_BYTES)
		return NULL;
	content = palloc(stays->size_bytes);
	blob_reader_begin(&reader, stays, BLOB_READER_ALL | BLOB_READER_PAST_BUFFER);
	(void) blob_reader_next(&reader, content, stays->size_bytes);
	blob_reader_end(&reader);
	return content;
}

bool
blob_share_is_content(const char *content, const BlobValue *goes)
{
	Side		sides[2];
	bool		is_same;

	begin_memory_side(&sides[0], content, goes->size_bytes);
	begin_side(&sides[1], goes, true);
	is_same = are_same(&sides[0], &sides[1]);
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
	begin_side(&side, value, false);
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
