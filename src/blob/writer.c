/*
 * blob/writer.c
 *	  Values of any size, written piece by piece; see blob/writer.h, and "Growth" in the README of
 *	  this folder.
 *
 * The writer decides what the stored bytes are: the content as it is, or what a framer makes of it.
 * They wait in the buffer, and leave it as whole pages.  blob/page_writer.c finds places for them.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "blob/blob.h"
#include "blob/framer.h"
#include "blob/mapping.h"
#include "blob/page_writer.h"
#include "blob/reader.h"
#include "blob/writer.h"
#include "core/hasher.h"
#include "core/settings.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

/* Bytes are buffered up to this number; blobext.inline_limit is never larger. */
#define BUFFER_BYTES (1024 * 1024)
#define MIN_BUFFER_BYTES (8 * 1024)

/* The same for values of which more than this was written; see "The writer" in README.md. */
#define LONG_BUFFER_BYTES (4 * 1024 * 1024)
#define LONG_VALUE_BYTES (16 * 1024 * 1024)

/* Content in memory is written in steps of this many bytes, as extents are allocated. */
#define STEP_BYTES (UINT64CONST(128) * 1024 * 1024)

/* Parts of a content that are tried before it is compressed: their number and their distance. */
#define MAX_TRIED_PARTS 8
#define TRIED_PART_BYTES BLOB_PAGE_SIZE
#define BYTES_PER_TRIED_PART (64 * 1024)

struct BlobWriter
{
	MemoryContext context;
	BlobPageWriter pages;
	BlobMethod	method;			/* to be tried; none: the content is stored as it is */
	BlobFramer *framer;			/* NULL: the stored bytes are the content */
	bool		is_appending;	/* to a compressed value, whose open frame goes on */
	BlobReader *base_reader;	/* of a change */
	bool		is_whole;		/* it is stored by one call */
	uint64		expected_bytes; /* of the whole content; 0: unknown */
	uint64		size_bytes;		/* content so far */
	uint64		hashed_bytes;	/* of the content, those that the digest thread has included */
	BlobDigest	digest;
	MemoryContext digest_guard; /* while the thread may look at the buffer */
	uint8		prefix[BLOB_PREFIX_BYTES];
	char	   *buffer;			/* the stored bytes behind those in pages */
	char	   *buffer_memory;	/* the allocation that it lies in */
	uint32		buffered_bytes;
	uint32		buffer_capacity;
	char	   *other_memory;	/* of LONG_BUFFER_BYTES; its writes may trail */
	uint64		other_piece_no; /* the last one in it that is to be hashed */
};

/*
 * The content offset of the first byte of the buffer of a value that is stored as it is: all
 * content before it is in pages.
 */
static uint64
buffer_offset(const BlobWriter *writer)
{
	return blob_mapping_content_offset(writer->pages.stored_bytes);
}

/* ---- stored bytes ---- */

/* Move the bytes behind the consumed ones to the beginning of the buffer. */
static void
keep_remainder(BlobWriter *writer, const BlobSource *source, uint64 consumed, uint64 available)
{
	uint32		left = (uint32) (available - consumed);

	if (consumed < source->first_bytes)
	{
		uint32		from_first = (uint32) (source->first_bytes - consumed);

		memmove(writer->buffer, writer->buffer + consumed, from_first);
		if (left > from_first)
			memcpy(writer->buffer + from_first, source->second, left - from_first);
	}
	else if (left > 0)
		memcpy(writer->buffer, source->second + (consumed - source->first_bytes), left);
	writer->buffered_bytes = left;
}

/* Bytes that are buffered before they are stored. */
static uint32
buffer_limit(const BlobWriter *writer)
{
	return writer->pages.written_bytes > LONG_VALUE_BYTES ? LONG_BUFFER_BYTES : BUFFER_BYTES;
}

/* The buffer begins at a page, so that the pipeline can write from it without another copy. */
static char *
align(char *memory)
{
	return (char *) TYPEALIGN(BLOB_PAGE_SIZE, memory);
}

/* Make room for this number of bytes in the buffer, which may move. */
static void
enlarge_buffer(BlobWriter *writer, uint64 bytes)
{
	char	   *memory;

	if (bytes <= writer->buffer_capacity)
		return;
	Assert(bytes <= LONG_BUFFER_BYTES);
	blob_hasher_wait(&writer->digest);
	writer->buffer_capacity = pg_nextpower2_32(Max((uint32) bytes, MIN_BUFFER_BYTES));
	memory = MemoryContextAlloc(writer->context, writer->buffer_capacity + BLOB_PAGE_SIZE);
	if (writer->buffered_bytes > 0)
		memcpy(align(memory), writer->buffer, writer->buffered_bytes);
	if (writer->buffer_memory != NULL)
		pfree(writer->buffer_memory);
	writer->buffer_memory = memory;
	writer->buffer = align(memory);
}

bool
blob_may_allocate(void)
{
	return !XactReadOnly && !RecoveryInProgress() && !IsParallelWorker() &&
		(!IsInParallelMode() || TransactionIdIsValid(GetTopTransactionIdIfAny()));
}

void
blob_writer_require_allocation(void)
{
	if (!blob_may_allocate())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot make a large blobstate value here"),
				 errdetail("Content over blobext.inline_limit is written to extents, which a "
						   "read-only transaction, a standby or a parallel worker cannot do.")));
}

/*
 * Plan a step.  It stores whole pages.  If it is the last one, it stores also the bytes that do not
 * fill a page, unless they are a remainder for the datum.
 */
static BlobPageStep
plan_step(BlobWriter *writer, const char *data, uint64 length_bytes, bool is_last)
{
	uint64		available = writer->buffered_bytes + length_bytes;
	uint32		partial = (uint32) (available % BLOB_PAGE_SIZE);
	uint32		max_inline = writer->framer == NULL ? BLOB_REMAINDER_INLINE_BYTES :
		BLOB_COMPRESSED_REMAINDER_INLINE_BYTES;
	BlobPageStep step = {
		.pages = available / BLOB_PAGE_SIZE,
		.is_last = is_last,
		.source = {
			.first = writer->buffer,
			.first_bytes = writer->buffered_bytes,
			.second = data,
			.before_bytes = writer->pages.written_bytes,
			.is_whole = writer->is_whole || (is_last && writer->pages.written_bytes == 0),
			.is_last = is_last,
			.may_trail = !is_last && data == NULL
		}
	};

	if (is_last && blob_page_writer_ends_behind_tail(&writer->pages, blob_pages_for(available)))
		writer->pages.keeps_room = true;
	if (is_last && !writer->pages.keeps_room && partial > 0)
		step.pages++;
	step.wants_remainder_page = is_last && writer->pages.keeps_room &&
		(partial > max_inline || writer->pages.stored_bytes + available == partial);
	step.source.total_bytes = step.wants_remainder_page ? available :
		Min(available, step.pages * BLOB_PAGE_SIZE);
	if (writer->framer == NULL)
	{
		step.digest = &writer->digest;
		step.skip_bytes = writer->hashed_bytes - buffer_offset(writer);
	}
	return step;
}

/*
 * Have the other buffer filled while the writes of this one, which is stored as a whole, trail.
 * Those of the other one do not, since the pipeline has waited for them.
 */
static void
exchange_buffers(BlobWriter *writer)
{
	char	   *memory = writer->other_memory;

	Assert(writer->buffer_capacity == LONG_BUFFER_BYTES);
	blob_hasher_wait_for_piece(&writer->digest, writer->other_piece_no);
	writer->other_piece_no = writer->digest.last_piece_no;
	if (memory == NULL)
		memory = MemoryContextAlloc(writer->context, LONG_BUFFER_BYTES + BLOB_PAGE_SIZE);
	writer->other_memory = writer->buffer_memory;
	writer->buffer_memory = memory;
	writer->buffer = align(memory);
	writer->buffered_bytes = 0;
}

/*
 * Store the bytes of the buffer, and data behind them.  Bytes that are not stored become the
 * buffer.  Without data, but in the last step, these are whole pages, whose writes may trail: then
 * the buffer becomes another one.
 */
static void
store_step(BlobWriter *writer, const char *data, uint64 length_bytes, bool is_last)
{
	uint64		available = writer->buffered_bytes + length_bytes;
	uint64		page_bytes;
	BlobPageStep step;

	blob_writer_require_allocation();
	step = plan_step(writer, data, length_bytes, is_last);
	page_bytes = Min(available, step.pages * BLOB_PAGE_SIZE);
	if (writer->framer == NULL)
		writer->hashed_bytes = Max(writer->hashed_bytes,
								   buffer_offset(writer) + step.source.total_bytes);
	blob_page_writer_store(&writer->pages, &step);
	if (writer->digest_guard != NULL && !is_last)
		blob_hasher_call();
	if (blob_pipeline_trails())
	{
		exchange_buffers(writer);
		return;
	}
	if (available > page_bytes)
		enlarge_buffer(writer, BLOB_PAGE_SIZE);
	step.source.first = writer->buffer;
	keep_remainder(writer, &step.source, page_bytes, available);
}

/* Store data of any length behind the buffer, in steps. */
static void
store_in_steps(BlobWriter *writer, const char *data, uint64 length_bytes, bool is_last)
{
	for (; length_bytes > STEP_BYTES; data += STEP_BYTES, length_bytes -= STEP_BYTES)
		store_step(writer, data, STEP_BYTES, false);
	store_step(writer, data, length_bytes, is_last);
}

/* Callback of the guard's end, perhaps in the middle of an abort: must not fail. */
static void
at_end_of_guard(void *argument)
{
	blob_hasher_cancel(argument);
}

/* Have the thread leave the buffer alone before the writer's memory is given up. */
static void
guard_digest(BlobWriter *writer)
{
	MemoryContextCallback *callback;

	if (writer->digest_guard != NULL)
		return;
	writer->digest_guard = AllocSetContextCreate(writer->context, "blobext digest",
												 ALLOCSET_SMALL_SIZES);
	callback = MemoryContextAlloc(writer->digest_guard, sizeof(MemoryContextCallback));
	callback->func = at_end_of_guard;
	callback->arg = &writer->digest;
	MemoryContextRegisterResetCallback(writer->digest_guard, callback);
}

/* Have content in the buffer hashed while more of it comes; not in the first buffer of a value. */
static void
hash_ahead(BlobWriter *writer)
{
	uint64		hashed = writer->hashed_bytes - buffer_offset(writer);
	uint64		bytes = writer->buffered_bytes - hashed;

	if (writer->framer != NULL || writer->method != BLOB_METHOD_NONE ||
		writer->pages.written_bytes == 0 || bytes < BLOB_HASHER_PIECE_BYTES ||
		!blob_hasher_is_worth(&writer->digest, 0))
		return;
	guard_digest(writer);
	blob_hasher_add(&writer->digest, writer->buffer + hashed, bytes);
	writer->hashed_bytes += bytes;
}

/*
 * Add stored bytes where writes may trail: the buffer is filled to its end and stored alone, so
 * that it can be written from where it lies.  Returns how many bytes were added; the others do not
 * fill the buffer.
 */
static uint64
put_trailing(BlobWriter *writer, const char *stored, uint64 length_bytes)
{
	uint64		done = 0;

	enlarge_buffer(writer, LONG_BUFFER_BYTES);
	while (length_bytes - done >= LONG_BUFFER_BYTES - writer->buffered_bytes)
	{
		uint32		bytes = LONG_BUFFER_BYTES - writer->buffered_bytes;

		memcpy(writer->buffer + writer->buffered_bytes, stored + done, bytes);
		writer->buffered_bytes += bytes;
		done += bytes;
		hash_ahead(writer);
		store_step(writer, NULL, 0, false);
	}
	return done;
}

/* Add stored bytes; full pages of them may be written at once. */
static void
put_stored(BlobWriter *writer, const char *stored, uint64 length_bytes)
{
	if (blob_pipeline_may_trail() && buffer_limit(writer) == LONG_BUFFER_BYTES)
	{
		uint64		done = put_trailing(writer, stored, length_bytes);

		stored += done;
		length_bytes -= done;
	}
	if (length_bytes == 0)
		return;
	if (writer->buffered_bytes + length_bytes > buffer_limit(writer))
	{
		store_in_steps(writer, stored, length_bytes, false);
		return;
	}
	enlarge_buffer(writer, writer->buffered_bytes + length_bytes);
	memcpy(writer->buffer + writer->buffered_bytes, stored, length_bytes);
	writer->buffered_bytes += (uint32) length_bytes;
	hash_ahead(writer);
}

/* ---- compression ---- */

/*
 * A BlobFramerPut, whose context is the writer.  Before the first pages are allocated, guess from
 * the content so far how many there will be.
 */
static void
put_framed(void *context, const char *stored, uint64 length_bytes)
{
	BlobWriter *writer = context;
	uint64		stored_bytes = writer->buffered_bytes + length_bytes;

	if (writer->pages.stored_bytes == 0 && stored_bytes > BUFFER_BYTES &&
		writer->expected_bytes > writer->hashed_bytes)
	{
		writer->pages.is_estimated = true;
		writer->pages.expected_bytes = (uint64)
			((double) stored_bytes / writer->hashed_bytes * writer->expected_bytes);
	}
	put_stored(writer, stored, length_bytes);
}

/* Hash content and give it to the framer, frame by frame, while it is in the processor's cache. */
static void
add_framed(BlobWriter *writer, const char *data, uint64 length_bytes)
{
	for (uint64 done = 0; done < length_bytes; done += BLOB_FRAME_BYTES)
	{
		uint64		bytes = Min(BLOB_FRAME_BYTES, length_bytes - done);

		CHECK_FOR_INTERRUPTS();
		blob_digest_update(&writer->digest, data + done, bytes);
		writer->hashed_bytes += bytes;
		blob_framer_add(writer->framer, data + done, bytes);
	}
}

/*
 * Whether content is worth compressing, by parts of it, of which one suffices.  Content that was
 * compressed by a program costs next to nothing more than without a method.
 */
static bool
is_compressible(BlobMethod method, const char *data, uint64 length_bytes)
{
	uint64		parts = Min(MAX_TRIED_PARTS, length_bytes / BYTES_PER_TRIED_PART + 1);
	uint64		part_bytes = Min(TRIED_PART_BYTES, length_bytes);

	if (method == BLOB_METHOD_NONE || length_bytes <= BLOB_PAGE_SIZE)
		return false;
	for (uint64 i = 0; i < parts; i++)
	{
		uint64		offset = (length_bytes - part_bytes) / parts * i +
			(length_bytes - part_bytes) / parts / 2;

		if (blob_codec_is_promising(method, data + offset, (uint32) part_bytes))
			return true;
	}
	return false;
}

static void
begin_framing(BlobWriter *writer)
{
	MemoryContext caller_context = MemoryContextSwitchTo(writer->context);

	writer->framer = blob_framer_begin(writer->method, put_framed, writer);
	writer->pages.expected_bytes = 0;
	MemoryContextSwitchTo(caller_context);
}

static void
end_framing(BlobWriter *writer)
{
	if (writer->framer != NULL)
		blob_framer_free(writer->framer);
	writer->framer = NULL;
}

/*
 * Decide whether a fresh value is compressed, when its first bytes are about to be stored: by those
 * in the buffer.  They are framed if it is.
 */
static void
decide_method(BlobWriter *writer)
{
	char	   *content = writer->buffer;
	char	   *memory = writer->buffer_memory;
	uint32		bytes = writer->buffered_bytes;
	bool		is_framed = is_compressible(writer->method, content, bytes);

	if (is_framed)
	{
		begin_framing(writer);
		writer->buffer = writer->buffer_memory = NULL;
		writer->buffered_bytes = writer->buffer_capacity = 0;
		add_framed(writer, content, bytes);
		pfree(memory);
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

	if (!is_compressible(writer->method, content, size_bytes))
		return false;
	begin_framing(writer);
	add_framed(writer, content, size_bytes);
	(void) blob_framer_finish(writer->framer, false, &remainder);
	if (writer->pages.stored_bytes > 0 ||
		writer->buffered_bytes / BLOB_PAGE_SIZE < blob_pages_for(size_bytes))
		return true;
	end_framing(writer);
	blob_digest_begin(&writer->digest);
	writer->hashed_bytes = 0;
	writer->buffered_bytes = 0;
	writer->pages.expected_bytes = writer->expected_bytes;
	return false;
}

/* The same for the content in the buffer. */
static bool
frame_buffer(BlobWriter *writer)
{
	char	   *content = writer->buffer;
	char	   *memory = writer->buffer_memory;
	uint32		bytes = writer->buffered_bytes;
	uint32		capacity = writer->buffer_capacity;
	bool		is_framed;

	writer->buffer = writer->buffer_memory = NULL;
	writer->buffered_bytes = writer->buffer_capacity = 0;
	is_framed = frame_whole(writer, content, bytes);
	if (!is_framed)
	{
		if (writer->buffer_memory != NULL)
			pfree(writer->buffer_memory);
		writer->buffer = content;
		writer->buffer_memory = memory;
		writer->buffered_bytes = bytes;
		writer->buffer_capacity = capacity;
	}
	else
		pfree(memory);
	return is_framed;
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
	blob_page_writer_begin(&writer->pages, CurrentMemoryContext);
	writer->pages.expected_bytes = expected_bytes;
	blob_digest_begin(&writer->digest);
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

/* Hash the beginning of the base, in steps: a descriptor has no digest of a beginning. */
static void
hash_beginning(BlobWriter *writer, uint64 length_bytes)
{
	char	   *content = palloc(Max(1, Min(length_bytes, BUFFER_BYTES)));
	BlobReader	reader;

	blob_reader_begin(&reader, &writer->pages.base, 0);
	while (length_bytes > 0)
	{
		uint64		bytes = blob_reader_next(&reader, content, Min(BUFFER_BYTES, length_bytes));

		blob_digest_update(&writer->digest, content, bytes);
		length_bytes -= bytes;
	}
	blob_reader_end(&reader);
	pfree(content);
}

/*
 * Hash the first keep_bytes of the base, which are the content so far.  open_block: those behind
 * the last full block of the digest; used only if keep_bytes is all of the base.
 */
static void
take_digest(BlobWriter *writer, uint64 keep_bytes, const char *open_block)
{
	const BlobDescriptor *descriptor = &writer->pages.base.descriptor;

	writer->size_bytes = writer->hashed_bytes = keep_bytes;
	memcpy(writer->prefix, descriptor->prefix, Min(keep_bytes, BLOB_PREFIX_BYTES));
	if (keep_bytes == descriptor->size_bytes)
		blob_digest_resume(&writer->digest, descriptor->state, keep_bytes, open_block);
	else
		hash_beginning(writer, keep_bytes);
}

/*
 * Begin with the first keep_bytes of a plain base: whole pages are shared, the bytes behind them
 * are buffered.
 */
static void
take_over(BlobWriter *writer, uint64 keep_bytes)
{
	const BlobDescriptor *descriptor = &writer->pages.base.descriptor;
	uint32		partial;

	blob_page_writer_share(&writer->pages, blob_mapping_kept_pages(descriptor, keep_bytes));
	partial = (uint32) (keep_bytes - buffer_offset(writer));
	Assert(partial < BLOB_PAGE_SIZE);
	enlarge_buffer(writer, Max(partial, 1));
	blob_read(&writer->pages.base, buffer_offset(writer), partial, writer->buffer);
	writer->buffered_bytes = partial;
	take_digest(writer, keep_bytes,
				writer->buffer + partial - keep_bytes % BLOB_DIGEST_BLOCK_BYTES);
}

/* The content of the base from an offset on waits in the framer, unhashed, up to keep_bytes. */
static void
frame_beginning(BlobWriter *writer, uint64 offset, uint64 keep_bytes)
{
	uint64		bytes = keep_bytes - offset;
	char	   *content = palloc(Max(bytes, 1));

	blob_read(&writer->pages.base, offset, bytes, content);
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
	const BlobDescriptor *descriptor = &writer->pages.base.descriptor;
	uint64		open_bytes = keep_bytes % BLOB_DIGEST_BLOCK_BYTES;
	char		open_block[BLOB_DIGEST_BLOCK_BYTES];
	BlobMappingSource source;
	BlobReader	reader;
	BlobMappingKept kept;

	blob_reader_begin(&reader, &writer->pages.base, 0);
	source = blob_reader_source(&reader);
	blob_mapping_kept_frames(descriptor, keep_bytes, &source, &kept);
	blob_page_writer_share(&writer->pages, kept.pages);
	writer->is_appending = kept.is_all;
	if (kept.is_all)
		writer->framer = blob_framer_resume(descriptor, &source, put_framed, writer);
	else
	{
		writer->framer = blob_framer_begin_with(descriptor, kept.pages * BLOB_PAGE_SIZE,
												put_framed, writer);
		blob_framer_add_frames(writer->framer, descriptor, &source, 0, kept.content_bytes);
	}
	blob_reader_end(&reader);
	writer->pages.expected_bytes = 0;
	frame_beginning(writer, kept.content_bytes, keep_bytes);
	if (kept.is_all)
		blob_read(&writer->pages.base, keep_bytes - open_bytes, open_bytes, open_block);
	take_digest(writer, keep_bytes, open_block);
}

BlobWriter *
blob_writer_grow(const BlobValue *value, uint64 keep_bytes, uint64 expected_bytes)
{
	BlobWriter *writer;

	Assert(keep_bytes <= value->size_bytes);
	writer = make_writer(expected_bytes > 0 ? keep_bytes + expected_bytes : 0,
						 value->is_inline ? blob_default_method() : BLOB_METHOD_NONE);
	writer->pages.keeps_room = true;
	if (value->is_inline)
		blob_writer_write(writer, value->inline_data, keep_bytes);
	else if (keep_bytes <= (uint64) blob_inline_limit_bytes)
	{
		/* The result may be inline. */
		if (value->descriptor.is_compressed)
			writer->method = (BlobMethod) value->descriptor.compression.method;
		enlarge_buffer(writer, Max(keep_bytes, 1));
		blob_read(value, 0, keep_bytes, writer->buffer);
		writer->buffered_bytes = (uint32) keep_bytes;
		writer->size_bytes = keep_bytes;
		memcpy(writer->prefix, value->descriptor.prefix, Min(keep_bytes, BLOB_PREFIX_BYTES));
	}
	else
	{
		struct varlena *copy = blob_descriptor_copy(&value->descriptor);

		blob_value_unpack(copy, &writer->pages.base);
		if (value->descriptor.is_compressed)
			take_over_frames(writer, keep_bytes);
		else
			take_over(writer, keep_bytes);
	}
	return writer;
}

/* ---- changes of compressed values ---- */

BlobWriter *
blob_writer_begin_change(const BlobValue *value)
{
	BlobWriter *writer = make_writer(0, BLOB_METHOD_NONE);
	BlobValue  *base = &writer->pages.base;
	uint64		stored_bytes;

	Assert(!value->is_inline && value->descriptor.is_compressed);
	writer->pages.keeps_room = true;
	blob_value_unpack(blob_descriptor_copy(&value->descriptor), base);
	stored_bytes = base->descriptor.compression.stored_bytes;
	blob_page_writer_share(&writer->pages, stored_bytes / BLOB_PAGE_SIZE);
	writer->framer = blob_framer_begin_with(&base->descriptor, stored_bytes, put_framed, writer);
	writer->base_reader = palloc(sizeof(BlobReader));
	blob_reader_begin(writer->base_reader, base, BLOB_READER_ALL);
	return writer;
}

/* Hash content of the base, which is the next of the value; frame it unless its frame is shared. */
static void
keep_bytes(BlobWriter *writer, uint64 from, uint64 to, bool is_shared)
{
	char	   *content = palloc(Max(1, Min(to - from, BLOB_FRAME_BYTES)));
	uint64		bytes;

	blob_reader_seek(writer->base_reader, from);
	for (; from < to; from += bytes)
	{
		bytes = blob_reader_next(writer->base_reader, content, Min(BLOB_FRAME_BYTES, to - from));
		if (!is_shared)
		{
			blob_writer_write(writer, content, bytes);
			continue;
		}
		if (writer->size_bytes < BLOB_PREFIX_BYTES)
			memcpy(writer->prefix + writer->size_bytes, content,
				   Min(bytes, BLOB_PREFIX_BYTES - writer->size_bytes));
		blob_digest_update(&writer->digest, content, bytes);
		writer->size_bytes += bytes;
		writer->hashed_bytes += bytes;
	}
	pfree(content);
}

/*
 * Add a whole frame of the base.  If only few bytes wait before it, they share the content of the
 * frame, for frames would become shorter and shorter otherwise.
 */
static void
keep_frame(BlobWriter *writer, const BlobFrameCursor *cursor)
{
	uint32		waiting = blob_framer_waiting_bytes(writer->framer);
	uint32		longest = blob_framer_frame_bytes(writer->framer);
	uint64		start = cursor->content_start;
	uint64		end = start + cursor->frame.content_bytes;
	uint64		middle = end;

	if (waiting == 0 || waiting >= longest / 4)
	{
		blob_framer_flush(writer->framer);
		keep_bytes(writer, start, end, true);
		blob_framer_add_frame(writer->framer, &cursor->frame);
		return;
	}
	if (waiting + cursor->frame.content_bytes > longest)
		middle = start + (waiting + cursor->frame.content_bytes) / 2 - waiting;
	keep_bytes(writer, start, middle, false);
	blob_framer_flush(writer->framer);
	keep_bytes(writer, middle, end, false);
	blob_framer_flush(writer->framer);
}

void
blob_writer_keep(BlobWriter *writer, uint64 from, uint64 to)
{
	const BlobDescriptor *descriptor = &writer->pages.base.descriptor;
	BlobMappingSource source = blob_reader_source(writer->base_reader);
	BlobFrameCursor cursor;
	bool		goes_on;

	blob_frame_cursor_begin(&cursor, descriptor, &source);
	goes_on = from < to && blob_frame_cursor_seek(&cursor, from);
	while (goes_on && from < to)
	{
		uint64		end = cursor.content_start + cursor.frame.content_bytes;

		if (from == cursor.content_start && end <= to)
			keep_frame(writer, &cursor);
		else
			keep_bytes(writer, from, Min(end, to), false);
		from = end;
		goes_on = from < to && blob_frame_cursor_next(&cursor);
	}
	if (from < to)
		keep_bytes(writer, from, to, false);
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

	if (writer->method != BLOB_METHOD_NONE && writer->buffered_bytes + length_bytes > BUFFER_BYTES)
	{
		/* Decide by a whole buffer. */
		uint64		bytes = BUFFER_BYTES - writer->buffered_bytes;

		put_stored(writer, data, bytes);
		decide_method(writer);
		data = (const char *) data + bytes;
		length_bytes -= bytes;
	}
	if (writer->framer != NULL)
		add_framed(writer, data, length_bytes);
	else
		put_stored(writer, data, length_bytes);
}

void
blob_writer_abort(BlobWriter *writer)
{
	end_framing(writer);
	if (writer->digest_guard != NULL)
		MemoryContextDelete(writer->digest_guard);
	if (writer->base_reader != NULL)
	{
		blob_reader_end(writer->base_reader);
		pfree(writer->base_reader);
	}
	if (writer->buffer_memory != NULL)
		pfree(writer->buffer_memory);
	if (writer->other_memory != NULL)
		pfree(writer->other_memory);
	blob_page_writer_end(&writer->pages);
	pfree(writer);
}

/* ---- finish ---- */

/*
 * Make the descriptor and free the writer.  All content is written but a remainder for the datum.
 */
static struct varlena *
complete(BlobWriter *writer)
{
	BlobDescriptor descriptor = {.size_bytes = writer->size_bytes};
	const BlobFrame *frames = NULL;
	struct varlena *datum;

	blob_hasher_wait(&writer->digest);
	if (writer->hashed_bytes < writer->size_bytes)
		blob_digest_update(&writer->digest,
						   writer->buffer + (writer->hashed_bytes - buffer_offset(writer)),
						   writer->size_bytes - writer->hashed_bytes);
	blob_digest_finish(&writer->digest, descriptor.sha256, descriptor.state);
	memcpy(descriptor.prefix, writer->prefix, BLOB_PREFIX_BYTES);
	descriptor.remainder_bytes = writer->buffered_bytes;
	descriptor.remainder = writer->buffer;
	if (writer->framer != NULL)
	{
		descriptor.is_compressed = true;
		frames = blob_framer_describe(writer->framer, &descriptor.compression);
	}
	datum = blob_page_writer_complete(&writer->pages, &descriptor, frames);
	blob_stat_count_in_database(stored_blobs, 1);
	blob_stat_count_in_database(stored_bytes, writer->pages.written_bytes);
	blob_writer_abort(writer);
	return datum;
}

/* Put the last frames.  Bytes that do not fill a page are the remainder, behind whole pages. */
static void
finish_framing(BlobWriter *writer)
{
	bool		is_appending = writer->is_appending ||
		(writer->base_reader != NULL &&
		 blob_framer_waiting_bytes(writer->framer) < BLOB_PAGE_SIZE);
	const char *remainder;
	uint32		bytes = blob_framer_finish(writer->framer, is_appending, &remainder);

	put_stored(writer, remainder, bytes);
	writer->pages.expected_bytes = 0;
}

struct varlena *
blob_writer_finish(BlobWriter *writer)
{
	bool		is_framed = writer->framer != NULL;

	if (!is_framed && writer->pages.stored_bytes == 0 &&
		writer->size_bytes <= (uint64) blob_inline_limit_bytes)
	{
		struct varlena *datum = blob_inline_make(writer->size_bytes);

		if (writer->size_bytes > 0)
			memcpy(blob_inline_content(datum), writer->buffer, writer->size_bytes);
		blob_writer_abort(writer);
		return datum;
	}
	blob_writer_require_allocation();
	if (is_framed)
		finish_framing(writer);
	else if (writer->method != BLOB_METHOD_NONE)
		(void) frame_buffer(writer);
	store_step(writer, NULL, 0, true);
	return complete(writer);
}

struct varlena *
blob_writer_store(const char *data, uint64 size_bytes, BlobMethod method)
{
	BlobWriter *writer = make_writer(size_bytes, method);

	Assert(size_bytes > 0);
	blob_writer_require_allocation();
	writer->is_whole = true;
	writer->size_bytes = size_bytes;
	memcpy(writer->prefix, data, Min(size_bytes, BLOB_PREFIX_BYTES));
	if (frame_whole(writer, data, size_bytes))
	{
		writer->pages.expected_bytes = 0;
		store_step(writer, NULL, 0, true);
	}
	else
		store_in_steps(writer, data, size_bytes, true);
	return complete(writer);
}
