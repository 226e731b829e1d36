/*
 * blob/compare_content.c
 *	  Order of contents, see blob/compare_content.h and "Comparison" in the README of this folder.
 *
 * Memory is static, as blob/compare.c says.  (A reader allocates memory for values of many extents,
 * until the comparison ends.)
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/compare_content.h"
#include "blob/mapping.h"
#include "blob/reader.h"
#include "blob/seal.h"
#include "core/settings.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/*
 * The first step ends with these bytes of the content, the second one with the first page.  Later
 * steps grow from one page to the last of these sizes.
 */
#define FIRST_STEP_BYTES 512
#define MAX_STEP_BYTES (256 * 1024)

/*
 * Bytes from the beginnings of values: heads, which are the bytes from the prefix to the end of the
 * first step, and pages, as far as steps are one page long.  A process keeps heads, since every
 * descent of an index compares its argument with some of the same keys.  A sort keeps heads and
 * pages of its own.  All are found by the identity of the content, so they cannot be out of date.
 */
#define HEAD_BYTES (FIRST_STEP_BYTES - BLOB_PREFIX_BYTES)
#define PROCESS_HEAD_SETS 1024
#define SORT_HEAD_SETS 4096
#define PAGES_PER_VALUE 2
#define PAGE_SETS 256
#define KEPT_WAYS 2

/* As blob_descriptor_identity() says.  No content is known whose digest is that of an open one. */
typedef struct Identity
{
	uint8		bytes[BLOB_DIGEST_BYTES];
} Identity;

typedef struct KeptHead
{
	Identity	identity;
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
	Identity	identity;
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
	bool		has_unknown;	/* the digest of one of the values is not known */
	BlobSortMemory *memory;		/* of the sort, or NULL */
	const void *in_use;			/* page or head that must not be replaced now */
} Comparison;

/* Buffers of the steps through contents. */
static char step_buffers[2][MAX_STEP_BYTES];

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

/*
 * Whether a value may be read for the reason alone that its digest is not known.  If those of both
 * values are, these differ, and are read as sealed ones are: up to the difference.
 */
static bool
has_unknown_digest(const BlobKey *key, const ComparedValue *compared)
{
	uint8		sha256[BLOB_DIGEST_BYTES];

	return key->kind == BLOB_KEY_OPEN && !blob_seal_known_digest(&compared->value, sha256);
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

static Identity
get_identity(const BlobDescriptor *descriptor)
{
	Identity	identity;

	blob_descriptor_identity(descriptor, identity.bytes);
	return identity;
}

static bool
is_identity(const Identity *a, const Identity *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

static uint32
hash_identity(const Identity *identity)
{
	uint32		hash;

	memcpy(&hash, identity->bytes, sizeof(hash));
	return hash;
}

/*
 * A page of a value's content in the sort's memory; it is read into the memory if it is not there.
 */
static const KeptPage *
get_kept_page(Comparison *comparison, ComparedValue *compared, uint64 page_no)
{
	BlobSortMemory *memory = comparison->memory;
	Identity	identity = get_identity(&compared->value.descriptor);
	KeptPage   *set = memory->pages[(hash_identity(&identity) + page_no) % PAGE_SETS];
	KeptPage   *page;

	for (int i = 0; i < KEPT_WAYS; i++)
	{
		if (set[i].is_valid && set[i].page_no == page_no &&
			is_identity(&set[i].identity, &identity))
			return &set[i];
	}

	page = &set[memory->next_way];
	if (page == comparison->in_use)
		page = &set[1 - memory->next_way];
	memory->next_way = 1 - memory->next_way;
	page->is_valid = false;
	read_content(compared, page_no * BLOB_PAGE_SIZE, BLOB_PAGE_SIZE, page->content);
	page->identity = identity;
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
find_head(KeptHeads *heads, const BlobDescriptor *descriptor, const void *in_use)
{
	Identity	identity = get_identity(descriptor);
	KeptHead   *set = heads->sets[hash_identity(&identity) % heads->set_count];
	KeptHead   *head;

	for (int i = 0; i < KEPT_WAYS; i++)
	{
		if (set[i].is_valid && is_identity(&set[i].identity, &identity))
			return &set[i];
	}
	head = &set[heads->next_way];
	if (head == in_use)
		head = &set[1 - heads->next_way];
	heads->next_way = 1 - heads->next_way;
	head->is_valid = false;
	head->identity = identity;
	return head;
}

/* The head of a value, kept or read now. */
static const char *
get_kept_head(Comparison *comparison, ComparedValue *compared)
{
	KeptHead   *head = find_head(get_heads(comparison->memory),
								 &compared->value.descriptor, comparison->in_use);

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
		if (comparison->has_unknown)
			blob_seal_require_interruptible(comparison->offset + length);
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

int
blob_compare_contents(const BlobKey *a, const BlobKey *b, uint64 compared_bytes,
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
	comparison.has_unknown = has_unknown_digest(a, &comparison.a) ||
		has_unknown_digest(b, &comparison.b);
	blob_stat_count(content_comparisons, 1);
	order = compare_steps(&comparison);
	end_value(&comparison.a);
	end_value(&comparison.b);
	return order;
}

BlobSortMemory *
blob_compare_sort_memory(BlobSortMemory **memory, MemoryContext context)
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

	if (key->kind == BLOB_KEY_INLINE || key->size_bytes <= FIRST_STEP_BYTES)
		return;
	blob_value_unpack(key->datum, &value);
	head = find_head(get_heads(blob_compare_sort_memory(memory, context)), &value.descriptor, NULL);
	if (head->is_valid || value.descriptor.is_compressed)
		return;
	blob_reader_begin(&reader, &value, 0);
	blob_reader_seek(&reader, BLOB_PREFIX_BYTES);
	head->is_valid = blob_reader_read_buffered(&reader, head->content, HEAD_BYTES);
	if (!head->is_valid)
		blob_reader_request(&reader, FIRST_STEP_BYTES);
	blob_reader_end(&reader);
}
