/*
 * core/frame.h
 *	  Frames of compressed values, and the directory that finds them.
 *
 * A compressed value is a sequence of frames.  A frame is a part of the content that was
 * compressed by itself.  To read a range of the content, a reader decompresses the frames that the
 * range touches.  The extents of the value are one stream of stored bytes.  A frame lies anywhere
 * in it, and need not begin at a page.  Stored bytes of a value that has been returned are never
 * written again: a change of the value adds frames, and nodes of the directory, behind them.
 *
 * Entry of a frame (all integers little endian, nothing is aligned):
 *
 *	  offset bytes
 *		   0     4  content: bytes, 1 to those that a frame of the value may have
 *		   4     4  stored: bytes, at most those of the content
 *		   8     6  stored: offset in the stored bytes of the value
 *		  14     1  method, BlobMethod; as many stored bytes as content if it is none
 *		  15     1  flags, BLOB_FRAME_IS_RUN
 *		  16     4  CRC-32C of the stored bytes
 *		  20     4  zero
 *
 * A run is a piece of a tree (core/descriptor.h): content as it lies, up to BLOB_RUN_MAX_BYTES of
 * it.  Its method is none, its CRC zero, since no reader of a part of it could compare one: the
 * checksums of pages in the map, and the digest of the value, are its guard.  It may begin at any
 * byte of a page, and be cut at any.
 *
 * Offsets have 48 bits, so frames and nodes lie in the first 256 TiB of the stored bytes.  The CRC
 * is verified before the stored bytes are decompressed, or taken for content.
 *
 * The directory.  If a value has few frames, their entries are in the datum (level 0).  Otherwise
 * the directory is a tree of nodes in the stored bytes.  A node is a page.  The leaves, of level 1,
 * have entries of frames; nodes of higher levels have entries of nodes of the level below.  As
 * frames may be of any length, a node says how many bytes of content are below it.  So a search for
 * an offset in the content reads one node of each level, and a change makes new nodes only on the
 * path from the leaf to the root.
 *
 *	  offset bytes
 *		   0     4  CRC-32C of the page from offset 4 on
 *		   4     2  number of entries, 1 to BLOB_NODE_ENTRIES
 *		   6     1  level, from 1 on
 *		   7     1  zero
 *		   8     8  content below: bytes
 *		  16     8  frames below
 *		  24     8  zero
 *		  32  24 n  entries, in the order of the content; then zeros
 *
 * Entry of a node in the node above:
 *
 *	  offset bytes
 *		   0     8  content below: bytes
 *		   8     8  frames below
 *		  16     6  offset in the stored bytes of the value, a multiple of the page
 *		  22     2  zero
 *
 * These values are on disk; never change the meaning of one.
 */
#ifndef BLOB_FRAME_H
#define BLOB_FRAME_H

#include "core/page.h"

/* How the stored bytes of a frame become content.  Other numbers are for later methods. */
typedef enum BlobMethod
{
	BLOB_METHOD_NONE = 0,		/* they are the content */
	BLOB_METHOD_LZ4 = 1,		/* one block of LZ4, without a frame of that format */
	BLOB_METHOD_ZSTD = 2		/* one frame of Zstandard */
} BlobMethod;

#define BLOB_FRAME_ENTRY_BYTES 24
#define BLOB_NODE_ENTRY_BYTES 24
#define BLOB_NODE_HEADER_BYTES 32
#define BLOB_NODE_ENTRIES ((BLOB_PAGE_SIZE - BLOB_NODE_HEADER_BYTES) / BLOB_NODE_ENTRY_BYTES)

/* Levels that a directory may have: more than 2^48 pages of frames need. */
#define BLOB_NODE_MAX_LEVEL 8

/* Content of a frame, in bits of its length: 4 KiB to 16 MiB. */
#define BLOB_FRAME_MIN_BITS 12
#define BLOB_FRAME_MAX_BITS 24

/* Flags of a frame's entry. */
#define BLOB_FRAME_IS_RUN 0x01	/* in a tree only */

#define BLOB_RUN_MAX_BYTES (1024 * 1024 * 1024)

typedef struct BlobFrame
{
	bool		is_run;
	uint32		content_bytes;
	uint32		stored_bytes;
	uint64		stored_offset;
	uint8		method;			/* BlobMethod, or a number that this library does not know */
	uint32		crc;
} BlobFrame;

typedef struct BlobNodeEntry
{
	uint64		content_bytes;
	uint64		frame_count;
	uint64		stored_offset;
} BlobNodeEntry;

typedef struct BlobNode
{
	int			level;
	int			entry_count;
	uint64		content_bytes;
	uint64		frame_count;
} BlobNode;

/* CRC-32C of a frame's stored bytes; and that of bytes before and these, from the former's CRC. */
extern uint32 blob_frame_checksum(const void *stored, size_t length_bytes);
extern uint32 blob_frame_checksum_continue(uint32 crc, const void *stored, size_t length_bytes);

/*
 * Unpack the entry of a frame or run of a value with this number of stored bytes.  Returns NULL,
 * or a sentence that says why the entry is wrong.
 */
extern const char *blob_frame_unpack(const uint8 *entry, int frame_bits, uint64 stored_bytes,
									 BlobFrame *frame);
extern void blob_frame_pack(uint8 *entry, const BlobFrame *frame);

/*
 * Unpack the header of a node.  The entry above, or the datum, says how many bytes of content and
 * frames are below it.  Checks the page's CRC, its level, and the sums of its entries.  Returns
 * NULL, or a sentence that says why the node is wrong.
 */
extern const char *blob_node_unpack(const uint8 *page, int expected_level, uint64 content_bytes,
									uint64 frame_count, BlobNode *node);

/* The entries of an unpacked node: of its frames (level 1), or of the nodes below. */
extern const uint8 *blob_node_frame(const uint8 *page, int entry_no);
extern const char *blob_node_entry_unpack(const uint8 *page, int entry_no, uint64 stored_bytes,
										  BlobNodeEntry *entry);

/* Make a page of entries of frames, or of nodes of level - 1. */
extern void blob_node_pack_frames(uint8 *page, const BlobFrame *frames, int count);
extern void blob_node_pack(uint8 *page, int level, const BlobNodeEntry *entries, int count);

#endif							/* BLOB_FRAME_H */
