/*
 * io/buffer_slabs.c
 *	  Memory of the buffer, see io/buffer_slabs.h.
 *
 * The word pins tells the state of a slab.  pins >= 0 readers have pinned it; SLAB_OWNED: one
 * process owns it, and may change key and content; SLAB_IN_GROUP: it is a part of a whole group.
 * All changes are atomic.  A process that owns the head of a whole group has all of the
 * group, and may split it.  A process that owns all slabs of a split group may make it
 * whole.  Ownership of several slabs is all or nothing, and never waits.
 *
 * Replacement is a clock sweep, one hand for each size.  New content starts with usage 1, and a hit
 * raises it up to MAX_USAGE, so a large scan replaces its own chunks before it replaces hot ones.
 * The hand for small slabs passes whole groups too.  The other hand also passes split groups, all
 * slabs of which must be out of use.  The work of one sweep is bounded; if it finds nothing, the
 * chunk is not kept.
 */
#include "postgres.h"

#include "core/memory.h"
#include "core/settings.h"
#include "io/buffer_slabs.h"
#include "io/huge.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#define SLAB_BYTES BLOB_BUFFER_SMALL_CHUNK_BYTES
#define GROUP_SLABS (BLOB_BUFFER_CHUNK_BYTES / SLAB_BYTES)

#define SLAB_OWNED PG_UINT32_MAX
#define SLAB_IN_GROUP (PG_UINT32_MAX - 1)

#define SLAB_NEW_USAGE 1
#define MAX_USAGE 5

/*
 * How often a sweep passes all slabs, or groups, before it gives up.  Each pass ages what it
 * meets.
 */
#define SWEEP_PASSES (MAX_USAGE + 1)

/* How much of the buffer's memory is touched at the start of the server. */
#define MAX_TOUCHED_BYTES ((Size) 1024 * 1024 * 1024)

typedef struct SlabsShared
{
	pg_atomic_uint64 small_hand;	/* hands of the clocks; modulo the number */
	pg_atomic_uint64 whole_hand;	/* of slabs, or of groups */
	uint32		slab_count;		/* a multiple of GROUP_SLABS */
} SlabsShared;

static SlabsShared *shared = NULL;
static BufferSlab *slabs = NULL;
static char *content = NULL;
static BlobHugeView huge_view;	/* of the content */

uint32
blob_slabs_configured(void)
{
	return (uint32) (blob_buffer_kb / (BLOB_BUFFER_CHUNK_BYTES / 1024)) * GROUP_SLABS;
}

/* Shared memory of the slabs and of their content, which is aligned to a page. */
Size
blob_slabs_shmem_size(void)
{
	uint32		slab_count = blob_slabs_configured();
	Size		bytes = CACHELINEALIGN(sizeof(SlabsShared));

	bytes = add_size(bytes, CACHELINEALIGN(mul_size(slab_count, sizeof(BufferSlab))));
	bytes = add_size(bytes, mul_size(slab_count, SLAB_BYTES));
	return add_size(bytes, BLOB_PAGE_SIZE);
}

/*
 * Touch the memory, so that the first reads after a start need not: on a virtual machine a fresh
 * page can cost more than reading it from the device.  Only a part of a large buffer is touched, so
 * that the start of the server does not take long.
 */
static void
touch_content(Size bytes)
{
	Size		touched = Min(bytes, MAX_TOUCHED_BYTES);

	if (blob_huge_gather(&huge_view, content, touched))
		return;
	blob_memory_populate(content, touched);
	for (Size offset = 0; offset < touched; offset += BLOB_PAGE_SIZE)
		*(volatile char *) (content + offset) = 0;
}

/* All groups are whole at first. */
static void
init_slabs(uint32 slab_count)
{
	memset(slabs, 0, slab_count * sizeof(BufferSlab));
	for (uint32 i = 0; i < slab_count; i++)
	{
		slabs[i].is_whole = i % GROUP_SLABS == 0;
		pg_atomic_init_u32(&slabs[i].pins, slabs[i].is_whole ? 0 : SLAB_IN_GROUP);
		pg_atomic_init_u32(&slabs[i].usage, 0);
	}
}

/* Make or attach to the slabs and their content.  Called under AddinShmemInitLock. */
void
blob_slabs_shmem_init(void)
{
	uint32		slab_count = blob_slabs_configured();
	char	   *data;
	bool		found;

	shared = ShmemInitStruct("blobext buffer state", sizeof(SlabsShared), &found);
	if (!found)
	{
		pg_atomic_init_u64(&shared->small_hand, 0);
		pg_atomic_init_u64(&shared->whole_hand, 0);
		shared->slab_count = slab_count;
	}
	slabs = ShmemInitStruct("blobext buffer slabs", mul_size(slab_count, sizeof(BufferSlab)),
							&found);
	if (!found)
		init_slabs(slab_count);
	data = ShmemInitStruct("blobext buffer content",
						   add_size(mul_size(slab_count, SLAB_BYTES), BLOB_PAGE_SIZE), &found);
	content = (char *) TYPEALIGN(BLOB_PAGE_SIZE, data);
	if (!found)
		touch_content(mul_size(slab_count, SLAB_BYTES));
}

BufferSlab *
blob_slab(uint32 slab_no)
{
	return &slabs[slab_no];
}

uint32
blob_slab_number(const BufferSlab *slab)
{
	return (uint32) (slab - slabs);
}

char *
blob_slab_content(const BufferSlab *slab)
{
	/* Whichever mapping has the address, the rest of a whole group must follow in the same one. */
	return blob_huge_address(&huge_view,
							 content + (Size) blob_slab_number(slab) * SLAB_BYTES,
							 BLOB_BUFFER_CHUNK_BYTES);
}

bool
blob_slab_pin(BufferSlab *slab)
{
	uint32		pins = pg_atomic_read_u32(&slab->pins);

	while (pins < SLAB_IN_GROUP)
	{
		if (pg_atomic_compare_exchange_u32(&slab->pins, &pins, pins + 1))
			return true;
	}
	return false;
}

void
blob_slab_unpin(BufferSlab *slab)
{
	pg_atomic_fetch_sub_u32(&slab->pins, 1);
}

void
blob_slab_touch(BufferSlab *slab)
{
	if (pg_atomic_read_u32(&slab->usage) < MAX_USAGE)
		pg_atomic_fetch_add_u32(&slab->usage, 1);
}

void
blob_slab_set_unused(BufferSlab *slab)
{
	pg_atomic_write_u32(&slab->usage, 0);
}

bool
blob_slab_own(BufferSlab *slab)
{
	uint32		expected = 0;

	return pg_atomic_compare_exchange_u32(&slab->pins, &expected, SLAB_OWNED);
}

/*
 * The exchange is a full barrier: a process that pins the slab sees all that the owner wrote.
 */
void
blob_slab_disown(BufferSlab *slab)
{
	uint32		owned PG_USED_FOR_ASSERTS_ONLY;

	owned = pg_atomic_exchange_u32(&slab->pins, 0);
	Assert(owned == SLAB_OWNED);
}

void
blob_slab_disown_pinned(BufferSlab *slab)
{
	uint32		owned PG_USED_FOR_ASSERTS_ONLY;

	owned = pg_atomic_exchange_u32(&slab->pins, 1);
	Assert(owned == SLAB_OWNED);
}

/*
 * Map a group's memory into this process by one call, when a slab of it is taken here for the
 * first time.  A bitmap, made at the first use, remembers the groups that were mapped.
 */
static void
map_group(uint32 group_no)
{
	static uint8 *is_mapped = NULL;

	if (is_mapped == NULL)
		is_mapped = MemoryContextAllocExtended(TopMemoryContext,
											   shared->slab_count / GROUP_SLABS / 8 + 1,
											   MCXT_ALLOC_ZERO | MCXT_ALLOC_NO_OOM);
	if (is_mapped == NULL || (is_mapped[group_no / 8] & (1 << group_no % 8)) != 0)
		return;
	is_mapped[group_no / 8] |= 1 << group_no % 8;
	blob_memory_populate_shared(blob_slab_content(&slabs[group_no * GROUP_SLABS]),
								BLOB_BUFFER_CHUNK_BYTES);
}

/* Whether the slab is out of use; if not, the clock's passing ages it. */
static bool
is_out_of_use(BufferSlab *slab)
{
	uint32		usage = pg_atomic_read_u32(&slab->usage);

	if (usage > 0)
		pg_atomic_compare_exchange_u32(&slab->usage, &usage, usage - 1);
	return usage == 0;
}

static void
evict_key(BufferSlab *slab, void (*evict) (BufferSlab *slab))
{
	if (slab->key.generation != BLOB_INVALID_GENERATION)
		evict(slab);
	memset(&slab->key, 0, sizeof(BufferKey));
	slab->is_neighbour = false;
}

/* Split a group whose head is owned and has no key; the head stays owned. */
static void
split_group(BufferSlab *head)
{
	head->is_whole = false;
	for (int i = 1; i < GROUP_SLABS; i++)
	{
		pg_atomic_write_u32(&head[i].usage, 0);
		pg_atomic_exchange_u32(&head[i].pins, 0);
	}
}

/*
 * Sweep for a small slab, and take it; a whole group that is out of use is split.  NULL if the
 * sweep finds none.
 */
static BufferSlab *
take_small(void (*evict) (BufferSlab *slab))
{
	for (uint32 i = 0; i < SWEEP_PASSES * shared->slab_count; i++)
	{
		uint64		hand = pg_atomic_fetch_add_u64(&shared->small_hand, 1);
		BufferSlab *slab = &slabs[hand % shared->slab_count];

		if (pg_atomic_read_u32(&slab->pins) >= SLAB_IN_GROUP || !is_out_of_use(slab) ||
			!blob_slab_own(slab))
			continue;
		evict_key(slab, evict);
		if (slab->is_whole)
			split_group(slab);
		return slab;
	}
	return NULL;
}

/* Take all slabs of a split group and make it whole, if none of them is in use. */
static bool
join_group(BufferSlab *head, void (*evict) (BufferSlab *slab))
{
	bool		in_use = false;
	int 		owned = 0;

	for (int i = 0; i < GROUP_SLABS; i++)
		in_use |= !is_out_of_use(&head[i]);
	if (in_use)
		return false;
	while (owned < GROUP_SLABS && blob_slab_own(&head[owned]))
		owned++;
	if (owned < GROUP_SLABS)
	{
		while (owned > 0)
			blob_slab_disown(&head[--owned]);
		return false;
	}

	/* If another process had made the group whole, its other slabs could not have been taken. */
	Assert(!head->is_whole);
	for (int i = 0; i < GROUP_SLABS; i++)
		evict_key(&head[i], evict);
	for (int i = 1; i < GROUP_SLABS; i++)
		pg_atomic_exchange_u32(&head[i].pins, SLAB_IN_GROUP);
	head->is_whole = true;
	return true;
}

/*
 * Sweep for a whole group, and take its head; a split group that is out of use is made whole.
 * NULL if the sweep finds none.
 */
static BufferSlab *
take_whole(void (*evict) (BufferSlab *slab))
{
	for (uint32 i = 0; i < SWEEP_PASSES * (shared->slab_count / GROUP_SLABS); i++)
	{
		uint64		hand = pg_atomic_fetch_add_u64(&shared->whole_hand, 1);
		BufferSlab *head = &slabs[hand % (shared->slab_count / GROUP_SLABS) * GROUP_SLABS];

		/* Read without ownership, so only a hint; it is checked again under ownership. */
		if (!head->is_whole)
		{
			if (join_group(head, evict))
				return head;
			continue;
		}
		if (!is_out_of_use(head) || !blob_slab_own(head))
			continue;
		if (head->is_whole)
		{
			evict_key(head, evict);
			return head;
		}
		blob_slab_disown(head);
	}
	return NULL;
}

BufferSlab *
blob_slab_take(uint32 chunk_bytes, void (*evict) (BufferSlab *slab))
{
	BufferSlab *slab;

	slab = chunk_bytes == SLAB_BYTES ? take_small(evict) : take_whole(evict);
	if (slab == NULL)
		return NULL;
	pg_atomic_write_u32(&slab->usage, SLAB_NEW_USAGE);
	map_group(blob_slab_number(slab) / GROUP_SLABS);
	return slab;
}

BufferSlab *
blob_slab_take_again(BufferSlab *slab, const BufferKey *key,
					 void (*evict) (BufferSlab *slab))
{
	if (pg_atomic_read_u32(&slab->usage) > SLAB_NEW_USAGE || !blob_slab_own(slab))
		return NULL;
	if (memcmp(&slab->key, key, sizeof(BufferKey)) != 0)
	{
		blob_slab_disown(slab);
		return NULL;
	}
	evict_key(slab, evict);
	return slab;
}
