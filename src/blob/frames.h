/*
 * blob/frames.h
 *	  Reading compressed values: the directory of frames, and the content of frames.
 *
 * For blob/mapping.c, and for changes of compressed values.  Stored bytes come from a source, which
 * verifies that they are the value's own.  Each node and each frame is checked against its checksum
 * before it is used, so damage is ERROR XX001 with its place.  A frame whose method is not built in
 * is ERROR 0A000.
 *
 * The last frames that a process has decompressed in part stay in its memory: content is often read
 * in pieces that are smaller than a frame.  They are found by the value and the whole entry of the
 * frame.  A frame was verified when it was read, and content of a digest does not change: so, like
 * the heads of a comparison, it needs no look into the map.
 */
#ifndef BLOB_FRAMES_H
#define BLOB_FRAMES_H

#include "core/descriptor.h"
#include "extents/stored.h"

/*
 * Copies the stored bytes [offset, offset + length) to target, verified; throws if it cannot.
 * Nodes of the directory are no part of a sequence of reads.
 */
typedef void (*BlobMappingFetch) (void *context, uint64 stored_offset, uint64 length_bytes,
								  bool is_node, char *target);

/* The same for several parts of one target; changes their order. */
typedef void (*BlobMappingFetchParts) (void *context, BlobStoredPart *parts, int count);

typedef struct BlobMappingSource
{
	BlobMappingFetch fetch;
	BlobMappingFetchParts fetch_parts;	/* NULL: they are fetched one by one */
	void	   *context;
	bool		is_past_buffer;	/* frames in memory do not count, nor are they kept */
} BlobMappingSource;

/* Leaves of the directory that a cursor reads together. */
#define BLOB_CURSOR_LEAVES 4

/*
 * A place in the sequence of frames.  The open frame is the last one, and like one that is stored
 * as it is.
 */
typedef struct BlobFrameCursor
{
	const BlobDescriptor *descriptor;
	const BlobMappingSource *source;
	uint64		content_end;	/* the owner sets how far it will go; 0: not known */
	BlobFrame	frame;
	uint64		content_start;	/* of the frame: content offset */
	const uint8 *entries;		/* of the frames of a leaf, in the datum or in a page */
	int			entry_no;
	int			entry_count;
	int			leaf_no;
	int			leaf_count;		/* in pages; 0 if the entries are in the datum */
	BlobNodeEntry leaves[BLOB_CURSOR_LEAVES];	/* the entries above them */
	uint8		pages[BLOB_CURSOR_LEAVES][BLOB_PAGE_SIZE];
} BlobFrameCursor;

/* Content in frames, the open one included: all of it but the remainder. */
static inline uint64
blob_frames_content_bytes(const BlobDescriptor *descriptor)
{
	return descriptor->size_bytes - descriptor->remainder_bytes;
}

/* The content offset behind the closed frames, where the open frame begins. */
static inline uint64
blob_frames_closed_bytes(const BlobDescriptor *descriptor)
{
	return blob_frames_content_bytes(descriptor) - descriptor->compression.open_bytes;
}

extern void blob_frame_cursor_begin(BlobFrameCursor *cursor, const BlobDescriptor *descriptor,
									const BlobMappingSource *source);

/*
 * Go to the frame that holds a content offset; false if none does.  Reads a node of each level, and
 * with the leaf those behind it that begin before content_end.
 */
extern bool blob_frame_cursor_seek(BlobFrameCursor *cursor, uint64 content_offset);

/* Go to the next frame; false at the end. */
extern bool blob_frame_cursor_next(BlobFrameCursor *cursor);

/* Copy content that lies in frames to target. */
extern void blob_frames_read(const BlobDescriptor *descriptor, const BlobMappingSource *source,
							 uint64 offset_bytes, uint64 length_bytes, char *target);

/* The same of a remainder in a page.  ERROR XX001 if it has a checksum, and that is wrong. */
extern void blob_frames_read_remainder(const BlobDescriptor *descriptor,
									   const BlobMappingSource *source, uint32 offset_bytes,
									   uint32 length_bytes, char *target);

/*
 * Read the page of a node of the directory, and check it.  The entry above, or the datum, says what
 * is below the node.
 */
extern void blob_frames_read_node(const BlobDescriptor *descriptor,
								  const BlobMappingSource *source, const BlobNodeEntry *entry,
								  int level, uint8 *page, BlobNode *node);

/* Unpack an entry of a node that was read: of a frame (level 1), or of a node below. */
extern void blob_frames_node_frame(const BlobDescriptor *descriptor, const uint8 *page,
								   int entry_no, BlobFrame *frame);
extern void blob_frames_node_entry(const BlobDescriptor *descriptor, const uint8 *page,
								   int entry_no, BlobNodeEntry *entry);

/* Unpack a frame whose entry is in the datum. */
extern void blob_frames_datum_frame(const BlobDescriptor *descriptor, int frame_no,
									BlobFrame *frame);

/* Copy a part of the content of a piece, or frame, of a value. */
extern void blob_frames_read_piece(const BlobDescriptor *descriptor,
								   const BlobMappingSource *source, const BlobFrame *piece,
								   uint32 offset_bytes, uint32 length_bytes, char *target);

/* The directory's root, of a level above 0. */
extern BlobNodeEntry blob_frames_root(const BlobDescriptor *descriptor);

#endif							/* BLOB_FRAMES_H */
