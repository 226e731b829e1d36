/*
 * blob/complete.c
 *	  The one way in which a new descriptor comes into being, see blob/complete.h.
 */
#include "postgres.h"

#include "blob/add_sums.h"
#include "blob/blob.h"
#include "blob/complete.h"
#include "blob/mapping.h"
#include "extents/durability.h"
#include "extents/verify.h"
#include "store/map_sums.h"
#include "store/store.h"

#ifdef USE_ASSERT_CHECKING

/* SUMS precedes every reference: the map has a checksum of each page of an extent that has them. */
static void
assert_sums(const BlobStore *store, const BlobStoredExtent *stored)
{
	uint64		pages = blob_pages_for(stored->bytes);

	for (uint64 done = 0; done < pages && stored->extent.has_sums; done += BLOB_SUMS_MAX_PAGES)
	{
		uint32		sums[BLOB_SUMS_MAX_PAGES];

		Assert(blob_map_get_sums(store->map, &stored->extent, done,
								 Min(pages - done, BLOB_SUMS_MAX_PAGES), sums) ==
			   BLOB_SUMS_FOUND);
	}
}

/*
 * The map has each new extent as the value's own, and a claim covers its bytes.  Shared ones were
 * verified; a base that was forged may say what it likes about the rest.
 */
static void
assert_own_extents(const BlobDescriptor *descriptor, const bool *is_shared)
{
	BlobStore	store;
	uint64		start = 0;

	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < blob_descriptor_extent_count(descriptor); i++)
	{
		BlobStoredExtent stored;

		blob_mapping_extent(descriptor, i, start, &stored);
		start = stored.start + stored.bytes;
		if (!is_shared[i])
		{
			BlobMapEntry entry = blob_map_lookup(store.map, stored.extent.first_page);

			Assert(blob_verify_extent(store.map, &stored.extent, descriptor->generation));
			Assert(blob_map_entry_high_water(&entry) >= stored.bytes);
			assert_sums(&store, &stored);
		}
	}
	blob_store_close(&store);
}

/* Unpacked as readers will do it, the datum has the fields of the descriptor. */
static void
assert_sound(const struct varlena *datum, const BlobDescriptor *descriptor,
			 const BlobExtent *extents, int count, const bool *is_shared)
{
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
	assert_own_extents(&value.descriptor, is_shared);
}

/*
 * A value whose digest is open came from a column that has opted in, has a generation of its own,
 * and each of its pages has a checksum.
 */
static void
assert_open(const struct varlena *datum, const BlobDescriptor *descriptor,
			const BlobSlot *slots, int count)
{
	BlobStore	store;
	BlobValue	value;

	Assert(descriptor->defers_digest);
	blob_value_unpack(datum, &value);
	Assert(blob_add_sums_has_all(&value));
	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < count; i++)
	{
		BlobExtent	extent = slots[i].extent;

		Assert(blob_verify_extent(store.map, &extent, descriptor->generation));
		Assert(extent.has_sums && extent.generation < descriptor->generation);
	}
	blob_store_close(&store);
}

/* The same for a tree. */
static void
assert_tree_sound(const struct varlena *datum, const BlobDescriptor *descriptor,
				  const BlobSlot *slots, int count, const int *base_nos)
{
	BlobExtent	extents[BLOB_TREE_MAX_SLOTS];
	bool		is_shared[BLOB_TREE_MAX_SLOTS];

	for (int i = 0; i < count; i++)
	{
		extents[i] = slots[i].extent;
		is_shared[i] = base_nos[i] >= 0;
	}
	assert_sound(datum, descriptor, extents, count, is_shared);
	if (descriptor->is_open)
		assert_open(datum, descriptor, slots, count);
}

#else
#define assert_sound(datum, descriptor, extents, count, is_shared) ((void) 0)
#define assert_tree_sound(datum, descriptor, slots, count, base_nos) ((void) 0)
#endif							/* USE_ASSERT_CHECKING */

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
	assert_sound(datum, descriptor, extents, count, is_shared);
	return datum;
}

struct varlena *
blob_complete_tree(const BlobDescriptor *descriptor, const BlobSlot *slots, int count,
				   const BlobDescriptor *base, const int *base_nos)
{
	bool		is_wanted[BLOB_TREE_MAX_SLOTS] = {false};
	int			wanted_count = 0;	/* up to the last of them */
	struct varlena *datum;

	for (int i = 0; i < count; i++)
	{
		if (base_nos[i] < 0)
			continue;
		is_wanted[base_nos[i]] = true;
		wanted_count = Max(wanted_count, base_nos[i] + 1);
	}
	if (wanted_count > 0)
		blob_require_extents(base, is_wanted, wanted_count);
	blob_durability_before_return();
	datum = blob_tree_pack(descriptor, slots, count);
	assert_tree_sound(datum, descriptor, slots, count, base_nos);
	return datum;
}
