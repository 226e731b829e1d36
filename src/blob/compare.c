/*
 * blob/compare.c
 *	  The comparator, see blob/compare.h and "Comparison" in the README of this folder.
 *
 * Memory is static: comparators run millions of times in one sort, and under buffer locks, where
 * they must not ask much of the system.  (A reader allocates memory for values of many extents,
 * until the comparison ends.)  Nothing here calls back into a comparator.  A comparator is never
 * called while this process has the I/O engine claimed: code under such a claim (the write
 * pipeline, the requests of a read, redo) evaluates no expressions and touches no index.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/compare.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "common/hashfn.h"
#include "extents/durability.h"
#include "io/stat.h"
#include "miscadmin.h"

/* The first step ends with the first page.  Later steps grow from one page to this size. */
#define MAX_STEP_BYTES (256 * 1024)

/* The digest of an inline value of up to this size is kept, see digest_of_inline(). */
#define MAX_DIGESTED_BYTES (128 * 1024)
#define MAX_SMALL_BYTES 2048
#define SMALL_DIGESTS 32

/*
 * The memory of a sort: pages from the beginnings of values, as far as steps are one page long.
 * They are found by the digest of the content, so they cannot be out of date.
 */
#define KEPT_PAGES_PER_VALUE 2
#define KEPT_SETS 512
#define KEPT_WAYS 2

typedef struct KeptPage
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint64		page_no;		/* in the value */
	bool		is_valid;
	char		content[BLOB_PAGE_SIZE];
} KeptPage;

struct BlobSortMemory
{
	int			next_way;		/* which page of a set is replaced next */
	KeptPage	pages[KEPT_SETS][KEPT_WAYS];
};

/*
 * A value that is compared, and one of its extents: the one up to which the search for shared
 * extents has come.
 */
typedef struct ComparedValue
{
	BlobValue	value;
	bool		has_reader;		/* the reader has been begun */
	BlobReader	reader;
	int			next_no;		/* of the extent behind this one; 0: there is none yet */
	BlobStoredExtent extent;
	uint64		content_end;	/* of the content up to the end of the extent, bytes */
} ComparedValue;

/* A comparison of contents in progress: both values agree up to offset. */
typedef struct Comparison
{
	ComparedValue a;
	ComparedValue b;
	uint64		offset;			/* bytes */
	uint64		end;			/* size of the smaller value */
	uint64		looked_to;		/* the search for shared extents has come to here */
	BlobSortMemory *memory;		/* of the sort, or NULL */
	const KeptPage *in_use;		/* must not be replaced now */
} Comparison;

/* A digest that was computed, and the size of its content. */
typedef struct KeptDigest
{
	uint64		size_bytes;
	bool		is_valid;
	uint8		sha256[BLOB_DIGEST_BYTES];
} KeptDigest;

/*
 * SHA-256 of content in memory.  An index descent asks again and again for the digest of its one
 * argument, and of the small values that the index holds in between.  So the digest of the last
 * large content is kept, and those of some small ones, with the contents.  An address would not
 * identify the content, because a caller may put the next value where the last one was.
 */
static const uint8 *
digest_of_inline(const char *data, uint64 size_bytes)
{
	static char large_content[MAX_DIGESTED_BYTES];
	static char small_contents[SMALL_DIGESTS][MAX_SMALL_BYTES];
	static KeptDigest large;
	static KeptDigest smalls[SMALL_DIGESTS];
	char	   *content = large_content;
	KeptDigest *kept = &large;

	if (size_bytes <= MAX_SMALL_BYTES)
	{
		uint32		hash = (uint32) size_bytes;
		int			slot;

		memcpy(&hash, data, Min(size_bytes, sizeof(hash)));
		slot = murmurhash32(hash ^ (uint32) size_bytes) % SMALL_DIGESTS;
		content = small_contents[slot];
		kept = &smalls[slot];
	}
	if (kept->is_valid && kept->size_bytes == size_bytes &&
		memcmp(content, data, size_bytes) == 0)
		return kept->sha256;

	kept->is_valid = false;
	blob_digest_bytes(data, size_bytes, kept->sha256);
	if (size_bytes <= MAX_DIGESTED_BYTES)
	{
		memcpy(content, data, size_bytes);
		kept->size_bytes = size_bytes;
		kept->is_valid = true;
	}
	return kept->sha256;
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

/*
 * Order of two digests.  Two inline values share one digest buffer, so the first digest is copied.
 */
static int
compare_digest_bytes(const BlobKey *a, const BlobKey *b)
{
	uint8		sha256[BLOB_DIGEST_BYTES];

	memcpy(sha256, blob_key_digest(a), sizeof(sha256));
	return memcmp(sha256, blob_key_digest(b), sizeof(sha256));
}

/*
 * Compare the bytes that both values have in memory; *compared_bytes is set to the number of these.
 */
static int
compare_beginnings(const BlobKey *a, const BlobKey *b, uint64 *compared_bytes)
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

	if (a->size_bytes != b->size_bytes || compare_beginnings(a, b, &compared_bytes) != 0)
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

/* Prepare a value to be compared; its reader is begun when content is read. */
static void
begin_value(const BlobKey *key, ComparedValue *compared)
{
	if (key->datum != NULL)
		blob_value_unpack(key->datum, &compared->value);
	else
	{
		compared->value.is_inline = true;
		compared->value.inline_data = key->data;
		compared->value.size_bytes = key->size_bytes;
	}
	compared->has_reader = false;
	compared->next_no = 0;
	compared->content_end = 0;
}

static void
end_value(ComparedValue *compared)
{
	if (compared->has_reader)
		blob_reader_end(&compared->reader);
}

static void
read_content(ComparedValue *compared, uint64 offset, uint64 length, char *target)
{
	if (!compared->has_reader)
		blob_reader_begin(&compared->reader, &compared->value, 0);
	compared->has_reader = true;
	blob_reader_seek(&compared->reader, offset);
	(void) blob_reader_read(&compared->reader, target, length);
}

/* Go to the extent that holds the content at a position; false if no extent does. */
static bool
find_extent(ComparedValue *compared, uint64 position)
{
	const BlobDescriptor *descriptor = &compared->value.descriptor;

	while (compared->content_end <= position)
	{
		BlobStoredExtent *extent = &compared->extent;
		uint64		start = compared->next_no == 0 ? 0 : extent->start + extent->bytes;
		BlobContentRange content;

		if (compared->next_no == blob_descriptor_extent_count(descriptor))
			return false;
		blob_mapping_extent(descriptor, compared->next_no++, start, extent);
		content = blob_mapping_content_of(descriptor, extent);
		compared->content_end = content.offset + content.bytes;
	}
	return true;
}

/*
 * Verify an extent that both values name.  The older descriptor is the one that may have lost it to
 * the other.  ERROR XB001 if it has.
 */
static void
require_shared(const ComparedValue *a, const ComparedValue *b)
{
	const ComparedValue *older =
		a->value.descriptor.generation < b->value.descriptor.generation ? a : b;

	blob_require_extent(&older->value.descriptor, older->next_no - 1);
}

/*
 * Skip shared extents at the offset.  Returns the end of what the next step may read: it goes
 * neither into the next shared extent, nor beyond the position up to which one was searched for.
 */
static uint64
skip_shared(Comparison *comparison)
{
	ComparedValue *a = &comparison->a;
	ComparedValue *b = &comparison->b;

	if (a->value.is_inline || b->value.is_inline)
		return comparison->end;

	while (comparison->looked_to < comparison->end)
	{
		uint64		position = comparison->looked_to;
		bool		shared;

		if (!find_extent(a, position) || !find_extent(b, position))
		{
			comparison->looked_to = comparison->end;
			break;
		}
		shared = blob_mapping_is_shared(&a->extent, &b->extent);
		if (position > comparison->offset &&
			(shared || position > comparison->offset + MAX_STEP_BYTES))
			return position;
		comparison->looked_to = Min(a->content_end, b->content_end);
		if (shared)
		{
			require_shared(a, b);
			comparison->offset = Min(comparison->looked_to, comparison->end);
		}
	}
	return comparison->end;
}

/*
 * A page of a value's content in the sort's memory; it is read into the memory if it is not there.
 */
static const KeptPage *
get_kept_page(Comparison *comparison, ComparedValue *compared, uint64 page_no)
{
	BlobSortMemory *memory = comparison->memory;
	const uint8 *sha256 = compared->value.descriptor.sha256;
	uint32		hash;
	KeptPage   *set;
	KeptPage   *page;

	memcpy(&hash, sha256, sizeof(hash));
	set = memory->pages[(hash + page_no) % KEPT_SETS];
	for (int i = 0; i < KEPT_WAYS; i++)
	{
		if (set[i].is_valid && set[i].page_no == page_no &&
			memcmp(set[i].sha256, sha256, BLOB_DIGEST_BYTES) == 0)
			return &set[i];
	}

	page = &set[memory->next_way];
	if (page == comparison->in_use)
		page = &set[1 - memory->next_way];
	memory->next_way = 1 - memory->next_way;
	page->is_valid = false;
	read_content(compared, page_no * BLOB_PAGE_SIZE, BLOB_PAGE_SIZE, page->content);
	memcpy(page->sha256, sha256, BLOB_DIGEST_BYTES);
	page->page_no = page_no;
	page->is_valid = true;
	return page;
}

/*
 * The next bytes of a value: in place, if it is inline; in the sort's memory; or read into the
 * buffer.
 */
static const char *
get_content(Comparison *comparison, ComparedValue *compared, uint64 length, char *buffer)
{
	uint64		offset = comparison->offset;
	uint64		page_no = offset / BLOB_PAGE_SIZE;

	if (compared->value.is_inline)
		return compared->value.inline_data + offset;
	if (comparison->memory != NULL && page_no < KEPT_PAGES_PER_VALUE &&
		(offset + length - 1) / BLOB_PAGE_SIZE == page_no)
	{
		comparison->in_use = get_kept_page(comparison, compared, page_no);
		return comparison->in_use->content + offset % BLOB_PAGE_SIZE;
	}
	read_content(compared, offset, length, buffer);
	return buffer;
}

/*
 * Compare from comparison->offset on, in steps.  Most values differ early, so the first steps are
 * small.  They grow, so a long common prefix is soon read in large steps.  Serves interrupts, where
 * the caller does not hold them off.
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
		const char *a;
		const char *b;
		int			order;

		if (comparison->offset == comparison->end)
			return 0;
		CHECK_FOR_INTERRUPTS();
		comparison->in_use = NULL;
		a = get_content(comparison, &comparison->a, length, buffer_a);
		b = get_content(comparison, &comparison->b, length, buffer_b);
		order = memcmp(a, b, length);
		if (order != 0)
			return order;
		comparison->offset += length;
		step = next_step;
		next_step = Min(next_step * 2, MAX_STEP_BYTES);
	}
}

/* Order of two contents that agree in the first compared_bytes and go on. */
static int
compare_contents(const BlobKey *a, const BlobKey *b, uint64 compared_bytes,
				 BlobSortMemory *memory)
{
	Comparison	comparison;
	int			order;

	comparison.offset = compared_bytes;
	comparison.end = Min(a->size_bytes, b->size_bytes);
	comparison.looked_to = 0;
	comparison.memory = memory;
	begin_value(a, &comparison.a);
	begin_value(b, &comparison.b);
	blob_stat_count(content_comparisons, 1);
	order = compare_steps(&comparison);
	end_value(&comparison.a);
	end_value(&comparison.b);
	return order;
}

/* The memory of a sort, allocated when it is first needed: prefixes decide most sorts. */
static BlobSortMemory *
get_sort_memory(BlobSortMemory **memory, MemoryContext context)
{
	if (memory == NULL)
		return NULL;
	if (*memory == NULL)
	{
		*memory = MemoryContextAlloc(context, sizeof(BlobSortMemory));
		(*memory)->next_way = 0;
		for (int i = 0; i < KEPT_SETS * KEPT_WAYS; i++)
			(*memory)->pages[i / KEPT_WAYS][i % KEPT_WAYS].is_valid = false;
	}
	return *memory;
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
	if (a->size_bytes == b->size_bytes && compare_digest_bytes(a, b) == 0)
		return 0;

	order = compare_contents(a, b, compared_bytes, get_sort_memory(memory, context));
	if (order == 0)
		order = compare_sizes(a, b);
	/* Contents that agree under different digests are damaged.  The order stays total. */
	return order != 0 ? order : compare_digest_bytes(a, b);
}

int
blob_compare(const BlobKey *a, const BlobKey *b)
{
	return blob_compare_in_sort(a, b, NULL, NULL);
}
