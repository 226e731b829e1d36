/*
 * blob/seal.c
 *	  The digest of an open value, see blob/seal.h.
 *
 * Memory is static, because comparators seal, under the conditions that blob/compare.c names.
 */
#include "postgres.h"

#include "blob/add_sums.h"
#include "blob/known_digests.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "blob/seal.h"
#include "miscadmin.h"
#include "store/store.h"
#include "utils/memutils.h"

#define STEP_BYTES (128 * 1024)

/* Of writers, which may allocate. */
#define BEGINNING_STEP_BYTES (UINT64CONST(1024) * 1024)

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
hash_content(const BlobValue *value, BlobSeal *seal)
{
	static char step[STEP_BYTES];
	BlobDigest	digest;
	BlobReader	reader;
	uint64		bytes;

	blob_digest_begin(&digest);
	blob_reader_begin(&reader, value, BLOB_READER_ALL);
	while ((bytes = blob_reader_next(&reader, step, sizeof(step))) > 0)
		blob_digest_update(&digest, step, bytes);
	blob_reader_end(&reader);
	blob_digest_finish(&digest, seal->sha256, seal->state);
}

/* The look for checksums allocates, and comparators leave nothing allocated. */
static bool
has_all_sums(const BlobValue *value)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "blobext page checksums",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	bool		has_all = blob_add_sums_has_all(value);

	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(context);
	return has_all;
}

/* No digest is computed of bytes that nothing has proven. */
static void
compute(const BlobValue *value, BlobSeal *seal)
{
	blob_seal_require_interruptible(value->size_bytes);
	if (!has_all_sums(value))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("pages of a value with an open digest have no checksums"),
				 errdetail("Nothing says whether its content of " UINT64_FORMAT " bytes is right.",
						   value->size_bytes)));
	hash_content(value, seal);
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

/* With the map locked, see blob_known_digests_forget_store(). */
static void
note_seal(const BlobStoreId *id, BlobGeneration generation, const BlobSeal *seal)
{
	BlobStore	store;

	blob_store_open(&store, AccessShareLock);
	if (blob_store_id_equals(&store.id, id))
		blob_known_digests_note(id, generation, seal);
	blob_store_close(&store);
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
	note_seal(&store, generation, seal);
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

/* ---- the digest of a base ---- */

pg_noreturn static void
report_mismatch(const BlobDescriptor *descriptor)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("content does not match its SHA-256 digest"),
			 errdetail("The value of " UINT64_FORMAT " bytes was not changed.",
					   descriptor->size_bytes),
			 errhint("Restore the value from a backup; blobext_check() lists the affected "
					 "values.")));
}

/* Read all of a sealed value, and compare it with its digest. */
static void
require_digest(const BlobValue *value)
{
	BlobSeal	seal;

	hash_content(value, &seal);
	if (memcmp(seal.sha256, value->descriptor.sha256, BLOB_DIGEST_BYTES) != 0)
		report_mismatch(&value->descriptor);
}

void
blob_seal_require_sound(const BlobValue *value)
{
	if (value->is_inline || value->descriptor.is_open)
		return;
	if (!has_store_sums() || !has_all_sums(value))
		require_digest(value);
}

/* Whether an append copies bytes of the last page: it is partly filled, or that of a remainder. */
static bool
copies_last_page(const BlobDescriptor *descriptor)
{
	return descriptor->has_remainder_page ||
		(!descriptor->is_compressed && descriptor->remainder_bytes == 0 &&
		 descriptor->size_bytes % BLOB_PAGE_SIZE != 0);
}

void
blob_seal_require_sound_last(const BlobValue *value)
{
	Assert(!value->is_inline && !value->descriptor.is_open);
	if (copies_last_page(&value->descriptor) && !blob_add_sums_has_last(value))
		require_digest(value);
}

void
blob_seal_require_sound_copy(const BlobValue *value)
{
	Assert(!value->is_inline && !value->descriptor.is_open);
	if (has_store_sums() && !has_all_sums(value))
		require_digest(value);
}

void
blob_seal_require_sound_end(const BlobDescriptor *descriptor, const char *open_block)
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	BlobDigest	digest;

	blob_digest_resume(&digest, descriptor->state, descriptor->size_bytes, open_block);
	blob_digest_finish(&digest, sha256, NULL);
	if (memcmp(sha256, descriptor->sha256, BLOB_DIGEST_BYTES) != 0)
		report_mismatch(descriptor);
}

/* In steps: a descriptor has no digest of a beginning. */
void
blob_seal_hash_beginning(const BlobValue *value, uint64 length_bytes, BlobDigest *digest)
{
	char	   *content = palloc(Max(1, Min(length_bytes, BEGINNING_STEP_BYTES)));
	BlobReader	reader;

	blob_reader_begin(&reader, value, 0);
	while (length_bytes > 0)
	{
		uint64		bytes = blob_reader_next(&reader, content,
											 Min(BEGINNING_STEP_BYTES, length_bytes));

		blob_digest_update(digest, content, bytes);
		length_bytes -= bytes;
	}
	blob_reader_end(&reader);
	pfree(content);
}

/* Whether each page has a checksum, or gets one now: then the content was compared. */
static bool
gets_all_sums(const BlobValue *value, bool *was_compared)
{
	*was_compared = false;
	if (blob_add_sums_has_all(value))
		return true;
	if (!blob_add_sums_is_due(value))
		return false;
	(void) blob_add_sums(value);
	*was_compared = true;
	return blob_add_sums_has_all(value);
}

/*
 * A value may lack sums after they were added: its extents have pages of other versions that none
 * of its own proves.  Then its digest is not given up.
 */
bool
blob_seal_may_open(const BlobValue *value)
{
	bool		was_compared;

	if (value->is_inline || !value->descriptor.defers_digest)
		return false;
	if (value->descriptor.is_open)
		return true;
	if (!has_store_sums() || !gets_all_sums(value, &was_compared))
		return false;
	/* No checksum covers these bytes, and a change makes pages of them. */
	if (blob_mapping_datum_bytes(&value->descriptor) > 0 && !was_compared)
		require_digest(value);
	return true;
}
