/*
 * blob/writer.c
 *	  Values of any size, written piece by piece; see blob/writer.h, and "Growth" in the README of
 *	  this folder.
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
#include "blob/reader.h"
#include "blob/writer.h"
#include "core/settings.h"
#include "extents/pipeline.h"
#include "io/buffer.h"
#include "io/disk_room.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "store/store.h"

/* Bytes are buffered up to this number; blobext.inline_limit is never larger. */
#define BUFFER_BYTES (1024 * 1024)
#define MIN_BUFFER_BYTES (8 * 1024)

/*
 * The extents that a value is expected to need are allocated in steps of this many bytes, or of one
 * extent if that is larger.  So a writer that fails half way has not taken the disk.  Content in
 * memory is written in such steps, too.
 */
#define STEP_BYTES (UINT64CONST(128) * 1024 * 1024)
#define STEP_PAGES (STEP_BYTES / BLOB_PAGE_SIZE)

/* An extent of the value, in the order of its content. */
typedef struct WriterExtent
{
	BlobExtent	extent;
	uint64		used_pages;		/* pages with content of this value */
	uint64		claimed_pages;	/* to its high-water mark, if this writer has set it */
	bool		is_shared;		/* with the base */
} WriterExtent;

struct BlobWriter
{
	MemoryContext context;
	BlobDraft  *draft;			/* NULL before the first allocation */
	BlobStoreId store;			/* of the draft */
	bool		keeps_room;		/* ends with a remainder; else the last extent fits */
	bool		has_tail;		/* among the extents */
	bool		has_room;		/* the store had room for expected_bytes when asked */
	uint64		expected_bytes; /* of the whole content; 0: unknown */
	uint64		size_bytes;		/* content so far: */
	uint64		stored_bytes;	/* in extents: where the next page goes */
	uint64		hashed_bytes;	/* of the content */
	uint64		written_bytes;	/* by this writer, for statistics */
	BlobDigest	digest;
	uint8		prefix[BLOB_PREFIX_BYTES];
	BlobGeneration generation;	/* the largest */
	BlobValue	base;			/* the value that this one shares extents with */
	WriterExtent *extents;
	int			extent_count;
	int			extent_capacity;
	int			current;		/* the extent that is being filled */
	BlobWriteRun *runs;			/* pages to be written by the current call */
	int			run_count;
	int			run_capacity;
	bool		has_remainder_page;
	BlobPageNo	remainder_page;
	char	   *buffer;
	uint32		buffered_bytes;
	uint32		buffer_capacity;
};

/* The content offset of the first byte of the buffer: all content before it is stored. */
static uint64
buffer_offset(const BlobWriter *writer)
{
	return blob_mapping_content_offset(writer->stored_bytes);
}

/* ---- extents ---- */

/*
 * Open the store to write, and begin the draft.  Locks the map in RowExclusive mode until the store
 * is closed.  Between two calls nothing is locked.  So the extension may have been dropped and
 * created again: then the pages of this value belong to other values of another store.  ERROR 55000
 * if that is so.
 */
static void
open_store(BlobWriter *writer, BlobStore *store)
{
	blob_store_open(store, RowExclusiveLock);
	if (writer->draft == NULL)
	{
		writer->draft = blob_draft_begin(writer->context);
		writer->store = store->id;
	}
	if (!blob_store_id_equals(&writer->store, &store->id))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"blobext\" was created again while a value was being stored")));
}

/* Add a last extent, all zero.  The array grows in the writer's context. */
static WriterExtent *
add_extent(BlobWriter *writer)
{
	WriterExtent *added;

	if (writer->extent_count == writer->extent_capacity)
	{
		writer->extent_capacity = Max(16, writer->extent_capacity * 2);
		if (writer->extents == NULL)
			writer->extents = MemoryContextAlloc(writer->context, writer->extent_capacity *
												 sizeof(WriterExtent));
		else
			writer->extents = repalloc(writer->extents, writer->extent_capacity *
									   sizeof(WriterExtent));
	}
	added = &writer->extents[writer->extent_count++];
	memset(added, 0, sizeof(*added));
	return added;
}

/* Add pages of an extent to those that the current call writes. */
static void
add_run(BlobWriter *writer, const BlobExtent *extent, uint64 page_in_extent, uint64 pages)
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
count_tiers(const BlobWriter *writer, int count)
{
	int			tiers = 0;

	for (int i = 0; i < count; i++)
		tiers += !writer->extents[i].extent.is_tail;
	return tiers;
}

/* Pages of the runs chosen so far. */
static uint64
taken_pages(const BlobWriter *writer)
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
allocate(BlobWriter *writer, BlobStore *store, uint64 pages, bool fits_exactly)
{
	uint64		taken_bytes =
		blob_mapping_content_offset(writer->stored_bytes +
									taken_pages(writer) * BLOB_PAGE_SIZE);
	uint64		expected = blob_pages_for(writer->expected_bytes -
										  Min(writer->expected_bytes, taken_bytes));
	uint64		wanted = Max(pages, expected);
	uint64		claimed = writer->keeps_room ? pages : wanted;
	uint64		whole_pages;
	bool		use_tail = blob_tail_extents && !writer->keeps_room && !writer->has_tail &&
		(fits_exactly || expected > 0);
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
		WriterExtent *added = add_extent(writer);

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
copy_last_extent(BlobWriter *writer, BlobStore *store, uint64 more_pages)
{
	WriterExtent *last = &writer->extents[writer->current];
	uint64		bytes = last->used_pages * BLOB_PAGE_SIZE;
	uint64		start = writer->stored_bytes - bytes;
	BlobTierPlan plan = {
		.first_extent_no = count_tiers(writer, writer->current),
		.extent_count = 1,
		.total_pages = last->extent.pages
	};
	BlobExtent	copy[1];
	uint64		claimed = Min(last->extent.pages, last->used_pages + more_pages);
	uint64		step = Min(bytes, BUFFER_BYTES);
	char	   *content = palloc(Max(step, 1));
	BlobReader	reader;

	blob_reader_begin(&reader, &writer->base, BLOB_READER_UNCACHED);
	blob_store_allocate(store, &plan, claimed * BLOB_PAGE_SIZE, writer->draft, copy);
	for (uint64 done = 0; done < bytes; done += step)
	{
		BlobSource	source = {.first = content, .first_bytes = Min(step, bytes - done)};
		BlobWriteRun run = {.extent = copy[0], .page_in_extent = done / BLOB_PAGE_SIZE};

		source.total_bytes = source.first_bytes;
		run.pages = source.first_bytes / BLOB_PAGE_SIZE;
		blob_reader_read_stored(&reader, start + done, source.first_bytes, content);
		blob_pipeline_write(&store->id, &run, 1, &source, NULL, 0);
	}
	blob_reader_end(&reader);
	pfree(content);
	last->extent = copy[0];
	last->claimed_pages = claimed;
	last->is_shared = false;
	writer->generation = Max(writer->generation, copy[0].generation);
	writer->written_bytes += bytes;
}

/*
 * Claim this number of pages behind the used ones of the current extent, unless that was done.  If
 * the claim is lost, the extent becomes a copy.  ERROR XB001 if the base is stale.
 */
static void
claim(BlobWriter *writer, BlobStore *store, uint64 pages)
{
	WriterExtent *current = &writer->extents[writer->current];
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
pages_left(const BlobWriter *writer)
{
	uint64		pages = 0;

	for (int i = writer->current; i < writer->extent_count; i++)
		pages += writer->extents[i].extent.pages - writer->extents[i].used_pages;
	return pages;
}

/* Whether more content came than was expected, so that the value does not end with its tail. */
static bool
ends_behind_tail(const BlobWriter *writer, uint64 last_pages)
{
	return writer->has_tail && (pages_left(writer) < last_pages ||
								!writer->extents[writer->extent_count - 1].extent.is_tail);
}

/* Choose the next pages of the value, as runs; allocates and claims as needed. */
static void
take_pages(BlobWriter *writer, BlobStore *store, uint64 pages, bool fits_exactly)
{
	while (pages > 0)
	{
		WriterExtent *current = &writer->extents[writer->current];
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
		add_run(writer, &current->extent, current->used_pages, taken);
		current->used_pages += taken;
		pages -= taken;
	}
}

/* ---- content ---- */

/* Move the bytes behind the consumed ones to the beginning of the buffer. */
static void
keep_remainder(BlobWriter *writer, const BlobSource *source, uint64 consumed, uint64 available)
{
	uint32		left = (uint32) (available - consumed);

	if (consumed < source->first_bytes)
	{
		uint32		from_first = (uint32) (source->first_bytes - consumed);

		memmove(writer->buffer, writer->buffer + consumed, from_first);
		if (left > from_first)
			memcpy(writer->buffer + from_first, source->second, left - from_first);
	}
	else if (left > 0)
		memcpy(writer->buffer, source->second + (consumed - source->first_bytes), left);
	writer->buffered_bytes = left;
}

/* Make room for this number of bytes in the buffer. */
static void
enlarge_buffer(BlobWriter *writer, uint64 bytes)
{
	if (bytes <= writer->buffer_capacity)
		return;
	Assert(bytes <= BUFFER_BYTES);
	writer->buffer_capacity = pg_nextpower2_32(Max((uint32) bytes, MIN_BUFFER_BYTES));
	if (writer->buffer == NULL)
		writer->buffer = MemoryContextAlloc(writer->context, writer->buffer_capacity);
	else
		writer->buffer = repalloc(writer->buffer, writer->buffer_capacity);
}

bool
blob_may_allocate(void)
{
	return !XactReadOnly && !RecoveryInProgress() && !IsParallelWorker() &&
		(!IsInParallelMode() || TransactionIdIsValid(GetTopTransactionIdIfAny()));
}

void
blob_writer_require_allocation(void)
{
	if (!blob_may_allocate())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot make a large blobstate value here"),
				 errdetail("Content over blobext.inline_limit is written to extents, which a "
						   "read-only transaction, a standby or a parallel worker cannot do.")));
}

/*
 * Allocate a page for the remainder, because it is too long for the datum, or because the value has
 * no other page.
 */
static void
take_remainder_page(BlobWriter *writer, BlobStore *store)
{
	BlobTierPlan plan = {.tail_pages = 1, .total_pages = 1};
	BlobExtent	extent[1];

	blob_store_allocate(store, &plan, BLOB_PAGE_SIZE, writer->draft, extent);
	add_run(writer, &extent[0], 0, 1);
	writer->has_remainder_page = true;
	writer->remainder_page = extent[0].first_page;
	writer->generation = Max(writer->generation, extent[0].generation);
}

/* The part of the buffer, and of the data behind it, that one step stores. */
typedef struct StoreStep
{
	uint64		pages;			/* of extents, without the page of the remainder */
	uint64		page_bytes;		/* content in these pages */
	bool		wants_remainder_page;
	BlobSource	source;			/* the bytes that are written to files */
} StoreStep;

/*
 * Plan a step.  It stores whole pages.  If it is the last one, it stores also the bytes that do not
 * fill a page, unless they are a remainder for the datum.
 */
static StoreStep
plan_step(BlobWriter *writer, const char *data, uint64 length_bytes, bool is_last)
{
	uint64		available = writer->buffered_bytes + length_bytes;
	uint32		partial = (uint32) (available % BLOB_PAGE_SIZE);
	StoreStep	step = {
		.pages = available / BLOB_PAGE_SIZE,
		.source = {
			.first = writer->buffer,
			.first_bytes = writer->buffered_bytes,
			.second = data,
			.before_bytes = writer->written_bytes
		}
	};

	if (is_last && ends_behind_tail(writer, blob_pages_for(available)))
		writer->keeps_room = true;
	if (is_last && !writer->keeps_room && partial > 0)
		step.pages++;
	step.page_bytes = Min(available, step.pages * BLOB_PAGE_SIZE);
	step.wants_remainder_page = is_last && writer->keeps_room &&
		(partial > BLOB_REMAINDER_INLINE_BYTES || buffer_offset(writer) + available == partial);
	step.source.total_bytes = step.wants_remainder_page ? available : step.page_bytes;
	return step;
}

/*
 * Allocate or claim the pages of a step, hash and write its bytes, and log them where content is
 * logged.  Locks the map in RowExclusive mode meanwhile.  Assigns an XID, so that the commit writes
 * a record, which comes after the content.
 */
static void
write_step(BlobWriter *writer, const StoreStep *step, bool is_last)
{
	uint64		skip_bytes = writer->hashed_bytes - buffer_offset(writer);
	uint64		length_bytes = step->source.total_bytes;
	BlobStore	store;

	(void) GetTopTransactionId();
	open_store(writer, &store);
	writer->run_count = 0;
	take_pages(writer, &store, step->pages, is_last);
	if (step->wants_remainder_page)
		take_remainder_page(writer, &store);
	if (length_bytes > 0)
		blob_pipeline_write(&store.id, writer->runs, writer->run_count, &step->source,
							&writer->digest, skip_bytes);
	blob_store_close(&store);
	writer->written_bytes += length_bytes;
	writer->hashed_bytes = Max(writer->hashed_bytes, buffer_offset(writer) + length_bytes);
}

/*
 * Store the bytes of the buffer, and data behind them.  Bytes that are not stored become the
 * buffer.
 */
static void
store_step(BlobWriter *writer, const char *data, uint64 length_bytes, bool is_last)
{
	uint64		available = writer->buffered_bytes + length_bytes;
	StoreStep	step;

	blob_writer_require_allocation();
	step = plan_step(writer, data, length_bytes, is_last);
	write_step(writer, &step, is_last);
	writer->stored_bytes += step.page_bytes;
	if (available > step.page_bytes)
		enlarge_buffer(writer, BLOB_PAGE_SIZE);
	step.source.first = writer->buffer;
	keep_remainder(writer, &step.source, step.page_bytes, available);
}

/* Store data of any length behind the buffer, in steps. */
static void
store_in_steps(BlobWriter *writer, const char *data, uint64 length_bytes, bool is_last)
{
	for (; length_bytes > STEP_BYTES; data += STEP_BYTES, length_bytes -= STEP_BYTES)
		store_step(writer, data, STEP_BYTES, false);
	store_step(writer, data, length_bytes, is_last);
}

static BlobWriter *
make_writer(uint64 expected_bytes)
{
	BlobWriter *writer = palloc0(sizeof(BlobWriter));

	writer->context = CurrentMemoryContext;
	writer->expected_bytes = expected_bytes;
	blob_digest_begin(&writer->digest);
	return writer;
}

BlobWriter *
blob_writer_begin(uint64 expected_bytes)
{
	return make_writer(expected_bytes);
}

/* Share the first keep_pages stored pages of the base.  The last extent may be used in part. */
static void
share_extents(BlobWriter *writer, uint64 keep_pages)
{
	const BlobDescriptor *descriptor = &writer->base.descriptor;
	uint64		start = 0;

	for (int i = 0; start < keep_pages * BLOB_PAGE_SIZE; i++)
	{
		BlobStoredExtent stored;
		WriterExtent *added = add_extent(writer);

		blob_mapping_extent(descriptor, i, start, &stored);

		/*
		 * complete() leaves out extents without pages, and blob_complete() verifies the shared ones
		 * by their numbers in the base.  So the numbers must agree.  No value has such an extent.
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

/* Hash the beginning of the base, in steps: a descriptor has no digest of a beginning. */
static void
hash_beginning(BlobWriter *writer, uint64 length_bytes)
{
	char	   *content = palloc(Max(1, Min(length_bytes, BUFFER_BYTES)));
	BlobReader	reader;

	blob_reader_begin(&reader, &writer->base, 0);
	while (length_bytes > 0)
	{
		uint64		bytes = blob_reader_next(&reader, content, Min(BUFFER_BYTES, length_bytes));

		blob_digest_update(&writer->digest, content, bytes);
		length_bytes -= bytes;
	}
	blob_reader_end(&reader);
	pfree(content);
}

/*
 * Begin with the first keep_bytes of the base: whole pages are shared, the bytes behind them are
 * buffered.
 */
static void
take_over(BlobWriter *writer, uint64 keep_bytes)
{
	const BlobDescriptor *descriptor = &writer->base.descriptor;
	uint32		partial;

	share_extents(writer, blob_mapping_kept_pages(descriptor, keep_bytes));
	partial = (uint32) (keep_bytes - buffer_offset(writer));
	Assert(partial < BLOB_PAGE_SIZE);
	enlarge_buffer(writer, Max(partial, 1));
	blob_read(&writer->base, buffer_offset(writer), partial, writer->buffer);
	writer->buffered_bytes = partial;
	writer->size_bytes = keep_bytes;
	memcpy(writer->prefix, descriptor->prefix, Min(keep_bytes, BLOB_PREFIX_BYTES));
	if (keep_bytes == descriptor->size_bytes)
		blob_digest_resume(&writer->digest, descriptor->state, keep_bytes,
						   writer->buffer + partial - keep_bytes % BLOB_DIGEST_BLOCK_BYTES);
	else
		hash_beginning(writer, keep_bytes);
	writer->hashed_bytes = keep_bytes;
}

BlobWriter *
blob_writer_grow(const BlobValue *value, uint64 keep_bytes, uint64 expected_bytes)
{
	BlobWriter *writer = make_writer(expected_bytes > 0 ? keep_bytes + expected_bytes : 0);

	Assert(keep_bytes <= value->size_bytes);
	writer->keeps_room = true;
	if (value->is_inline)
		blob_writer_write(writer, value->inline_data, keep_bytes);
	else if (keep_bytes <= (uint64) blob_inline_limit_bytes)
	{
		/* The result may be inline. */
		enlarge_buffer(writer, Max(keep_bytes, 1));
		blob_read(value, 0, keep_bytes, writer->buffer);
		writer->buffered_bytes = (uint32) keep_bytes;
		writer->size_bytes = keep_bytes;
		memcpy(writer->prefix, value->descriptor.prefix, Min(keep_bytes, BLOB_PREFIX_BYTES));
	}
	else
	{
		struct varlena *copy = blob_descriptor_copy(&value->descriptor);

		blob_value_unpack(copy, &writer->base);
		take_over(writer, keep_bytes);
	}
	return writer;
}

void
blob_writer_write(BlobWriter *writer, const void *data, uint64 length_bytes)
{
	if (length_bytes == 0)
		return;
	if (writer->size_bytes < BLOB_PREFIX_BYTES)
		memcpy(writer->prefix + writer->size_bytes, data,
			   Min(length_bytes, BLOB_PREFIX_BYTES - writer->size_bytes));
	writer->size_bytes += length_bytes;

	if (writer->buffered_bytes + length_bytes > BUFFER_BYTES)
	{
		store_in_steps(writer, data, length_bytes, false);
		return;
	}
	enlarge_buffer(writer, writer->buffered_bytes + length_bytes);
	memcpy(writer->buffer + writer->buffered_bytes, data, length_bytes);
	writer->buffered_bytes += (uint32) length_bytes;
}

void
blob_writer_abort(BlobWriter *writer)
{
	if (writer->draft != NULL)
		blob_draft_abandon(writer->draft);
	if (writer->buffer != NULL)
		pfree(writer->buffer);
	if (writer->extents != NULL)
		pfree(writer->extents);
	if (writer->runs != NULL)
		pfree(writer->runs);
	pfree(writer);
}

/*
 * Complete the draft, since the value's descriptor is about to leave.  Extents that were expected
 * to be needed, and were not, are no part of the value: they remain in the draft, and are freed.
 */
static void
complete_draft(BlobWriter *writer)
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
fit_last_extent(BlobWriter *writer)
{
	WriterExtent *last = &writer->extents[writer->current];
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

/*
 * Make the descriptor and free the writer.  All content is written but a remainder for the datum.
 */
static struct varlena *
complete(BlobWriter *writer)
{
	BlobDescriptor descriptor = {.size_bytes = writer->size_bytes};
	BlobExtent *extents = palloc(sizeof(BlobExtent) * (writer->extent_count + 1));
	bool	   *is_shared = palloc0(sizeof(bool) * (writer->extent_count + 1));
	int			count = 0;
	struct varlena *datum;

	if (!writer->keeps_room)
		fit_last_extent(writer);

	blob_digest_update(&writer->digest, writer->buffer + (writer->hashed_bytes -
														  buffer_offset(writer)),
					   writer->size_bytes - writer->hashed_bytes);
	blob_digest_finish(&writer->digest, descriptor.sha256, descriptor.state);
	memcpy(descriptor.prefix, writer->prefix, BLOB_PREFIX_BYTES);
	descriptor.generation = writer->generation;
	descriptor.remainder_bytes = writer->buffered_bytes;
	descriptor.remainder = writer->buffer;
	descriptor.has_remainder_page = writer->has_remainder_page;
	descriptor.remainder_page = writer->remainder_page;
	for (int i = 0; i < writer->extent_count; i++)
	{
		if (writer->extents[i].used_pages == 0)
			continue;
		is_shared[count] = writer->extents[i].is_shared;
		extents[count++] = writer->extents[i].extent;
		if (writer->extents[i].extent.is_tail)
			descriptor.tail_content_pages = writer->extents[i].used_pages;
	}
	datum = blob_complete(&descriptor, extents, count, &writer->base.descriptor, is_shared);
	pfree(extents);
	pfree(is_shared);

	complete_draft(writer);
	blob_stat_count_in_database(stored_blobs, 1);
	blob_stat_count_in_database(stored_bytes, writer->written_bytes);
	blob_writer_abort(writer);
	return datum;
}

struct varlena *
blob_writer_finish(BlobWriter *writer)
{
	if (writer->stored_bytes == 0 && writer->size_bytes <= (uint64) blob_inline_limit_bytes)
	{
		struct varlena *datum = blob_inline_make(writer->size_bytes);

		if (writer->size_bytes > 0)
			memcpy(blob_inline_content(datum), writer->buffer, writer->size_bytes);
		blob_writer_abort(writer);
		return datum;
	}
	store_step(writer, NULL, 0, true);
	return complete(writer);
}

struct varlena *
blob_writer_store(const char *data, uint64 size_bytes)
{
	BlobWriter *writer = make_writer(size_bytes);

	Assert(size_bytes > 0);
	writer->size_bytes = size_bytes;
	memcpy(writer->prefix, data, Min(size_bytes, BLOB_PREFIX_BYTES));
	store_in_steps(writer, data, size_bytes, true);
	return complete(writer);
}
