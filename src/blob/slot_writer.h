/*
 * blob/slot_writer.h
 *	  The extents of a tree that is being written: slots (core/descriptor.h).  Part of a page writer
 *	  (blob/page_writer.h).
 *
 * A tree shares all extents of its base.  New stored bytes go behind the high-water mark of the
 * last one.  If that has no room, or another version claims its pages first, they go on in a new
 * extent, at the same stored offset.
 */
#ifndef BLOB_SLOT_WRITER_H
#define BLOB_SLOT_WRITER_H

#include "blob/page_writer.h"
#include "blob/tree.h"

/* Slots that the base of a change may have: there is room for those of the change. */
#define BLOB_SLOTS_BEFORE_CHANGE 56

/*
 * Begin with the extents of the writer's base, of which there are at most this number.  Sets
 * first_new and stored_bytes to the stored offset of the first new byte.  room_bytes: how many a
 * new extent should have.  Looks into the map.  ERROR XB001 if the base's last extent is stale.
 */
extern void blob_slot_writer_begin(BlobPageWriter *writer, uint64 room_bytes);

/*
 * As blob_page_writer_complete(), for a tree that is finished: descriptor has everything but
 * generation.
 */
extern struct varlena *blob_slot_writer_complete(BlobPageWriter *writer,
												 BlobDescriptor *descriptor,
												 const BlobTree *tree);

#endif							/* BLOB_SLOT_WRITER_H */
