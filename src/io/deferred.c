/*
 * io/deferred.c
 *	  Deferred writes of pages, see io/deferred.h.
 *
 * The argument is in the README of this folder, "Deferred writes".
 *
 * Structures.  Slots of a page each, found by a hash table with chains.  Pages of the same group of
 * 16 are in one chain, so that one look at a chain's head, without a lock, tells for most groups
 * that no page of them is in the table.
 *
 * Locking.  table_lock protects everything except the bytes of used slots, which do not change.  It
 * is held for memory operations only.  A process that writes pages to their files and takes them
 * out holds write_lock, from before it collects the pages to the end.  No other process can take
 * them out then, so the writer looks at their slots without table_lock.  write_lock comes before
 * table_lock.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/xlog.h"
#include "core/settings.h"
#include "io/deferred.h"
#include "io/engine_internal.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "io/stat.h"
#include "io/syncer.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define SLOT_COUNT 1024
#define CHAIN_BITS 10
#define CHAIN_COUNT (1 << CHAIN_BITS)
#define GROUP_PAGES 16

/* End of a chain, in the numbering of next_no and heads: slot numbers from 1 on. */
#define NONE 0

typedef struct DeferredSlot
{
	BlobStoreId store;
	BlobPageNo	page;
	uint32		next_no;		/* in its chain, or in the list of free slots */
	bool		is_used;
} DeferredSlot;

typedef struct DeferredShared
{
	LWLock	   *table_lock;
	LWLock	   *write_lock;
	volatile bool is_open;		/* read without the lock as a hint */
	uint32		first_free_no;
	pg_atomic_uint32 used_count;	/* changes under table_lock */
	pg_atomic_uint32 heads[CHAIN_COUNT];	/* likewise */
	DeferredSlot	slots[SLOT_COUNT];
} DeferredShared;

static DeferredShared *shared = NULL;
static char *bytes = NULL;		/* content of the slots, aligned for direct I/O */

Size
blob_deferred_shmem_size(void)
{
	return MAXALIGN(sizeof(DeferredShared)) + (SLOT_COUNT + 1) * BLOB_PAGE_SIZE;
}

/* Called under AddinShmemInitLock. */
void
blob_deferred_shmem_init(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche(BLOB_DEFERRED_TRANCHE);
	bool		found;

	shared = ShmemInitStruct("blobext deferred writes", blob_deferred_shmem_size(), &found);
	bytes = (char *) TYPEALIGN(BLOB_PAGE_SIZE, (char *) shared + sizeof(DeferredShared));
	if (found)
		return;
	memset(shared, 0, sizeof(DeferredShared));
	shared->table_lock = &locks[0].lock;
	shared->write_lock = &locks[1].lock;
	pg_atomic_init_u32(&shared->used_count, 0);
	for (int i = 0; i < CHAIN_COUNT; i++)
		pg_atomic_init_u32(&shared->heads[i], NONE);
	for (uint32 no = SLOT_COUNT; no > 0; no--)
	{
		shared->slots[no - 1].next_no = shared->first_free_no;
		shared->first_free_no = no;
	}
}

static char *
slot_bytes(uint32 no)
{
	return bytes + (Size) (no - 1) * BLOB_PAGE_SIZE;
}

/* The head of the chain that pages of this page's group are in. */
static pg_atomic_uint32 *
chain_of(const BlobStoreId *store, BlobPageNo page)
{
	uint64		group = page / GROUP_PAGES;
	uint64		hash = (store->incarnation + group) * UINT64CONST(0x9E3779B97F4A7C15);

	/* Incarnations are random; neighbouring groups go to different chains. */
	return &shared->heads[hash >> (64 - CHAIN_BITS)];
}

/* The number of the page's slot, or NONE.  The caller holds table_lock. */
static uint32
find(const BlobStoreId *store, BlobPageNo page)
{
	uint32		no = pg_atomic_read_u32(chain_of(store, page));

	while (no != NONE && (shared->slots[no - 1].page != page ||
						  !blob_store_id_equals(&shared->slots[no - 1].store, store)))
		no = shared->slots[no - 1].next_no;
	return no;
}

/* ---- putting ---- */

/*
 * Put one page into a free slot.  The caller holds table_lock exclusively, and has seen that there
 * is one.
 */
static void
put_page(const BlobStoreId *store, BlobPageNo page, const char *content)
{
	pg_atomic_uint32 *head = chain_of(store, page);
	uint32		no = shared->first_free_no;
	DeferredSlot *slot = &shared->slots[no - 1];

	Assert(no != NONE && !slot->is_used);
	shared->first_free_no = slot->next_no;
	memcpy(slot_bytes(no), content, BLOB_PAGE_SIZE);
	slot->store = *store;
	slot->page = page;
	slot->is_used = true;
	slot->next_no = pg_atomic_read_u32(head);
	pg_atomic_write_u32(head, no);
}

bool
blob_deferred_put(const BlobStoreId *store, const BlobPageNo *pages, int page_count,
				  const char *content)
{
	uint32		used;
	bool		is_put;

	Assert(page_count <= BLOB_DEFERRED_MAX_PAGES);

	if (shared == NULL || !shared->is_open || !blob_background_sync || !enableFsync)
		return false;
	LWLockAcquire(shared->table_lock, LW_EXCLUSIVE);
	used = pg_atomic_read_u32(&shared->used_count);
	is_put = shared->is_open && used + page_count <= SLOT_COUNT;
	for (int i = 0; i < page_count && is_put; i++)
	{
		if (unlikely(find(store, pages[i]) != NONE))
			elog(ERROR, "page " UINT64_FORMAT " was written twice", pages[i]);
	}
	for (int i = 0; i < page_count && is_put; i++)
		put_page(store, pages[i], content + i * BLOB_PAGE_SIZE);
	if (is_put)
		pg_atomic_write_u32(&shared->used_count, used + page_count);
	LWLockRelease(shared->table_lock);
	if (!is_put)
		return false;

	blob_stat_count(deferred_pages, page_count);
	if (used < SLOT_COUNT / 2 && used + page_count >= SLOT_COUNT / 2)
		blob_syncer_wake();
	return true;
}

/* ---- reading ---- */

/*
 * Whether the table surely has none of these pages.  Needs no lock: a process that may read the
 * pages has seen that they were put.
 */
static bool
has_none(const BlobStoreId *store, BlobPageNo first_page, uint32 page_count)
{
	BlobPageNo	last_group = (first_page + page_count - 1) / GROUP_PAGES;
	bool		is_empty = true;

	if (shared == NULL || pg_atomic_read_u32(&shared->used_count) == 0)
		return true;
	for (BlobPageNo group = first_page / GROUP_PAGES; group <= last_group && is_empty; group++)
		is_empty = pg_atomic_read_u32(chain_of(store, group * GROUP_PAGES)) == NONE;
	return is_empty;
}

uint32
blob_deferred_count_written(const BlobStoreId *store, BlobPageNo first_page, uint32 page_count)
{
	uint32		count = 0;

	if (!has_none(store, first_page, page_count))
	{
		LWLockAcquire(shared->table_lock, LW_SHARED);
		while (count < page_count && find(store, first_page + count) == NONE)
			count++;
		LWLockRelease(shared->table_lock);
	}
	else
		count = page_count;
	/* The caller's request must come after the look. */
	pg_memory_barrier();
	return count;
}

bool
blob_deferred_read(const BlobStoreId *store, BlobPageNo page, uint32 offset_bytes,
				   uint32 length_bytes, char *target)
{
	uint32		no;

	Assert(offset_bytes + length_bytes <= BLOB_PAGE_SIZE);

	LWLockAcquire(shared->table_lock, LW_SHARED);
	no = find(store, page);
	if (no != NONE)
		memcpy(target, slot_bytes(no) + offset_bytes, length_bytes);
	LWLockRelease(shared->table_lock);
	if (no == NONE)
		return false;
	blob_stat_count(deferred_page_reads, 1);
	return true;
}

/* ---- writing ---- */

static bool
is_in_segment(BlobPageNo page, uint32 segment_no)
{
	return segment_no == BLOB_ALL_SEGMENTS || blob_segment_of(page) == segment_no;
}

static int
compare_places(const void *a, const void *b)
{
	const DeferredSlot *one = &shared->slots[*(const uint32 *) a - 1];
	const DeferredSlot *other = &shared->slots[*(const uint32 *) b - 1];

	if (one->store.dboid != other->store.dboid)
		return one->store.dboid < other->store.dboid ? -1 : 1;
	if (one->store.incarnation != other->store.incarnation)
		return one->store.incarnation < other->store.incarnation ? -1 : 1;
	return one->page < other->page ? -1 : one->page > other->page;
}

/*
 * Collect the numbers of used slots, in the order of their pages: those of a segment, with
 * BLOB_ALL_SEGMENTS those of a store, with a NULL store all.  Takes table_lock.
 */
static int
collect(const BlobStoreId *store, uint32 segment_no, uint32 *numbers)
{
	int			count = 0;

	LWLockAcquire(shared->table_lock, LW_SHARED);
	for (uint32 no = 1; no <= SLOT_COUNT; no++)
	{
		const DeferredSlot *slot = &shared->slots[no - 1];

		if (slot->is_used && (store == NULL || (blob_store_id_equals(&slot->store, store) &&
												is_in_segment(slot->page, segment_no))))
			numbers[count++] = no;
	}
	LWLockRelease(shared->table_lock);
	qsort(numbers, count, sizeof(*numbers), compare_places);
	return count;
}

/* How many of the slots, from the first on, have neighbouring pages of one file. */
static int
run_length(const uint32 *numbers, int count)
{
	const DeferredSlot *first = &shared->slots[numbers[0] - 1];
	int			length = 1;

	while (length < count && length < BLOB_IO_MAX_VECTORS)
	{
		const DeferredSlot *slot = &shared->slots[numbers[length] - 1];

		if (!blob_store_id_equals(&slot->store, &first->store) ||
			slot->page != first->page + length || slot->page % BLOB_SEGMENT_PAGES == 0)
			break;
		length++;
	}
	return length;
}

/*
 * Write the pages of these slots, which are neighbours, blocking.  The caller holds write_lock.
 * False if the file is missing.  It was not removed: a process that removes a file has the table
 * forget its pages before it releases write_lock.
 */
static bool
write_run(const uint32 *numbers, int count)
{
	const DeferredSlot *first = &shared->slots[numbers[0] - 1];
	uint32		segment_no = blob_segment_of(first->page);
	char		path[MAXPGPATH];
	struct stat status;
	BlobIoRequest request = {
		.is_write = true,
		.fd = blob_segment_open(&first->store, segment_no, BLOB_SEGMENT_MISSING_OK),
		.file_offset = (first->page % BLOB_SEGMENT_PAGES) * BLOB_PAGE_SIZE,
		.length = count * BLOB_PAGE_SIZE,
		.vector_count = count
	};

	/*
	 * Pages that were put had been reserved.  So a file that is too short is being copied to its
	 * place.
	 */
	if (request.fd < 0 || fstat(request.fd, &status) != 0 ||
		status.st_size < (off_t) (request.file_offset + request.length))
		return false;
	for (int i = 0; i < count; i++)
	{
		request.vectors[i].iov_base = slot_bytes(numbers[i]);
		request.vectors[i].iov_len = BLOB_PAGE_SIZE;
	}
	blob_sync_transfer(&request);
	blob_io_count(&request);
	blob_stat_count(deferred_writes, 1);
	if (request.error == 0)
		return true;
	blob_segment_path(path, sizeof(path), &first->store, segment_no);
	errno = request.error;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not write content to file \"%s\": %m", path)));
}

/*
 * Take pages out of the table that have been written, or whose file was removed.  The caller holds
 * write_lock.
 */
static void
take_out(const uint32 *numbers, int count)
{
	LWLockAcquire(shared->table_lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		DeferredSlot *slot = &shared->slots[numbers[i] - 1];
		pg_atomic_uint32 *head = chain_of(&slot->store, slot->page);
		uint32		no = pg_atomic_read_u32(head);

		if (no == numbers[i])
			pg_atomic_write_u32(head, slot->next_no);
		else
		{
			while (shared->slots[no - 1].next_no != numbers[i])
				no = shared->slots[no - 1].next_no;
			shared->slots[no - 1].next_no = slot->next_no;
		}
		slot->is_used = false;
		slot->next_no = shared->first_free_no;
		shared->first_free_no = numbers[i];
	}
	pg_atomic_sub_fetch_u32(&shared->used_count, count);
	LWLockRelease(shared->table_lock);
}

/*
 * Write all pages of a segment, or with a NULL store of all segments.  On an error the pages stay.
 * If a file is missing, its pages stay, too: the result is false, and names the file.
 */
static bool
write_segments(const BlobStoreId *store, uint32 segment_no, BlobStoreId *missing_store,
			   uint32 *missing_no)
{
	static uint32 numbers[SLOT_COUNT];
	bool		are_written = true;
	int			count;
	int			length;

	if (shared == NULL || pg_atomic_read_u32(&shared->used_count) == 0)
		return true;
	LWLockAcquire(shared->write_lock, LW_EXCLUSIVE);
	count = collect(store, segment_no, numbers);
	for (int i = 0; i < count; i += length)
	{
		length = run_length(numbers + i, count - i);
		if (write_run(numbers + i, length))
			take_out(numbers + i, length);
		else
		{
			are_written = false;
			*missing_store = shared->slots[numbers[i] - 1].store;
			*missing_no = blob_segment_of(shared->slots[numbers[i] - 1].page);
		}
	}
	LWLockRelease(shared->write_lock);
	return are_written;
}

bool
blob_deferred_write_segment(const BlobStoreId *store, uint32 segment_no)
{
	BlobStoreId missing_store;
	uint32		missing_no;

	return write_segments(store, segment_no, &missing_store, &missing_no);
}

bool
blob_deferred_write_all(BlobStoreId *missing_store, uint32 *missing_no)
{
	return write_segments(NULL, 0, missing_store, missing_no);
}

/* ---- removal of files ---- */

void
blob_deferred_begin_removal(void)
{
	LWLockAcquire(shared->write_lock, LW_EXCLUSIVE);
}

void
blob_deferred_end_removal(const BlobStoreId *store, uint32 segment_no)
{
	static uint32 numbers[SLOT_COUNT];

	if (store != NULL)
		take_out(numbers, collect(store, segment_no, numbers));
	LWLockRelease(shared->write_lock);
}

/* ---- freed pages ---- */

/*
 * Keep the numbers of slots whose pages are in the runs; both are ascending.  Returns their count.
 */
static int
keep_in_runs(uint32 *numbers, int count, const BlobPageRun *runs, int run_count)
{
	int			kept = 0;
	int			run_no = 0;

	for (int i = 0; i < count; i++)
	{
		BlobPageNo	page = shared->slots[numbers[i] - 1].page;

		while (run_no < run_count && runs[run_no].first_page + runs[run_no].pages <= page)
			run_no++;
		if (run_no < run_count && runs[run_no].first_page <= page)
			numbers[kept++] = numbers[i];
	}
	return kept;
}

/*
 * The look at used_count needs no lock: the pages were put before they were freed, and a write that
 * is under way keeps its pages in the table.
 */
void
blob_deferred_drop(const BlobStoreId *store, const BlobPageRun *runs, int run_count)
{
	static uint32 numbers[SLOT_COUNT];
	int			count;

	if (shared == NULL || pg_atomic_read_u32(&shared->used_count) == 0)
		return;
	LWLockAcquire(shared->write_lock, LW_EXCLUSIVE);
	count = collect(store, BLOB_ALL_SEGMENTS, numbers);
	take_out(numbers, keep_in_runs(numbers, count, runs, run_count));
	LWLockRelease(shared->write_lock);
}

/* ---- for the syncer ---- */

static void
set_open(bool is_open)
{
	LWLockAcquire(shared->table_lock, LW_EXCLUSIVE);
	shared->is_open = is_open;
	LWLockRelease(shared->table_lock);
}

void
blob_deferred_open(void)
{
	set_open(true);
}

void
blob_deferred_close(void)
{
	set_open(false);
}

uint32
blob_deferred_count(void)
{
	return shared == NULL ? 0 : pg_atomic_read_u32(&shared->used_count);
}

bool
blob_deferred_is_filling(void)
{
	return pg_atomic_read_u32(&shared->used_count) >= SLOT_COUNT / 2;
}
