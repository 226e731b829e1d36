/*
 * blob/recompress.c
 *	  Values that exist, stored anew by another method, see blob/recompress.h.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/footprint.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "blob/recompress.h"
#include "blob/writer.h"
#include "core/codec.h"
#include "core/settings.h"

/* Content is copied in steps of this size. */
#define STEP_BYTES (1024 * 1024)

/* Parts of a value that are tried, one page each. */
#define TRIED_PARTS 8

/*
 * Stored bytes of a value that was compressed at once, at most, besides those of its frames.  A
 * node begins at a page, behind frames that do not end with one.
 */
static uint64
expected_overhead_bytes(uint64 frame_count)
{
	return (2 * blob_footprint_nodes(frame_count) + 1) * BLOB_PAGE_SIZE;
}

/*
 * Whether a compressed value is as one that was compressed at once: all frames full but the last
 * one, nothing behind them, and no stored bytes but those of frames and directory.
 */
static bool
is_settled(const BlobValue *value)
{
	const BlobDescriptor *descriptor = &value->descriptor;
	const BlobCompression *compression = &descriptor->compression;
	uint64		frame_bytes = UINT64CONST(1) << compression->frame_bits;
	uint64		stored_bytes = 0;
	BlobMappingSource source;
	BlobFrameCursor cursor;
	BlobReader	reader;

	if (compression->open_bytes > 0 || descriptor->remainder_bytes > 0 ||
		compression->frame_count != (value->size_bytes + frame_bytes - 1) / frame_bytes)
		return false;
	blob_reader_begin(&reader, value, 0);
	source = blob_reader_source(&reader);
	blob_frame_cursor_begin(&cursor, descriptor, &source);
	for (bool goes_on = blob_frame_cursor_seek(&cursor, 0); goes_on;
		 goes_on = blob_frame_cursor_next(&cursor))
		stored_bytes += cursor.frame.stored_bytes;
	blob_reader_end(&reader);
	return compression->stored_bytes <=
		stored_bytes + expected_overhead_bytes(compression->frame_count);
}

/* Whether one frame, which is all of the content, saves a page. */
static bool
frame_saves_page(const BlobValue *value, BlobMethod method)
{
	uint32		bytes = (uint32) value->size_bytes;
	char	   *content = palloc(bytes);
	char	   *target = palloc(bytes);
	uint32		stored_bytes;

	blob_read(value, 0, bytes, content);
	stored_bytes = blob_codec_compress(method, content, bytes, target, bytes - bytes / 8);
	pfree(content);
	pfree(target);
	return stored_bytes > 0 && blob_pages_for(stored_bytes) < blob_pages_for(bytes);
}

/* Whether a value that is not compressed can be, by parts of it. */
static bool
is_compressible(const BlobValue *value, BlobMethod method)
{
	char		part[BLOB_PAGE_SIZE];

	if (method == BLOB_METHOD_NONE || value->size_bytes <= BLOB_PAGE_SIZE)
		return false;
	if (value->size_bytes <= BLOB_FRAME_BYTES)
		return frame_saves_page(value, method);
	for (int i = 0; i < TRIED_PARTS; i++)
	{
		uint64		offset = (value->size_bytes - sizeof(part)) / (TRIED_PARTS - 1) * i;

		blob_read(value, offset, sizeof(part), part);
		if (blob_codec_is_promising(method, part, sizeof(part)))
			return true;
	}
	return false;
}

/* Whether a value has a method; a tree need not. */
static bool
has_method(const BlobValue *value)
{
	return value->descriptor.is_compressed && !(value->descriptor.is_tree &&
		value->descriptor.compression.method == BLOB_METHOD_NONE);
}

bool
blob_recompress_is_due(const BlobValue *value, BlobMethod method)
{
	if (value->is_inline)
		return value->size_bytes > (uint64) blob_inline_limit_bytes;
	if (value->size_bytes <= (uint64) blob_inline_limit_bytes)
		return true;
	if (!has_method(value))
		return is_compressible(value, method);
	return value->descriptor.is_tree || value->descriptor.compression.method != method ||
		!is_settled(value);
}

/*
 * ERROR XX001 unless the copy has the digest of its original: damage must not become a sound value.
 * The copy may be inline, which has no digest yet.  If that of the original is open, the checksums
 * of its pages have decided when it was read.
 */
static void
require_same_digest(const BlobDescriptor *original, const struct varlena *copy)
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	BlobValue	value;

	if (original->is_open)
		return;
	blob_value_unpack(copy, &value);
	blob_value_sealed_digest(&value, sha256);
	if (memcmp(sha256, original->sha256, sizeof(sha256)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("content does not match its SHA-256 digest"),
				 errdetail("The value of " UINT64_FORMAT " bytes was not stored anew.",
						   original->size_bytes),
				 errhint("Restore the value from a backup; blobext_check() lists the affected "
						 "values.")));
}

struct varlena *
blob_recompress(const BlobValue *value, BlobMethod method)
{
	bool		is_framed = method != BLOB_METHOD_NONE &&
		!value->is_inline && value->size_bytes > BLOB_FRAME_BYTES &&
		(has_method(value) || is_compressible(value, method));
	BlobWriter *writer = is_framed ? blob_writer_begin_framed(value->size_bytes, method) :
		blob_writer_begin(value->size_bytes, method);
	char	   *content = palloc(Max(1, Min(value->size_bytes, STEP_BYTES)));
	struct varlena *datum;
	BlobReader	reader;
	uint64		bytes;

	blob_reader_begin(&reader, value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, content, STEP_BYTES)) > 0)
		blob_writer_write(writer, content, bytes);
	blob_reader_end(&reader);
	pfree(content);
	datum = blob_writer_finish(writer);
	if (!value->is_inline)
		require_same_digest(&value->descriptor, datum);
	return datum;
}
