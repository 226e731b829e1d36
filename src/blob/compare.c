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
#include "core/settings.h"
#include "extents/durability.h"
#include "io/stat.h"
#include "miscadmin.h"

/*
 * The first step ends with these bytes of the content, the second one with the first page.  Later
 * steps grow from one page to the last of these sizes.
 */
#define FIRST_STEP_BYTES 512
#define MAX_STEP_BYTES (256 * 1024)

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

/*
 * Bytes from the beginnings of values: heads, which are the bytes from the prefix to the end of the
 * first step, and pages, as far as steps are one page long.  A process keeps heads, since every
 * descent of an index compares its argument with some of the same keys.  A sort keeps heads and
 * pages of its own.  All are found by the digest of the content, so they cannot be out of date.
 */
#define HEAD_BYTES (FIRST_STEP_BYTES - BLOB_PREFIX_BYTES)
#define PROCESS_HEAD_SETS 1024
#define SORT_HEAD_SETS 4096
#define PAGES_PER_VALUE 2
#define PAGE_SETS 256
#define KEPT_WAYS 2

typedef struct KeptHead
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	bool		is_valid;
	char		content[HEAD_BYTES];
} KeptHead;

typedef struct KeptHeads
{
	int			set_count;
	int			next_way;		/* which head of a set is replaced next */
	KeptHead	(*sets)[KEPT_WAYS];
} KeptHeads;

typedef struct KeptPage
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint64		page_no;		/* in the value */
	bool		is_valid;
	char		content[BLOB_PAGE_SIZE];
} KeptPage;

struct BlobSortMemory
{
	KeptHeads	heads;
	KeptHead	head_sets[SORT_HEAD_SETS][KEPT_WAYS];
	int			next_way;		/* which page of a set is replaced next */
	KeptPage	pages[PAGE_SETS][KEPT_WAYS];
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
	const void *in_use;			/* page or head that must not be replaced now */
} Comparison;

/* Buffers of the steps through contents. */
static char step_buffers[2][MAX_STEP_BYTES];

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

const uint8 *
blob_key_digest(const BlobKey *key)
{
	return key->sha256 != NULL ? key->sha256 :
		digest_of_inline(key->data, key->size_bytes, true);
}

static int
compare_sizes(const BlobKey *a, const BlobKey *b)
{
	return a->size_bytes < b->size_bytes ? -1 : a->size_bytes > b->size_bytes;
}

static const uint8 *
digest_to_compare(const BlobKey *key)
{
	return key->sha256 != NULL ? key->sha256 :
		digest_of_inline(key->data, key->size_bytes, false);
}

/*
 * Order of two digests.  Two inline values share one digest buffer, so the first digest is copied.
 */
static int
compare_digest_bytes(const BlobKey *a, const BlobKey *b)
{
	uint8		sha256[BLOB_DIGEST_BYTES];

	memcpy(sha256, digest_to_compare(a), sizeof(sha256));
	return memcmp(sha256, digest_to_compare(b), sizeof(sha256));
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
	uint8		sha256[BLOB_DIGEST_BYTES];
	int			order;

	memcpy(sha256, blob_key_digest(a), sizeof(sha256));
	order = memcmp(sha256, blob_key_digest(b), sizeof(sha256));
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

	if (a->value.is_inline || b->value.is_inline ||
		!blob_mapping_can_share(&a->value.descriptor) ||
		!blob_mapping_can_share(&b->value.descriptor))
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
	set = memory->pages[(hash + page_no) % PAGE_SETS];
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

static KeptHeads *
get_heads(BlobSortMemory *memory)
{
	static KeptHead sets[PROCESS_HEAD_SETS][KEPT_WAYS];
	static KeptHeads of_process = {.set_count = PROCESS_HEAD_SETS, .sets = sets};

	return memory != NULL ? &memory->heads : &of_process;
}

/*
 * The head of a value, or one that may be replaced by it, but not in_use.  The latter is not valid,
 * and its bytes are to be read.
 */
static KeptHead *
find_head(KeptHeads *heads, const uint8 *sha256, const void *in_use)
{
	uint32		hash;
	KeptHead   *set;
	KeptHead   *head;

	memcpy(&hash, sha256, sizeof(hash));
	set = heads->sets[hash % heads->set_count];
	for (int i = 0; i < KEPT_WAYS; i++)
	{
		if (set[i].is_valid && memcmp(set[i].sha256, sha256, BLOB_DIGEST_BYTES) == 0)
			return &set[i];
	}
	head = &set[heads->next_way];
	if (head == in_use)
		head = &set[1 - heads->next_way];
	heads->next_way = 1 - heads->next_way;
	head->is_valid = false;
	memcpy(head->sha256, sha256, BLOB_DIGEST_BYTES);
	return head;
}

/* The head of a value, kept or read now. */
static const char *
get_kept_head(Comparison *comparison, ComparedValue *compared)
{
	KeptHead   *head = find_head(get_heads(comparison->memory),
								 compared->value.descriptor.sha256, comparison->in_use);

	if (!head->is_valid)
		read_content(compared, BLOB_PREFIX_BYTES, HEAD_BYTES, head->content);
	head->is_valid = true;
	comparison->in_use = head;
	return head->content;
}

/*
 * The next bytes of a value: in place, if it is inline; in the memory of the sort or the process;
 * or read into the buffer.
 */
static const char *
get_content(Comparison *comparison, ComparedValue *compared, uint64 length, char *buffer)
{
	uint64		offset = comparison->offset;
	uint64		page_no = offset / BLOB_PAGE_SIZE;

	if (compared->value.is_inline)
		return compared->value.inline_data + offset;
	if (offset == BLOB_PREFIX_BYTES && length == HEAD_BYTES)
		return get_kept_head(comparison, compared);
	if (comparison->memory != NULL && page_no < PAGES_PER_VALUE &&
		(offset + length - 1) / BLOB_PAGE_SIZE == page_no)
	{
		comparison->in_use = get_kept_page(comparison, compared, page_no);
		return ((const KeptPage *) comparison->in_use)->content + offset % BLOB_PAGE_SIZE;
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
	uint64		step = comparison->offset < FIRST_STEP_BYTES ?
		FIRST_STEP_BYTES - comparison->offset :
		BLOB_PAGE_SIZE - comparison->offset % BLOB_PAGE_SIZE;
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
		a = get_content(comparison, &comparison->a, length, step_buffers[0]);
		b = get_content(comparison, &comparison->b, length, step_buffers[1]);
		order = memcmp(a, b, length);
		if (order != 0)
			return order;
		comparison->offset += length;
		if (comparison->offset < BLOB_PAGE_SIZE)
			step = BLOB_PAGE_SIZE - comparison->offset;
		else
		{
			step = next_step;
			next_step = Min(next_step * 2, MAX_STEP_BYTES);
		}
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

/*
 * Whether a value's content is known to be that in memory without hashing: the buffer has it,
 * and it is the same.  Copying and comparing take a fraction of the time of hashing.  The content
 * is read to where it is kept with its digest.  If this cannot tell, digests decide.
 */
static bool
has_cached_content(const BlobKey *stored, const BlobKey *plain, KeptDigest *kept)
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
			kept->content + offset : step_buffers[0];

		is_same = blob_reader_read_cached(&reader, target, length) &&
			memcmp(target, plain->data + offset, length) == 0;
		offset += length;
	}
	blob_reader_end(&reader);
	if (is_same)
	{
		memcpy(kept->sha256, stored->sha256, BLOB_DIGEST_BYTES);
		set_kept(kept, value.size_bytes, false);
	}
	return is_same;
}

/*
 * Whether two values of equal size have the same content, before their contents are compared for
 * order.  If one of them is in memory, is not small and its digest is not known, the buffer is
 * asked first; then its digest is the other one's.  With blobext.verify_reads only digests count.
 */
static bool
is_same_content(const BlobKey *a, const BlobKey *b)
{
	const BlobKey *plain = a->sha256 == NULL ? a : b;
	const BlobKey *stored = a->sha256 == NULL ? b : a;
	KeptDigest *kept;

	if (plain->sha256 == NULL && stored->sha256 != NULL && !blob_verify_reads &&
		plain->size_bytes > MAX_HASHED_BYTES)
	{
		kept = get_kept_digest(plain->data, plain->size_bytes);
		if (!is_kept(kept, plain->data, plain->size_bytes) &&
			has_cached_content(stored, plain, kept))
			return true;
	}
	return compare_digest_bytes(a, b) == 0;
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
		for (int i = 0; i < PAGE_SETS * KEPT_WAYS; i++)
			(*memory)->pages[i / KEPT_WAYS][i % KEPT_WAYS].is_valid = false;
		(*memory)->heads.set_count = SORT_HEAD_SETS;
		(*memory)->heads.next_way = 0;
		(*memory)->heads.sets = (*memory)->head_sets;
		for (int i = 0; i < SORT_HEAD_SETS * KEPT_WAYS; i++)
			(*memory)->head_sets[i / KEPT_WAYS][i % KEPT_WAYS].is_valid = false;
	}
	return *memory;
}

void
blob_compare_expect(const BlobKey *key, BlobSortMemory **memory, MemoryContext context)
{
	BlobValue	value;
	BlobReader	reader;
	KeptHead   *head;

	if (key->sha256 == NULL || key->size_bytes <= FIRST_STEP_BYTES)
		return;
	head = find_head(get_heads(get_sort_memory(memory, context)), key->sha256, NULL);
	blob_value_unpack(key->datum, &value);
	if (head->is_valid || value.descriptor.is_compressed)
		return;
	blob_reader_begin(&reader, &value, 0);
	blob_reader_seek(&reader, BLOB_PREFIX_BYTES);
	head->is_valid = blob_reader_read_cached(&reader, head->content, HEAD_BYTES);
	if (!head->is_valid)
		blob_reader_request(&reader, FIRST_STEP_BYTES);
	blob_reader_end(&reader);
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
