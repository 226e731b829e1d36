/*
 * blob/change.h
 *	  A changed version of a value, as a tree of pieces.  Part of a writer (blob/writer.h), which
 *	  has size and prefix of the value.
 */
#ifndef BLOB_CHANGE_H
#define BLOB_CHANGE_H

#include "blob/write_buffer.h"

typedef struct BlobChange BlobChange;

/* See blob_writer_can_change(). */
extern bool blob_change_is_possible(const BlobValue *value, uint64 kept_bytes,
									uint64 new_size_bytes);

/*
 * Whether a version that begins with the first keep_bytes of a value, and has more_bytes of new
 * content, is made by a change: of a tree if that is possible, of another value if content that is
 * kept need not be read and hashed then.  *may_open: the digest of the result may stay open, as is
 * known already; false: not looked for, or not so.
 * ERROR 25006 where nothing can be allocated, XX001 as by blob_seal_may_open().
 */
extern bool blob_change_is_growth(const BlobValue *value, uint64 keep_bytes, uint64 more_bytes,
								  bool *may_open);

/*
 * Begin, in the current context, with an empty buffer, which gets a copy of the value as base.
 * ERROR 0A000 if the value's method is not built in, XB001 if the value is stale.
 */
extern BlobChange *blob_change_begin(const BlobValue *value, BlobWriteBuffer *stored);

/* The digest stays open: the owner knows that it may (blob/seal.h).  Before anything is added. */
extern void blob_change_leave_open(BlobChange *change);

/*
 * Whether the digest of the value stays open: known when the first content was kept or added, which
 * fails with XX001 if the base is damaged, as far as blob/seal.h finds that.
 */
extern bool blob_change_is_open(const BlobChange *change);

/* Copy content of the base. */
extern void blob_change_read(BlobChange *change, uint64 offset_bytes, uint64 length_bytes,
							 char *target);

/* Add the content [from, to) of the base, behind the last range that was kept.  from < to. */
extern void blob_change_keep(BlobChange *change, uint64 from, uint64 to);

/* Add new content. */
extern void blob_change_add(BlobChange *change, const char *data, uint64 length_bytes);

/* Put the last stored bytes into the buffer. */
extern void blob_change_finish(BlobChange *change);

/* When these are written: the datum.  descriptor has size, digest and prefix. */
extern struct varlena *blob_change_complete(BlobChange *change, BlobDescriptor *descriptor);

extern void blob_change_end(BlobChange *change);

#endif							/* BLOB_CHANGE_H */
