/*
 * blob/complete.c
 *	  The one way in which a new descriptor comes into being, see blob/complete.h.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/complete.h"
#include "extents/durability.h"

/*
 * Unpacked as readers will do it, the datum has the fields of the descriptor.  The map has each
 * extent as the value's own, and a claim covers its bytes.
 */
static void
assert_sound(const struct varlena *datum, const BlobDescriptor *descriptor,
			 const BlobExtent *extents, int count)
{
#ifdef USE_ASSERT_CHECKING
	BlobValue	value;

	blob_value_unpack(datum, &value);
	Assert(!value.is_inline && value.size_bytes == descriptor->size_bytes);
	Assert(memcmp(value.descriptor.sha256, descriptor->sha256, BLOB_DIGEST_BYTES) == 0);
	Assert(value.descriptor.generation == descriptor->generation);
	Assert(blob_descriptor_extent_count(&value.descriptor) ==
		   count + (descriptor->has_remainder_page ? 1 : 0));
	for (int i = 0; i < count; i++)
		Assert(blob_descriptor_extent(&value.descriptor, i).first_page == extents[i].first_page &&
			   extents[i].generation <= descriptor->generation);
	Assert(blob_find_stale_extent(&value.descriptor) < 0);
	Assert(blob_find_unclaimed_extent(&value.descriptor) < 0);
#endif
}

struct varlena *
blob_complete(const BlobDescriptor *descriptor, const BlobFrame *frames, const BlobExtent *extents,
			  int count, const BlobDescriptor *base, const bool *is_shared)
{
	int			shared_count = 0;	/* up to the last of them */
	struct varlena *datum;

	for (int i = 0; i < count + (descriptor->has_remainder_page ? 1 : 0); i++)
	{
		if (is_shared[i])
			shared_count = i + 1;
	}
	if (shared_count > 0)
		blob_require_extents(base, is_shared, shared_count);
	blob_durability_before_return();
	datum = descriptor->is_compressed ?
		blob_compressed_pack(descriptor, frames, extents, count) :
		blob_descriptor_pack(descriptor, extents, count);
	assert_sound(datum, descriptor, extents, count);
	return datum;
}
