/*
 * blob/writer.h
 *	  A streaming writer of values: any size, bounded memory; see "Growth" in the README of this
 *	  folder.
 *
 * A writer is memory of the context that was current when it was begun, and nothing else.  Between
 * two calls no request is in flight, the I/O engine is free, and no lock is held.  So a writer may
 * live across calls (the state of an aggregate), and reads and other writers may come in between.
 * It has a buffer of at most 1 MiB, of 4 MiB once it has written 16, and two of these after
 * blob_writer_write_from().  If it is aborted, an error is thrown, or its context is deleted, a
 * later statement of the process frees the extents that it has allocated (blob/abandoned.h).
 *
 * All functions that write raise ERROR 25006 where extents cannot be allocated (read-only
 * transaction, recovery, parallel worker).  A value of up to blobext.inline_limit needs none.  They
 * serve interrupts.  After an error the writer must not be used again.
 */
#ifndef BLOB_WRITER_H
#define BLOB_WRITER_H

#include "core/descriptor.h"

typedef struct BlobWriter BlobWriter;

/*
 * Begin a fresh value.  expected_bytes: its size as far as known, else 0.  If it is known, the
 * extents are allocated side by side.  More or fewer bytes may be written.  The value ends without
 * room to grow: the last extent has exactly the pages that it needs.
 *
 * method: tried on the first 1 MiB of the content.  The value is compressed if that helps, and
 * stored as it is if it does not.  ERROR 0A000 if the method is not built in.
 */
extern BlobWriter *blob_writer_begin(uint64 expected_bytes, BlobMethod method);

/* The same for content that was found to be compressible: it is compressed without a try. */
extern BlobWriter *blob_writer_begin_framed(uint64 expected_bytes, BlobMethod method);

/*
 * Begin a value whose content starts with the first keep_bytes bytes of a value (all of them:
 * value->size_bytes).  The new value shares whole pages with that value.  If keep_bytes is its
 * size, the writer reads at most a partly filled last page, or the page of a remainder.  The writer
 * reads and hashes a shorter beginning as a whole.  The value's datum may go when this returns.
 *
 * expected_bytes: how many bytes will be written, as far as known, else 0.  The new value keeps
 * room to grow.  A compressed value stays compressed, by its method; one in extents that is not
 * stays so.  An inline one has none: blobext.default_compression holds.  A tree is changed, or
 * written anew.
 */
extern BlobWriter *blob_writer_grow(const BlobValue *value, uint64 keep_bytes,
									uint64 expected_bytes);

/*
 * Whether a version of a value is made by a change, as a tree of pieces ("Trees of pieces" in the
 * README of this folder).  kept_bytes of its content are kept, and it will have new_size_bytes.
 * Otherwise all of its content is written: short values, and those of which dead bytes would be
 * more than half of the live ones.
 */
extern bool blob_writer_can_change(const BlobValue *value, uint64 kept_bytes,
								   uint64 new_size_bytes);

/*
 * Begin a changed version of such a value.  Ranges of its content are added with
 * blob_writer_keep(), in the order of their offsets, and new bytes between them with
 * blob_writer_write().  The value's datum may go when this returns.
 */
extern BlobWriter *blob_writer_begin_change(const BlobValue *value);

/* Whether a writer was begun so.  blob_writer_grow() does that, too. */
extern bool blob_writer_is_change(const BlobWriter *writer);

/*
 * Add the content [from, to) of the value that a change was begun with.  Pieces that lie in it are
 * shared, but short ones.  All of it is read and hashed, unless the digest stays open
 * (blob/seal.h).
 */
extern void blob_writer_keep(BlobWriter *writer, uint64 from, uint64 to);

/* Add bytes at the end. */
extern void blob_writer_write(BlobWriter *writer, const void *data, uint64 length_bytes);

/*
 * Gives the next bytes of a source, at most this number; 0 at its end.  It may throw, and wait for
 * a client or a file, but run no code of users, and end no transaction.
 */
typedef uint64 (*BlobFill) (void *source, char *memory, uint64 bytes);

/*
 * Add all bytes of a source.  Returns how many came.  While the source is asked for the next bytes,
 * those before them may be on their way to the device.
 */
extern uint64 blob_writer_write_from(BlobWriter *writer, BlobFill fill, void *source);

/*
 * Complete the value and free the writer.  Returns a datum in the current context: inline if its
 * size is at most blobext.inline_limit, else a descriptor.  All writes of the value have completed,
 * so the descriptor may be stored or used.
 */
extern struct varlena *blob_writer_finish(BlobWriter *writer);

/*
 * blob_writer_begin(), blob_writer_write() and blob_writer_finish() in one, for content in memory,
 * of which all parts are tried.  Always makes extents: the caller has decided that.
 * size_bytes > 0.
 */
extern struct varlena *blob_writer_store(const char *data, uint64 size_bytes, BlobMethod method);

#endif							/* BLOB_WRITER_H */
