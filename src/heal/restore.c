/*
 * heal/restore.c
 *	  Writing fetched content, see "Order of a repair" in the README.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "extents/damaged_pages.h"
#include "extents/layout.h"
#include "extents/verify.h"
#include "heal/heal_internal.h"
#include "io/buffer.h"
#include "io/engine.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "store/disk_room.h"
#include "store/map_sums.h"
#include "store/store.h"
#include "store/unlogged.h"
#include "wal/insert.h"

/* A batch is made durable when it has this many extents, ranges of pages, or bytes. */
#define BATCH_EXTENTS 1024
#define BATCH_BYTES (UINT64CONST(256) * 1024 * 1024)

/* Ranges that one record has at most. */
#define MAX_RANGES 1024

/* ---- writing ---- */

/*
 * Write bytes at an offset of a file, in as many calls as that takes.  Returns 0, or the errno of a
 * call that failed: a part may have been written.
 */
static int
write_all(int fd, const char *data, size_t bytes, off_t offset)
{
	while (bytes > 0)
	{
		ssize_t		written = pwrite(fd, data, bytes, offset);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return written < 0 ? errno : ENOSPC;
		data += written;
		bytes -= written;
		offset += written;
	}
	return 0;
}

/*
 * Write heal->aligned to pages of one segment, if the map still has the extent.  FREE needs the
 * lock that is held meanwhile: no page is written after it was freed, and CONTENT precedes FREE.
 * Slabs of the pages are outdated as soon as one may have been written, also if the write fails.
 */
static bool
write_locked(BlobHeal *heal, Relation map, const BlobExtent *extent, BlobPageNo page,
			 uint32 pages, uint32 length_bytes)
{
	Size		bytes = (Size) pages * BLOB_PAGE_SIZE;
	int			fd = blob_segment_open(&heal->store, blob_segment_of(page),
									   BLOB_SEGMENT_MUST_EXIST);
	BlobWalContentPart part = {heal->aligned, length_bytes};
	Buffer		buffer = blob_map_lock_entry(map, extent->first_page, InvalidBuffer);
	BlobMapEntry entry;
	bool		is_same;

	if (!BufferIsValid(buffer))
		return false;
	entry = blob_map_locked_entry(buffer, extent->first_page);
	is_same = blob_map_entry_is_extent(&entry) &&
		blob_map_entry_generation(&entry) == extent->generation;
	if (is_same)
	{
		int			error = write_all(fd, heal->aligned, bytes, blob_layout_file_offset(page));

		blob_buffer_outdate(&heal->store, extent->generation,
							blob_buffer_chunk_bytes(extent->pages),
							(page - extent->first_page) * BLOB_PAGE_SIZE, bytes);
		if (error != 0)
		{
			errno = error;
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not write content to segment %u: %m", blob_segment_of(page))));
		}
		if (heal->logs_content)
			blob_wal_log_content(&heal->store, page, &part, 1, false);
	}
	UnlockReleaseBuffer(buffer);
	return is_same;
}

/*
 * Remember pages for the sync, and for the list of damaged ones.  A range goes on with the pages
 * behind it only: pages in between were not written.
 */
static void
note_written(BlobHeal *heal, const BlobExtent *extent, uint64 start, uint64 end)
{
	BlobHealWritten *last = heal->written_count > 0 ? &heal->written[heal->written_count - 1] :
		NULL;

	heal->batch_bytes += end - start;
	if (last != NULL && last->extent.generation == extent->generation && start == last->end)
	{
		last->end = end;
		return;
	}
	if (heal->written_count == heal->written_capacity)
	{
		heal->written_capacity *= 2;
		heal->written = repalloc_huge(heal->written,
									  heal->written_capacity * sizeof(*heal->written));
	}
	heal->written[heal->written_count++] = (BlobHealWritten) {*extent, start, end};
}

/* Set the checksums of pages that were written, if the map has others. */
static bool
repair_sums(const BlobHeal *heal, Relation map, const BlobExtent *extent, BlobPageNo page,
			uint32 pages)
{
	uint32		sums[BLOB_SUMS_MAX_PAGES];
	BlobSumRun	run = {*extent, page - extent->first_page, pages, sums};

	if (!extent->has_sums && !blob_map_hides_sums(map, extent))
		return true;
	blob_page_sums(&(BlobSummedPages) {extent->generation, page, heal->aligned, pages}, 1, sums);
	return blob_map_repair_sums(map, &run);
}

bool
blob_restore_write(BlobHeal *heal, const BlobExtent *extent, uint64 start, const char *data,
				   uint32 length_bytes, bool has_digest)
{
	BlobStore	store;
	uint32		done = 0;
	bool		is_same = true;

	Assert(start % BLOB_PAGE_SIZE == 0);
	if (heal->logs_content)
	{
		blob_disk_room_require_for_wal(length_bytes);
		blob_disk_room_take_for_wal(length_bytes);
	}
	note_written(heal, extent, start, start + length_bytes);
	blob_store_open(&store, RowExclusiveLock);
	while (done < length_bytes && is_same)
	{
		BlobPageNo	page = extent->first_page + (start + done) / BLOB_PAGE_SIZE;
		uint64		left = blob_layout_pages_left_in_segment(page) * BLOB_PAGE_SIZE;
		uint32		bytes = (uint32) Min(Min(length_bytes - done, BLOB_IO_BUFFER_BYTES), left);
		uint32		pages = (uint32) blob_pages_for(bytes);

		CHECK_FOR_INTERRUPTS();
		memcpy(heal->aligned, data + done, bytes);
		memset(heal->aligned + bytes, 0, pages * BLOB_PAGE_SIZE - bytes);
		is_same = write_locked(heal, store.map, extent, page, pages, bytes) &&
			(!has_digest || repair_sums(heal, store.map, extent, page, pages));
		done += bytes;
	}
	blob_store_close(&store);
	if (heal->logs_content)
		XLogSetAsyncXactLSN(XactLastRecEnd);
	return is_same;
}

/* ---- batches ---- */

void
blob_restore_prove(BlobHeal *heal, const BlobExtent *extent)
{
	(void) hash_search(heal->proven, &extent->generation, HASH_ENTER, NULL);
}

bool
blob_restore_is_proven(BlobHeal *heal, BlobGeneration generation)
{
	return hash_search(heal->proven, &generation, HASH_FIND, NULL) != NULL;
}

bool
blob_restore_is_full(const BlobHeal *heal)
{
	return heal->batch_bytes >= BATCH_BYTES || heal->written_count >= BATCH_EXTENTS ||
		hash_get_num_entries(heal->proven) >= BATCH_EXTENTS;
}

static int
compare_segments(const void *a, const void *b)
{
	uint32		left = *(const uint32 *) a;
	uint32		right = *(const uint32 *) b;

	return left < right ? -1 : left > right;
}

/* Sync each segment that was written to, once. */
static void
sync_written(BlobHeal *heal)
{
	uint32	   *segments;
	uint64		count = 0;
	uint64		room = 0;

	for (int i = 0; i < heal->written_count; i++)
		room += heal->written[i].extent.pages / BLOB_SEGMENT_PAGES + 2;
	segments = palloc(sizeof(uint32) * Max(room, 1));
	for (int i = 0; i < heal->written_count; i++)
	{
		const BlobHealWritten *written = &heal->written[i];
		BlobPageNo	first = written->extent.first_page + written->start / BLOB_PAGE_SIZE;
		BlobPageNo	last = written->extent.first_page + (written->end - 1) / BLOB_PAGE_SIZE;

		for (uint32 no = blob_segment_of(first); no <= blob_segment_of(last); no++)
			segments[count++] = no;
	}
	qsort(segments, count, sizeof(uint32), compare_segments);
	for (uint64 i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		/* A file that is gone was removed with all its extents. */
		if (i == 0 || segments[i] != segments[i - 1])
			(void) blob_segment_sync_written(&heal->store, segments[i]);
	}
	pfree(segments);
}

int
blob_heal_compare_generations(const void *a, const void *b)
{
	BlobGeneration left = *(const BlobGeneration *) a;
	BlobGeneration right = *(const BlobGeneration *) b;

	return left < right ? -1 : left > right;
}

/* The proven generations as ranges, sorted; their number is *count. */
static BlobGenerationRange *
proven_ranges(BlobHeal *heal, int *count)
{
	long		generation_count = hash_get_num_entries(heal->proven);
	BlobGeneration *generations = palloc(sizeof(BlobGeneration) * generation_count);
	BlobGenerationRange *ranges = palloc(sizeof(BlobGenerationRange) * generation_count);
	BlobGeneration *entry;
	HASH_SEQ_STATUS status;
	long		i = 0;

	hash_seq_init(&status, heal->proven);
	while ((entry = hash_seq_search(&status)) != NULL)
		generations[i++] = *entry;
	qsort(generations, generation_count, sizeof(BlobGeneration),
		  blob_heal_compare_generations);
	*count = 0;
	for (i = 0; i < generation_count; i++)
	{
		if (*count > 0 && ranges[*count - 1].last + 1 == generations[i])
			ranges[*count - 1].last = generations[i];
		else
			ranges[(*count)++] = (BlobGenerationRange) {generations[i], generations[i]};
	}
	pfree(generations);
	return ranges;
}

void
blob_restore_forget(BlobHeal *heal, const BlobGenerationRange *ranges, int count)
{
	for (int i = 0; i < count; i += MAX_RANGES)
	{
		int			part = Min(count - i, MAX_RANGES);
		BlobWalOmitted omitted = {.range_count = part};

		if (heal->logs_content)
			(void) blob_wal_log_fetched(&heal->store, ranges + i, part);
		else
			blob_wal_log_omitted(&heal->store, &omitted, ranges + i);
	}
	XLogFlush(XactLastRecEnd);
	blob_unlogged_remove(&heal->store, ranges, count);
}

static void
forget_proven(BlobHeal *heal)
{
	BlobGenerationRange *ranges;
	int			count;
	HASH_SEQ_STATUS status;
	BlobGeneration *entry;

	if (hash_get_num_entries(heal->proven) == 0)
		return;
	ranges = proven_ranges(heal, &count);
	blob_restore_forget(heal, ranges, count);
	pfree(ranges);
	hash_seq_init(&status, heal->proven);
	while ((entry = hash_seq_search(&status)) != NULL)
		(void) hash_search(heal->proven, entry, HASH_REMOVE, NULL);
}

/* The pages of the batch are right, and durable: say so in the list of damaged ones. */
static void
note_repaired(const BlobHeal *heal)
{
	for (int i = 0; i < heal->written_count; i++)
	{
		const BlobHealWritten *written = &heal->written[i];
		BlobPageNo	first = written->extent.first_page;

		blob_damaged_pages_repaired(&heal->store, &written->extent,
									first + written->start / BLOB_PAGE_SIZE,
									first + blob_pages_for(written->end));
	}
}

void
blob_heal_flush(BlobHeal *heal)
{
	sync_written(heal);
	forget_proven(heal);
	note_repaired(heal);
	heal->written_count = 0;
	heal->batch_bytes = 0;
}

/* ---- what the note has ---- */

/* Whether the value has a noted extent that this run has brought already, or has not. */
static bool
has_noted(BlobHeal *heal, const BlobDescriptor *descriptor, bool is_brought)
{
	bool		found = false;
	BlobStore	store;

	if (blob_unlogged_count(&heal->store) == 0)
		return false;
	blob_store_open(&store, AccessShareLock);
	for (int i = 0; i < blob_descriptor_extent_count(descriptor) && !found; i++)
	{
		BlobExtent	extent = blob_descriptor_extent(descriptor, i);

		found = blob_verify_extent(store.map, &extent, descriptor->generation) &&
			blob_unlogged_contains(&heal->store, extent.generation) &&
			blob_restore_is_proven(heal, extent.generation) == is_brought;
	}
	blob_store_close(&store);
	return found;
}

bool
blob_heal_lacks(BlobHeal *heal, const BlobDescriptor *descriptor)
{
	return has_noted(heal, descriptor, false);
}

bool
blob_heal_is_unfinished(BlobHeal *heal, const BlobDescriptor *descriptor)
{
	return has_noted(heal, descriptor, true);
}
