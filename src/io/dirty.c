/*
 * io/dirty.c
 *	  Dirty slabs of the buffer, see io/dirty.h.
 *
 * The argument is in the README of this folder, "Deferred writes".
 *
 * Structures.  A list of the dirty slabs, in no order.  The range of a slab that is dirty, and
 * its place in the list, are in the slab.  While a slab is in the list, the list has a pin of it.
 *
 * Locking.  list_lock protects the list, and what slabs have of it.  It is held for memory
 * operations only.  A process that writes pages marks their slabs as being written, under
 * list_lock; no other process writes them then.  When it has finished, it wakes all processes that
 * wait for that.
 *
 * A process that writes holds removal_lock, shared, from before it looks for the files to the end
 * of the writes.  A process that removes a file takes it exclusively.  Shared holders may follow
 * each other without a gap, so both take gate_lock first, and a removal keeps it until it has
 * removal_lock.  Order: gate_lock, removal_lock, list_lock.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/wait_event.h"
#include "core/settings.h"
#include "io/dirty.h"
#include "io/dirty_internal.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "storage/shmem.h"

/*
 * How much may be dirty: a part of the buffer, and about what a device writes in a second, since a
 * checkpoint waits for it.
 */
#define LIMIT_PARTS 2
#define MAX_LIMIT_BYTES (UINT64CONST(256) * 1024 * 1024)

/*
 * The syncer writes without waiting for a checkpoint when less than this part of the limit is left,
 * which is room for stores meanwhile.  Earlier writes would only compete with flushes of the WAL.
 */
#define SPARE_PARTS 4

/*
 * The syncer writes pages that are not logged when there is as much of them: their transactions
 * wait for these writes before they commit.  It is as much as four batches.
 */
#define MANY_UNLOGGED_BYTES (UINT64CONST(4) * 1024 * 1024)

BlobDirtyShared *blob_dirty = NULL;

#ifdef USE_ASSERT_CHECKING
/* The count of removals when this process began one. */
static uint64 removals_before;
#endif

Size
blob_dirty_shmem_size(void)
{
	return add_size(offsetof(BlobDirtyShared, list),
					mul_size(blob_slabs_configured(), sizeof(BufferSlab *)));
}

/* Called under AddinShmemInitLock. */
void
blob_dirty_shmem_init(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche(BLOB_DIRTY_TRANCHE);
	uint64		buffer_bytes = (uint64) blob_slabs_configured() * BLOB_BUFFER_SMALL_CHUNK_BYTES;
	bool		found;

	blob_dirty = ShmemInitStruct("blobext dirty slabs", blob_dirty_shmem_size(), &found);
	if (found)
		return;
	memset(blob_dirty, 0, offsetof(BlobDirtyShared, list));
	blob_dirty->list_lock = &locks[0].lock;
	blob_dirty->removal_lock = &locks[1].lock;
	blob_dirty->gate_lock = &locks[2].lock;
	ConditionVariableInit(&blob_dirty->written);
	blob_dirty->limit_bytes = Min(buffer_bytes / LIMIT_PARTS, MAX_LIMIT_BYTES);
	pg_atomic_init_u64(&blob_dirty->next_seq, 1);
	pg_atomic_init_u64(&blob_dirty->dirty_bytes, 0);
	pg_atomic_init_u64(&blob_dirty->unlogged_bytes, 0);
	pg_atomic_init_u64(&blob_dirty->slab_bytes, 0);
}

/* ---- the list; the caller holds list_lock exclusively ---- */

void
blob_dirty_assert_list(void)
{
#ifdef USE_ASSERT_CHECKING
	uint64		dirty = 0;
	uint64		unlogged = 0;
	uint64		memory = 0;

	for (uint32 i = 0; i < blob_dirty->slab_count; i++)
	{
		const BufferSlab *slab = blob_dirty->list[i];

		Assert(slab->dirty_no == i);
		Assert(slab->dirty_start < slab->dirty_end &&
			   slab->dirty_end <= slab->key.chunk_bytes);
		dirty += blob_dirty_bytes_of(slab);
		unlogged += slab->is_logged ? 0 : blob_dirty_bytes_of(slab);
		memory += slab->key.chunk_bytes;
	}
	Assert(dirty == pg_atomic_read_u64(&blob_dirty->dirty_bytes));
	Assert(unlogged == pg_atomic_read_u64(&blob_dirty->unlogged_bytes));
	Assert(memory == pg_atomic_read_u64(&blob_dirty->slab_bytes));
#endif
}

/* A slab that is in the list gets logged pages. */
static void
set_logged(BufferSlab *slab)
{
	if (!slab->is_logged)
		pg_atomic_fetch_sub_u64(&blob_dirty->unlogged_bytes, blob_dirty_bytes_of(slab));
	slab->is_logged = true;
}

/*
 * Put a range into the list.  A slab that is there already gets a longer range.  That grows at its
 * end only: a process that has written the slab takes out what lies before the end that it saw.
 */
static void
add_range(const BlobDirtyRange *range, bool is_logged)
{
	BufferSlab *slab = range->slab;
	uint64		seq = pg_atomic_fetch_add_u64(&blob_dirty->next_seq, 1);

	/* Logged pages only while checkpoints wait for the syncer. */
	Assert(!is_logged || blob_dirty->is_open);
	if (slab->dirty_end > 0)
	{
		if (range->start_bytes < slab->dirty_end)
			elog(ERROR, "page " UINT64_FORMAT " is written twice, or out of order",
				 range->page + range->start_bytes / BLOB_PAGE_SIZE);
		if (is_logged)
			set_logged(slab);
		slab->added_seq = seq;
		/* Pages between the two ranges have been written, and may be written again. */
		blob_dirty_set_range(slab, slab->dirty_start, range->end_bytes);
		return;
	}
	if (!blob_slab_pin(slab))
		elog(ERROR, "slab of page " UINT64_FORMAT " is not pinned", range->page);
	slab->page = range->page;
	slab->is_logged = is_logged;
	slab->is_writing = false;
	slab->dirty_seq = seq;
	slab->added_seq = seq;
	slab->dirty_no = blob_dirty->slab_count;
	blob_dirty->list[blob_dirty->slab_count++] = slab;
	pg_atomic_fetch_add_u64(&blob_dirty->slab_bytes, slab->key.chunk_bytes);
	blob_dirty_set_range(slab, range->start_bytes, range->end_bytes);
}

void
blob_dirty_remove_slab(BufferSlab *slab)
{
	BufferSlab *last = blob_dirty->list[--blob_dirty->slab_count];

	Assert(blob_dirty->list[slab->dirty_no] == slab && !slab->is_writing);
	blob_dirty_set_range(slab, 0, 0);
	pg_atomic_fetch_sub_u64(&blob_dirty->slab_bytes, slab->key.chunk_bytes);
	last->dirty_no = slab->dirty_no;
	blob_dirty->list[last->dirty_no] = last;
	blob_slab_unpin(slab);
}

/* ---- adding ---- */

uint64
blob_dirty_time(void)
{
	return blob_dirty == NULL ? 0 : pg_atomic_read_u64(&blob_dirty->next_seq);
}

/*
 * The limit counts the memory of slabs, which are pinned, however few of their pages are dirty.
 *
 * With fsync = off no page is left to the syncer, so that content survives a crash of the server as
 * rows do.
 */
bool
blob_dirty_has_room(uint64 bytes, bool is_logged)
{
	return blob_dirty != NULL &&
		(!is_logged || (blob_dirty->is_open && blob_background_sync && enableFsync)) &&
		pg_atomic_read_u64(&blob_dirty->slab_bytes) + bytes <= blob_dirty->limit_bytes;
}

bool
blob_dirty_add(const BlobDirtyRange *ranges, int count, bool is_logged, bool *is_due)
{
	uint64		bytes = 0;
	bool		was_due;
	bool		is_added;

	for (int i = 0; i < count; i++)
		bytes += ranges[i].end_bytes - ranges[i].start_bytes;
	if (!blob_dirty_has_room(bytes, is_logged))
		return false;

	LWLockAcquire(blob_dirty->list_lock, LW_EXCLUSIVE);
	was_due = blob_dirty_is_write_due();
	is_added = blob_dirty_has_room(bytes, is_logged);
	for (int i = 0; i < count && is_added; i++)
		add_range(&ranges[i], is_logged);
	*is_due = !was_due && blob_dirty_is_write_due();
	LWLockRelease(blob_dirty->list_lock);
	if (!is_added)
		return false;

	blob_stat_count(deferred_pages, bytes / BLOB_PAGE_SIZE);
	return true;
}

/* ---- freed pages ---- */

/* Whether a slab of the list lies in one of the runs, which are in order. */
static bool
is_in_runs(const BufferSlab *slab, const BlobPageRun *runs, int run_count)
{
	int			low = 0;
	int			high = run_count;

	/* The last run that begins at the page or before it. */
	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (runs[middle].first_page <= slab->page)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && slab->page < runs[low - 1].first_page + runs[low - 1].pages;
}

/*
 * Forget the dirty slabs of a store that lie in the runs, except those that are being written.
 * Returns the number of these.  Takes list_lock.
 */
static int
forget_runs(const BlobStoreId *store, const BlobPageRun *runs, int run_count)
{
	BlobDirtyFilter filter = {
		.store = store,
		.segment_no = BLOB_ALL_SEGMENTS,
		.end_seq = PG_UINT64_MAX
	};
	int			busy_count = 0;

	LWLockAcquire(blob_dirty->list_lock, LW_EXCLUSIVE);
	for (uint32 i = blob_dirty->slab_count; i > 0; i--)
	{
		BufferSlab *slab = blob_dirty->list[i - 1];

		if (!blob_dirty_matches(slab, &filter) || !is_in_runs(slab, runs, run_count))
			continue;
		if (slab->is_writing)
			busy_count++;
		else
			blob_dirty_remove_slab(slab);
	}
	LWLockRelease(blob_dirty->list_lock);
	return busy_count;
}

void
blob_dirty_drop(const BlobStoreId *store, const BlobPageRun *runs, int run_count)
{
	if (blob_dirty == NULL || pg_atomic_read_u64(&blob_dirty->dirty_bytes) == 0)
		return;
	/* The caller's pages would be lost until the next start if this were interrupted. */
	HOLD_INTERRUPTS();
	ConditionVariablePrepareToSleep(&blob_dirty->written);
	while (forget_runs(store, runs, run_count) > 0)
		ConditionVariableSleep(&blob_dirty->written, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
	RESUME_INTERRUPTS();
}

#ifdef USE_ASSERT_CHECKING

/* The runs are in order, as for blob_dirty_drop(). */
void
blob_dirty_check_none(const BlobStoreId *store, const BlobPageRun *runs, int run_count)
{
	BlobDirtyFilter filter = {
		.store = store,
		.segment_no = BLOB_ALL_SEGMENTS,
		.end_seq = PG_UINT64_MAX
	};

	if (blob_dirty == NULL)
		return;
	LWLockAcquire(blob_dirty->list_lock, LW_SHARED);
	blob_dirty_assert_list();
	for (uint32 i = 0; i < blob_dirty->slab_count; i++)
		Assert(!blob_dirty_matches(blob_dirty->list[i], &filter) ||
			   !is_in_runs(blob_dirty->list[i], runs, run_count));
	LWLockRelease(blob_dirty->list_lock);
}

void
blob_dirty_check_written(void)
{
	LWLockAcquire(blob_dirty->list_lock, LW_SHARED);
	Assert(!blob_dirty->is_open);
	for (uint32 i = 0; i < blob_dirty->slab_count; i++)
		Assert(!blob_dirty->list[i]->is_logged);
	LWLockRelease(blob_dirty->list_lock);
}

void
blob_dirty_check_removing(void)
{
	Assert(LWLockHeldByMeInMode(blob_dirty->removal_lock, LW_EXCLUSIVE));
}

void
blob_dirty_check_counted(void)
{
	blob_dirty_check_removing();
	Assert(blob_segment_removals() > removals_before);
}

#endif							/* USE_ASSERT_CHECKING */

/* ---- removal of files ---- */

void
blob_dirty_begin_removal(void)
{
	LWLockAcquire(blob_dirty->gate_lock, LW_EXCLUSIVE);
	LWLockAcquire(blob_dirty->removal_lock, LW_EXCLUSIVE);
	LWLockRelease(blob_dirty->gate_lock);
#ifdef USE_ASSERT_CHECKING
	removals_before = blob_segment_removals();
#endif
}

void
blob_dirty_end_removal(const BlobStoreId *store, uint32 segment_no)
{
	BlobDirtyFilter filter = {.store = store, .segment_no = segment_no, .end_seq = PG_UINT64_MAX};

	blob_dirty_check_removing();
	if (store != NULL)
	{
		LWLockAcquire(blob_dirty->list_lock, LW_EXCLUSIVE);
		for (uint32 i = blob_dirty->slab_count; i > 0; i--)
		{
			if (blob_dirty_matches(blob_dirty->list[i - 1], &filter))
				blob_dirty_remove_slab(blob_dirty->list[i - 1]);
		}
		LWLockRelease(blob_dirty->list_lock);
	}
	LWLockRelease(blob_dirty->removal_lock);
}

/* ---- for the syncer ---- */

static void
set_open(bool is_open)
{
	LWLockAcquire(blob_dirty->list_lock, LW_EXCLUSIVE);
	blob_dirty->is_open = is_open;
	LWLockRelease(blob_dirty->list_lock);
}

void
blob_dirty_open(void)
{
	set_open(true);
}

void
blob_dirty_close(void)
{
	set_open(false);
}

uint64
blob_dirty_page_count(void)
{
	return blob_dirty == NULL ? 0 : pg_atomic_read_u64(&blob_dirty->dirty_bytes) / BLOB_PAGE_SIZE;
}

bool
blob_dirty_is_filling(void)
{
	return blob_dirty != NULL && blob_dirty->limit_bytes > 0 &&
		pg_atomic_read_u64(&blob_dirty->slab_bytes) >=
		blob_dirty->limit_bytes - blob_dirty->limit_bytes / SPARE_PARTS;
}

bool
blob_dirty_is_write_due(void)
{
	return blob_dirty != NULL &&
		(blob_dirty_is_filling() ||
		 pg_atomic_read_u64(&blob_dirty->unlogged_bytes) >= MANY_UNLOGGED_BYTES);
}
