/*
 * blob/gather.c
 *	  Content that comes in pieces, see blob/gather.h.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/gather.h"
#include "blob/writer.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#define MIN_CAPACITY_BYTES 64

/* How much of a value is read at a time. */
#define STEP_BYTES (1024 * 1024)

struct BlobGather
{
	MemoryContext context;
	BlobWriter *writer;			/* NULL: memory */
	struct varlena *datum;		/* memory: an inline datum of which used_bytes are content */
	uint64		used_bytes;
	uint64		capacity_bytes;
	struct varlena *result;		/* once complete */
};

BlobGather *
blob_gather_begin(uint64 expected_bytes)
{
	BlobGather *gather = palloc0(sizeof(BlobGather));

	gather->context = CurrentMemoryContext;
	if (blob_may_allocate())
		gather->writer = blob_writer_begin(expected_bytes);
	return gather;
}

static void
report_too_large(uint64 size_bytes)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("cannot make a blobstate value of " UINT64_FORMAT " bytes here", size_bytes),
			 errdetail("A read-only transaction, a standby or a parallel worker cannot write "
					   "content to extents, and values of 1 GB or more do not fit into memory.")));
}

/* So many bytes of content must fit into the datum. */
static void
enlarge_datum(BlobGather *gather, uint64 needed_bytes)
{
	const uint64 max_bytes = MaxAllocSize - VARHDRSZ - BLOB_FORM_BYTES;
	uint64		capacity = Max(gather->capacity_bytes, MIN_CAPACITY_BYTES);

	if (needed_bytes > max_bytes)
		report_too_large(needed_bytes);
	while (capacity < needed_bytes)
		capacity *= 2;
	capacity = Min(capacity, max_bytes);
	if (gather->datum == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(gather->context);

		gather->datum = blob_inline_make(capacity);
		MemoryContextSwitchTo(old);
	}
	else if (capacity > gather->capacity_bytes)
		gather->datum = repalloc(gather->datum, VARHDRSZ + BLOB_FORM_BYTES + capacity);
	gather->capacity_bytes = capacity;
}

void
blob_gather_add(BlobGather *gather, const void *data, uint64 length_bytes)
{
	Assert(gather->result == NULL);
	if (gather->writer != NULL)
	{
		blob_writer_write(gather->writer, data, length_bytes);
		return;
	}
	enlarge_datum(gather, gather->used_bytes + length_bytes);
	memcpy(blob_inline_content(gather->datum) + gather->used_bytes, data, length_bytes);
	gather->used_bytes += length_bytes;
}

void
blob_gather_add_value(BlobGather *gather, const BlobValue *value)
{
	char	   *step;

	if (value->is_inline)
	{
		blob_gather_add(gather, value->inline_data, value->size_bytes);
		return;
	}
	step = palloc(Min(value->size_bytes, STEP_BYTES));
	for (uint64 offset = 0; offset < value->size_bytes; offset += STEP_BYTES)
	{
		uint64		bytes = Min(STEP_BYTES, value->size_bytes - offset);

		CHECK_FOR_INTERRUPTS();
		blob_read(value, offset, bytes, step);
		blob_gather_add(gather, step, bytes);
	}
	pfree(step);
}

struct varlena *
blob_gather_finish(BlobGather *gather)
{
	MemoryContext old;

	if (gather->result != NULL)
		return gather->result;
	old = MemoryContextSwitchTo(gather->context);
	if (gather->writer != NULL)
		gather->result = blob_writer_finish(gather->writer);
	else
	{
		enlarge_datum(gather, gather->used_bytes);
		SET_VARSIZE(gather->datum, VARHDRSZ + BLOB_FORM_BYTES + gather->used_bytes);
		gather->result = gather->datum;
	}
	MemoryContextSwitchTo(old);
	return gather->result;
}
