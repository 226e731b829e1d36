/*
 * blob/page_writer.c
 *	  The extents of a value that is being written, see blob/page_writer.h, and "Growth" in the
 *	  README of this folder.
 *
 * Extents are allocated, and room in them is claimed, in the map and in the WAL before they are
 * written.  So after a crash no page that an index key names is free in the map.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "blob/blob.h"
#include "blob/complete.h"
#include "blob/mapping.h"
#include "blob/page_writer.h"
#include "blob/reader.h"
#include "blob/seal.h"
#include "core/settings.h"
#include "io/buffer.h"
#include "miscadmin.h"
#include "store/disk_room.h"
#include "store/store.h"

/* Stored bytes are copied in steps of this number. */
#define COPY_STEP_BYTES (1024 * 1024)

/*
 * The extents that a value is expected to need are allocated in steps of this many bytes, or of one
 * extent if that is larger.  So a writer that fails half way has not taken the disk.
 */
#define STEP_BYTES (UINT64CONST(128) * 1024 * 1024)
#define STEP_PAGES (STEP_BYTES / BLOB_PAGE_SIZE)

bool
blob_may_allocate(void)
{
	return !XactReadOnly && !RecoveryInProgress() && !IsParallelWorker() &&
		(!IsInParallelMode() || TransactionIdIsValid(GetTopTransactionIdIfAny()));
}

void
blob_require_allocation(void)
{
	if (!blob_may_allocate())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot make a large blobstate value here"),
				 errdetail("Content over blobext.inline_limit is written to extents, which a "
						   "read-only transaction, a standby or a parallel worker cannot do.")));
}

void
blob_page_writer_begin(BlobPageWriter *writer, MemoryContext context)
{
	writer->context = context;
}

/* Open the store to write, and begin the draft. */
static void
open_store(BlobPageWriter *writer, BlobStore *store)
{
	if (writer->draft != NULL)
	{
		blob_store_open_same(store, RowExclusiveLock, &writer->store);
		return;
	}
	blob_store_open(store, RowExclusiveLock);
	writer->draft = blob_draft_begin(writer->context);
	writer->store = store->id;
}

/* The array grows in the writer's context. */
BlobWriterExtent *
blob_page_writer_add_extent(BlobPageWriter *writer)
{
	BlobWriterExtent *added;

	if (writer->extent_count == writer->extent_capacity)
	{
		writer->extent_capacity = Max(16, writer->extent_capacity * 2);
		if (writer->extents == NULL)
			writer->extents = MemoryContextAlloc(writer->context, writer->extent_capacity *
												 sizeof(BlobWriterExtent));
		else
			writer->extents = repalloc(writer->extents, writer->extent_capacity *
									   sizeof(BlobWriterExtent));
	}
	added = &writer->extents[writer->extent_count++];
	memset(added, 0, sizeof(*added));
	return added;
}

void
blob_page_writer_add_run(BlobPageWriter *writer, const BlobExtent *extent, uint64 page_in_extent,
						 uint64 pages)
{
	BlobWriteRun *run;

	if (writer->run_count == writer->run_capacity)
	{
		writer->run_capacity = Max(16, writer->run_capacity * 2);
		if (writer->runs == NULL)
			writer->runs = MemoryContextAlloc(writer->context, writer->run_capacity *
											  sizeof(BlobWriteRun));
		else
			writer->runs = repalloc(writer->runs, writer->run_capacity * sizeof(BlobWriteRun));
	}
	run = &writer->runs[writer->run_count++];
	run->extent = *extent;
	run->page_in_extent = page_in_extent;
	run->pages = pages;
}

/* How many of the first count extents have the size of a tier. */
static int
count_tiers(const BlobPageWriter *writer, int count)
{
	int			tiers = 0;

	for (int i = 0; i < count; i++)
		tiers += !writer->extents[i].extent.is_tail;
	return tiers;
}

uint64
blob_page_writer_taken_pages(const BlobPageWriter *writer)
{
	uint64		pages = 0;

	for (int i = 0; i < writer->run_count; i++)
		pages += writer->runs[i].pages;
	return pages;
}

/*
 * Leave the end of a plan for the next step, which makes the same extents.  A tail goes last; it is
 * never longer than the extent of a tier in its place would be.
 */
static void
cut_to_step(BlobTierPlan *plan)
{
	if (plan->total_pages > STEP_PAGES && plan->extent_count > 0)
	{
		plan->total_pages -= plan->tail_pages;
		plan->tail_pages = 0;
	}
	while (plan->total_pages > STEP_PAGES && plan->extent_count > 1)
	{
		plan->extent_count--;
		plan->total_pages -= blob_tier_pages(plan->first_extent_no + plan->extent_count);
	}
}

/*
 * Allocate extents for this number of pages, which are written at once and so are claimed.  The
 * same plan includes the pages that are expected later, or the first step of them.  If
 * fits_exactly, no more pages will come.  ERROR 53100 if the store has no room.
 */
static void
allocate(BlobPageWriter *writer, BlobStore *store, uint64 pages, bool fits_exactly)
{
	uint64		taken_bytes = writer->stored_bytes +
		blob_page_writer_taken_pages(writer) * BLOB_PAGE_SIZE;
	uint64		expected = blob_pages_for(writer->expected_bytes -
										  Min(writer->expected_bytes, taken_bytes));
	uint64		wanted = Max(pages, expected);
	uint64		claimed = writer->keeps_room ? pages : wanted;
	uint64		whole_pages;
	bool		use_tail = blob_tail_extents && !writer->keeps_room && !writer->has_tail &&
		(fits_exactly || (expected > 0 && !writer->is_estimated));
	BlobTierPlan plan = blob_tier_plan_from(count_tiers(writer, writer->extent_count), wanted,
											use_tail);
	BlobExtent *extents;
	int			count;

	whole_pages = plan.total_pages;
	cut_to_step(&plan);
	claimed = Min(claimed, plan.total_pages);
	if (plan.total_pages < whole_pages && !writer->has_room)
		blob_store_require_room(store, whole_pages);
	/* Before the store grows: it would keep what it has grown by. */
	if (blob_wal_logs_content())
		blob_disk_room_require_for_wal(whole_pages * BLOB_PAGE_SIZE);
	writer->has_room = true;

	extents = palloc(sizeof(BlobExtent) * (plan.extent_count + 1));
	count = blob_store_allocate(store, &plan, claimed * BLOB_PAGE_SIZE, writer->draft, extents);
	for (int i = 0; i < count; i++)
	{
		BlobWriterExtent *added = blob_page_writer_add_extent(writer);

		added->extent = extents[i];
		added->claimed_pages = Min(claimed, extents[i].pages);
		claimed -= added->claimed_pages;
		writer->generation = Max(writer->generation, extents[i].generation);
		writer->has_tail |= extents[i].is_tail;
	}
	pfree(extents);
}

/*
 * The claim is lost: the room behind the value's end belongs to another version.  Copy the stored
 * bytes that this value has in its last extent to a new extent of the same size, in which
 * more_pages more pages are claimed.  Reads the base, and may throw the errors of a read.
 */
static void
copy_last_extent(BlobPageWriter *writer, BlobStore *store, uint64 more_pages)
{
	BlobWriterExtent *last = &writer->extents[writer->current];
	uint64		bytes = last->used_pages * BLOB_PAGE_SIZE;
	uint64		start = writer->stored_bytes - bytes;
	BlobTierPlan plan = {
		.first_extent_no = count_tiers(writer, writer->current),
		.extent_count = 1,
		.total_pages = last->extent.pages
	};
	BlobExtent	copy[1];
	uint64		claimed = Min(last->extent.pages, last->used_pages + more_pages);
	uint64		step = Min(bytes, COPY_STEP_BYTES);
	char	   *content = palloc(Max(step, 1));
	BlobReader	reader;

	blob_seal_require_sound_copy(&writer->base);
	blob_reader_begin(&reader, &writer->base, BLOB_READER_PAST_BUFFER);
	blob_store_allocate(store, &plan, claimed * BLOB_PAGE_SIZE, writer->draft, copy);
	for (uint64 done = 0; done < bytes; done += step)
	{
		uint64		step_bytes = Min(step, bytes - done);
		BlobWriteRun run = {
			.extent = copy[0],
			.page_in_extent = done / BLOB_PAGE_SIZE,
			.pages = step_bytes / BLOB_PAGE_SIZE
		};
		BlobPut		put = {
			.store = &store->id,
			.map = store->map,
			.runs = &run,
			.run_count = 1,
			.first = content,
			.first_bytes = step_bytes,
			.total_bytes = step_bytes
		};

		blob_reader_read_stored(&reader, start + done, step_bytes, content);
		blob_pipeline_put(&writer->pipeline, &put);
	}
	blob_reader_end(&reader);
	pfree(content);
	last->extent = copy[0];
	last->claimed_pages = claimed;
	last->is_shared = false;
	writer->generation = Max(writer->generation, copy[0].generation);
}

/*
 * Claim this number of pages behind the used ones of the current extent, unless that was done.  If
 * the claim is lost, the extent becomes a copy.  ERROR XB001 if the base is stale.
 */
static void
claim(BlobPageWriter *writer, BlobStore *store, uint64 pages)
{
	BlobWriterExtent *current = &writer->extents[writer->current];
	uint64		to_pages = current->used_pages + pages;
	BlobGeneration max_generation = current->is_shared ? writer->base.descriptor.generation :
		current->extent.generation;

	if (to_pages <= current->claimed_pages)
		return;
	switch (blob_store_claim(store, &current->extent, max_generation,
							 current->claimed_pages * BLOB_PAGE_SIZE,
							 to_pages * BLOB_PAGE_SIZE))
	{
		case BLOB_CLAIM_WON:
			current->claimed_pages = to_pages;
			break;
		case BLOB_CLAIM_LOST:
			copy_last_extent(writer, store, pages);
			break;
		case BLOB_CLAIM_STALE:
			if (current->is_shared)
				blob_require_extent(&writer->base.descriptor, writer->current);
			elog(ERROR, "extent %d of a value changed its state", writer->current);
	}
}

/* Unused pages of the extents from the current one on. */
static uint64
pages_left(const BlobPageWriter *writer)
{
	uint64		pages = 0;

	for (int i = writer->current; i < writer->extent_count; i++)
		pages += writer->extents[i].extent.pages - writer->extents[i].used_pages;
	return pages;
}

bool
blob_page_writer_ends_behind_tail(const BlobPageWriter *writer, uint64 last_pages)
{
	return writer->has_tail && (pages_left(writer) < last_pages ||
								!writer->extents[writer->extent_count - 1].extent.is_tail);
}

/* Choose the next pages of the value, as runs; allocates and claims as needed. */
static void
take_pages(BlobPageWriter *writer, BlobStore *store, uint64 pages, bool fits_exactly)
{
	while (pages > 0)
	{
		BlobWriterExtent *current = &writer->extents[writer->current];
		uint64		taken;

		if (writer->current == writer->extent_count)
		{
			allocate(writer, store, pages, fits_exactly);
			continue;
		}
		/* The pages of a shared tail behind the end of the base belong to another version. */
		if (current->used_pages == current->extent.pages ||
			(current->is_shared && current->extent.is_tail))
		{
			writer->current++;
			continue;
		}
		taken = Min(pages, current->extent.pages - current->used_pages);
		claim(writer, store, taken);
		blob_page_writer_add_run(writer, &current->extent, current->used_pages, taken);
		current->used_pages += taken;
		pages -= taken;
	}
}

/*
 * Allocate a page for the remainder, because it is too long for the datum, or because the value has
 * no other page.
 */
static void
take_remainder_page(BlobPageWriter *writer, BlobStore *store)
{
	BlobTierPlan plan = {.tail_pages = 1, .total_pages = 1};
	BlobExtent	extent[1];

	blob_store_allocate(store, &plan, BLOB_PAGE_SIZE, writer->draft, extent);
	blob_page_writer_add_run(writer, &extent[0], 0, 1);
	writer->has_remainder_page = true;
	writer->remainder_page = extent[0].first_page;
	writer->generation = Max(writer->generation, extent[0].generation);
}

void
blob_page_writer_store(BlobPageWriter *writer, BlobPageStep *step)
{
	BlobStore	store;

	blob_require_allocation();
	(void) GetTopTransactionId();
	/* Before the store grows: some kernels let fallocate() wait for such writes, and never end. */
	blob_pipeline_wait(&writer->pipeline);
	open_store(writer, &store);
	writer->run_count = 0;
	if (writer->take != NULL)
		writer->take(writer, &store, step->pages);
	else
		take_pages(writer, &store, step->pages, step->is_last);
	if (step->wants_remainder_page)
		take_remainder_page(writer, &store);
	step->put.store = &store.id;
	step->put.map = store.map;
	step->put.runs = writer->runs;
	step->put.run_count = writer->run_count;
	if (step->put.total_bytes > 0)
		blob_pipeline_put(&writer->pipeline, &step->put);
	blob_store_close(&store);
	writer->stored_bytes += step->pages * BLOB_PAGE_SIZE;
}

void
blob_page_writer_share(BlobPageWriter *writer, uint64 keep_pages)
{
	const BlobDescriptor *descriptor = &writer->base.descriptor;
	uint64		start = 0;

	for (int i = 0; start < keep_pages * BLOB_PAGE_SIZE; i++)
	{
		BlobStoredExtent stored;
		BlobWriterExtent *added = blob_page_writer_add_extent(writer);

		blob_mapping_extent(descriptor, i, start, &stored);

		/*
		 * Extents without pages are left out of a value, and blob_complete() verifies the shared
		 * ones by their numbers in the base.  So the numbers must agree.  No value has such an
		 * extent.
		 */
		if (stored.bytes < BLOB_PAGE_SIZE)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("invalid blobstate value"),
					 errdetail("Extent %d has no page of the value.", i)));
		added->extent = stored.extent;
		added->used_pages = Min(stored.bytes / BLOB_PAGE_SIZE,
								keep_pages - start / BLOB_PAGE_SIZE);
		added->claimed_pages = added->used_pages;
		added->is_shared = true;
		writer->has_tail |= added->extent.is_tail;
		start += stored.bytes;
	}
	writer->current = Max(writer->extent_count - 1, 0);
	writer->generation = descriptor->generation;
	writer->stored_bytes = keep_pages * BLOB_PAGE_SIZE;
}

/* Extents that were expected to be needed, and were not, remain in the draft. */
void
blob_page_writer_complete_draft(BlobPageWriter *writer)
{
	for (int i = 0; i < writer->extent_count; i++)
	{
		if (writer->extents[i].used_pages == 0 && !writer->extents[i].is_shared)
			blob_draft_drop(writer->draft, writer->extents[i].extent.generation);
	}
	if (writer->draft != NULL)
		blob_draft_complete(writer->draft);
	writer->draft = NULL;
}

/* Cut the last extent to a tail of just the pages that are used, if tails are in use. */
static void
fit_last_extent(BlobPageWriter *writer)
{
	BlobWriterExtent *last = &writer->extents[writer->current];
	BlobStore	store;

	if (last->used_pages == last->extent.pages || !blob_tail_extents)
		return;
	open_store(writer, &store);
	/* Readers of the shorter extent look for chunks of another size. */
	if (blob_buffer_chunk_bytes(last->used_pages) != blob_buffer_chunk_bytes(last->extent.pages))
		blob_buffer_flush_extent(&store.id, &last->extent);
	blob_store_trim(&store, &last->extent, last->used_pages);
	blob_store_close(&store);
}

struct varlena *
blob_page_writer_complete(BlobPageWriter *writer, BlobDescriptor *descriptor,
						  const BlobFrame *frames)
{
	BlobExtent *extents = palloc(sizeof(BlobExtent) * (writer->extent_count + 1));
	bool	   *is_shared = palloc0(sizeof(bool) * (writer->extent_count + 1));
	int			count = 0;
	struct varlena *datum;

	if (!writer->keeps_room)
		fit_last_extent(writer);
	descriptor->generation = writer->generation;
	descriptor->has_remainder_page = writer->has_remainder_page;
	descriptor->remainder_page = writer->remainder_page;
	descriptor->compression.stored_bytes = writer->stored_bytes;
	if (descriptor->is_compressed && descriptor->has_remainder_page)
	{
		descriptor->compression.has_remainder_crc = true;
		descriptor->compression.remainder_crc =
			blob_frame_checksum(descriptor->remainder, descriptor->remainder_bytes);
	}
	for (int i = 0; i < writer->extent_count; i++)
	{
		if (writer->extents[i].used_pages == 0)
			continue;
		is_shared[count] = writer->extents[i].is_shared;
		extents[count++] = writer->extents[i].extent;
		if (writer->extents[i].extent.is_tail)
			descriptor->tail_content_pages = writer->extents[i].used_pages;
	}
	datum = blob_complete(descriptor, frames, extents, count, &writer->base.descriptor, is_shared);
	pfree(extents);
	pfree(is_shared);
	blob_page_writer_complete_draft(writer);
	return datum;
}

void
blob_page_writer_end(BlobPageWriter *writer)
{
	if (writer->draft != NULL)
		blob_draft_abandon(writer->draft);
	if (writer->extents != NULL)
		pfree(writer->extents);
	if (writer->runs != NULL)
		pfree(writer->runs);
}
