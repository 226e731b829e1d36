/*
 * io/buffer_frames.c
 *	  Memory of the buffer, see io/buffer_frames.h.
 *
 * The word pins tells the state of a frame.  pins >= 0 readers have pinned it; FRAME_CLAIMED: one
 * process owns it, and may change key and content; FRAME_IN_GROUP: it is a part of a whole group.
 * All changes are atomic.  A process that has claimed the head of a whole group has all of the
 * group, and may split it.  A process that has claimed all frames of a split group may make it
 * whole.  A claim of several frames is all or nothing, and never waits.
 *
 * Replacement is a clock sweep, one hand for each size.  New content starts with usage 1, and a hit
 * raises it up to MAX_USAGE, so a large scan replaces its own chunks before it replaces hot ones.
 * The hand for small frames passes whole groups too.  The other hand also passes split groups, all
 * frames of which must be out of use.  The work of one sweep is bounded; if it finds nothing, the
 * chunk is not cached.
 */
#include "postgres.h"

#include "core/huge.h"
#include "core/memory.h"
#include "core/settings.h"
#include "io/buffer_frames.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#define FRAME_BYTES BLOB_BUFFER_SMALL_CHUNK_BYTES
#define GROUP_FRAMES (BLOB_BUFFER_CHUNK_BYTES / FRAME_BYTES)

#define FRAME_CLAIMED PG_UINT32_MAX
#define FRAME_IN_GROUP (PG_UINT32_MAX - 1)

#define FRAME_NEW_USAGE 1
#define MAX_USAGE 5

/*
 * How often a sweep passes all frames, or groups, before it gives up.  Each pass ages what it
 * meets.
 */
#define SWEEP_PASSES (MAX_USAGE + 1)

/* How much of the cache's memory is touched at the start of the server. */
#define MAX_TOUCHED_BYTES ((Size) 1024 * 1024 * 1024)

typedef struct FramesShared
{
	pg_atomic_uint64 small_hand;	/* hands of the clocks; modulo the number */
	pg_atomic_uint64 whole_hand;	/* of frames, or of groups */
	uint32		frame_count;	/* a multiple of GROUP_FRAMES */
} FramesShared;

static FramesShared *shared = NULL;
static BufferFrame *frames = NULL;
static char *content = NULL;
static BlobHugeView huge_view;	/* of the content */

uint32
blob_frames_configured(void)
{
	return (uint32) (blob_cache_kb / (BLOB_BUFFER_CHUNK_BYTES / 1024)) * GROUP_FRAMES;
}

/* Shared memory of the frames and of their content, which is aligned to a page. */
Size
blob_frames_shmem_size(void)
{
	uint32		frame_count = blob_frames_configured();
	Size		bytes = CACHELINEALIGN(sizeof(FramesShared));

	bytes = add_size(bytes, CACHELINEALIGN(mul_size(frame_count, sizeof(BufferFrame))));
	bytes = add_size(bytes, mul_size(frame_count, FRAME_BYTES));
	return add_size(bytes, BLOB_PAGE_SIZE);
}

/*
 * Touch the memory, so that the first reads after a start need not: on a virtual machine a fresh
 * page can cost more than reading it from the device.  Only a part of a large cache is touched, so
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
init_frames(uint32 frame_count)
{
	memset(frames, 0, frame_count * sizeof(BufferFrame));
	for (uint32 i = 0; i < frame_count; i++)
	{
		frames[i].is_whole = i % GROUP_FRAMES == 0;
		pg_atomic_init_u32(&frames[i].pins, frames[i].is_whole ? 0 : FRAME_IN_GROUP);
		pg_atomic_init_u32(&frames[i].usage, 0);
	}
}

/* Make or attach to the frames and their content.  Called under AddinShmemInitLock. */
void
blob_frames_shmem_init(void)
{
	uint32		frame_count = blob_frames_configured();
	char	   *data;
	bool		found;

	shared = ShmemInitStruct("blobext cache", sizeof(FramesShared), &found);
	if (!found)
	{
		pg_atomic_init_u64(&shared->small_hand, 0);
		pg_atomic_init_u64(&shared->whole_hand, 0);
		shared->frame_count = frame_count;
	}
	frames = ShmemInitStruct("blobext cache frames", mul_size(frame_count, sizeof(BufferFrame)),
							 &found);
	if (!found)
		init_frames(frame_count);
	data = ShmemInitStruct("blobext cache content",
						   add_size(mul_size(frame_count, FRAME_BYTES), BLOB_PAGE_SIZE), &found);
	content = (char *) TYPEALIGN(BLOB_PAGE_SIZE, data);
	if (!found)
		touch_content(mul_size(frame_count, FRAME_BYTES));
}

BufferFrame *
blob_frame(uint32 frame_no)
{
	return &frames[frame_no];
}

uint32
blob_frame_number(const BufferFrame *frame)
{
	return (uint32) (frame - frames);
}

char *
blob_frame_content(const BufferFrame *frame)
{
	/* Whichever mapping has the address, the rest of a whole group must follow in the same one. */
	return blob_huge_address(&huge_view,
							 content + (Size) blob_frame_number(frame) * FRAME_BYTES,
							 BLOB_BUFFER_CHUNK_BYTES);
}

bool
blob_frame_pin(BufferFrame *frame)
{
	uint32		pins = pg_atomic_read_u32(&frame->pins);

	while (pins < FRAME_IN_GROUP)
	{
		if (pg_atomic_compare_exchange_u32(&frame->pins, &pins, pins + 1))
			return true;
	}
	return false;
}

void
blob_frame_unpin(BufferFrame *frame)
{
	pg_atomic_fetch_sub_u32(&frame->pins, 1);
}

void
blob_frame_touch(BufferFrame *frame)
{
	if (pg_atomic_read_u32(&frame->usage) < MAX_USAGE)
		pg_atomic_fetch_add_u32(&frame->usage, 1);
}

void
blob_frame_set_unused(BufferFrame *frame)
{
	pg_atomic_write_u32(&frame->usage, 0);
}

bool
blob_frame_claim(BufferFrame *frame)
{
	uint32		expected = 0;

	return pg_atomic_compare_exchange_u32(&frame->pins, &expected, FRAME_CLAIMED);
}

/*
 * The exchange is a full barrier: a process that pins the frame sees all that the claimant wrote.
 */
void
blob_frame_disclaim(BufferFrame *frame)
{
	uint32		claimed PG_USED_FOR_ASSERTS_ONLY;

	claimed = pg_atomic_exchange_u32(&frame->pins, 0);
	Assert(claimed == FRAME_CLAIMED);
}

void
blob_frame_disclaim_pinned(BufferFrame *frame)
{
	uint32		claimed PG_USED_FOR_ASSERTS_ONLY;

	claimed = pg_atomic_exchange_u32(&frame->pins, 1);
	Assert(claimed == FRAME_CLAIMED);
}

/*
 * Map a group's memory into this process by one call, when a frame of it is taken here for the
 * first time.  A bitmap, made at the first use, remembers the groups that were mapped.
 */
static void
map_group(uint32 group_no)
{
	static uint8 *is_mapped = NULL;

	if (is_mapped == NULL)
		is_mapped = MemoryContextAllocExtended(TopMemoryContext,
											   shared->frame_count / GROUP_FRAMES / 8 + 1,
											   MCXT_ALLOC_ZERO | MCXT_ALLOC_NO_OOM);
	if (is_mapped == NULL || (is_mapped[group_no / 8] & (1 << group_no % 8)) != 0)
		return;
	is_mapped[group_no / 8] |= 1 << group_no % 8;
	blob_memory_populate_shared(blob_frame_content(&frames[group_no * GROUP_FRAMES]),
								BLOB_BUFFER_CHUNK_BYTES);
}

/* Whether the frame is out of use; if not, the clock's passing ages it. */
static bool
is_out_of_use(BufferFrame *frame)
{
	uint32		usage = pg_atomic_read_u32(&frame->usage);

	if (usage > 0)
		pg_atomic_compare_exchange_u32(&frame->usage, &usage, usage - 1);
	return usage == 0;
}

static void
evict_key(BufferFrame *frame, void (*evict) (BufferFrame *frame))
{
	if (frame->key.generation != BLOB_INVALID_GENERATION)
		evict(frame);
	memset(&frame->key, 0, sizeof(BufferKey));
	frame->is_neighbour = false;
}

/* Split a group whose head is claimed and has no key; the head stays claimed. */
static void
split_group(BufferFrame *head)
{
	head->is_whole = false;
	for (int i = 1; i < GROUP_FRAMES; i++)
	{
		pg_atomic_write_u32(&head[i].usage, 0);
		pg_atomic_exchange_u32(&head[i].pins, 0);
	}
}

/*
 * Sweep for a small frame, and claim it; a whole group that is out of use is split.  NULL if the
 * sweep finds none.
 */
static BufferFrame *
take_small(void (*evict) (BufferFrame *frame))
{
	for (uint32 i = 0; i < SWEEP_PASSES * shared->frame_count; i++)
	{
		uint64		hand = pg_atomic_fetch_add_u64(&shared->small_hand, 1);
		BufferFrame *frame = &frames[hand % shared->frame_count];

		if (pg_atomic_read_u32(&frame->pins) >= FRAME_IN_GROUP || !is_out_of_use(frame) ||
			!blob_frame_claim(frame))
			continue;
		evict_key(frame, evict);
		if (frame->is_whole)
			split_group(frame);
		return frame;
	}
	return NULL;
}

/* Claim all frames of a split group and make it whole, if none of them is in use. */
static bool
join_group(BufferFrame *head, void (*evict) (BufferFrame *frame))
{
	bool		in_use = false;
	int			claimed = 0;

	for (int i = 0; i < GROUP_FRAMES; i++)
		in_use |= !is_out_of_use(&head[i]);
	if (in_use)
		return false;
	while (claimed < GROUP_FRAMES && blob_frame_claim(&head[claimed]))
		claimed++;
	if (claimed < GROUP_FRAMES)
	{
		while (claimed > 0)
			blob_frame_disclaim(&head[--claimed]);
		return false;
	}

	/* If another process had made the group whole, its other frames could not have been claimed. */
	Assert(!head->is_whole);
	for (int i = 0; i < GROUP_FRAMES; i++)
		evict_key(&head[i], evict);
	for (int i = 1; i < GROUP_FRAMES; i++)
		pg_atomic_exchange_u32(&head[i].pins, FRAME_IN_GROUP);
	head->is_whole = true;
	return true;
}

/*
 * Sweep for a whole group, and claim its head; a split group that is out of use is made whole.
 * NULL if the sweep finds none.
 */
static BufferFrame *
take_whole(void (*evict) (BufferFrame *frame))
{
	for (uint32 i = 0; i < SWEEP_PASSES * (shared->frame_count / GROUP_FRAMES); i++)
	{
		uint64		hand = pg_atomic_fetch_add_u64(&shared->whole_hand, 1);
		BufferFrame *head = &frames[hand % (shared->frame_count / GROUP_FRAMES) * GROUP_FRAMES];

		/* Read without a claim, so only a hint; it is checked again under the claim. */
		if (!head->is_whole)
		{
			if (join_group(head, evict))
				return head;
			continue;
		}
		if (!is_out_of_use(head) || !blob_frame_claim(head))
			continue;
		if (head->is_whole)
		{
			evict_key(head, evict);
			return head;
		}
		blob_frame_disclaim(head);
	}
	return NULL;
}

BufferFrame *
blob_frame_take(uint32 chunk_bytes, void (*evict) (BufferFrame *frame))
{
	BufferFrame *frame;

	frame = chunk_bytes == FRAME_BYTES ? take_small(evict) : take_whole(evict);
	if (frame == NULL)
		return NULL;
	pg_atomic_write_u32(&frame->usage, FRAME_NEW_USAGE);
	map_group(blob_frame_number(frame) / GROUP_FRAMES);
	return frame;
}

BufferFrame *
blob_frame_take_again(BufferFrame *frame, const BufferKey *key,
					  void (*evict) (BufferFrame *frame))
{
	if (pg_atomic_read_u32(&frame->usage) > FRAME_NEW_USAGE || !blob_frame_claim(frame))
		return NULL;
	if (memcmp(&frame->key, key, sizeof(BufferKey)) != 0)
	{
		blob_frame_disclaim(frame);
		return NULL;
	}
	evict_key(frame, evict);
	return frame;
}
