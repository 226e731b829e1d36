/*
 * blob/builder.c
 *	  Builds a value from content that comes in pieces, see blob/builder.h.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/builder.h"
#include "blob/reader.h"
#include "blob/writer.h"
#include "core/settings.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#define MIN_CAPACITY_BYTES 64

/* Content of a value is read in steps of this size. */
#define STEP_BYTES (1024 * 1024)

struct BlobBuilder
{
	MemoryContext context;
	bool		is_in_memory;
	BlobWriter *writer;			/* NULL in memory, and while the value is complete */
	struct varlena *datum;		/* in memory: inline, with used_bytes of content */
	uint64		used_bytes;
	uint64		capacity_bytes;
	struct varlena *result;		/* while the value is complete */
};

BlobBuilder *
blob_builder_begin(uint64 expected_bytes)
{
	BlobBuilder *builder = palloc0(sizeof(BlobBuilder));

	builder->context = CurrentMemoryContext;
	builder->is_in_memory = !blob_may_allocate();
	if (!builder->is_in_memory)
		builder->writer = blob_writer_begin(expected_bytes, blob_default_method());
	return builder;
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

/*
 * Make room for this number of bytes of content in the datum.  ERROR 54000 if a datum cannot be
 * that large.
 */
static void
enlarge_datum(BlobBuilder *builder, uint64 needed_bytes)
{
	const uint64 max_bytes = MaxAllocSize - VARHDRSZ - BLOB_FORM_BYTES;
	uint64		capacity = Max(builder->capacity_bytes, MIN_CAPACITY_BYTES);

	if (needed_bytes > max_bytes)
		report_too_large(needed_bytes);
	while (capacity < needed_bytes)
		capacity *= 2;
	capacity = Min(capacity, max_bytes);
	if (builder->datum == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(builder->context);

		builder->datum = blob_inline_make(capacity);
		MemoryContextSwitchTo(old);
	}
	else if (capacity > builder->capacity_bytes)
		builder->datum = repalloc(builder->datum, VARHDRSZ + BLOB_FORM_BYTES + capacity);
	builder->capacity_bytes = capacity;
}

/* Go on where a complete value ends: one in extents grows, and the next one shares them with it. */
static void
resume(BlobBuilder *builder)
{
	if (!builder->is_in_memory)
	{
		MemoryContext old = MemoryContextSwitchTo(builder->context);
		BlobValue	value;

		blob_value_unpack(builder->result, &value);
		builder->writer = blob_writer_grow(&value, value.size_bytes, 0);
		pfree(builder->result);
		MemoryContextSwitchTo(old);
	}
	builder->result = NULL;
}

void
blob_builder_add(BlobBuilder *builder, const void *data, uint64 length_bytes)
{
	if (builder->result != NULL)
		resume(builder);
	if (builder->writer != NULL)
	{
		blob_writer_write(builder->writer, data, length_bytes);
		return;
	}
	enlarge_datum(builder, builder->used_bytes + length_bytes);
	memcpy(blob_inline_content(builder->datum) + builder->used_bytes, data, length_bytes);
	builder->used_bytes += length_bytes;
}

void
blob_builder_add_from(BlobBuilder *builder, BlobFill fill, void *source)
{
	uint64		bytes;

	if (builder->result != NULL)
		resume(builder);
	if (builder->writer != NULL)
	{
		(void) blob_writer_write_from(builder->writer, fill, source);
		return;
	}
	do
	{
		enlarge_datum(builder, builder->used_bytes + 1);
		bytes = fill(source, blob_inline_content(builder->datum) + builder->used_bytes,
					 builder->capacity_bytes - builder->used_bytes);
		builder->used_bytes += bytes;
	} while (bytes > 0);
}

void
blob_builder_add_value(BlobBuilder *builder, const BlobValue *value)
{
	BlobReader	reader;
	char	   *step;
	uint64		bytes;

	if (value->is_inline)
	{
		blob_builder_add(builder, value->inline_data, value->size_bytes);
		return;
	}
	step = palloc(Min(value->size_bytes, STEP_BYTES));
	blob_reader_begin(&reader, value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, step, STEP_BYTES)) > 0)
		blob_builder_add(builder, step, bytes);
	blob_reader_end(&reader);
	pfree(step);
}

struct varlena *
blob_builder_finish(BlobBuilder *builder)
{
	MemoryContext old;

	if (builder->result != NULL)
		return builder->result;
	old = MemoryContextSwitchTo(builder->context);
	if (!builder->is_in_memory)
	{
		builder->result = blob_writer_finish(builder->writer);
		builder->writer = NULL;
	}
	else
	{
		enlarge_datum(builder, builder->used_bytes);
		SET_VARSIZE(builder->datum, VARHDRSZ + BLOB_FORM_BYTES + builder->used_bytes);
		builder->result = builder->datum;
	}
	MemoryContextSwitchTo(old);
	return builder->result;
}
