/*
 * blob/framer.h
 *	  A framer turns content into the stored bytes of a compressed value: frames, then nodes of
 *	  their directory, then the open frame.  It allocates and writes nothing itself.
 *
 * Content that was added waits until it fills a frame.  A frame is compressed by itself; if it does
 * not shrink by an eighth, it is stored as it is.  A fresh value ends with a shorter frame.  A
 * value that was appended to ends with one only if that has BLOB_GROWN_FRAME_BYTES or more.  Fewer
 * bytes go to the open frame, as far as they are whole pages, and the bytes behind them are the
 * remainder.  An open frame that is full becomes one that is stored as it is, where it lies.
 *
 * The stored bytes leave in their order, through a function of the owner.  Their number is a
 * multiple of the page at the end.
 */
#ifndef BLOB_FRAMER_H
#define BLOB_FRAMER_H

#include "blob/frames.h"
#include "core/codec.h"

/* The shortest frame that ends a grown value: it brings a new leaf and a new root, too. */
#define BLOB_GROWN_FRAME_BYTES (64 * 1024)

/* Takes the next stored bytes. */
typedef void (*BlobFramerPut) (void *context, const char *stored, uint64 length_bytes);

typedef struct BlobFramer BlobFramer;

/* Begin a fresh value, in the current context.  ERROR 0A000 if the method is not built in. */
extern BlobFramer *blob_framer_begin(BlobMethod method, BlobFramerPut put, void *context);

/*
 * Begin a value that goes on behind all content of a compressed one but its remainder: with its
 * frames, its open frame and the right edge of its directory, which is read.  New stored bytes
 * follow those of the value.
 */
extern BlobFramer *blob_framer_resume(const BlobDescriptor *base, const BlobMappingSource *source,
									  BlobFramerPut put, void *context);

/*
 * Begin a value with some frames of a compressed one.  Frames are added with
 * blob_framer_add_frames(), and get a directory of their own.  stored_bytes: where new stored bytes
 * go, a multiple of the page, behind all of these frames.
 */
extern BlobFramer *blob_framer_begin_with(const BlobDescriptor *base, uint64 stored_bytes,
										  BlobFramerPut put, void *context);

/*
 * Add those frames of the base whose content lies in [from, to); from is where one begins, and no
 * content waits.  The open frame becomes one that is stored as it is.
 */
extern void blob_framer_add_frames(BlobFramer *framer, const BlobDescriptor *base,
								   const BlobMappingSource *source, uint64 from, uint64 to);

/* Add content. */
extern void blob_framer_add(BlobFramer *framer, const char *content, uint64 length_bytes);

/* Make a frame of the content that waits, if any. */
extern void blob_framer_flush(BlobFramer *framer);

/*
 * Put the last stored bytes.  is_appending: few bytes go to the open frame.  Returns the bytes that
 * are left, the remainder, fewer than a page; *remainder is in the framer's memory.
 */
extern uint32 blob_framer_finish(BlobFramer *framer, bool is_appending, const char **remainder);

/*
 * After that: the fields of the value.  The result are the frames, if they go into the datum
 * (compression->level is 0); in the framer's memory.
 */
extern const BlobFrame *blob_framer_describe(const BlobFramer *framer,
											 BlobCompression *compression);

extern void blob_framer_free(BlobFramer *framer);

/*
 * Whether content is worth compressing by a method, by parts of it, of which one suffices.  Content
 * that was compressed by a program costs next to nothing more than without a method.
 */
extern bool blob_framer_is_worth(BlobMethod method, const char *data, uint64 length_bytes);

#endif							/* BLOB_FRAMER_H */
