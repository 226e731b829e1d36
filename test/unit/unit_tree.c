/*
 * unit_tree.c
 *	  Tests of trees of pieces: blob/tree.h, and their form in core/descriptor.h.
 *
 * Random changes of values of all forms against a byte array.  After each of them the directory is
 * walked: content, live bytes of each slot, nodes that are half full, no short pieces, few bytes
 * written.
 *
 * Seen to fail: with nodes that are put as they are at the end (put_lower_level()), without the
 * bytes that are taken back from a node that is opened, with short pieces; without any one of the
 * conditions of check_slots() and check_tree(); with parts that are not fetched at the end of a
 * read (blob_frames_read()).
 */
#include "unit.h"

#include "blob/framer.h"
#include "blob/mapping.h"
#include "blob/tree.h"
#include "common/pg_prng.h"
#include "core/codec.h"
#include "utils/memutils.h"

/* Slots that a version has before it is made anew. */
#define MAX_SLOTS 56

/* Kinds of values that trees are made from. */
typedef enum Kind
{
	KIND_PLAIN,
	KIND_REMAINDER,
	KIND_FRAMES,				/* of 4 kB */
	KIND_SMALL_FRAMES			/* of 1 kB, so that few MB have three levels */
} Kind;

/* A value: its content, its stored bytes, its datum. */
typedef struct Model
{
	pg_prng_state random;
	char	   *content;
	uint64		size_bytes;
	char	   *stored;
	uint64		stored_bytes;	/* stored offset of the next byte */
	uint64		stored_room;
	BlobValue	value;
	struct varlena *datum;
	uint64		written_bytes;	/* by the last change */
} Model;

static uint64
pick(Model *model, uint64 low, uint64 high)
{
	return pg_prng_uint64_range(&model->random, low, high);
}

/* Content half of which can be compressed. */
static void
fill(Model *model, char *target, uint64 length_bytes)
{
	memset(target, (int) pick(model, 0, 255), length_bytes);
	for (uint64 at = 0; at < length_bytes; at += 64)
		for (uint64 i = at; i < Min(at + 24, length_bytes); i++)
			target[i] = (char) pick(model, 0, 255);
}

/* ---- stored bytes ---- */

/* A BlobFramerPut and BlobTreePut. */
static void
put(void *context, const char *bytes, uint64 length_bytes)
{
	Model	   *model = context;

	if (model->stored_bytes + length_bytes > model->stored_room)
	{
		model->stored_room = 2 * (model->stored_bytes + length_bytes);
		model->stored = model->stored == NULL ?
			MemoryContextAllocHuge(CurrentMemoryContext, model->stored_room) :
			repalloc_huge(model->stored, model->stored_room);
	}
	memcpy(model->stored + model->stored_bytes, bytes, length_bytes);
	model->stored_bytes += length_bytes;
	model->written_bytes += length_bytes;
}

/* A BlobMappingFetch: what lies in no extent of the value, or is new, is never asked for. */
static void
fetch(void *context, uint64 stored_offset, uint64 length_bytes, bool is_node, char *target)
{
	Model	   *model = context;
	const BlobDescriptor *descriptor = &model->value.descriptor;
	uint64		end = blob_mapping_stored_bytes(descriptor);

	if (stored_offset + length_bytes > end ||
		(descriptor->is_tree &&
		 !blob_descriptor_slots_hold(descriptor, stored_offset, length_bytes)))
		elog(ERROR, "stored bytes that the value does not have were asked for");
	memcpy(target, model->stored + stored_offset, length_bytes);
}

/* A BlobMappingFetchParts, which reads them in another order than that of the content. */
static void
fetch_parts(void *context, BlobStoredPart *parts, int count)
{
	CHECK(count > 1, "one part is fetched as one");
	while (count-- > 0)
		fetch(context, parts[count].offset, parts[count].length, false, parts[count].target);
}

/* One that fetches runs together, or one by one. */
static BlobMappingSource
get_source(Model *model)
{
	return (BlobMappingSource) {
		.fetch = fetch,
		.fetch_parts = pick(model, 0, 1) == 0 ? fetch_parts : NULL,
		.context = model,
		.is_past_buffer = true
	};
}

static void
set_datum(Model *model, struct varlena *datum)
{
	if (model->datum != NULL)
		pfree(model->datum);
	model->datum = datum;
	blob_value_unpack(datum, &model->value);
}

/* ---- values to begin with ---- */

static int
make_extents(uint64 pages, bool use_tail, BlobExtent *extents)
{
	BlobTierPlan plan = blob_tier_plan(pages, use_tail);
	int			count = plan.extent_count;

	memset(extents, 0, sizeof(BlobExtent) * (count + 1));
	for (int i = 0; i < count; i++)
	{
		extents[i].first_page = 1000000 * (i + 1);
		extents[i].pages = blob_tier_pages(i);
	}
	if (plan.tail_pages > 0)
	{
		extents[count].first_page = 77;
		extents[count].pages = plan.tail_pages;
		extents[count++].is_tail = true;
	}
	return count;
}

static struct varlena *
make_plain(Model *model, bool has_remainder)
{
	BlobDescriptor descriptor = {.size_bytes = model->size_bytes};
	BlobExtent	extents[60];
	int			count;

	put(model, model->content, model->size_bytes);
	if (has_remainder)
	{
		descriptor.remainder_bytes = (uint32) (model->size_bytes % BLOB_PAGE_SIZE);
		descriptor.remainder = model->content + model->size_bytes - descriptor.remainder_bytes;
	}
	count = make_extents(blob_pages_for(model->size_bytes - descriptor.remainder_bytes),
						 !has_remainder, extents);
	model->stored_bytes = model->size_bytes - descriptor.remainder_bytes;
	return blob_descriptor_pack(&descriptor, extents, count);
}

static struct varlena *
make_frames(Model *model, BlobMethod method, uint32 frame_bytes)
{
	BlobDescriptor descriptor = {.size_bytes = model->size_bytes, .is_compressed = true};
	BlobDescriptor base = {.compression.frame_bits = BLOB_FRAME_MIN_BITS};
	BlobExtent	extents[60];
	BlobFramer *framer;
	const BlobFrame *frames;
	const char *remainder;
	struct varlena *datum;

	base.compression.method = (uint8) method;
	framer = blob_framer_begin_with(&base, 0, put, model);
	for (uint64 at = 0; at < model->size_bytes; at += frame_bytes)
	{
		blob_framer_add(framer, model->content + at, Min(frame_bytes, model->size_bytes - at));
		if (model->size_bytes - at > frame_bytes)
			blob_framer_flush(framer);
	}
	descriptor.remainder_bytes = blob_framer_finish(framer, true, &remainder);
	descriptor.remainder = memcpy(palloc(BLOB_PAGE_SIZE), remainder, descriptor.remainder_bytes);
	frames = blob_framer_describe(framer, &descriptor.compression);
	descriptor.compression.stored_bytes = model->stored_bytes;
	datum = blob_compressed_pack(&descriptor, frames, extents,
								 make_extents(blob_pages_for(model->stored_bytes),
											  false, extents));
	blob_framer_free(framer);
	return datum;
}

/* Store the content anew. */
static void
store(Model *model, Kind kind, BlobMethod method)
{
	struct varlena *datum;

	model->stored_bytes = 0;
	if (kind == KIND_PLAIN || kind == KIND_REMAINDER)
		datum = make_plain(model, kind == KIND_REMAINDER);
	else
		datum = make_frames(model, method, kind == KIND_FRAMES ? 4096 : 1024);
	set_datum(model, datum);
}

/* ---- changes ---- */

/* One of several sizes: bytes, kB, and much. */
static uint64
pick_length(Model *model, uint64 most)
{
	static const uint64 limits[] = {0, 1, 200, 5000, 40000, 400000};

	uint64		limit = limits[pick(model, 0, lengthof(limits) - 1)];

	return pick(model, 0, Min(most, limit));
}

/* Make random edits of content and tree. */
static char *
edit(Model *model, BlobTree *tree, uint64 max_bytes, uint64 *size_bytes, uint64 *new_bytes)
{
	int			count = (int) pick(model, 1, 3);
	char	   *content = MemoryContextAllocHuge(CurrentMemoryContext,
												 model->size_bytes + 3 * 400000);
	uint64		position = 0;
	uint64		filled = 0;

	*new_bytes = 0;
	for (int i = 0; i <= count; i++)
	{
		uint64		to = i == count ? model->size_bytes :
			pick(model, position, model->size_bytes);
		uint64		inserted = model->size_bytes > max_bytes ? 0 : pick_length(model, 400000);

		/* Several keeps of one range, too. */
		if (pick(model, 0, 9) == 0)
		{
			uint64		middle = pick(model, position, to);

			blob_tree_keep(tree, position, middle);
			blob_tree_keep(tree, middle, to);
		}
		else
			blob_tree_keep(tree, position, to);
		memcpy(content + filled, model->content + position, to - position);
		filled += to - position;
		if (i == count)
			break;
		position = to + pick_length(model, model->size_bytes - to);
		fill(model, content + filled, inserted);
		blob_tree_add(tree, content + filled, inserted);
		filled += inserted;
		*new_bytes += inserted;
	}
	*size_bytes = filled;
	return content;
}

/* The slots of the new version: the last one goes on, or new ones follow. */
static int
make_slots(Model *model, const BlobTree *tree, uint64 new_start, bool goes_on, BlobSlot *slots)
{
	const BlobDescriptor *base = &model->value.descriptor;
	int			base_count = blob_descriptor_extent_count(base);
	uint64		start = 0;
	int			count = 0;
	int			kept = 0;

	for (int i = 0; i < base_count; i++)
	{
		BlobStoredExtent stored;

		blob_mapping_extent(base, i, start, &stored);
		start = stored.start + stored.bytes;
		slots[count++] = (BlobSlot) {
			.extent = stored.extent,
			.start = stored.start,
			.bytes = blob_pages_for(stored.bytes) * BLOB_PAGE_SIZE
		};
	}
	if (goes_on)
		slots[count - 1].bytes = model->stored_bytes - slots[count - 1].start;
	else if (model->stored_bytes > new_start)
	{
		uint64		pages = (model->stored_bytes - new_start) / BLOB_PAGE_SIZE;
		uint64		first = pick(model, 0, pages);

		if (first > 0)
			slots[count++] = (BlobSlot) {.start = new_start, .bytes = first * BLOB_PAGE_SIZE};
		if (first < pages)
			slots[count++] = (BlobSlot) {
				.start = new_start + first * BLOB_PAGE_SIZE,
				.bytes = (pages - first) * BLOB_PAGE_SIZE
			};
	}
	for (int i = 0; i < count; i++)
	{
		BlobSlot   *slot = &slots[i];

		if (slot->extent.is_tail && slot->bytes <= slot->extent.pages * BLOB_PAGE_SIZE)
			slot->tier = BLOB_SLOT_TAIL;
		else
		{
			slot->extent.is_tail = false;
			while (blob_tier_pages(slot->tier) * BLOB_PAGE_SIZE < slot->bytes)
				slot->tier++;
			slot->extent.pages = blob_tier_pages(slot->tier);
		}
		slot->live_bytes = blob_tree_live_bytes(tree, slot->start, slot->bytes);
		if (slot->live_bytes > 0)
			slots[kept++] = *slot;
	}
	return kept;
}

/* The shortest piece of a tree. */
static uint64
get_min_bytes(const BlobDescriptor *descriptor)
{
	return Min(BLOB_PIECE_MIN_BYTES, (UINT64CONST(1) << descriptor->compression.frame_bits) / 4);
}

/* Bytes that a change may write, with its own ones. */
static uint64
get_limit(const BlobDescriptor *descriptor, uint64 new_bytes)
{
	uint64		frame_bytes = UINT64CONST(1) << descriptor->compression.frame_bits;

	if (descriptor->compression.method == BLOB_METHOD_NONE)
		frame_bytes = get_min_bytes(descriptor);

	/* At each end of three edits a piece or two, and two paths. */
	return new_bytes + 6 * (2 * frame_bytes + 3 * BLOB_PAGE_SIZE * descriptor->compression.level) +
		4 * BLOB_PAGE_SIZE;
}

static void
change(Model *model, uint64 max_bytes)
{
	BlobMappingSource source = get_source(model);
	bool		was_tree = model->value.descriptor.is_tree;
	int			last_no = blob_descriptor_extent_count(&model->value.descriptor) - 1;
	bool		goes_on = !blob_descriptor_extent(&model->value.descriptor, last_no).is_tail &&
		pick(model, 0, 3) > 0;
	uint64		new_start = blob_pages_for(model->stored_bytes) * BLOB_PAGE_SIZE;
	BlobDescriptor descriptor = {.is_compressed = true, .is_tree = true};
	BlobSlot	slots[BLOB_TREE_MAX_SLOTS + 4];
	uint64		new_bytes;
	uint64		size_bytes;
	BlobTree   *tree;
	char	   *content;
	int			count;

	/* Pages of other versions lie between. */
	if (pick(model, 0, 3) == 0)
		new_start += pick(model, 1, 20) * BLOB_PAGE_SIZE;
	while (model->stored_bytes < new_start)
		put(model, "\xA5", 1);
	model->written_bytes = 0;
	tree = blob_tree_begin(&model->value.descriptor, &source, new_start, put, model);
	content = edit(model, tree, max_bytes, &size_bytes, &new_bytes);
	if (size_bytes == 0)
	{
		fill(model, content, 1);
		blob_tree_add(tree, content, ++size_bytes);
	}
	blob_tree_finish(tree, &descriptor.compression);
	CHECK(model->stored_bytes % BLOB_PAGE_SIZE == 0, "whole pages");
	descriptor.size_bytes = size_bytes;
	if (was_tree)
		CHECK(model->written_bytes <= get_limit(&descriptor, new_bytes),
			  UINT64_FORMAT " bytes were written for " UINT64_FORMAT " new ones",
			  model->written_bytes, new_bytes);
	count = make_slots(model, tree, new_start, goes_on, slots);
	blob_tree_free(tree);
	CHECK(count <= BLOB_TREE_MAX_SLOTS, "%d slots", count);
	set_datum(model, blob_tree_pack(&descriptor, slots, count));
	model->stored_bytes = blob_mapping_stored_bytes(&model->value.descriptor);
	pfree(model->content);
	model->content = content;
	model->size_bytes = size_bytes;
}

/* ---- checks ---- */

typedef struct Walk
{
	Model	   *model;
	uint64		found[BLOB_TREE_MAX_SLOTS];
	uint64		pieces;
	uint64		shortest;
} Walk;

static void
count_found(Walk *walk, uint64 offset, uint64 bytes)
{
	const BlobDescriptor *descriptor = &walk->model->value.descriptor;

	for (int i = 0; i < descriptor->slot_count; i++)
	{
		BlobSlot	slot = blob_descriptor_slot(descriptor, i);
		uint64		from = Max(offset, slot.start);
		uint64		to = Min(offset + bytes, slot.start + slot.bytes);

		if (from < to)
			walk->found[i] += to - from;
	}
}

static void
walk_node(Walk *walk, const BlobNodeEntry *entry, int level, bool is_root)
{
	const BlobDescriptor *descriptor = &walk->model->value.descriptor;
	BlobMappingSource source = get_source(walk->model);
	uint8	   *page = palloc(BLOB_PAGE_SIZE);
	BlobNode	node;

	blob_frames_read_node(descriptor, &source, entry, level, page, &node);
	count_found(walk, entry->stored_offset, BLOB_PAGE_SIZE);
	CHECK(is_root ? level == 1 || node.entry_count > 1 :
		  node.entry_count >= BLOB_EDGE_MIN_ENTRIES,
		  "a node of level %d has %d entries", level, node.entry_count);
	for (int i = 0; i < node.entry_count; i++)
	{
		BlobNodeEntry below;
		BlobFrame	piece;

		if (level > 1)
		{
			blob_frames_node_entry(descriptor, page, i, &below);
			walk_node(walk, &below, level - 1, false);
			continue;
		}
		blob_frames_node_frame(descriptor, page, i, &piece);
		count_found(walk, piece.stored_offset, piece.stored_bytes);
		walk->pieces++;
		walk->shortest = Min(walk->shortest, piece.content_bytes);
	}
	pfree(page);
}

static void
check_tree(Model *model)
{
	const BlobDescriptor *descriptor = &model->value.descriptor;
	BlobNodeEntry root = blob_frames_root(descriptor);
	Walk	   *walk = palloc0(sizeof(Walk));

	walk->model = model;
	walk->shortest = PG_UINT64_MAX;
	walk_node(walk, &root, descriptor->compression.level, true);
	CHECK(walk->pieces == descriptor->compression.frame_count, "number of pieces");
	CHECK(walk->pieces == 1 || walk->shortest >= get_min_bytes(descriptor),
		  "a piece of " UINT64_FORMAT " bytes", walk->shortest);
	for (int i = 0; i < descriptor->slot_count; i++)
		CHECK(blob_descriptor_slot(descriptor, i).live_bytes == walk->found[i],
			  "slot %d: " UINT64_FORMAT " live bytes, found " UINT64_FORMAT, i,
			  blob_descriptor_slot(descriptor, i).live_bytes, walk->found[i]);
	pfree(walk);
}

static void
check_content(Model *model)
{
	const BlobDescriptor *descriptor = &model->value.descriptor;
	BlobMappingSource source = get_source(model);
	char	   *content = MemoryContextAllocHuge(CurrentMemoryContext, model->size_bytes);

	CHECK(model->value.size_bytes == model->size_bytes, "size");
	blob_mapping_read(descriptor, 0, model->size_bytes, content, &source);
	CHECK(memcmp(content, model->content, model->size_bytes) == 0, "content");
	for (int i = 0; i < 5; i++)
	{
		uint64		from = pick(model, 0, model->size_bytes);
		uint64		length = pick(model, 0, Min(100000, model->size_bytes - from));

		blob_mapping_read(descriptor, from, length, content, &source);
		CHECK(memcmp(content, model->content + from, length) == 0, "a range");
	}
	pfree(content);
}

static void
check_copy(Model *model)
{
	struct varlena *copy = blob_descriptor_copy(&model->value.descriptor);

	CHECK(VARSIZE_ANY(copy) == VARSIZE_ANY(model->datum) &&
		  memcmp(copy, model->datum, VARSIZE_ANY(copy)) == 0, "a copy is the same");
	pfree(copy);
}

/* Change a value a number of times.  Returns the most levels that it had. */
static int
run(uint64 seed, Kind kind, BlobMethod method, uint64 size_bytes, int count)
{
	Model		model = {.size_bytes = size_bytes};
	int			level = 0;

	pg_prng_seed(&model.random, seed);
	model.content = MemoryContextAllocHuge(CurrentMemoryContext, size_bytes);
	fill(&model, model.content, size_bytes);
	store(&model, kind, method);
	check_content(&model);
	for (int i = 0; i < count; i++)
	{
		change(&model, size_bytes * 3 / 2);
		check_tree(&model);
		check_content(&model);
		check_copy(&model);
		level = Max(level, model.value.descriptor.compression.level);
		if (blob_descriptor_extent_count(&model.value.descriptor) > MAX_SLOTS ||
			model.size_bytes < size_bytes / 4)
		{
			if (model.size_bytes < size_bytes / 4)
			{
				pfree(model.content);
				model.size_bytes = pick(&model, size_bytes / 2, size_bytes);
				model.content = MemoryContextAllocHuge(CurrentMemoryContext, model.size_bytes);
				fill(&model, model.content, model.size_bytes);
			}
			store(&model, kind, method);
		}
	}
	pfree(model.content);
	pfree(model.stored);
	pfree(model.datum);
	return level;
}

/* ---- the form ---- */

static bool
is_refused(const struct varlena *datum)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool refused = false;
	BlobValue	value;

	PG_TRY();
	{
		blob_value_unpack(datum, &value);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		refused = true;
	}
	PG_END_TRY();
	return refused;
}

/* A copy of the datum with another integer in it. */
static struct varlena *
with_field(const struct varlena *datum, int at, int bytes, uint64 number)
{
	struct varlena *copy = memcpy(palloc(VARSIZE_ANY(datum)), datum, VARSIZE_ANY(datum));

	for (int i = 0; i < bytes; i++)
		((uint8 *) VARDATA(copy))[at + i] = (uint8) (number >> 8 * i);
	return copy;
}

/* Three slots: a tier, a tail, a tier behind a gap. */
static struct varlena *
make_form(void)
{
	BlobDescriptor descriptor = {
		.size_bytes = 100000,
		.is_compressed = true,
		.is_tree = true,
		.compression = {
			.frame_bits = BLOB_FRAME_BITS, .level = 2, .root_offset = 40 * BLOB_PAGE_SIZE,
			.frame_count = 5
		}
	};
	BlobSlot	slots[] = {
		{.extent = {.first_page = 1000, .pages = 8}, .tier = 3, .start = 0,
		.bytes = 8 * BLOB_PAGE_SIZE, .live_bytes = 4000},
		{.extent = {.first_page = 2000, .pages = 7, .is_tail = true}, .tier = BLOB_SLOT_TAIL,
		.start = 8 * BLOB_PAGE_SIZE, .bytes = 5 * BLOB_PAGE_SIZE, .live_bytes = 1},
		{.extent = {.first_page = BLOB_MAX_PAGE_NO, .pages = 64}, .tier = 6,
		.start = 40 * BLOB_PAGE_SIZE, .bytes = 2 * BLOB_PAGE_SIZE,
		.live_bytes = 2 * BLOB_PAGE_SIZE}
	};

	return blob_tree_pack(&descriptor, slots, lengthof(slots));
}

/* The fields of one datum, and those that contradict each other. */
UNIT_TEST(unit_tree_form)
{
	struct varlena *datum = make_form();
	BlobValue	value;
	BlobSlot	slot;
	int			slots_at = BLOB_DESCRIPTOR_COMPRESSED_FIXED_BYTES;
	int			last_at = slots_at + 2 * BLOB_SLOT_BYTES;
	uint64		page_limit = (UINT64CONST(1) << 48) / BLOB_PAGE_SIZE;

	blob_value_unpack(datum, &value);
	CHECK(blob_descriptor_extent_count(&value.descriptor) == 3, "slots");
	slot = blob_descriptor_slot(&value.descriptor, 1);
	CHECK(slot.extent.is_tail && slot.extent.pages == 7 && slot.extent.first_page == 2000 &&
		  slot.start == 8 * BLOB_PAGE_SIZE && slot.bytes == 5 * BLOB_PAGE_SIZE &&
		  slot.live_bytes == 1, "a tail");
	slot = blob_descriptor_slot(&value.descriptor, 2);
	CHECK(!slot.extent.is_tail && slot.extent.pages == 64 && slot.tier == 6, "a tier");
	CHECK(blob_descriptor_slots_hold(&value.descriptor, 8 * BLOB_PAGE_SIZE - 1, 2), "two slots");
	CHECK(!blob_descriptor_slots_hold(&value.descriptor, 13 * BLOB_PAGE_SIZE - 1, 2), "a gap");
	CHECK(blob_mapping_stored_bytes(&value.descriptor) == 42 * BLOB_PAGE_SIZE, "stored bytes");
	for (Size length = VARHDRSZ + 1; length < VARSIZE_ANY(datum); length++)
	{
		struct varlena *cut = memcpy(palloc(length), datum, length);

		SET_VARSIZE(cut, length);
		CHECK(is_refused(cut), "length %d", (int) length);
		pfree(cut);
	}
	for (int i = 116; i < slots_at; i++)
	{
		/* Reserved bytes. */
		if (i < 122 || (i >= 128 && i < 152) || (i >= 155 && i < 158) || i >= 172)
			CHECK(is_refused(with_field(datum, i, 1, 1)), "reserved byte %d", i);
	}
	CHECK(is_refused(with_field(datum, 1, 1, BLOB_FLAG_TAIL | BLOB_FLAG_REMAINDER_PAGE)), "flags");
	CHECK(is_refused(with_field(datum, 1, 1, 0)), "a tail without its flag");
	CHECK(is_refused(with_field(datum, 2, 2, 2)), "fewer slots");
	CHECK(is_refused(with_field(datum, 2, 2, 0)), "no slots");
	CHECK(is_refused(with_field(datum, 12, 8, 0)), "no content");
	CHECK(is_refused(with_field(datum, 12, 8, 4)), "more pieces than content");
	CHECK(is_refused(with_field(datum, 12, 8, PG_INT64_MAX)), "fewer than runs can hold");
	CHECK(is_refused(with_field(datum, 122, 6, 0)), "a tail without pages");
	CHECK(is_refused(with_field(datum, 122, 6, 4)), "a tail that is too short");
	CHECK(is_refused(with_field(datum, 153, 1, BLOB_FRAME_MIN_BITS - 1)), "bits");
	CHECK(is_refused(with_field(datum, 153, 1, BLOB_FRAME_MAX_BITS + 1)), "bits");
	CHECK(is_refused(with_field(datum, 154, 1, 0)), "no directory");
	CHECK(is_refused(with_field(datum, 154, 1, BLOB_NODE_MAX_LEVEL + 1)), "level");
	CHECK(is_refused(with_field(datum, 158, 6, 40 * BLOB_PAGE_SIZE + 1)), "a root in a page");
	CHECK(is_refused(with_field(datum, 158, 6, 20 * BLOB_PAGE_SIZE)), "a root in a gap");
	CHECK(is_refused(with_field(datum, 158, 6, 42 * BLOB_PAGE_SIZE)), "a root behind");
	CHECK(is_refused(with_field(datum, 164, 8, 0)), "no pieces");
	CHECK(is_refused(with_field(datum, slots_at + 24, 1, BLOB_TIER_COUNT)), "tier");
	CHECK(is_refused(with_field(datum, slots_at + 24, 1, 2)), "a tier that is too short");
	CHECK(!is_refused(with_field(datum, 122, 6, 8)), "a tail of eight pages");
	CHECK(is_refused(with_field(with_field(datum, 122, 6, 8), slots_at + 24, 1, BLOB_SLOT_TAIL)),
		  "two tails");
	CHECK(is_refused(with_field(datum, slots_at + BLOB_SLOT_BYTES + 24, 1, 5)), "no tail");
	CHECK(is_refused(with_field(datum, slots_at + 6, 6, 1)), "slots that overlap");
	CHECK(is_refused(with_field(datum, slots_at + 12, 6, 0)), "a slot without pages");
	CHECK(is_refused(with_field(datum, slots_at + 18, 6, 0)), "a slot without live bytes");
	CHECK(is_refused(with_field(datum, last_at + 18, 6, 2 * BLOB_PAGE_SIZE + 1)), "live bytes");
	CHECK(is_refused(with_field(with_field(datum, last_at + 6, 6, page_limit - 1), 158, 6,
								(page_limit - 1) * BLOB_PAGE_SIZE)), "offsets of 49 bits");
	CHECK(!is_refused(with_field(with_field(datum, last_at + 6, 6, page_limit - 2), 158, 6,
								 (page_limit - 2) * BLOB_PAGE_SIZE)), "offsets of 48 bits");
	CHECK(!is_refused(with_field(datum, 152, 1, 200)), "a method to come");
}

/* A value whose digest is open, its key and its identity, and what sealing makes of it. */
UNIT_TEST(unit_tree_open)
{
	int			flags = BLOB_FLAG_TAIL | BLOB_FLAG_DIGEST_OPEN | BLOB_FLAG_DIGEST_DEFERRED;
	struct varlena *open = with_field(with_field(make_form(), 1, 1, flags), 4, 8, 12345);
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint8		state[BLOB_DIGEST_BYTES];
	uint8		identity[BLOB_DIGEST_BYTES];
	BlobValue	value;
	BlobKey		key;

	memset(sha256, 0xAA, sizeof(sha256));
	memset(state, 0xBB, sizeof(state));
	blob_value_unpack(open, &value);
	blob_key_load(open, &key);
	CHECK(value.descriptor.is_open && value.descriptor.defers_digest, "flags");
	CHECK(key.kind == BLOB_KEY_OPEN && key.sealed_digest == NULL, "key");
	blob_descriptor_identity(&value.descriptor, identity);
	CHECK(identity[0] == (12345 & 0xFF) && identity[1] == 12345 >> 8 && identity[31] == 0,
		  "identity");
	for (int at = 20; at < 84; at++)
		CHECK(is_refused(with_field(open, at, 1, 1)), "byte %d of an open digest", at);
	CHECK(memcmp(blob_descriptor_copy(&value.descriptor), open, VARSIZE_ANY(open)) == 0, "copy");

	open = blob_descriptor_seal(open, sha256, state);
	blob_value_unpack(open, &value);
	blob_key_load(open, &key);
	CHECK(!value.descriptor.is_open && !value.descriptor.defers_digest, "flags of a sealed one");
	CHECK(key.kind == BLOB_KEY_SEALED && key.sealed_digest[31] == 0xAA, "key of a sealed one");
	CHECK(memcmp(value.descriptor.state, state, sizeof(state)) == 0, "state");
	CHECK(!blob_datum_defers_digest(open), "no permission");
	blob_datum_set_defers_digest(open, true);
	CHECK(blob_datum_defers_digest(open), "permission");
	blob_datum_set_defers_digest(open, false);
	CHECK(!blob_datum_defers_digest(open), "permission that is taken away");
}

/* Arguments: seed, number of changes for each kind of base. */
UNIT_TEST(unit_tree)
{
	uint64		seed = (uint64) PG_GETARG_INT64(0);
	int			count = (int) PG_GETARG_INT64(1);

	(void) run(seed, KIND_PLAIN, BLOB_METHOD_NONE, 3000000, count);
	(void) run(seed + 1, KIND_REMAINDER, BLOB_METHOD_NONE, 2999998, count);
	(void) run(seed + 2, KIND_REMAINDER, BLOB_METHOD_NONE, 40000, count);
	(void) run(seed + 3, KIND_FRAMES, BLOB_METHOD_NONE, 2000000, count);
#ifdef BLOB_WITH_LZ4
	(void) run(seed + 4, KIND_FRAMES, BLOB_METHOD_LZ4, 2000000, count);
#endif
#ifdef BLOB_WITH_ZSTD
	(void) run(seed + 5, KIND_FRAMES, BLOB_METHOD_ZSTD, 1000000, count / 2);
#endif
	/* More than 169 leaves. */
	CHECK(run(seed + 6, KIND_SMALL_FRAMES, BLOB_METHOD_NONE, 31000000, count / 4) == 3,
		  "three levels");
}
