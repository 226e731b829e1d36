/*
 * blob/builder.h
 *	  Content that comes in pieces: a writer where extents can be allocated, else memory.
 *
 * In a read-only transaction, on a standby and in a parallel worker content of any size is gathered
 * in memory, and becomes an inline value; ERROR 54000 once that is larger than a datum can be.
 * Everywhere else it goes to extents as it comes, and memory is bounded as blob/writer.h says.
 *
 * A gather is memory of the context that was current when it was begun, and nothing else; what
 * blob/writer.h says about calls in between, about interrupts and about errors is true of it, too.
 */
#ifndef BLOB_BUILDER_H
#define BLOB_BUILDER_H

#include "core/descriptor.h"

typedef struct BlobBuilder BlobBuilder;

/* expected_bytes: the size as far as known, else 0.  More or less may be added. */
extern BlobBuilder *blob_builder_begin(uint64 expected_bytes);

extern void blob_builder_add(BlobBuilder *builder, const void *data, uint64 length_bytes);

/* Add all content of a value, read in steps. */
extern void blob_builder_add_value(BlobBuilder *builder, const BlobValue *value);

/*
 * Complete the value.  The datum is memory of the current context or of the gather's.  Called
 * again, it gives the same datum; nothing can be added any more.
 */
extern struct varlena *blob_builder_finish(BlobBuilder *builder);

#endif							/* BLOB_BUILDER_H */
