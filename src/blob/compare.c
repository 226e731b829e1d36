/*
 * blob/compare.c
 *	  The comparator, see blob/compare.h and the README of this folder.
 *
 * Memory is static: comparators run millions of times in one sort, and under buffer locks, where
 * little may be asked of the system.  Nothing here calls back into a comparator, and a comparator
 * is never called while this process has the I/O engine claimed: what runs under such a claim
 * (blob/create.c, blob/read.c, recovery) evaluates no expressions and touches no index.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/compare.h"
#include "blob/durability.h"
#include "io/stat.h"
#include "miscadmin.h"

/* The first step ends with the first page; the next ones grow from one page to this. */
#define MAX_STEP_BYTES (256 * 1024)

/* Inline values up to this size have their digest kept, see digest_of_inline(). */
#define MAX_DIGESTED_BYTES (256 * 1024)

/* A content comparison under way: both values agree up to offset. */
typedef struct Comparison
{
	BlobValue	a;
	BlobValue	b;
	uint64		offset;			/* bytes */
	uint64		end;			/* size of the smaller value */
	int			extent_no;		/* the extent that contains offset; both descriptors */
	uint64		extent_start;	/* its content offset in bytes */
} Comparison;

/*
 * SHA-256 of content in memory.  An index descent asks for the digest of its one argument again
 * and again, so the last one is kept, with the content that it belongs to: looking at an address
 * would not do, because a caller may put the next value where the last one was.
 */
static const uint8 *
digest_of_inline(const char *data, uint64 size_bytes)
{
	static char kept_content[MAX_DIGESTED_BYTES];
	static uint64 kept_bytes;
	static bool is_kept = false;
	static uint8 sha256[BLOB_DIGEST_BYTES];

	if (is_kept && kept_bytes == size_bytes && memcmp(kept_content, data, size_bytes) == 0)
		return sha256;

	is_kept = false;
	blob_digest_bytes(data, size_bytes, sha256);
	if (size_bytes <= MAX_DIGESTED_BYTES)
	{
		memcpy(kept_content, data, size_bytes);
		kept_bytes = size_bytes;
		is_kept = true;
	}
	return sha256;
}

const uint8 *
blob_key_digest(const BlobKey *key)
{
	return key->sha256 != NULL ? key->sha256 : digest_of_inline(key->data, key->size_bytes);
}

static int
compare_sizes(const BlobKey *a, const BlobKey *b)
{
	return a->size_bytes < b->size_bytes ? -1 : a->size_bytes > b->size_bytes;
}

/* Two inline values have one digest buffer between them: keep the first. */
static int
compare_digest_bytes(const BlobKey *a, const BlobKey *b)
{
	uint8		sha256[BLOB_DIGEST_BYTES];

	memcpy(sha256, blob_key_digest(a), sizeof(sha256));
	return memcmp(sha256, blob_key_digest(b), sizeof(sha256));
}

/* What of both values can be compared without reading, and how that compares. */
static int
compare_heads(const BlobKey *a, const BlobKey *b, uint64 *compared_bytes)
{
	*compared_bytes = Min(a->size_bytes, b->size_bytes);
	if (a->sha256 != NULL || b->sha256 != NULL)
		*compared_bytes = Min(*compared_bytes, BLOB_PREFIX_BYTES);
	return memcmp(a->data, b->data, *compared_bytes);
}

bool
blob_equal(const BlobKey *a, const BlobKey *b)
{
	uint64		compared_bytes;

	if (a->size_bytes != b->size_bytes || compare_heads(a, b, &compared_bytes) != 0)
		return false;
	return compared_bytes == a->size_bytes || compare_digest_bytes(a, b) == 0;
}

int
blob_compare_digests(const BlobKey *a, const BlobKey *b)
{
	int			order = compare_digest_bytes(a, b);

	return order != 0 ? order : compare_sizes(a, b);
}

/* ---- contents ---- */

static void
load_value(const BlobKey *key, BlobValue *value)
{
	if (key->datum != NULL)
	{
		blob_value_unpack(key->datum, value);
		return;
	}
	value->is_inline = true;
	value->inline_data = key->data;
	value->size_bytes = key->size_bytes;
}

/*
 * Whether both descriptors have the same extent at this position, so that their contents agree
 * there as far as both go: published bytes of an extent never change.  A tail and a whole extent
 * of one first page are different extents.
 */
static bool
is_shared(const Comparison *comparison, int extent_no)
{
	BlobExtent	a = blob_descriptor_extent(&comparison->a.descriptor, extent_no);
	BlobExtent	b = blob_descriptor_extent(&comparison->b.descriptor, extent_no);

	return a.first_page == b.first_page && a.is_tail == b.is_tail && a.pages == b.pages;
}

/*
 * Skip shared extents at the offset.  Returns how far the next step may read: not into the next
 * shared extent, nor further than we looked for one.  Extents of equal number begin at the same
 * offset in both values.
 */
static uint64
skip_shared(Comparison *comparison)
{
	const BlobDescriptor *a = &comparison->a.descriptor;
	const BlobDescriptor *b = &comparison->b.descriptor;
	int			count;

	if (comparison->a.is_inline || comparison->b.is_inline)
		return comparison->end;

	count = Min(blob_descriptor_extent_count(a), blob_descriptor_extent_count(b));
	while (comparison->extent_no < count && comparison->extent_start < comparison->end)
	{
		uint64		pages = Min(blob_descriptor_extent(a, comparison->extent_no).pages,
								blob_descriptor_extent(b, comparison->extent_no).pages);
		uint64		start = comparison->extent_start;
		bool		shared = is_shared(comparison, comparison->extent_no);

		if (start > comparison->offset && (shared || start > comparison->offset + MAX_STEP_BYTES))
			return start;
		comparison->extent_start += pages * BLOB_PAGE_SIZE;
		if (shared)
		{
			/* The older descriptor is the one that may have lost the extent to the other. */
			blob_require_extent(a->generation < b->generation ? a : b, comparison->extent_no);
			comparison->offset = Min(comparison->extent_start, comparison->end);
		}
		comparison->extent_no++;
	}
	return comparison->end;
}

/* A range of the content: in place, or read into the buffer. */
static const char *
get_content(const BlobValue *value, uint64 offset, uint64 length, char *buffer)
{
	if (value->is_inline)
		return value->inline_data + offset;
	blob_read(value, offset, length, buffer);
	return buffer;
}

/*
 * Compare from comparison->offset on, in steps.  Most values differ early, so the first steps are
 * small; long common prefixes soon are read in large ones.
 */
static int
compare_steps(Comparison *comparison)
{
	static char buffer_a[MAX_STEP_BYTES];
	static char buffer_b[MAX_STEP_BYTES];
	uint64		step = BLOB_PAGE_SIZE - comparison->offset % BLOB_PAGE_SIZE;
	uint64		next_step = BLOB_PAGE_SIZE;

	for (;;)
	{
		uint64		limit = skip_shared(comparison);
		uint64		length = Min(step, limit - comparison->offset);
		int			order;

		if (comparison->offset == comparison->end)
			return 0;
		CHECK_FOR_INTERRUPTS();
		order = memcmp(get_content(&comparison->a, comparison->offset, length, buffer_a),
					   get_content(&comparison->b, comparison->offset, length, buffer_b),
					   length);
		if (order != 0)
			return order;
		comparison->offset += length;
		step = next_step;
		next_step = Min(next_step * 2, MAX_STEP_BYTES);
	}
}

/* Both agree in the first compared_bytes and go on. */
static int
compare_contents(const BlobKey *a, const BlobKey *b, uint64 compared_bytes)
{
	Comparison	comparison;

	comparison.offset = compared_bytes;
	comparison.end = Min(a->size_bytes, b->size_bytes);
	comparison.extent_no = 0;
	comparison.extent_start = 0;
	load_value(a, &comparison.a);
	load_value(b, &comparison.b);
	blob_stat_count(content_comparisons, 1);
	return compare_steps(&comparison);
}

int
blob_compare(const BlobKey *a, const BlobKey *b)
{
	uint64		compared_bytes;
	int			order = compare_heads(a, b, &compared_bytes);

	if (order != 0)
		return order;
	if (compared_bytes == Min(a->size_bytes, b->size_bytes))
		return compare_sizes(a, b);
	blob_durability_before_compare();
	if (a->size_bytes == b->size_bytes && compare_digest_bytes(a, b) == 0)
		return 0;

	order = compare_contents(a, b, compared_bytes);
	if (order == 0)
		order = compare_sizes(a, b);
	/* Bytes that agree under different digests are damaged ones: still a total order. */
	return order != 0 ? order : compare_digest_bytes(a, b);
}
