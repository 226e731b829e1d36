/*
 * extents/put.c
 *	  The bytes of one call of the write pipeline, see extents/put.h.
 */
#include "postgres.h"

#include "extents/hasher.h"
#include "extents/put.h"

const char *
blob_put_address(const BlobPut *put, uint64 offset, uint32 length)
{
	if (offset >= put->first_bytes)
		return put->second + (offset - put->first_bytes);
	return offset + length <= put->first_bytes ? put->first + offset : NULL;
}

void
blob_put_copy(const BlobPut *put, uint64 offset, uint32 length, char *target)
{
	uint32		from_first = 0;

	if (offset < put->first_bytes)
	{
		from_first = (uint32) Min(length, put->first_bytes - offset);
		memcpy(target, put->first + offset, from_first);
	}
	if (from_first < length)
		memcpy(target + from_first, put->second + (offset + from_first - put->first_bytes),
			   length - from_first);
}

static void
hash(BlobDigest *digest, const char *data, uint64 length, bool by_thread)
{
	if (by_thread)
		blob_hasher_add(digest, data, length);
	else
		blob_digest_update(digest, data, length);
}

void
blob_put_hash(const BlobPut *put, uint64 offset, uint32 length, bool by_thread)
{
	uint64		start = Max(offset, put->skip_bytes);
	uint64		end = offset + length;
	uint64		first_end = Min(end, put->first_bytes);

	if (put->digest == NULL)
		return;
	if (start < first_end)
	{
		hash(put->digest, put->first + start, first_end - start, by_thread);
		start = first_end;
	}
	if (start < end)
		hash(put->digest, put->second + (start - put->first_bytes), end - start, by_thread);
}

void
blob_put_copy_and_hash(const BlobPut *put, uint64 offset, uint32 length, char *target)
{
	const char *address = blob_put_address(put, offset, length);

	if (put->digest != NULL && address != NULL && offset >= put->skip_bytes)
		blob_digest_update_copy(put->digest, address, length, target);
	else
	{
		blob_put_copy(put, offset, length, target);
		blob_put_hash(put, offset, length, false);
	}
}
