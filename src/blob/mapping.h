/*
 * blob/mapping.h
 *	  The one place that knows how an offset in the content becomes stored bytes.
 *
 * A value has content, counted by content offsets, and stored bytes (extents/stored.h), counted by
 * stored offsets.  Of a plain value the mapping is the identity: the byte at a content offset is
 * the byte at the same stored offset, and the content's last bytes, those of a short remainder, are
 * in the datum.  A compressed value stores frames, and a directory that finds them
 * (core/frame.h, blob/frames.h).
 *
 * Invariant: no code outside of this module derives one offset from the other, nor the bytes that
 * an extent stores from the size of the content.  So a form of datum that stores its content in
 * another way has an answer in each of these functions:
 *
 * - blob_mapping_read() fetches stored bytes and turns them into content;
 * - blob_mapping_extent() says how many stored bytes an extent has;
 * - blob_mapping_kept_pages() says which stored pages another version may share;
 * - blob_mapping_is_shared() says which extents of two values need not be compared;
 * - blob_mapping_content_of() says which content an extent holds.
 *
 * test/run tidy looks for calls that pass this module by.
 */
#ifndef BLOB_MAPPING_H
#define BLOB_MAPPING_H

#include "blob/frames.h"
#include "core/descriptor.h"
#include "extents/stored.h"

/* ---- one value ---- */

/* The number of bytes of content in the datum of a descriptor: the last ones of the value. */
static inline uint32
blob_mapping_datum_bytes(const BlobDescriptor *descriptor)
{
	return blob_descriptor_inline_bytes(descriptor);
}

/* The number of stored bytes of a value, with those in the page of its remainder. */
static inline uint64
blob_mapping_stored_bytes(const BlobDescriptor *descriptor)
{
	if (descriptor->is_compressed)
		return descriptor->compression.stored_bytes +
			(descriptor->has_remainder_page ? descriptor->remainder_bytes : 0);
	return descriptor->size_bytes - blob_mapping_datum_bytes(descriptor);
}

/*
 * The extent_no-th extent of a value.  start: the end of the extent before it, which is its stored
 * offset unless the value is a tree; the result has the stored offset.  Its generation is
 * BLOB_INVALID_GENERATION, since it was not looked up.
 */
extern void blob_mapping_extent(const BlobDescriptor *descriptor, int extent_no, uint64 start,
								BlobStoredExtent *stored);

/*
 * Copy the content [offset, offset + length) of a value to target, and get its stored bytes from a
 * source.  offset + length is at most the value's size.  Throws the errors of the source; of a
 * compressed value those of blob/frames.h.
 */
extern void blob_mapping_read(const BlobDescriptor *descriptor, uint64 offset_bytes,
							  uint64 length_bytes, char *target,
							  const BlobMappingSource *source);

/*
 * ERROR if blob_mapping_read() cannot read this value although its extents can be read: a method of
 * compression that is not built in, a damaged directory.  Reads all of the directory.
 */
extern void blob_mapping_require_readable(const BlobDescriptor *descriptor,
										  const BlobMappingSource *source);

/* ---- offsets of content that is stored as it is: for writers ---- */

/* A range of the content, in bytes. */
typedef struct BlobContentRange
{
	uint64		offset;
	uint64		bytes;
} BlobContentRange;

/* The content offset of the byte at a stored offset. */
static inline uint64
blob_mapping_content_offset(uint64 stored_offset)
{
	return stored_offset;
}

/* The content that an extent of a plain value holds. */
extern BlobContentRange blob_mapping_content_of(const BlobDescriptor *descriptor,
												const BlobStoredExtent *extent);

/*
 * The number of stored pages, from the first one on, that hold nothing but the first keep_bytes of
 * the content.  Another version of the value that begins with these bytes may share these pages.
 * The page of a remainder is never one of them: no other version uses it.  The value is plain.
 */
extern uint64 blob_mapping_kept_pages(const BlobDescriptor *descriptor, uint64 keep_bytes);

/* The stored bytes of a compressed value that another version with its first bytes may share. */
typedef struct BlobMappingKept
{
	bool		is_all;			/* all stored bytes but the page of the remainder */
	uint64		content_bytes;	/* in frames that are kept */
	uint64		pages;			/* stored pages, from the first one on, in which these lie */
} BlobMappingKept;

/*
 * The same question as that of blob_mapping_kept_pages() for a compressed value: which frames lie
 * in the first keep_bytes, and in which pages.  Reads the directory as far as these go, unless all
 * is kept.
 */
extern void blob_mapping_kept_frames(const BlobDescriptor *descriptor, uint64 keep_bytes,
									 const BlobMappingSource *source, BlobMappingKept *kept);

/* ---- two values ---- */

/*
 * Whether the extents of a value say which content they hold.  Those of a compressed value do not:
 * the same extent at the same stored offset of two values may be content of different offsets, or
 * of one of them only.
 */
static inline bool
blob_mapping_can_share(const BlobDescriptor *descriptor)
{
	return !descriptor->is_compressed;
}

/*
 * Whether extents of two plain values are the same one and hold the same range of their contents.
 * The contents agree there as far as both go, because bytes of a returned value never change.  A
 * tail and a whole extent of one first page are different extents.  The caller verifies that the
 * extent still belongs to the older value.
 */
extern bool blob_mapping_is_shared(const BlobStoredExtent *a, const BlobStoredExtent *b);

#endif							/* BLOB_MAPPING_H */
