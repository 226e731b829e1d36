/*
 * blob/complete.h
 *	  The one way in which a new descriptor comes into being.
 *
 * Invariant: no descriptor leaves unless each extent that it shares was verified against the
 * generation of the value it came from, after the last generation of the new value was drawn.
 *
 * The base of a change may be stale: its extents were freed, and another role has stored its
 * content there.  A later reader would not notice.  It compares the generations of the extents with
 * that of the new descriptor, which is the largest that any of its extents has drawn, and the other
 * role's content may have drawn a smaller one.  After the last draw every extent that is allocated
 * anew draws a larger one, and readers notice that.
 */
#ifndef BLOB_COMPLETE_H
#define BLOB_COMPLETE_H

#include "core/descriptor.h"

/*
 * Make the datum of a new value, all of whose writes have completed, in the current context.
 *
 * descriptor, extents, count: as for blob_descriptor_pack(); frames, if the value is compressed: as
 * for blob_compressed_pack().  No more generations will be drawn for
 * the value. base is the value that this one was made from. is_shared[i] says whether the i-th
 * extent is the i-th extent of the base; the page of the remainder is counted behind the others.
 * If none is shared, base is not looked at.
 *
 * ERROR XB001 if a shared extent does not belong to the base any more.  If the value may become a
 * key of an index that is ordered by content, its content is crash-safe when this returns
 * (extents/durability.h).  Takes AccessShareLock on the map for the look.
 */
extern struct varlena *blob_complete(const BlobDescriptor *descriptor, const BlobFrame *frames,
									 const BlobExtent *extents, int count,
									 const BlobDescriptor *base, const bool *is_shared);

/*
 * The same for a tree.  slots: as for blob_tree_pack().  base_nos[i] is the number of the i-th one
 * among the extents of the base, or -1.
 */
extern struct varlena *blob_complete_tree(const BlobDescriptor *descriptor, const BlobSlot *slots,
										  int count, const BlobDescriptor *base,
										  const int *base_nos);

#endif							/* BLOB_COMPLETE_H */
