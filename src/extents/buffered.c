/*
 * extents/buffered.c
 *	  Stored bytes that the buffer has, see extents/buffered.h and "Verification" in the README of
 *	  this folder.
 */
#include "postgres.h"

#include "extents/buffered.h"
#include "extents/verify.h"
#include "io/buffer.h"
#include "store/map.h"
#include "store/unlogged.h"

/* Extents of one copy; tier sizes grow, so a range that may be copied mostly has fewer. */
#define MAX_EXTENTS 16

/*
 * Copy a range of one extent, chunk by chunk; returns the bytes before the first that the buffer
 * lacks.
 */
static uint64
copy_range(const BlobStoreId *store, const BlobExtent *extent, BlobGeneration generation,
		   uint64 offset, uint64 length, char *target)
{
	uint32		chunk_bytes = blob_buffer_chunk_bytes(extent->pages);
	uint64		copied = 0;

	while (copied < length)
	{
		uint32		in_chunk = (uint32) ((offset + copied) % chunk_bytes);
		uint32		part = (uint32) Min(length - copied, chunk_bytes - in_chunk);
		uint32		device_bytes;
		uint32		got = blob_buffer_get(store, generation, chunk_bytes, offset + copied, part,
										  BLOB_BUFFER_LOOK, target + copied, &device_bytes);

		if (got == 0)
			break;
		copied += got;
	}
	return copied;
}

uint64
blob_buffered_copy(const BlobStore *store, BlobStored *stored, uint64 offset_bytes,
				   uint64 length_bytes, char *target)
{
	uint64		length = Min(length_bytes, BLOB_BUFFERED_MAX_BYTES);
	uint64		copied = 0;
	int			first_no = blob_stored_find(stored, offset_bytes);
	int			end_no = first_no;
	BlobGeneration seen[MAX_EXTENTS];
	uint64		unlogged_version = blob_unlogged_version();
	Buffer		buffer = InvalidBuffer;

	while (copied < length && end_no - first_no < MAX_EXTENTS)
	{
		const BlobStoredExtent *extent = &stored->extents[end_no];
		uint64		offset = offset_bytes + copied - extent->start;
		uint64		part = Min(length - copied, extent->bytes - offset);
		uint64		part_copied;

		buffer = blob_map_lock_entry(store->map, extent->extent.first_page, buffer);
		if (!BufferIsValid(buffer) ||
			!blob_verify_locked(buffer, stored, end_no, &seen[end_no - first_no]))
			break;
		part_copied = copy_range(&store->id, &extent->extent, seen[end_no - first_no], offset,
								 part, target + copied);
		copied += part_copied;
		end_no++;
		if (part_copied < part)
			break;
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	for (int i = first_no; i < end_no; i++)
	{
		if (!blob_verify_note(store, stored, i, seen[i - first_no]))
		{
			copied = stored->extents[i].start - Min(stored->extents[i].start, offset_bytes);
			break;
		}
	}
	/* Content that was fetched meanwhile was unlogged when it was copied, and no more now. */
	return blob_unlogged_version() == unlogged_version ? copied : 0;
}
