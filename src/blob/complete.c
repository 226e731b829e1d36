/*
 * blob/complete.c
 *	  The one way in which a new descriptor comes into being, see blob/complete.h.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/complete.h"
#include "extents/durability.h"

struct varlena *
blob_complete(const BlobDescriptor *descriptor, const BlobFrame *frames, const BlobExtent *extents,
			  int count, const BlobDescriptor *base, const bool *is_shared)
{
	int			shared_count = 0;	/* up to the last of them */

	for (int i = 0; i < count + (descriptor->has_remainder_page ? 1 : 0); i++)
	{
		if (is_shared[i])
			shared_count = i + 1;
	}
	if (shared_count > 0)
		blob_require_extents(base, is_shared, shared_count);
	blob_durability_before_return();
	if (descriptor->is_compressed)
		return blob_compressed_pack(descriptor, frames, extents, count);
	return blob_descriptor_pack(descriptor, extents, count);
}
