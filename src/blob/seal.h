/*
 * blob/seal.h
 *	  Sealing: the digest of an open value is computed, by one read of its content.  See "Open
 *	  digests" in the README of this folder.
 *
 * The content is read in steps, through the reader, so each page from the device is compared with
 * its checksum.  Interrupts are served where the caller does not hold them off.  A digest that was
 * computed is remembered (blob/known_digests.h).  Errors are those of blob/reader.h.
 */
#ifndef BLOB_SEAL_H
#define BLOB_SEAL_H

#include "core/descriptor.h"
#include "core/digest.h"

/* While interrupts are held, no more of an open value is read at once. */
#define BLOB_SEAL_HELD_BYTES (UINT64CONST(16) * 1024 * 1024)

/*
 * The SHA-256 of a value's content: the descriptor has it, or it is remembered, or the content is
 * read.
 */
extern PGDLLEXPORT void blob_seal_digest(const BlobValue *value, uint8 *sha256);

/* The same if that reads no content; else false. */
extern PGDLLEXPORT bool blob_seal_known_digest(const BlobValue *value, uint8 *sha256);

/*
 * A copy of the (detoasted) datum of an open value, with its digest, that does not say that changes
 * may leave it open.
 */
extern struct varlena *blob_seal(const struct varlena *datum);

/*
 * Whether a change of a value may leave the digest of its result open: the value came from a column
 * that has opted in, and each of its pages has a checksum.  A sealed value whose pages lack some,
 * in a store that has checksums, is read once, compared with its digest, and gets them.  One with
 * bytes in the datum is compared, too.  ERROR XX001 if it is damaged.  An open value may always.
 * Not in recovery.
 */
extern bool blob_seal_may_open(const BlobValue *value);

/*
 * ERROR XX001 unless the content of a value may get a new digest, as it is read, or a part of it:
 * each page has a checksum, or all of the content is read now and has the digest of the value.  An
 * open value has checksums.  Inline values have nothing that decides.  See "Damage is never
 * blessed" in the README of this folder.
 */
extern void blob_seal_require_sound(const BlobValue *value);

/*
 * The same, before bytes of the last stored page of a value that is no tree are put in a new page.
 * Only if that gets a checksum, and the old one has none: the digest goes on, so it tells damage
 * as long as it is kept.
 */
extern void blob_seal_require_sound_last(const BlobValue *value);

/* The same, before more pages are copied. */
extern void blob_seal_require_sound_copy(const BlobValue *value);

/*
 * ERROR XX001 unless the end of a value that is about to be continued is right: the bytes that its
 * digest has not taken yet, at most a block of it, which the caller has read.
 */
extern void blob_seal_require_sound_end(const BlobDescriptor *descriptor, const char *open_block);

/* Add the first bytes of a value to a digest.  blob_seal_require_sound() comes before. */
extern void blob_seal_hash_beginning(const BlobValue *value, uint64 length_bytes,
									 BlobDigest *digest);

/*
 * ERROR 55000 if interrupts are held, and the decision of a caller needs more than
 * BLOB_SEAL_HELD_BYTES of an open value: a process that holds a lock on an index page must come to
 * an end.
 */
extern PGDLLEXPORT void blob_seal_require_interruptible(uint64 bytes);

#endif							/* BLOB_SEAL_H */
