/*
 * blob/write_buffer.c
 *	  Stored bytes of a value that is being written, see blob/write_buffer.h, and "The writer" in
 *	  the README of this folder.
 */
#include "postgres.h"

#include "blob/write_buffer.h"
#include "extents/hasher.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#define MIN_BUFFER_BYTES (8 * 1024)

/* The limit for values of which more than this was written. */
#define LONG_BUFFER_BYTES (4 * 1024 * 1024)
#define LONG_VALUE_BYTES (16 * 1024 * 1024)

/* Content in memory is written in steps of this many bytes, as extents are allocated. */
#define STEP_BYTES (UINT64CONST(128) * 1024 * 1024)

void
blob_write_buffer_begin(BlobWriteBuffer *buffer, MemoryContext context)
{
	buffer->context = context;
	buffer->is_content = true;
	blob_page_writer_begin(&buffer->pages, context);
	blob_digest_begin(&buffer->digest);
}

/* Move the bytes behind the consumed ones to the beginning of the buffer. */
static void
keep_remainder(BlobWriteBuffer *buffer, const BlobPut *put, uint64 consumed, uint64 available)
{
	uint32		left = (uint32) (available - consumed);

	if (consumed < put->first_bytes)
	{
		uint32		from_first = (uint32) (put->first_bytes - consumed);

		memmove(buffer->bytes, buffer->bytes + consumed, from_first);
		if (left > from_first)
			memcpy(buffer->bytes + from_first, put->second, left - from_first);
	}
	else if (left > 0)
		memcpy(buffer->bytes, put->second + (consumed - put->first_bytes), left);
	buffer->used_bytes = left;
}

/* Bytes that are buffered before they are stored. */
static uint32
buffer_limit(const BlobWriteBuffer *buffer)
{
	return buffer->pages.pipeline.put_bytes > LONG_VALUE_BYTES ? LONG_BUFFER_BYTES :
		BLOB_WRITE_BUFFER_BYTES;
}

/* The buffer begins at a page, so that the pipeline can write from it without another copy. */
static char *
align(char *memory)
{
	return (char *) TYPEALIGN(BLOB_PAGE_SIZE, memory);
}

void
blob_write_buffer_enlarge(BlobWriteBuffer *buffer, uint64 bytes)
{
	char	   *memory;

	if (bytes <= buffer->capacity)
		return;
	Assert(bytes <= LONG_BUFFER_BYTES);
	blob_hasher_wait(&buffer->digest);
	buffer->capacity = pg_nextpower2_32(Max((uint32) bytes, MIN_BUFFER_BYTES));
	memory = MemoryContextAlloc(buffer->context, buffer->capacity + BLOB_PAGE_SIZE);
	if (buffer->used_bytes > 0)
		memcpy(align(memory), buffer->bytes, buffer->used_bytes);
	if (buffer->memory != NULL)
		pfree(buffer->memory);
	buffer->memory = memory;
	buffer->bytes = align(memory);
}

/*
 * Plan a step.  It stores whole pages.  If it is the last one, it stores also the bytes that do not
 * fill a page, unless they are a remainder for the datum.
 */
static BlobPageStep
plan_step(BlobWriteBuffer *buffer, const char *data, uint64 length_bytes, bool is_last)
{
	uint64		available = buffer->used_bytes + length_bytes;
	uint32		partial = (uint32) (available % BLOB_PAGE_SIZE);
	uint32		max_inline = buffer->is_content ? BLOB_REMAINDER_INLINE_BYTES :
		BLOB_COMPRESSED_REMAINDER_INLINE_BYTES;
	BlobPageStep step = {
		.pages = available / BLOB_PAGE_SIZE,
		.is_last = is_last,
		.put = {
			.first = buffer->bytes,
			.first_bytes = buffer->used_bytes,
			.second = data,
			.is_whole = buffer->is_whole || (is_last && buffer->pages.pipeline.put_bytes == 0),
			.may_trail = buffer->is_alone && !is_last && data == NULL
		}
	};

	if (is_last && blob_page_writer_ends_behind_tail(&buffer->pages, blob_pages_for(available)))
		buffer->pages.keeps_room = true;
	if (is_last && !buffer->pages.keeps_room && partial > 0)
		step.pages++;
	step.wants_remainder_page = is_last && buffer->pages.keeps_room &&
		(partial > max_inline || buffer->pages.stored_bytes + available == partial);
	step.put.total_bytes = step.wants_remainder_page ? available :
		Min(available, step.pages * BLOB_PAGE_SIZE);
	if (buffer->is_content)
	{
		step.put.digest = &buffer->digest;
		step.put.skip_bytes = buffer->hashed_bytes - blob_write_buffer_offset(buffer);
	}
	return step;
}

/*
 * Have the other buffer filled while the writes of this one, which is stored as a whole, trail.
 * Those of the other one do not, since the pipeline has waited for them.
 */
static void
exchange_buffers(BlobWriteBuffer *buffer)
{
	char	   *memory = buffer->other_memory;

	Assert(buffer->capacity == LONG_BUFFER_BYTES);
	blob_hasher_wait_for_job(buffer->other_job_no);
	buffer->other_job_no = buffer->digest.last_job_no;
	if (memory == NULL)
		memory = MemoryContextAlloc(buffer->context, LONG_BUFFER_BYTES + BLOB_PAGE_SIZE);
	buffer->other_memory = buffer->memory;
	buffer->memory = memory;
	buffer->bytes = align(memory);
	buffer->used_bytes = 0;
}

/* Callback of the guard's end, perhaps in the middle of an abort: must not fail. */
static void
at_end_of_guard(void *argument)
{
	blob_hasher_cancel(argument);
}

/* Have the thread leave the buffer alone before the writer's memory is given up. */
static void
guard_digest(BlobWriteBuffer *buffer)
{
	MemoryContextCallback *callback;

	if (buffer->digest_guard != NULL)
		return;
	buffer->digest_guard = AllocSetContextCreate(buffer->context, "blobext digest",
												 ALLOCSET_SMALL_SIZES);
	callback = MemoryContextAlloc(buffer->digest_guard, sizeof(MemoryContextCallback));
	callback->func = at_end_of_guard;
	callback->arg = &buffer->digest;
	MemoryContextRegisterResetCallback(buffer->digest_guard, callback);
}

/*
 * Store the bytes of the buffer, and data behind them.  Bytes that are not stored become the
 * buffer.  Without data, but in the last step, these are whole pages, whose writes may trail: then
 * the buffer becomes another one.
 */
static void
store_step(BlobWriteBuffer *buffer, const char *data, uint64 length_bytes, bool is_last)
{
	uint64		available = buffer->used_bytes + length_bytes;
	uint64		page_bytes;
	BlobPageStep step;

	step = plan_step(buffer, data, length_bytes, is_last);
	page_bytes = Min(available, step.pages * BLOB_PAGE_SIZE);
	if (buffer->is_content)
		buffer->hashed_bytes = Max(buffer->hashed_bytes,
								   blob_write_buffer_offset(buffer) + step.put.total_bytes);
	if (step.put.may_trail)
		guard_digest(buffer);
	blob_page_writer_store(&buffer->pages, &step);
	if (buffer->digest_guard != NULL && !is_last)
		(void) blob_hasher_call();
	if (blob_pipeline_trails(&buffer->pages.pipeline))
	{
		exchange_buffers(buffer);
		return;
	}
	if (available > page_bytes)
		blob_write_buffer_enlarge(buffer, BLOB_PAGE_SIZE);
	step.put.first = buffer->bytes;
	keep_remainder(buffer, &step.put, page_bytes, available);
}

void
blob_write_buffer_store(BlobWriteBuffer *buffer, const char *stored, uint64 length_bytes,
						bool is_last)
{
	for (; length_bytes > STEP_BYTES; stored += STEP_BYTES, length_bytes -= STEP_BYTES)
		store_step(buffer, stored, STEP_BYTES, false);
	store_step(buffer, stored, length_bytes, is_last);
}

/* Have content in the buffer hashed while more of it comes; not in the first buffer of a value. */
static void
hash_ahead(BlobWriteBuffer *buffer)
{
	uint64		hashed = buffer->hashed_bytes - blob_write_buffer_offset(buffer);
	uint64		bytes = buffer->used_bytes - hashed;

	if (!buffer->is_content || buffer->pages.pipeline.put_bytes == 0 ||
		bytes < BLOB_HASHER_JOB_BYTES ||
		!(blob_hasher_has(&buffer->digest) || blob_hasher_call()))
		return;
	guard_digest(buffer);
	blob_hasher_add(&buffer->digest, buffer->bytes + hashed, bytes);
	buffer->hashed_bytes += bytes;
}

/*
 * Add stored bytes where writes may trail: the buffer is filled to its end and stored alone, so
 * that it can be written from where it lies.  Returns how many bytes were added; the others do not
 * fill the buffer.
 */
static uint64
put_trailing(BlobWriteBuffer *buffer, const char *stored, uint64 length_bytes)
{
	uint64		done = 0;

	blob_write_buffer_enlarge(buffer, LONG_BUFFER_BYTES);
	while (length_bytes - done >= LONG_BUFFER_BYTES - buffer->used_bytes)
	{
		uint32		bytes = LONG_BUFFER_BYTES - buffer->used_bytes;

		memcpy(buffer->bytes + buffer->used_bytes, stored + done, bytes);
		buffer->used_bytes += bytes;
		done += bytes;
		hash_ahead(buffer);
		store_step(buffer, NULL, 0, false);
	}
	return done;
}

void
blob_write_buffer_add(BlobWriteBuffer *buffer, const char *stored, uint64 length_bytes)
{
	if (buffer->is_alone && buffer_limit(buffer) == LONG_BUFFER_BYTES)
	{
		uint64		done = put_trailing(buffer, stored, length_bytes);

		stored += done;
		length_bytes -= done;
	}
	if (length_bytes == 0)
		return;
	if (buffer->used_bytes + length_bytes > buffer_limit(buffer))
	{
		blob_write_buffer_store(buffer, stored, length_bytes, false);
		return;
	}
	blob_write_buffer_enlarge(buffer, buffer->used_bytes + length_bytes);
	memcpy(buffer->bytes + buffer->used_bytes, stored, length_bytes);
	buffer->used_bytes += (uint32) length_bytes;
	hash_ahead(buffer);
}

void
blob_write_buffer_finish_digest(BlobWriteBuffer *buffer, uint64 size_bytes, uint8 *sha256,
								uint8 *state)
{
	blob_hasher_wait(&buffer->digest);
	if (buffer->hashed_bytes < size_bytes)
		blob_digest_update(&buffer->digest,
						   buffer->bytes +
						   (buffer->hashed_bytes - blob_write_buffer_offset(buffer)),
						   size_bytes - buffer->hashed_bytes);
	blob_digest_finish(&buffer->digest, sha256, state);
}

BlobTakenBytes
blob_write_buffer_take(BlobWriteBuffer *buffer)
{
	BlobTakenBytes taken = {
		.bytes = buffer->bytes,
		.memory = buffer->memory,
		.used_bytes = buffer->used_bytes,
		.capacity = buffer->capacity
	};

	Assert(!blob_hasher_has(&buffer->digest));
	buffer->bytes = buffer->memory = NULL;
	buffer->used_bytes = buffer->capacity = 0;
	return taken;
}

void
blob_write_buffer_put_back(BlobWriteBuffer *buffer, const BlobTakenBytes *taken)
{
	if (buffer->memory != NULL)
		pfree(buffer->memory);
	buffer->bytes = taken->bytes;
	buffer->memory = taken->memory;
	buffer->used_bytes = taken->used_bytes;
	buffer->capacity = taken->capacity;
}

void
blob_write_buffer_end(BlobWriteBuffer *buffer)
{
	if (buffer->digest_guard != NULL)
		MemoryContextDelete(buffer->digest_guard);
	if (buffer->memory != NULL)
		pfree(buffer->memory);
	if (buffer->other_memory != NULL)
		pfree(buffer->other_memory);
	blob_page_writer_end(&buffer->pages);
}
