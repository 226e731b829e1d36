/*
 * blob/edit.c
 *	  Changes of a value, see blob/edit.h.
 *
 * A change in the middle of a large value makes a tree of pieces (blob/tree.h): it writes what it
 * touches, and shares the rest.  A short value is written again from the change on.
 */
#include "postgres.h"

#include "blob/edit.h"
#include "blob/reader.h"
#include "blob/seal.h"
#include "blob/writer.h"
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
 * Begin a version of a value with its first keep_bytes.  More of its content will be read, and
 * written behind new bytes.  The writer makes sure that a part is right, but not of none or all.
 */
static BlobWriter *
begin_copy(const BlobValue *value, uint64 keep_bytes, uint64 new_size_bytes)
{
	if (keep_bytes == 0 || keep_bytes == value->size_bytes)
		blob_seal_require_sound(value);
	return blob_writer_grow(value, keep_bytes, new_size_bytes - keep_bytes);
}

/*
 * Begin a version of a value with its first keep_bytes.  more_bytes of its content follow behind
 * new bytes: they are shared, if that makes a difference.
 */
static BlobWriter *
begin_edit(const BlobValue *value, uint64 keep_bytes, uint64 more_bytes, uint64 new_size_bytes)
{
	BlobWriter *writer;

	if (more_bytes == 0)
		return blob_writer_grow(value, keep_bytes, new_size_bytes - keep_bytes);
	if (!blob_writer_can_change(value, keep_bytes + more_bytes, new_size_bytes))
		return begin_copy(value, keep_bytes, new_size_bytes);
	writer = blob_writer_begin_change(value);
	blob_writer_keep(writer, 0, keep_bytes);
	return writer;
}

/* Add the bytes [offset, offset + length) of the value, behind those that were added before. */
static void
add_kept(BlobWriter *writer, const BlobValue *value, uint64 offset, uint64 length_bytes)
{
	if (blob_writer_is_change(writer))
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
	BlobWriter *writer;

	blob_seal_require_sound(second);
	writer = blob_writer_grow(value, value->size_bytes, second->size_bytes);
	write_range(writer, second, 0, second->size_bytes);
	return blob_writer_finish(writer);
}

struct varlena *
blob_edit_replace(const BlobValue *value, uint64 kept_bytes, const void *data,
				  uint64 length_bytes, uint64 behind, uint64 end)
{
	uint64		new_size_bytes = kept_bytes + length_bytes + end - behind;
	BlobWriter *writer;

	Assert(kept_bytes <= value->size_bytes && behind <= end && end <= value->size_bytes);

	if (behind < kept_bytes)
	{
		/* Some content comes twice, and is written twice. */
		writer = begin_copy(value, kept_bytes, new_size_bytes);
		blob_writer_write(writer, data, length_bytes);
		write_range(writer, value, behind, end - behind);
		return blob_writer_finish(writer);
	}
	writer = begin_edit(value, kept_bytes, end - behind, new_size_bytes);
	blob_writer_write(writer, data, length_bytes);
	add_kept(writer, value, behind, end - behind);
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
	BlobWriter *writer;

	if (offset <= value->size_bytes)
		return blob_edit_splice(value, offset, Min(end, value->size_bytes) - offset, data,
								length_bytes);

	writer = blob_writer_grow(value, value->size_bytes, end - value->size_bytes);
	write_zeros(writer, offset - value->size_bytes);
	blob_writer_write(writer, data, length_bytes);
	return blob_writer_finish(writer);
}

struct varlena *
blob_edit_patch(const BlobValue *value, const BlobPatchPiece *pieces, int count)
{
	uint64		end = pieces[count - 1].offset + pieces[count - 1].bytes;
	uint64		new_size_bytes = Max(end, value->size_bytes);
	uint64		position = Min(pieces[0].offset, value->size_bytes);
	uint64		more_bytes = value->size_bytes - position;
	BlobWriter *writer;

	Assert(count > 0);
	for (int i = 0; i < count; i++)
		more_bytes -= Min(pieces[i].bytes, value->size_bytes -
						  Min(pieces[i].offset, value->size_bytes));
	writer = begin_edit(value, position, more_bytes, new_size_bytes);
	for (int i = 0; i < count; i++)
	{
		uint64		kept = Min(pieces[i].offset, Max(position, value->size_bytes)) - position;

		if (kept > 0)
			add_kept(writer, value, position, kept);
		write_zeros(writer, pieces[i].offset - (position + kept));
		blob_writer_write(writer, pieces[i].data, pieces[i].bytes);
		position = pieces[i].offset + pieces[i].bytes;
	}
	if (position < value->size_bytes)
		add_kept(writer, value, position, value->size_bytes - position);
	return blob_writer_finish(writer);
}
