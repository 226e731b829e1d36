/*
 * blob/writer.h
 *	  A streaming writer of values: any size, bounded memory; see "Growth" in this folder's README.
 *
 * A writer is memory of the context that was current when it was begun, and nothing else: between
 * two calls no request is in flight, the I/O engine is free, and no lock is held.  So it may live
 * across calls (the state of an aggregate), and reads and other writers may come in between.  It
 * holds 1 MiB of buffered bytes at most.  What it has written when it is aborted, or an error
 * comes, or its context goes, is freed by a later statement of the process (blob/abandoned.h).
 *
 * All functions that write raise ERROR 25006 where extents cannot be allocated (read-only
 * transaction, recovery, parallel worker); a value of up to blobext.inline_limit needs none.  They
 * serve interrupts.  After an error the writer must not be used again.
 */
#ifndef BLOB_WRITER_H
#define BLOB_WRITER_H

#include "core/descriptor.h"

typedef struct BlobWriter BlobWriter;

/*
 * A writer of a fresh value.  expected_bytes: its size as far as known, else 0; with it the
 * extents are allocated side by side.  More or less may be written.  The value ends without
 * room to grow: the last extent has exactly the pages that it needs.
 */
extern BlobWriter *blob_writer_begin(uint64 expected_bytes);

/*
 * A writer whose content begins with the first keep_bytes bytes of a value (all of them:
 * value->size_bytes).  Whole pages are shared with the value, and where keep_bytes is the size of
 * the value no more is read of it than a partly filled last page; a shorter beginning is read and
 * hashed as a whole.  The value's datum may go when this returns.
 *
 * expected_bytes: how many bytes will be written, as far as known, else 0.  The value keeps
 * room to grow.
 */
extern BlobWriter *blob_writer_grow(const BlobValue *value, uint64 keep_bytes,
									uint64 expected_bytes);

/* Add bytes at the end. */
extern void blob_writer_write(BlobWriter *writer, const void *data, uint64 length_bytes);

/*
 * Complete the value and free the writer.  Returns a datum in the current context: inline if its
 * size is at most blobext.inline_limit, else a descriptor, all of whose writes have completed and
 * which may be stored or used.
 */
extern struct varlena *blob_writer_finish(BlobWriter *writer);

/* Free the writer, and give up what it has written. */
extern void blob_writer_abort(BlobWriter *writer);

/*
 * blob_writer_begin(), write and finish in one, for content in memory.  Always makes extents: the
 * caller has decided.  size_bytes > 0.
 */
extern struct varlena *blob_writer_store(const char *data, uint64 size_bytes);

/* ERROR 25006 unless this backend may allocate extents now. */
extern void blob_writer_require_allocation(void);

#endif							/* BLOB_WRITER_H */
