/*
 * blob/edit.c
 *	  Changes of a value, see blob/edit.h.
 *
 * A change of a compressed value writes the frames that it touches, and shares all others.
 *
 * A change of the size writes the content behind it again, through the writer.  An overwrite
 * (blob/overwrite.h) writes the extents that it touches to new ones of the same sizes, and shares
 * all others.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/edit.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "blob/writer.h"
#include "core/settings.h"
#include "miscadmin.h"

/* Content is read and written in steps of this size. */
#define STEP_BYTES (UINT64CONST(1024) * 1024)

/* ---- through the writer ---- */

/* Add the bytes [offset, offset + length) of a value. */
static void
write_range(BlobWriter *writer, const BlobValue *value, uint64 offset, uint64 length_bytes)
{
	BlobReader	reader;
	char	   *content;

	if (value->is_inline)
	{
		blob_writer_write(writer, value->inline_data + offset, length_bytes);
		return;
	}
	content = palloc(Max(1, Min(length_bytes, STEP_BYTES)));
	blob_reader_begin(&reader, value, 0);
	blob_reader_seek(&reader, offset);
	while (length_bytes > 0)
	{
		uint64		bytes = blob_reader_next(&reader, content, Min(STEP_BYTES, length_bytes));

		blob_writer_write(writer, content, bytes);
		length_bytes -= bytes;
	}
	blob_reader_end(&reader);
	pfree(content);
}

/* Add zeros. */
static void
write_zeros(BlobWriter *writer, uint64 length_bytes)
{
	char	   *zeros = palloc0(Max(1, Min(length_bytes, STEP_BYTES)));

	for (uint64 done = 0; done < length_bytes; done += STEP_BYTES)
	{
		CHECK_FOR_INTERRUPTS();
		blob_writer_write(writer, zeros, Min(STEP_BYTES, length_bytes - done));
	}
	pfree(zeros);
}

/*
 * Whether a change of a compressed value, which keeps content behind its first changed byte, shares
 * frames.  A value whose changes have left more stored bytes than it has content is written anew,
 * and so is one that may become inline.
 */
static bool
shares_frames(const BlobValue *value, uint64 new_size_bytes)
{
	return !value->is_inline && value->descriptor.is_compressed &&
		new_size_bytes > (uint64) blob_inline_limit_bytes &&
		value->descriptor.compression.stored_bytes <= value->size_bytes;
}

/* Begin with the first keep_bytes of a value; more of its content may follow (add_kept()). */
static BlobWriter *
begin_change(const BlobValue *value, uint64 keep_bytes, uint64 expected_bytes, bool shares)
{
	BlobWriter *writer;

	if (!shares)
		return blob_writer_grow(value, keep_bytes, expected_bytes);
	writer = blob_writer_begin_change(value);
	blob_writer_keep(writer, 0, keep_bytes);
	return writer;
}

/* Add the bytes [offset, offset + length) of the value that the change was begun with. */
static void
add_kept(BlobWriter *writer, const BlobValue *value, uint64 offset, uint64 length_bytes,
		 bool shares)
{
	if (shares)
		blob_writer_keep(writer, offset, offset + length_bytes);
	else
		write_range(writer, value, offset, length_bytes);
}

struct varlena *
blob_edit_append(const BlobValue *value, const void *data, uint64 length_bytes)
{
	BlobWriter *writer = blob_writer_grow(value, value->size_bytes, length_bytes);

	blob_writer_write(writer, data, length_bytes);
	return blob_writer_finish(writer);
}

struct varlena *
blob_edit_concat(const BlobValue *value, const BlobValue *second)
{
	BlobWriter *writer = blob_writer_grow(value, value->size_bytes, second->size_bytes);

	write_range(writer, second, 0, second->size_bytes);
	return blob_writer_finish(writer);
}

struct varlena *
blob_edit_replace(const BlobValue *value, uint64 kept_bytes, const void *data,
				  uint64 length_bytes, uint64 behind, uint64 end)
{
	BlobWriter *writer;
	bool		shares = behind < end &&
		shares_frames(value, kept_bytes + length_bytes + end - behind);

	Assert(kept_bytes <= value->size_bytes && behind <= end && end <= value->size_bytes);

	writer = begin_change(value, kept_bytes, length_bytes + end - behind, shares);
	blob_writer_write(writer, data, length_bytes);
	add_kept(writer, value, behind, end - behind, shares);
	return blob_writer_finish(writer);
}

struct varlena *
blob_edit_splice(const BlobValue *value, uint64 offset, uint64 deleted_bytes, const void *data,
				 uint64 length_bytes)
{
	return blob_edit_replace(value, offset, data, length_bytes, offset + deleted_bytes,
							 value->size_bytes);
}

struct varlena *
blob_edit_resize(const BlobValue *value, uint64 size_bytes)
{
	uint64		kept = Min(size_bytes, value->size_bytes);
	BlobWriter *writer = blob_writer_grow(value, kept, size_bytes - kept);

	write_zeros(writer, size_bytes - kept);
	return blob_writer_finish(writer);
}

struct varlena *
blob_edit_overwrite(const BlobValue *value, uint64 offset, const void *data, uint64 length_bytes)
{
	uint64		end = offset + length_bytes;
	BlobPatchPiece piece = {.offset = offset, .bytes = length_bytes, .data = data};
	BlobWriter *writer;

	if (!value->is_inline && !value->descriptor.is_compressed && length_bytes > 0 &&
		end <= value->size_bytes)
		return blob_overwrite(value, &piece, 1);
	if (offset <= value->size_bytes)
		return blob_edit_splice(value, offset, Min(end, value->size_bytes) - offset, data,
								length_bytes);

	writer = blob_writer_grow(value, value->size_bytes, end - value->size_bytes);
	write_zeros(writer, offset - value->size_bytes);
	blob_writer_write(writer, data, length_bytes);
	return blob_writer_finish(writer);
}

/* ---- several pieces ---- */

/*
 * Write everything from the first piece on again.  Content before it is shared, and hashed unless
 * the piece begins at the value's end or later.
 */
static struct varlena *
rewrite_from_first(const BlobValue *value, const BlobPatchPiece *pieces, int count)
{
	uint64		end = pieces[count - 1].offset + pieces[count - 1].bytes;
	uint64		position = Min(pieces[0].offset, value->size_bytes);
	bool		shares = position < value->size_bytes &&
		shares_frames(value, Max(end, value->size_bytes));
	BlobWriter *writer = begin_change(value, position, Max(end, value->size_bytes) - position,
									  shares);

	for (int i = 0; i < count; i++)
	{
		uint64		kept = Min(pieces[i].offset, Max(position, value->size_bytes)) - position;

		if (kept > 0)
			add_kept(writer, value, position, kept, shares);
		write_zeros(writer, pieces[i].offset - (position + kept));
		blob_writer_write(writer, pieces[i].data, pieces[i].bytes);
		position = pieces[i].offset + pieces[i].bytes;
	}
	if (position < value->size_bytes)
		add_kept(writer, value, position, value->size_bytes - position, shares);
	return blob_writer_finish(writer);
}

/* The content offset from which on the bytes are in the last extent of a value, or behind it. */
static uint64
last_extent_offset(const BlobDescriptor *descriptor)
{
	int			count = blob_descriptor_extent_count(descriptor) -
		(descriptor->has_remainder_page ? 1 : 0);
	uint64		start = 0;

	for (int i = 0; i < count; i++)
	{
		BlobStoredExtent stored;

		blob_mapping_extent(descriptor, i, start, &stored);
		if (i == count - 1)
			return blob_mapping_content_of(descriptor, &stored).offset;
		start += stored.bytes;
	}
	return 0;
}

/*
 * Overwrite what lies inside of the value, and then append what lies behind its end.  The append
 * goes on with the digest of the first step, so each byte is hashed once.  Extents that the first
 * step wrote and the second one does not use are left to the collector, as those of a value that
 * was not stored.
 */
static struct varlena *
overwrite_and_append(const BlobValue *value, const BlobPatchPiece *pieces, int count)
{
	BlobPatchPiece *inside = palloc(sizeof(BlobPatchPiece) * count);
	BlobPatchPiece *behind = palloc(sizeof(BlobPatchPiece) * count);
	int			inside_count = 0;
	int			behind_count = 0;
	struct varlena *overwritten;
	struct varlena *datum;
	BlobValue	between;

	for (int i = 0; i < count; i++)
	{
		uint64		start = pieces[i].offset;
		uint64		bytes = start < value->size_bytes ?
			Min(pieces[i].bytes, value->size_bytes - start) : 0;

		if (bytes > 0)
			inside[inside_count++] = (BlobPatchPiece) {start, bytes, pieces[i].data};
		if (bytes < pieces[i].bytes)
			behind[behind_count++] = (BlobPatchPiece) {
				start + bytes, pieces[i].bytes - bytes, pieces[i].data + bytes
			};
	}
	overwritten = blob_overwrite(value, inside, inside_count);
	blob_value_unpack(overwritten, &between);
	datum = rewrite_from_first(&between, behind, behind_count);
	pfree(overwritten);
	pfree(inside);
	pfree(behind);
	return datum;
}

struct varlena *
blob_edit_patch(const BlobValue *value, const BlobPatchPiece *pieces, int count)
{
	uint64		end = pieces[count - 1].offset + pieces[count - 1].bytes;

	Assert(count > 0);
	if (!value->is_inline && value->descriptor.is_compressed)
		return rewrite_from_first(value, pieces, count);
	if (!value->is_inline && end <= value->size_bytes)
		return blob_overwrite(value, pieces, count);

	/* Whole extents would be copied for the sake of a few bytes at the end of the last one. */
	if (value->is_inline || pieces[0].offset >= last_extent_offset(&value->descriptor))
		return rewrite_from_first(value, pieces, count);
	return overwrite_and_append(value, pieces, count);
}
