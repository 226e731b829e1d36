/*
 * blob/upload.h
 *	  Uploads: values that several statements of one transaction write; see "Uploads" in the README
 *	  of this folder.
 *
 * An upload is a writer (blob/writer.h) with a number, which a client keeps.  It belongs to the
 * transaction that began it, and to the role that did.  Nothing refers to its content before
 * blob_upload_end() returns the value.
 *
 * All functions raise ERROR 42704 for a number that this transaction has not given, 42501 if
 * another role began the upload, and 55000 if it cannot go on: a call of it has failed, or a
 * subtransaction that wrote to it was rolled back.
 */
#ifndef BLOB_UPLOAD_H
#define BLOB_UPLOAD_H

#include "blob/writer.h"
#include "core/compat.h"
#include "core/descriptor.h"

/*
 * Begin an upload and return its number, which this session has not used before.  base: the value
 * whose content comes first, or NULL.  expected_bytes: how many bytes will be written, as far as
 * known, else 0.  ERROR 25006 where extents cannot be allocated, 54000 if the transaction has 100
 * uploads that have not ended; errors of blob_writer_grow().
 */
extern int64 blob_upload_begin(const BlobValue *base, uint64 expected_bytes);

/* ERROR 22004 for an upload or bytes that are NULL: left out, they would be missed late. */
pg_noreturn extern void blob_upload_refuse_null(void);

/* Add bytes at the end.  Returns the size of the content so far. */
extern uint64 blob_upload_write(int64 upload_no, const void *data, uint64 length_bytes);

/* Add all bytes of a source at the end. */
extern void blob_upload_write_from(int64 upload_no, BlobFill fill, void *source);

/*
 * Complete the value.  The datum is in the current context.  Another call in the same transaction
 * returns the same value, for the last 1,000 that were ended; nothing can be added any more.
 */
extern struct varlena *blob_upload_end(int64 upload_no);

/* Give the upload up, and abandon what it has allocated (blob/abandoned.h). */
extern void blob_upload_abort(int64 upload_no);

#endif							/* BLOB_UPLOAD_H */
