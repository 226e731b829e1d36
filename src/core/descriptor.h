/*
 * core/descriptor.h
 *	  The datum of type blobstate: inline content, or a descriptor of extents.
 *
 * The first byte after the varlena header is the form.  Inline: the content follows.  Descriptor
 * (all integers little endian, nothing is aligned, because a short varlena header shifts it):
 *
 *	  offset bytes
 *		   0     1  form, BLOB_FORM_DESCRIPTOR_V1
 *		   1     1  flags, BLOB_FLAG_TAIL
 *		   2     2  number of extents of tier sizes
 *		   4     8  generation: at least that of each extent
 *		  12     8  size of the content in bytes
 *		  20    32  SHA-256 of the content
 *		  52    32  chaining words after the last full 64-byte block
 *		  84    32  prefix: the first bytes of the content, then zeros
 *		 116     6  tail extent: first page
 *		 122     6  tail extent: pages
 *		 128   6 n  first page of each extent of tier size
 *
 * Descriptor with remainder: a value that has grown.  Its extents hold whole pages of content.  The
 * bytes behind the last whole page are the remainder, which lies in the datum or in an extent of
 * one page of its own.  The tail may stand anywhere among the extents, and may hold more pages than
 * belong to this value.  As above, but:
 *
 *		   0     1  form, BLOB_FORM_DESCRIPTOR_V2
 *		   1     1  flags, BLOB_FLAG_TAIL, BLOB_FLAG_REMAINDER_PAGE
 *		 128     2  number of extents of tier sizes before the tail
 *		 130     6  tail extent: pages of it that are content of this value
 *		 136     2  remainder: bytes
 *		 138     6  remainder: its page, if it has one
 *		 144   6 n  first page of each extent of tier size
 *		 ...     r  remainder, if it has no page
 *
 * Compressed descriptor: the stored bytes in the extents are not the content, but frames and the
 * nodes of their directory (core/frame.h).  The content is that of the frames in the order of the
 * directory, then that of the open frame, then the remainder.  The open frame is not compressed: it
 * has the pages that were appended since the last frame was closed, whole and side by side in the
 * stored bytes.  So an append writes pages behind the stored bytes, and continues the CRC.  Only if
 * it closes a frame, it also writes a leaf of the directory and the nodes above it.  Size, digest,
 * chaining words, prefix and remainder are those of the content.  As the descriptor with remainder,
 * but:
 *
 *	  offset bytes
 *		   0     1  form, BLOB_FORM_COMPRESSED_V1
 *		   1     1  flags, BLOB_FLAG_TAIL, BLOB_FLAG_REMAINDER_PAGE, BLOB_FLAG_REMAINDER_CRC
 *		 130     6  tail extent: pages of it that are stored bytes of this value
 *		 144     8  stored bytes: those of the extents from the first on, whole pages
 *		 152     1  method for frames to come, BlobMethod
 *		 153     1  bits of the length that a frame of this value may have
 *		 154     1  level of the directory's root; 0: the entries of frames are in the datum
 *		 155     1  zero
 *		 156     2  level 0: number of frames
 *		 158     6  other levels: offset of the root in the stored bytes
 *		 164     8  number of frames; 0 only in a value that has the open frame alone, or nothing
 *		 172     6  open frame: offset in the stored bytes
 *		 178     6  open frame: bytes, whole pages, at most as many as a frame may have
 *		 184     4  open frame: CRC-32C of its bytes; 0 if it is empty
 *		 188     4  CRC-32C of the remainder, with BLOB_FLAG_REMAINDER_CRC; else zero
 *		 192   6 n  first page of each extent of tier size
 *		 ...  24 f  level 0: entries of frames
 *		 ...     r  remainder, if it has no page
 *
 * The CRC is that of a remainder in a page.  Values that libraries before 0.4 have made lack it;
 * those libraries refuse a value that has it, because the flag and the bytes were reserved.  It is
 * not that of the open frame continued: a remainder is read by itself.
 *
 * Tree of pieces: a value that was changed in the middle.  Its stored bytes are pieces and the
 * nodes of their directory, as those of a compressed value.  A piece is a frame, or a run of
 * content as it lies (core/frame.h).  All content is in pieces.  The extents do not follow each
 * other: each has a slot, which says where among the stored offsets its bytes begin.  So an extent
 * of which nothing is left in the value leaves the list, and the entries of all other pieces stay
 * as they are.  Live bytes are those of an extent that pieces and nodes of this value lie in; the
 * others are dead.  As the compressed descriptor, but:
 *
 *		   0     1  form, BLOB_FORM_TREE_V1
 *		   1     1  flags, BLOB_FLAG_TAIL, BLOB_FLAG_DIGEST_OPEN
 *		   2     2  number of slots, 1 to BLOB_TREE_MAX_SLOTS
 *		 116     6  zero
 *		 122     6  pages of the extent that is a tail, if there is one
 *		 128    24  zero
 *		 152     1  method for pieces to come, BlobMethod
 *		 154     1  level of the directory's root, 1 or more
 *		 155     3  zero
 *		 158     6  offset of the root in the stored bytes
 *		 164     8  number of pieces
 *		 172    20  zero
 *		 192  25 n  slots, by their stored offsets, which do not overlap:
 *					0     6  first page of the extent
 *					6     6  stored offset of its first page, in pages
 *				   12     6  pages of it that are stored bytes of this value, from the first on
 *				   18     6  live bytes, 1 to those of these pages
 *				   24     1  tier; BLOB_SLOT_TAIL: it is a tail, at most one is
 *
 * Digest.  BLOB_FLAG_DIGEST_DEFERRED says that the value came from a column that has opted in, so
 * that changes need not compute the digest of their result.  Libraries before 0.4 ignore it in the
 * forms 0x11 and 0x12, and refuse a compressed value that has it.  A value whose digest was not
 * computed is open (BLOB_FLAG_DIGEST_OPEN, a tree only): digest and chaining words are
 * zero.  All others are sealed.
 *
 * Forms.  0x0_ is content in the datum.  0x1_ is a descriptor whose extents hold the content, 0x2_
 * one whose stored bytes have to be decompressed.  Reserved: 0x02 for compressed content in the
 * datum, 0x22 for frames that share a dictionary, 0x3_ for encrypted content.  0x00 and 0xFF are
 * never used, so memory that was cleared or overwritten is not taken for a value.
 *
 * These values are on disk; never change the meaning of a form byte, add a new one.
 */
#ifndef BLOB_DESCRIPTOR_H
#define BLOB_DESCRIPTOR_H

#include "core/digest.h"
#include "core/frame.h"
#include "core/page.h"
#include "core/tier.h"

#define BLOB_FORM_INLINE_V1 0x01
#define BLOB_FORM_DESCRIPTOR_V1 0x11
#define BLOB_FORM_DESCRIPTOR_V2 0x12
#define BLOB_FORM_COMPRESSED_V1 0x21
#define BLOB_FORM_TREE_V1 0x23
#define BLOB_FORM_BYTES 1

#define BLOB_FLAG_TAIL 0x01
#define BLOB_FLAG_REMAINDER_PAGE 0x02
#define BLOB_FLAG_REMAINDER_CRC 0x04	/* compressed, with a page */
#define BLOB_FLAG_DIGEST_OPEN 0x08	/* tree: digest and chaining words are not known, and zero */
#define BLOB_FLAG_DIGEST_DEFERRED 0x10	/* all: a change may leave the digest open */

#define BLOB_PREFIX_BYTES 32
#define BLOB_EXTENT_START_BYTES 6
#define BLOB_DESCRIPTOR_FIXED_BYTES 128
#define BLOB_DESCRIPTOR_REMAINDER_FIXED_BYTES 144
#define BLOB_DESCRIPTOR_COMPRESSED_FIXED_BYTES 192

#define BLOB_SLOT_BYTES 25
#define BLOB_SLOT_TAIL 0xFF
#define BLOB_TREE_MAX_SLOTS 64

/*
 * Longer remainders get a page: with this one and 50 extents a descriptor fits into an item of a
 * btree (2,704 bytes), and a row of it is not compressed (2,032).  Not part of the format.
 */
#define BLOB_REMAINDER_INLINE_BYTES 1536

/*
 * The same for compressed values: more frames get a directory in the extents.  With both of these
 * and 50 extents a descriptor has 1,900 bytes.
 */
#define BLOB_COMPRESSED_REMAINDER_INLINE_BYTES 1024
#define BLOB_FRAMES_INLINE 16

/* An extent of a tree. */
typedef struct BlobSlot
{
	BlobExtent	extent;			/* generation: not known from the datum */
	uint8		tier;			/* BLOB_SLOT_TAIL: extent.is_tail */
	uint64		start;			/* stored offset of its first byte */
	uint64		bytes;			/* stored bytes of the value, whole pages */
	uint64		live_bytes;
} BlobSlot;

/*
 * The fields that only a compressed descriptor, or a tree, has.  Offsets are in the stored bytes.
 */
typedef struct BlobCompression
{
	uint64		stored_bytes;
	uint8		method;			/* BlobMethod, or a number that this library does not know */
	int			frame_bits;
	int			level;			/* of the directory's root; 0: the entries are in the datum */
	uint64		root_offset;	/* level > 0 */
	uint64		frame_count;
	uint64		open_offset;
	uint64		open_bytes;
	uint32		open_crc;
	bool		has_remainder_crc;	/* only if the remainder has a page */
	uint32		remainder_crc;
	const uint8 *frames;		/* level 0: the entries, in the datum */
} BlobCompression;

/* An unpacked descriptor; pointers point into the datum it was unpacked from. */
typedef struct BlobDescriptor
{
	BlobGeneration generation;
	uint64		size_bytes;
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		state[BLOB_DIGEST_BYTES];
	uint8		prefix[BLOB_PREFIX_BYTES];
	bool		has_tail;
	BlobPageNo	tail_first_page;
	uint64		tail_pages;
	int			tail_position;	/* extents before the tail */
	uint64		tail_content_pages; /* of this value; at most tail_pages */
	int			tier_extent_count;
	const uint8 *extent_starts;
	uint32		remainder_bytes;
	const char *remainder;		/* NULL: the remainder is in its page, or there is none */
	bool		has_remainder_page;
	BlobPageNo	remainder_page;
	bool		is_compressed;	/* stored bytes are frames or pieces, and their directory */
	BlobCompression compression;	/* only if is_compressed */
	bool		is_tree;		/* extents are slots; is_compressed, too */
	int			slot_count;
	const uint8 *slots;
	bool		defers_digest;	/* a change may leave the digest open */
	bool		is_open;		/* sha256 and state are not known, and zero */
} BlobDescriptor;

/* A blobstate datum seen through its form; inline_data points into the datum. */
typedef struct BlobValue
{
	bool		is_inline;
	const char *inline_data;
	uint64		size_bytes;
	BlobDescriptor descriptor;	/* only if not inline */
} BlobValue;

typedef enum BlobKeyKind
{
	BLOB_KEY_INLINE,
	BLOB_KEY_SEALED,			/* a descriptor with the digest of its content */
	BLOB_KEY_OPEN				/* a descriptor without */
} BlobKeyKind;

/*
 * The part of a value that decides most comparisons, without unpacking: for an inline value all of
 * its content, for a descriptor the prefix and the digest.  Pointers point into the datum.
 */
typedef struct BlobKey
{
	const struct varlena *datum;	/* to unpack; NULL for content that is in no blobstate */
	const char *data;			/* inline: the content; else: the prefix */
	uint64		size_bytes;
	BlobKeyKind kind;
	const uint8 *sealed_digest; /* sealed: SHA-256 of the content; else NULL */
} BlobKey;

/* The key of a detoasted (plain or short header) datum; ERROR XX001 as for blob_value_unpack(). */
extern void blob_key_load(const struct varlena *datum, BlobKey *key);

/* Extents of the descriptor; the tail and the page of the remainder are counted. */
static inline int
blob_descriptor_extent_count(const BlobDescriptor *descriptor)
{
	return descriptor->is_tree ? descriptor->slot_count :
		descriptor->tier_extent_count + (descriptor->has_tail ? 1 : 0) +
		(descriptor->has_remainder_page ? 1 : 0);
}

/*
 * The extent_no-th extent in the order of the content (first page, pages, tail); its own
 * generation is in the extent map.  The page of a remainder comes last, as a tail.
 */
extern BlobExtent blob_descriptor_extent(const BlobDescriptor *descriptor, int extent_no);

/* The slot_no-th slot of a tree. */
extern BlobSlot blob_descriptor_slot(const BlobDescriptor *descriptor, int slot_no);

/* Whether stored bytes, at least one, lie in slots of a tree. */
extern bool blob_descriptor_slots_hold(const BlobDescriptor *descriptor, uint64 stored_offset,
									   uint64 length_bytes);

/*
 * The stored offset of the extent_no-th extent.  start: the end of the one before, which it is but
 * for a tree.
 */
extern uint64 blob_descriptor_extent_start(const BlobDescriptor *descriptor, int extent_no,
										   uint64 start);

/*
 * Stored bytes of the value in the extent_no-th extent, which begins at offset start of all of
 * them.
 */
extern uint64 blob_descriptor_extent_stored_bytes(const BlobDescriptor *descriptor, int extent_no,
												  uint64 start);

/* The page that holds a stored offset, which is inside of the value: for messages. */
extern BlobPageNo blob_descriptor_page_of(const BlobDescriptor *descriptor, uint64 stored_offset);

/* Bytes of the remainder that lie in the datum: the last ones of the content. */
static inline uint32
blob_descriptor_inline_bytes(const BlobDescriptor *descriptor)
{
	return descriptor->remainder != NULL ? descriptor->remainder_bytes : 0;
}

/*
 * Unpack a detoasted (plain or short header) datum.  ERROR XX001 for a form that this library
 * does not know or lengths that contradict each other.
 */
extern void blob_value_unpack(const struct varlena *datum, BlobValue *value);

/*
 * The SHA-256 of a value's content, unless that is open: the descriptor has it, of an inline value
 * it is computed.  See blob/seal.h for one that may be open.
 */
extern void blob_value_sealed_digest(const BlobValue *value, uint8 *sha256);

/*
 * What tells one content of a database from others, without reading it: the digest, or if that is
 * open, the generation with zeros behind it, which an open value has drawn for itself.
 */
extern void blob_descriptor_identity(const BlobDescriptor *descriptor,
									 uint8 identity[BLOB_DIGEST_BYTES]);

/* The beginning of the content, BLOB_PREFIX_BYTES or all of it. */
static inline const void *
blob_value_prefix(const BlobValue *value)
{
	return value->is_inline ? (const void *) value->inline_data : value->descriptor.prefix;
}

/*
 * Is this datum inline content?  It may be toasted in any way; no more of it is fetched or
 * decompressed than its beginning.
 */
extern bool blob_datum_is_inline(Datum datum);

/* A new inline datum of size_bytes; its content is at blob_inline_content(). */
extern struct varlena *blob_inline_make(uint64 size_bytes);
extern char *blob_inline_content(struct varlena *datum);

/*
 * Pack a descriptor.  The extents are given in the order of the content, without the page of the
 * remainder; at most one of them is a tail, of which tail_content_pages are used (if it is the
 * last, as many as the size says).  Takes size, digest, state, prefix, generation,
 * tail_content_pages and remainder from descriptor.
 */
extern struct varlena *blob_descriptor_pack(const BlobDescriptor *descriptor,
											const BlobExtent *extents, int extent_count);

/*
 * The same for a compressed value, whose extents hold compression->stored_bytes; level 0: frames[]
 * are its frames.
 */
extern struct varlena *blob_compressed_pack(const BlobDescriptor *descriptor,
											const BlobFrame *frames, const BlobExtent *extents,
											int extent_count);

/*
 * The same for a tree, of 1 to BLOB_TREE_MAX_SLOTS slots.  Takes size, digest, state, prefix,
 * generation, and of compression method, frame_bits, level, root_offset and frame_count.
 */
extern struct varlena *blob_tree_pack(const BlobDescriptor *descriptor, const BlobSlot *slots,
									  int slot_count);

/* A datum of its own with the same content. */
extern struct varlena *blob_descriptor_copy(const BlobDescriptor *descriptor);

/*
 * Whether a detoasted datum says that changes may leave the digest open; and say so, or not, in a
 * descriptor that has no other user yet.  An inline value never says it.
 */
extern bool blob_datum_defers_digest(const struct varlena *datum);
extern void blob_datum_set_defers_digest(struct varlena *datum, bool defers);

/*
 * A copy of the datum of an open value, with digest and chaining words of its content; changes of
 * it must compute that of their results.
 */
extern struct varlena *blob_descriptor_seal(const struct varlena *datum, const uint8 *sha256,
											const uint8 *state);

/* ERROR 54000 if content of this size cannot be one datum. */
extern void blob_check_datum_size(uint64 size_bytes);

#endif							/* BLOB_DESCRIPTOR_H */
