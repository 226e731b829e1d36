/*
 * assign/rewrite.c
 *	  ALTER TABLE stores content that it assigns again and again once.
 *
 * The default of a new column is evaluated for each row, because the coercion on top of it is
 * volatile, and so are the expressions of ALTER COLUMN ... TYPE.  A copy for each row would cost a
 * table with a large default its size times the number of rows, where bytea costs nothing.  So the
 * statement keeps the last values that it has stored, and content that is equal to one of them gets
 * its descriptor: as if the rows had been copied from each other.  "ALTER TABLE" in the README of
 * this folder says why such a value can be kept.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "blob/blob.h"
#include "blob/compare.h"
#include "core/settings.h"
#include "fmgr.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "assign/assign.h"

/* The innermost ALTER TABLE in progress; NULL while another utility statement is innermost. */
static BlobAssignRewrite *current = NULL;

BlobAssignRewrite *
blob_assign_set_rewrite(BlobAssignRewrite *rewrite)
{
	BlobAssignRewrite *previous = current;

	current = rewrite;
	return previous;
}

bool
blob_assign_is_rewriting(void)
{
	return current != NULL;
}

/*
 * The kept value of this content and method, or NULL.  Sizes and first bytes decide in most cases;
 * if not, the digest of the content does, which is computed from these very bytes.
 */
static const BlobKeptValue *
find_kept(const char *data, uint64 size_bytes, BlobStorage storage)
{
	BlobKey		content;

	blob_key_of_bytes(data, size_bytes, &content);
	for (int i = 0; i < BLOB_KEPT_VALUES; i++)
	{
		const BlobKeptValue *kept = &current->kept[i];
		BlobKey		key;

		if (kept->descriptor == NULL || kept->storage.method != storage.method)
			continue;
		blob_key_load(kept->descriptor, &key);
		Assert(key.kind == BLOB_KEY_SEALED);
		if (key.size_bytes == size_bytes &&
			memcmp(key.data, data, Min(size_bytes, BLOB_PREFIX_BYTES)) == 0 &&
			memcmp(key.sealed_digest, blob_key_digest(&content), BLOB_DIGEST_BYTES) == 0)
			return kept;
	}
	return NULL;
}

/* Keep a value that was just stored, in place of the one that was kept first. */
static void
keep(Datum stored, BlobStorage storage)
{
	BlobKeptValue *kept = &current->kept[current->next];
	MemoryContext former;

	if (blob_datum_is_inline(stored))
		return;
	if (kept->descriptor != NULL)
		pfree(kept->descriptor);
	kept->descriptor = NULL;
	former = MemoryContextSwitchTo(current->context);
	kept->descriptor = (struct varlena *) DatumGetPointer(datumCopy(stored, false, -1));
	MemoryContextSwitchTo(former);
	kept->storage = storage;
	current->next = (current->next + 1) % BLOB_KEPT_VALUES;
}

/*
 * The descriptor takes the way of all descriptors that are assigned: it is verified, and its
 * content is crash-safe where that is required.  The result is the caller's.
 */
Datum
blob_assign_store_bytes(const char *data, uint64 size_bytes, BlobStorage storage)
{
	const BlobKeptValue *kept = NULL;
	Datum		stored;

	Assert(!blob_assign_suppressed());
	if (current == NULL || size_bytes <= (uint64) blob_inline_limit_bytes)
		return blob_from_bytes(data, size_bytes, true, storage);
	kept = find_kept(data, size_bytes, storage);
	if (kept != NULL)
		return blob_externalize(datumCopy(PointerGetDatum(kept->descriptor), false, -1), storage);
	stored = blob_from_bytes(data, size_bytes, true, storage);
	keep(stored, storage);
	return stored;
}

/* Content that stays inline is not fetched from TOAST. */
Datum
blob_assign_store(Datum datum, BlobStorage storage)
{
	struct varlena *plain;
	BlobKey		key;
	Datum		stored;

	Assert(!blob_assign_suppressed());
	if (current == NULL || !blob_datum_is_inline(datum) || !blob_is_to_be_moved(datum))
		return blob_externalize(datum, storage);
	plain = PG_DETOAST_DATUM_PACKED(datum);
	blob_key_load(plain, &key);
	stored = blob_assign_store_bytes(key.data, key.size_bytes, storage);
	if ((Pointer) plain != DatumGetPointer(datum))
		pfree(plain);
	return stored;
}
