/*
 * blob/builder.h
 *	  Builds a value from content that comes in pieces: with a writer where extents can be
 *	  allocated, else in memory.
 *
 * In a read-only transaction, on a standby and in a parallel worker, content of any size is
 * collected in memory and becomes an inline value; ERROR 54000 if it gets larger than a datum can
 * be.  Elsewhere content goes to extents as it comes, and memory is bounded as blob/writer.h says.
 *
 * A builder is memory of the context that was current when it was begun, and nothing else.  The
 * rules of blob/writer.h about calls in between, interrupts and errors hold for it, too.
 */
#ifndef BLOB_BUILDER_H
#define BLOB_BUILDER_H

#include "blob/writer.h"

typedef struct BlobBuilder BlobBuilder;

/*
 * Begin a value.  expected_bytes: its size as far as known, else 0.  More or fewer bytes may be
 * added.
 */
extern BlobBuilder *blob_builder_begin(uint64 expected_bytes);

/* Add bytes at the end. */
extern void blob_builder_add(BlobBuilder *builder, const void *data, uint64 length_bytes);

/* Add all bytes of a source, see blob_writer_write_from(). */
extern void blob_builder_add_from(BlobBuilder *builder, BlobFill fill, void *source);

/* Add the whole content of a value, read in steps. */
extern void blob_builder_add_value(BlobBuilder *builder, const BlobValue *value);

/*
 * Complete the value.  The datum is in the builder's context, and another call returns the same
 * one.  If more is added afterwards, the datum goes; a copy of it stays what it is.  The next value
 * then shares extents with this one, so no content is written again.
 */
extern struct varlena *blob_builder_finish(BlobBuilder *builder);

#endif							/* BLOB_BUILDER_H */
