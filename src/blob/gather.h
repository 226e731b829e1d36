/*
 * blob/gather.h
 *	  Content that comes in pieces: a writer where extents can be allocated, else memory.
 *
 * In a read-only transaction, on a standby and in a parallel worker content of any size is gathered
 * in memory, and becomes an inline value; ERROR 54000 once that is larger than a datum can be.
 * Everywhere else it goes to extents as it comes, and memory is bounded as blob/writer.h says.
 *
 * A gather is memory of the context that was current when it was begun, and nothing else; what
 * blob/writer.h says about calls in between, about interrupts and about errors is true of it, too.
 */
#ifndef BLOB_GATHER_H
#define BLOB_GATHER_H

#include "core/descriptor.h"

typedef struct BlobGather BlobGather;

/* expected_bytes: the size as far as known, else 0.  More or less may be added. */
extern BlobGather *blob_gather_begin(uint64 expected_bytes);

extern void blob_gather_add(BlobGather *gather, const void *data, uint64 length_bytes);

/* Add all content of a value, read in steps. */
extern void blob_gather_add_value(BlobGather *gather, const BlobValue *value);

/*
 * Complete the value.  The datum is memory of the current context or of the gather's.  Called
 * again, it gives the same datum; nothing can be added any more.
 */
extern struct varlena *blob_gather_finish(BlobGather *gather);

#endif							/* BLOB_GATHER_H */
