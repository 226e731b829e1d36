/*
 * blob/compare.c
 *	  The comparator, see blob/compare.h and "Comparison" in the README of this folder.
 *
 * Memory is static: comparators run millions of times in one sort, and under buffer locks, where
 * they must not ask much of the system.  Nothing here calls back into a comparator.  A comparator
 * is never called while this process has the I/O engine in use: code that uses it (the write
 * pipeline, the requests of a read, redo) evaluates no expressions and touches no index.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/compare.h"
#include "blob/reader.h"
#include "blob/seal.h"
#include "common/hashfn.h"
#include "core/settings.h"
#include "extents/durability.h"
#include "io/stat.h"

/* Steps through content that is expected to be the same. */
#define EQUALITY_STEP_BYTES (64 * 1024)

/*
 * Content of up to this size is hashed in less time than the map and the buffer take to give the
 * same content of another value.
 */
#define MAX_HASHED_BYTES 4096

/* The digest of an inline value of up to this size is kept, see digest_of_inline(). */
#define MAX_DIGESTED_BYTES (1024 * 1024)
#define MAX_SMALL_BYTES 2048
#define SMALL_DIGESTS 32

static char step_buffer[EQUALITY_STEP_BYTES];

/*
 * The digest of a content, and a copy of the content.  It was computed, or it is that of a value
 * whose content was found to be the same: then it decides comparisons, and nothing else.
 */
typedef struct KeptDigest
{
	uint64		size_bytes;
	bool		is_valid;
	bool		is_computed;
	uint8		sha256[BLOB_DIGEST_BYTES];
	char	   *content;
} KeptDigest;

/*
 * Where the digest of this content is kept, if it is.  An index descent asks again and again for
 * the digest of its one argument, and of the small values that the index holds in between.  So the
 * digest of the last large content is kept, and those of some small ones.
 */
static KeptDigest *
get_kept_digest(const char *data, uint64 size_bytes)
{
	static char large_content[MAX_DIGESTED_BYTES];
	static char small_contents[SMALL_DIGESTS][MAX_SMALL_BYTES];
	static KeptDigest large = {.content = large_content};
	static KeptDigest smalls[SMALL_DIGESTS];
	uint32		hash = (uint32) size_bytes;
	int			slot;

	if (size_bytes > MAX_SMALL_BYTES)
		return &large;
	memcpy(&hash, data, Min(size_bytes, sizeof(hash)));
	slot = murmurhash32(hash ^ (uint32) size_bytes) % SMALL_DIGESTS;
	smalls[slot].content = small_contents[slot];
	return &smalls[slot];
}

/* An address would not identify the content: a caller may put the next value where the last was. */
static bool
is_kept(const KeptDigest *kept, const char *data, uint64 size_bytes)
{
	return kept->is_valid && kept->size_bytes == size_bytes &&
		memcmp(kept->content, data, size_bytes) == 0;
}

/* The digest of a content is in kept->sha256, and the content in kept->content if that has room. */
static void
set_kept(KeptDigest *kept, uint64 size_bytes, bool is_computed)
{
	kept->is_valid = size_bytes <= MAX_DIGESTED_BYTES;
	kept->is_computed = is_computed;
	kept->size_bytes = size_bytes;
}

/* SHA-256 of content in memory, kept or computed now. */
static const uint8 *
digest_of_inline(const char *data, uint64 size_bytes, bool must_be_computed)
{
	KeptDigest *kept = get_kept_digest(data, size_bytes);

	if ((must_be_computed && !kept->is_computed) || !is_kept(kept, data, size_bytes))
	{
		kept->is_valid = false;
		blob_digest_bytes(data, size_bytes, kept->sha256);
		if (size_bytes <= MAX_DIGESTED_BYTES)
			memcpy(kept->content, data, size_bytes);
		set_kept(kept, size_bytes, true);
	}
	return kept->sha256;
}

/* The digest of an open value, remembered or computed now. */
static const uint8 *
digest_of_open(const BlobKey *key)
{
	static uint8 sha256[BLOB_DIGEST_BYTES];
	BlobValue	value;

	blob_value_unpack(key->datum, &value);
	blob_seal_digest(&value, sha256);
	return sha256;
}

static const uint8 *
get_digest(const BlobKey *key, bool must_be_computed)
{
	switch (key->kind)
	{
		case BLOB_KEY_SEALED:
			return key->sealed_digest;
		case BLOB_KEY_OPEN:
			return digest_of_open(key);
		default:
			return digest_of_inline(key->data, key->size_bytes, must_be_computed);
	}
}

const uint8 *
blob_key_digest(const BlobKey *key)
{
	return get_digest(key, true);
}

/* Whether the digest of a value can be had without reading extents. */
static bool
is_digest_at_hand(const BlobKey *key)
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	BlobValue	value;

	if (key->kind != BLOB_KEY_OPEN)
		return true;
	blob_value_unpack(key->datum, &value);
	return blob_seal_known_digest(&value, sha256);
}

static int
compare_sizes(const BlobKey *a, const BlobKey *b)
{
	return a->size_bytes < b->size_bytes ? -1 : a->size_bytes > b->size_bytes;
}

/*
 * Order of two digests.  Two inline values share one digest buffer, and so do two open ones, so the
 * first digest is copied.
 */
static int
compare_digest_bytes(const BlobKey *a, const BlobKey *b)
{
	uint8		sha256[BLOB_DIGEST_BYTES];

	memcpy(sha256, get_digest(a, false), sizeof(sha256));
	return memcmp(sha256, get_digest(b, false), sizeof(sha256));
}

/*
 * Order of two values whose contents were read and are the same.  Under different digests one of
 * them is damaged; the order stays total.  The digest of a value that is not sealed is that of the
 * content that was read, so only a sealed one can have another.
 */
static int
compare_same_contents(const BlobKey *a, const BlobKey *b)
{
	if (a->kind != BLOB_KEY_SEALED && b->kind != BLOB_KEY_SEALED)
		return 0;
	return compare_digest_bytes(a, b);
}

/*
 * Compare the bytes that both values have in memory; *compared_bytes is set to the number of these.
 */
static int
compare_beginnings(const BlobKey *a, const BlobKey *b, uint64 *compared_bytes)
{
	*compared_bytes = Min(a->size_bytes, b->size_bytes);
	if (a->kind != BLOB_KEY_INLINE || b->kind != BLOB_KEY_INLINE)
		*compared_bytes = Min(*compared_bytes, BLOB_PREFIX_BYTES);
	return memcmp(a->data, b->data, *compared_bytes);
}

bool
blob_equal(const BlobKey *a, const BlobKey *b)
{
	uint64		compared_bytes;

	if (a->size_bytes != b->size_bytes || compare_beginnings(a, b, &compared_bytes) != 0)
		return false;
	if (compared_bytes == a->size_bytes)
		return true;
	if (is_digest_at_hand(a) && is_digest_at_hand(b))
		return compare_digest_bytes(a, b) == 0;
	/* Contents differ early, or are shared, more often than not. */
	return blob_compare_contents(a, b, compared_bytes, NULL) == 0 &&
		compare_same_contents(a, b) == 0;
}

int
blob_compare_digests(const BlobKey *a, const BlobKey *b)
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	int			order;

	memcpy(sha256, blob_key_digest(a), sizeof(sha256));
	order = memcmp(sha256, blob_key_digest(b), sizeof(sha256));
	return order != 0 ? order : compare_sizes(a, b);
}

/*
 * Whether a value's content is known to be that in memory without hashing: the buffer has it,
 * and it is the same.  Copying and comparing take a fraction of the time of hashing.  The content
 * is read to where it is kept with its digest.  If this cannot tell, digests decide.
 */
static bool
has_buffered_content(const BlobKey *stored, const BlobKey *plain, KeptDigest *kept)
{
	BlobValue	value;
	BlobReader	reader;
	uint64		offset = 0;
	bool		is_same = true;

	blob_value_unpack(stored->datum, &value);
	if (value.descriptor.is_compressed)
		return false;
	kept->is_valid = false;
	blob_reader_begin(&reader, &value, 0);
	while (is_same && offset < value.size_bytes)
	{
		uint64		length = Min(EQUALITY_STEP_BYTES, value.size_bytes - offset);
		char	   *target = value.size_bytes <= MAX_DIGESTED_BYTES ?
			kept->content + offset : step_buffer;

		is_same = blob_reader_read_buffered(&reader, target, length) &&
			memcmp(target, plain->data + offset, length) == 0;
		offset += length;
	}
	blob_reader_end(&reader);
	if (is_same)
	{
		memcpy(kept->sha256, stored->sealed_digest, BLOB_DIGEST_BYTES);
		set_kept(kept, value.size_bytes, false);
	}
	return is_same;
}

/*
 * Whether two values of equal size have the same content, before their contents are compared for
 * order; false if only these can tell, because a digest is open.  If one of the values is in
 * memory, is not small and its digest is not known, the buffer is asked first; then its digest is
 * the other one's.  With blobext.verify_reads only digests count.
 */
static bool
is_same_content(const BlobKey *a, const BlobKey *b)
{
	const BlobKey *plain = a->kind == BLOB_KEY_INLINE ? a : b;
	const BlobKey *stored = a->kind == BLOB_KEY_INLINE ? b : a;
	KeptDigest *kept;

	if (!is_digest_at_hand(a) || !is_digest_at_hand(b))
		return false;
	if (plain->kind == BLOB_KEY_INLINE && stored->kind == BLOB_KEY_SEALED && !blob_verify_reads &&
		plain->size_bytes > MAX_HASHED_BYTES)
	{
		kept = get_kept_digest(plain->data, plain->size_bytes);
		if (!is_kept(kept, plain->data, plain->size_bytes) &&
			has_buffered_content(stored, plain, kept))
			return true;
	}
	return compare_digest_bytes(a, b) == 0;
}

/*
 * The steps are those of the table in the README of this folder.  Pending content of this process
 * is made crash-safe before digests or contents decide.
 */
int
blob_compare_in_sort(const BlobKey *a, const BlobKey *b, BlobSortMemory **memory,
					 MemoryContext context)
{
	uint64		compared_bytes;
	int			order = compare_beginnings(a, b, &compared_bytes);

	if (order != 0)
		return order;
	if (compared_bytes == Min(a->size_bytes, b->size_bytes))
		return compare_sizes(a, b);
	blob_durability_before_compare();
	if (a->size_bytes == b->size_bytes && is_same_content(a, b))
		return 0;

	order = blob_compare_contents(a, b, compared_bytes, blob_compare_sort_memory(memory, context));
	if (order == 0)
		order = compare_sizes(a, b);
	return order != 0 ? order : compare_same_contents(a, b);
}

int
blob_compare(const BlobKey *a, const BlobKey *b)
{
	return blob_compare_in_sort(a, b, NULL, NULL);
}
