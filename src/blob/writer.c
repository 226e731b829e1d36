/*
 * blob/writer.c
 *	  Values of any size, written piece by piece; see blob/writer.h, and "Growth" in the README of
 *	  this folder.
 *
 * The writer decides what the stored bytes are: the content as it is, or what a framer makes of it.
 * They wait in the buffer, and leave it as whole pages.  blob/page_writer.c finds places for them.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/change.h"
#include "blob/framer.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "blob/seal.h"
#include "blob/write_buffer.h"
#include "blob/writer.h"
#include "core/settings.h"
#include "io/stat.h"
#include "miscadmin.h"

/* So much is taken from a source at once, and hashed and copied while it is in the CPU's cache. */
#define SLICE_BYTES (128 * 1024)

/* Content that is written anew is read in steps of this size. */
#define COPY_STEP_BYTES (UINT64CONST(1024) * 1024)

struct BlobWriter
{
	MemoryContext context;
	BlobWriteBuffer stored;		/* its stored bytes */
	BlobMethod	method;			/* to be tried; none: the content is stored as it is */
	BlobFramer *framer;			/* NULL: the stored bytes are the content */
	bool		is_appending;	/* to a compressed value, whose open frame goes on */
	BlobChange *change;			/* NULL: none; else the framer is NULL */
	bool		defers_digest;	/* as the base says */
	uint64		expected_bytes; /* of the whole content; 0: unknown */
	uint64		size_bytes;		/* content so far */
	uint8		prefix[BLOB_PREFIX_BYTES];
};

/* ---- compression ---- */

/*
 * A BlobFramerPut, whose context is the writer.  Before the first pages are allocated, guess from
 * the content so far how many there will be.
 */
static void
put_framed(void *context, const char *stored, uint64 length_bytes)
{
	BlobWriter *writer = context;
	uint64		stored_bytes = writer->stored.used_bytes + length_bytes;

	if (writer->stored.pages.stored_bytes == 0 && stored_bytes > BLOB_WRITE_BUFFER_BYTES &&
		writer->expected_bytes > writer->stored.hashed_bytes)
	{
		writer->stored.pages.is_estimated = true;
		writer->stored.pages.expected_bytes = (uint64)
			((double) stored_bytes / writer->stored.hashed_bytes * writer->expected_bytes);
	}
	blob_write_buffer_add(&writer->stored, stored, length_bytes);
}

/* Hash content and give it to the framer, frame by frame, while it is in the processor's cache. */
static void
add_framed(BlobWriter *writer, const char *data, uint64 length_bytes)
{
	for (uint64 done = 0; done < length_bytes; done += BLOB_FRAME_BYTES)
	{
		uint64		bytes = Min(BLOB_FRAME_BYTES, length_bytes - done);

		CHECK_FOR_INTERRUPTS();
		blob_digest_update(&writer->stored.digest, data + done, bytes);
		writer->stored.hashed_bytes += bytes;
		blob_framer_add(writer->framer, data + done, bytes);
	}
}

static void
set_framer(BlobWriter *writer, BlobFramer *framer)
{
	writer->framer = framer;
	writer->stored.is_content = framer == NULL;
}

static void
begin_framing(BlobWriter *writer)
{
	MemoryContext caller_context = MemoryContextSwitchTo(writer->context);

	set_framer(writer, blob_framer_begin(writer->method, put_framed, writer));
	writer->stored.pages.expected_bytes = 0;
	MemoryContextSwitchTo(caller_context);
}

static void
end_framing(BlobWriter *writer)
{
	if (writer->framer != NULL)
		blob_framer_free(writer->framer);
	set_framer(writer, NULL);
}

/*
 * Decide whether a fresh value is compressed, when its first bytes are about to be stored: by those
 * in the buffer.  They are framed if it is.
 */
static void
decide_method(BlobWriter *writer)
{
	if (blob_framer_is_worth(writer->method, writer->stored.bytes, writer->stored.used_bytes))
	{
		BlobTakenBytes content = blob_write_buffer_take(&writer->stored);

		begin_framing(writer);
		add_framed(writer, content.bytes, content.used_bytes);
		pfree(content.memory);
	}
	writer->method = BLOB_METHOD_NONE;
}

/*
 * Frame a fresh value whose whole content is in memory, if that saves a page.  Otherwise false, and
 * the writer is as before; not if pages were written meanwhile.
 */
static bool
frame_whole(BlobWriter *writer, const char *content, uint64 size_bytes)
{
	const char *remainder;

	if (writer->method == BLOB_METHOD_NONE ||
		!blob_framer_is_worth(writer->method, content, size_bytes))
		return false;
	begin_framing(writer);
	add_framed(writer, content, size_bytes);
	(void) blob_framer_finish(writer->framer, false, &remainder);
	if (writer->stored.pages.stored_bytes > 0 ||
		writer->stored.used_bytes / BLOB_PAGE_SIZE < blob_pages_for(size_bytes))
		return true;
	end_framing(writer);
	blob_digest_begin(&writer->stored.digest);
	writer->stored.hashed_bytes = 0;
	writer->stored.used_bytes = 0;
	writer->stored.pages.expected_bytes = writer->expected_bytes;
	return false;
}

/* The same for the content in the buffer. */
static bool
frame_buffer(BlobWriter *writer)
{
	BlobTakenBytes content = blob_write_buffer_take(&writer->stored);

	if (!frame_whole(writer, content.bytes, content.used_bytes))
	{
		blob_write_buffer_put_back(&writer->stored, &content);
		return false;
	}
	pfree(content.memory);
	return true;
}

/* ---- begin ---- */

static BlobWriter *
make_writer(uint64 expected_bytes, BlobMethod method)
{
	BlobWriter *writer;

	blob_method_require((uint8) method);
	writer = palloc0(sizeof(BlobWriter));
	writer->context = CurrentMemoryContext;
	writer->method = method;
	writer->expected_bytes = expected_bytes;
	blob_write_buffer_begin(&writer->stored, CurrentMemoryContext);
	writer->stored.pages.expected_bytes = expected_bytes;
	return writer;
}

BlobWriter *
blob_writer_begin(uint64 expected_bytes, BlobMethod method)
{
	return make_writer(expected_bytes, method);
}

BlobWriter *
blob_writer_begin_framed(uint64 expected_bytes, BlobMethod method)
{
	BlobWriter *writer = make_writer(expected_bytes, method);

	begin_framing(writer);
	writer->method = BLOB_METHOD_NONE;
	return writer;
}

/*
 * Hash the first keep_bytes of the base, which are the content so far.  open_block: those behind
 * the last full block of the digest; used only if keep_bytes is all of the base.
 */
static void
take_digest(BlobWriter *writer, uint64 keep_bytes, const char *open_block)
{
	const BlobDescriptor *descriptor = &writer->stored.pages.base.descriptor;

	Assert(!descriptor->is_open);
	writer->size_bytes = writer->stored.hashed_bytes = keep_bytes;
	memcpy(writer->prefix, descriptor->prefix, Min(keep_bytes, BLOB_PREFIX_BYTES));
	if (keep_bytes == descriptor->size_bytes)
	{
		blob_seal_require_sound_end(descriptor, open_block);
		blob_digest_resume(&writer->stored.digest, descriptor->state, keep_bytes, open_block);
	}
	else
		blob_seal_hash_beginning(&writer->stored.pages.base, keep_bytes, &writer->stored.digest);
}

/*
 * Begin with the first keep_bytes of a plain base: whole pages are shared, the bytes behind them
 * are buffered.
 */
static void
take_over(BlobWriter *writer, uint64 keep_bytes)
{
	const BlobDescriptor *descriptor = &writer->stored.pages.base.descriptor;
	uint32		partial;

	blob_page_writer_share(&writer->stored.pages, blob_mapping_kept_pages(descriptor, keep_bytes));
	partial = (uint32) (keep_bytes - blob_write_buffer_offset(&writer->stored));
	Assert(partial < BLOB_PAGE_SIZE);
	blob_write_buffer_enlarge(&writer->stored, Max(partial, 1));
	blob_read(&writer->stored.pages.base, blob_write_buffer_offset(&writer->stored), partial,
			  writer->stored.bytes);
	writer->stored.used_bytes = partial;
	take_digest(writer, keep_bytes,
				writer->stored.bytes + partial - keep_bytes % BLOB_DIGEST_BLOCK_BYTES);
}

/* The content of the base from an offset on waits in the framer, unhashed, up to keep_bytes. */
static void
frame_beginning(BlobWriter *writer, uint64 offset, uint64 keep_bytes)
{
	uint64		bytes = keep_bytes - offset;
	char	   *content = palloc(Max(bytes, 1));

	blob_read(&writer->stored.pages.base, offset, bytes, content);
	blob_framer_add(writer->framer, content, bytes);
	pfree(content);
}

/*
 * Begin with the first keep_bytes of a compressed base: frames that lie in them are shared, the
 * content behind these waits for a frame.
 */
static void
take_over_frames(BlobWriter *writer, uint64 keep_bytes)
{
	const BlobDescriptor *descriptor = &writer->stored.pages.base.descriptor;
	uint64		open_bytes = keep_bytes % BLOB_DIGEST_BLOCK_BYTES;
	char		open_block[BLOB_DIGEST_BLOCK_BYTES];
	BlobMappingSource source;
	BlobReader	reader;
	BlobMappingKept kept;

	blob_reader_begin(&reader, &writer->stored.pages.base, 0);
	source = blob_reader_source(&reader);
	blob_mapping_kept_frames(descriptor, keep_bytes, &source, &kept);
	blob_page_writer_share(&writer->stored.pages, kept.pages);
	writer->is_appending = kept.is_all;
	if (kept.is_all)
		set_framer(writer, blob_framer_resume(descriptor, &source, put_framed, writer));
	else
	{
		set_framer(writer, blob_framer_begin_with(descriptor, kept.pages * BLOB_PAGE_SIZE,
												  put_framed, writer));
		blob_framer_add_frames(writer->framer, descriptor, &source, 0, kept.content_bytes);
	}
	blob_reader_end(&reader);
	writer->stored.pages.expected_bytes = 0;
	frame_beginning(writer, kept.content_bytes, keep_bytes);
	if (kept.is_all)
		blob_read(&writer->stored.pages.base, keep_bytes - open_bytes, open_bytes, open_block);
	take_digest(writer, keep_bytes, open_block);
}

/* ---- changes ---- */

bool
blob_writer_can_change(const BlobValue *value, uint64 kept_bytes, uint64 new_size_bytes)
{
	return blob_change_is_possible(value, kept_bytes, new_size_bytes);
}

bool
blob_writer_is_change(const BlobWriter *writer)
{
	return writer->change != NULL;
}

BlobWriter *
blob_writer_begin_change(const BlobValue *value)
{
	BlobWriter *writer;

	blob_require_allocation();
	writer = make_writer(0, BLOB_METHOD_NONE);
	writer->change = blob_change_begin(value, &writer->stored);
	writer->defers_digest = value->descriptor.defers_digest;
	return writer;
}

void
blob_writer_keep(BlobWriter *writer, uint64 from, uint64 to)
{
	if (from == to)
		return;
	if (writer->size_bytes < BLOB_PREFIX_BYTES)
		blob_change_read(writer->change, from,
						 Min(to - from, BLOB_PREFIX_BYTES - writer->size_bytes),
						 (char *) writer->prefix + writer->size_bytes);
	blob_change_keep(writer->change, from, to);
	writer->size_bytes += to - from;
}

/* ---- growth ---- */

/* Write the beginning of a value, which is read in steps. */
static void
copy_beginning(BlobWriter *writer, const BlobValue *value, uint64 length_bytes)
{
	char	   *content = palloc(Max(1, Min(length_bytes, COPY_STEP_BYTES)));
	BlobReader	reader;

	blob_reader_begin(&reader, value, BLOB_READER_ALL);
	while (length_bytes > 0)
	{
		uint64		bytes = blob_reader_next(&reader, content, Min(COPY_STEP_BYTES, length_bytes));

		blob_writer_write(writer, content, bytes);
		length_bytes -= bytes;
	}
	blob_reader_end(&reader);
	pfree(content);
}

/*
 * Begin with the beginning of a tree, which is written anew, in its natural form: inline, if it may
 * be so short.
 */
static BlobWriter *
rewrite_tree(const BlobValue *value, uint64 keep_bytes, uint64 expected_bytes)
{
	BlobMethod	method = (BlobMethod) value->descriptor.compression.method;
	uint64		size_bytes = keep_bytes + expected_bytes;
	bool		is_framed = method != BLOB_METHOD_NONE && keep_bytes > BLOB_FRAME_BYTES &&
		size_bytes > (uint64) blob_inline_limit_bytes;
	BlobWriter *writer;

	if (keep_bytes > 0)
		blob_seal_require_sound(value);
	writer = is_framed ? blob_writer_begin_framed(size_bytes, method) :
		blob_writer_begin(size_bytes, method);
	writer->defers_digest = value->descriptor.defers_digest;
	copy_beginning(writer, value, keep_bytes);
	return writer;
}

BlobWriter *
blob_writer_grow(const BlobValue *value, uint64 keep_bytes, uint64 expected_bytes)
{
	BlobWriter *writer;
	bool		may_open;

	Assert(keep_bytes <= value->size_bytes);
	if (blob_change_is_growth(value, keep_bytes, expected_bytes, &may_open))
	{
		writer = blob_writer_begin_change(value);
		if (may_open)
			blob_change_leave_open(writer->change);
		blob_writer_keep(writer, 0, keep_bytes);
		return writer;
	}
	if (!value->is_inline && value->descriptor.is_tree)
		return rewrite_tree(value, keep_bytes, expected_bytes);
	if (!value->is_inline && keep_bytes == value->size_bytes)
		blob_seal_require_sound_last(value);
	else if (keep_bytes > 0)
		blob_seal_require_sound(value);
	writer = make_writer(expected_bytes > 0 ? keep_bytes + expected_bytes : 0,
						 value->is_inline ? blob_default_method() : BLOB_METHOD_NONE);
	writer->defers_digest = !value->is_inline && value->descriptor.defers_digest;
	writer->stored.pages.keeps_room = true;
	if (value->is_inline)
		blob_writer_write(writer, value->inline_data, keep_bytes);
	else if (keep_bytes <= (uint64) blob_inline_limit_bytes)
	{
		/* The result may be inline. */
		if (value->descriptor.is_compressed)
			writer->method = (BlobMethod) value->descriptor.compression.method;
		blob_write_buffer_enlarge(&writer->stored, Max(keep_bytes, 1));
		blob_read(value, 0, keep_bytes, writer->stored.bytes);
		writer->stored.used_bytes = (uint32) keep_bytes;
		writer->size_bytes = keep_bytes;
		memcpy(writer->prefix, value->descriptor.prefix, Min(keep_bytes, BLOB_PREFIX_BYTES));
	}
	else
	{
		struct varlena *copy = blob_descriptor_copy(&value->descriptor);

		blob_value_unpack(copy, &writer->stored.pages.base);
		if (value->descriptor.is_compressed)
			take_over_frames(writer, keep_bytes);
		else
			take_over(writer, keep_bytes);
	}
	return writer;
}

/* ---- write ---- */

void
blob_writer_write(BlobWriter *writer, const void *data, uint64 length_bytes)
{
	if (length_bytes == 0)
		return;
	if (writer->size_bytes < BLOB_PREFIX_BYTES)
		memcpy(writer->prefix + writer->size_bytes, data,
			   Min(length_bytes, BLOB_PREFIX_BYTES - writer->size_bytes));
	writer->size_bytes += length_bytes;

	if (writer->method != BLOB_METHOD_NONE &&
		writer->stored.used_bytes + length_bytes > BLOB_WRITE_BUFFER_BYTES)
	{
		/* Decide by a whole buffer. */
		uint64		bytes = BLOB_WRITE_BUFFER_BYTES - writer->stored.used_bytes;

		blob_write_buffer_add(&writer->stored, data, bytes);
		decide_method(writer);
		data = (const char *) data + bytes;
		length_bytes -= bytes;
	}
	if (writer->framer != NULL)
		add_framed(writer, data, length_bytes);
	else if (writer->change != NULL)
		blob_change_add(writer->change, data, length_bytes);
	else
		blob_write_buffer_add(&writer->stored, data, length_bytes);
}

/* The memory of the writer is given up by the end of its context, if this throws. */
uint64
blob_writer_write_from(BlobWriter *writer, BlobFill fill, void *source)
{
	char	   *slice = MemoryContextAlloc(writer->context, SLICE_BYTES);
	uint64		before = writer->size_bytes;
	uint64		bytes;

	writer->stored.is_alone = true;
	PG_TRY();
	{
		while ((bytes = fill(source, slice, SLICE_BYTES)) > 0)
			blob_writer_write(writer, slice, bytes);
		blob_pipeline_wait(&writer->stored.pages.pipeline);
	}
	PG_CATCH();
	{
		blob_pipeline_abandon(&writer->stored.pages.pipeline);
		PG_RE_THROW();
	}
	PG_END_TRY();
	writer->stored.is_alone = false;
	pfree(slice);
	return writer->size_bytes - before;
}

static void
free_writer(BlobWriter *writer)
{
	end_framing(writer);
	if (writer->change != NULL)
		blob_change_end(writer->change);
	blob_write_buffer_end(&writer->stored);
	pfree(writer);
}

/* ---- finish ---- */

/* All but the digest of a value whose extents follow each other. */
static struct varlena *
complete_pages(BlobWriter *writer, BlobDescriptor *descriptor)
{
	const BlobFrame *frames = NULL;

	descriptor->remainder_bytes = writer->stored.used_bytes;
	descriptor->remainder = writer->stored.bytes;
	if (writer->framer != NULL)
	{
		descriptor->is_compressed = true;
		frames = blob_framer_describe(writer->framer, &descriptor->compression);
	}
	return blob_page_writer_complete(&writer->stored.pages, descriptor, frames);
}

/*
 * Make the descriptor and free the writer.  All content is written but a remainder for the datum.
 */
static struct varlena *
complete(BlobWriter *writer)
{
	BlobDescriptor descriptor = {
		.size_bytes = writer->size_bytes,
		.defers_digest = writer->defers_digest,
		.is_open = writer->change != NULL && blob_change_is_open(writer->change)
	};
	struct varlena *datum;

	if (!descriptor.is_open)
		blob_write_buffer_finish_digest(&writer->stored, writer->size_bytes, descriptor.sha256,
										descriptor.state);
	memcpy(descriptor.prefix, writer->prefix, BLOB_PREFIX_BYTES);
	if (writer->change != NULL)
		datum = blob_change_complete(writer->change, &descriptor);
	else
		datum = complete_pages(writer, &descriptor);
	blob_stat_count_in_database(stored_blobs, 1);
	blob_stat_count_in_database(stored_bytes, writer->stored.pages.pipeline.put_bytes);
	free_writer(writer);
	return datum;
}

/* Put the last frames.  Bytes that do not fill a page are the remainder, behind whole pages. */
static void
finish_framing(BlobWriter *writer)
{
	const char *remainder;
	uint32		bytes = blob_framer_finish(writer->framer, writer->is_appending, &remainder);

	blob_write_buffer_add(&writer->stored, remainder, bytes);
	writer->stored.pages.expected_bytes = 0;
}

struct varlena *
blob_writer_finish(BlobWriter *writer)
{
	bool		is_framed = writer->framer != NULL;

	if (!is_framed && writer->change == NULL && writer->stored.pages.stored_bytes == 0 &&
		writer->size_bytes <= (uint64) blob_inline_limit_bytes)
	{
		struct varlena *datum = blob_inline_make(writer->size_bytes);

		if (writer->size_bytes > 0)
			memcpy(blob_inline_content(datum), writer->stored.bytes, writer->size_bytes);
		free_writer(writer);
		return datum;
	}
	blob_require_allocation();
	if (is_framed)
		finish_framing(writer);
	else if (writer->change != NULL)
		blob_change_finish(writer->change);
	else if (writer->method != BLOB_METHOD_NONE)
		(void) frame_buffer(writer);
	blob_write_buffer_store(&writer->stored, NULL, 0, true);
	return complete(writer);
}

struct varlena *
blob_writer_store(const char *data, uint64 size_bytes, BlobMethod method)
{
	BlobWriter *writer = make_writer(size_bytes, method);

	Assert(size_bytes > 0);
	blob_require_allocation();
	writer->stored.is_whole = true;
	writer->size_bytes = size_bytes;
	memcpy(writer->prefix, data, Min(size_bytes, BLOB_PREFIX_BYTES));
	if (frame_whole(writer, data, size_bytes))
	{
		writer->stored.pages.expected_bytes = 0;
		blob_write_buffer_store(&writer->stored, NULL, 0, true);
	}
	else
		blob_write_buffer_store(&writer->stored, data, size_bytes, true);
	return complete(writer);
}
