/*
 * blob/seal.c
 *	  The digest of an open value, see blob/seal.h.
 *
 * Memory is static, because comparators seal, under the conditions that blob/compare.c names.
 */
#include "postgres.h"

#include "blob/add_sums.h"
#include "blob/known_digests.h"
#include "blob/reader.h"
#include "blob/seal.h"
#include "miscadmin.h"
#include "store/store.h"

#define STEP_BYTES (128 * 1024)

void
blob_seal_require_interruptible(uint64 bytes)
{
	if (bytes <= BLOB_SEAL_HELD_BYTES || INTERRUPTS_CAN_BE_PROCESSED())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the digest of a value of more than " UINT64_FORMAT " bytes is open",
					BLOB_SEAL_HELD_BYTES),
			 errdetail("An index is searched for it, and it cannot be read meanwhile."),
			 errhint("Compute sha256() of the value before, or call blobext_seal() for its "
					 "column.")));
}

/* Read the content.  The reader verifies what it reads. */
static void
compute(const BlobValue *value, BlobSeal *seal)
{
	static char step[STEP_BYTES];
	BlobDigest	digest;
	BlobReader	reader;
	uint64		bytes;

	blob_seal_require_interruptible(value->size_bytes);
	blob_digest_begin(&digest);
	blob_reader_begin(&reader, value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, step, sizeof(step))) > 0)
		blob_digest_update(&digest, step, bytes);
	blob_reader_end(&reader);
	blob_digest_finish(&digest, seal->sha256, seal->state);
}

static BlobStoreId
current_store(void)
{
	BlobStore	store;
	BlobStoreId id;

	blob_store_open(&store, AccessShareLock);
	id = store.id;
	blob_store_close(&store);
	return id;
}

/* What an open value lacks, remembered or computed now. */
static void
get_seal(const BlobValue *value, BlobSeal *seal)
{
	BlobGeneration generation = value->descriptor.generation;
	BlobStoreId store = current_store();

	Assert(!value->is_inline && value->descriptor.is_open);
	if (blob_known_digests_find(&store, generation, seal))
		return;
	compute(value, seal);
	blob_known_digests_note(&store, generation, seal);
}

void
blob_seal_digest(const BlobValue *value, uint8 *sha256)
{
	BlobSeal	seal;

	if (value->is_inline || !value->descriptor.is_open)
	{
		blob_value_sealed_digest(value, sha256);
		return;
	}
	get_seal(value, &seal);
	memcpy(sha256, seal.sha256, BLOB_DIGEST_BYTES);
}

bool
blob_seal_known_digest(const BlobValue *value, uint8 *sha256)
{
	BlobStoreId store;
	BlobSeal	seal;

	if (value->is_inline || !value->descriptor.is_open)
	{
		blob_value_sealed_digest(value, sha256);
		return true;
	}
	if (!blob_store_is_preloaded())
		return false;
	store = current_store();
	if (!blob_known_digests_find(&store, value->descriptor.generation, &seal))
		return false;
	memcpy(sha256, seal.sha256, BLOB_DIGEST_BYTES);
	return true;
}

struct varlena *
blob_seal(const struct varlena *datum)
{
	BlobValue	value;
	BlobSeal	seal;

	blob_value_unpack(datum, &value);
	get_seal(&value, &seal);
	return blob_descriptor_seal(datum, seal.sha256, seal.state);
}

static bool
has_store_sums(void)
{
	BlobStore	store;
	bool		has_sums;

	blob_store_open(&store, AccessShareLock);
	has_sums = blob_map_has_sums(store.map);
	blob_store_close(&store);
	return has_sums;
}

/*
 * A value may lack sums after they were added: its extents have pages of other versions that none
 * of its own proves.  Then its digest is not given up.
 */
bool
blob_seal_may_open(const BlobValue *value)
{
	if (value->is_inline || !value->descriptor.defers_digest)
		return false;
	if (value->descriptor.is_open)
		return true;
	if (!has_store_sums())
		return false;
	if (blob_add_sums_has_all(value))
		return true;
	if (!blob_add_sums_is_due(value))
		return false;
	(void) blob_add_sums(value);
	return blob_add_sums_has_all(value);
}
