/*
 * core/codec.h
 *	  Methods of compression: their names, and whether this build of the library has them.
 *
 * liblz4 and libzstd are optional when the library is built (Makefile).  A value whose method is
 * not built in is refused with ERROR 0A000 as a whole: its size, digest and order need no method.
 */
#ifndef BLOB_CODEC_H
#define BLOB_CODEC_H

#include "core/frame.h"

/*
 * Content of the frames of new values, in bits of its length.  bench/compression has the figures of
 * 64, 128 and 256 KiB.  Not part of the format: a value says how long its frames may be.
 */
#define BLOB_FRAME_BITS 17
#define BLOB_FRAME_BYTES (1 << BLOB_FRAME_BITS)

/* "none", "lz4", "zstd"; "unknown" for a number that this library does not know. */
extern const char *blob_method_name(uint8 method);

/* The method of this name, in lower case; false if there is none. */
extern bool blob_method_from_name(const char *name, BlobMethod *method);

extern bool blob_method_is_built_in(uint8 method);

/* ERROR 0A000 unless this build has the method. */
extern void blob_method_require(uint8 method);

/*
 * Compress bytes, of one frame, to at most capacity bytes.  Returns how many there are, or 0 if
 * they do not fit.  The method is built in, and not BLOB_METHOD_NONE.
 */
extern uint32 blob_codec_compress(BlobMethod method, const char *content, uint32 content_bytes,
								  char *target, uint32 capacity);

/*
 * Decompress a frame to exactly content_bytes; false if the stored bytes are not such a frame.
 * Never writes behind the target, whatever the stored bytes are.
 */
extern bool blob_codec_decompress(uint8 method, const char *stored, uint32 stored_bytes,
								  char *target, uint32 content_bytes);

/*
 * Whether a small part of a content, some kB, becomes shorter: a guess at the rest.  False for
 * BLOB_METHOD_NONE.
 */
extern bool blob_codec_is_promising(BlobMethod method, const char *part, uint32 part_bytes);

#endif							/* BLOB_CODEC_H */
