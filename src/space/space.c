/*
 * space/space.c
 *	  Allocation of extents in shared memory, see space/space.h and the README of this folder.
 *
 * One BlobSpaceShared per store.  Its lock is held for memory operations only.  Its growth lock
 * serialises what does I/O: loading the free space from the map, reserving more of the disk,
 * reserving generations; backends that find space never touch it.
 * Lock order: growth lock, then (map buffer locks or lock); never I/O under lock.
 */
#include "postgres.h"

#include <sys/statvfs.h>

#include "access/table.h"
#include "access/xact.h"
#include "core/catalog.h"
#include "core/settings.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "space/free_runs.h"
#include "space/map.h"
#include "space/space.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define TRANCHE_NAME "blobext_space"

/* Memory of the free runs that is there from the start; more comes from DSM segments. */
#define DSA_INITIAL_BYTES (256 * 1024)

/* Generations are reserved in the WAL so many at a time. */
#define GENERATION_BATCH 8192

/* The store grows by an eighth, within these bounds. */
#define MIN_GROWTH_PAGES UINT64CONST(4096)	/* 16 MiB */
#define MAX_GROWTH_PAGES BLOB_SEGMENT_PAGES

/* What the map can address: MaxBlockNumber blocks of entries, about 8 PiB. */
#define MAX_STORE_PAGES ((BlobPageNo) (MaxBlockNumber - 1) * BLOB_MAP_ENTRIES)

/* How long a reader that holds a buffer lock waits for the lock on the map, see lock_map(). */
#define MAP_LOCK_TIMEOUT_MS 10000
#define MAP_LOCK_POLL_MS 10

typedef struct BlobSpaceShared
{
	BlobSpaceId id;				/* hash key */
	LWLock		lock;			/* protects all below */
	LWLock		growth_lock;
	bool		loaded;			/* changes under both locks */
	BlobFreeRuns free_runs;
	uint64		reserved_pages;
	BlobGeneration next_generation;
	BlobGeneration generation_limit;
} BlobSpaceShared;

typedef struct SpaceControl
{
	LWLock	   *table_lock;		/* protects the hash table; entries never move or go */
	char		dsa_place[FLEXIBLE_ARRAY_MEMBER];
} SpaceControl;

static SpaceControl *control;
static HTAB *space_table;
static dsa_area *area;			/* this backend's attachment */

static Size
control_bytes(void)
{
	return add_size(offsetof(SpaceControl, dsa_place), DSA_INITIAL_BYTES);
}

void
blob_space_shmem_request(void)
{
	RequestAddinShmemSpace(control_bytes());
	RequestAddinShmemSpace(hash_estimate_size(blob_max_databases, sizeof(BlobSpaceShared)));
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

/* Called with AddinShmemInitLock held. */
void
blob_space_shmem_init(void)
{
	bool		found;
	HASHCTL		info = {
		.keysize = sizeof(BlobSpaceId),
		.entrysize = sizeof(BlobSpaceShared)
	};

	control = ShmemInitStruct("blobext spaces", control_bytes(), &found);
	if (!found)
	{
		dsa_area   *created;

		control->table_lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
		created = dsa_create_in_place(control->dsa_place, DSA_INITIAL_BYTES,
									  control->table_lock->tranche, NULL);
		dsa_pin(created);
		dsa_detach(created);
	}
	space_table = ShmemInitHash("blobext space table", blob_max_databases, blob_max_databases,
								&info, HASH_ELEM | HASH_BLOBS);
}

bool
blob_space_is_preloaded(void)
{
	return control != NULL;
}

void
blob_space_require_preload(void)
{
	if (!blob_space_is_preloaded())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("blobext must be loaded via shared_preload_libraries"),
				 errhint("Add blobext to shared_preload_libraries and restart the server.")));
}

static void
attach_area(void)
{
	MemoryContext old_context;

	if (area != NULL)
		return;
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	area = dsa_attach_in_place(control->dsa_place, NULL);
	dsa_pin_mapping(area);
	MemoryContextSwitchTo(old_context);
}

/* The shared part of a store; made on first use. */
static BlobSpaceShared *
find_shared(const BlobSpaceId *id)
{
	BlobSpaceShared *shared;
	BlobSpaceId key;
	bool		found;

	attach_area();
	memset(&key, 0, sizeof(key));	/* padding is part of the hash key */
	key.dboid = id->dboid;
	key.incarnation = id->incarnation;

	LWLockAcquire(control->table_lock, LW_SHARED);
	shared = hash_search(space_table, &key, HASH_FIND, NULL);
	LWLockRelease(control->table_lock);
	if (shared != NULL)
		return shared;

	LWLockAcquire(control->table_lock, LW_EXCLUSIVE);
	shared = hash_search(space_table, &key, HASH_ENTER_NULL, &found);
	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many databases hold an extent store"),
				 errhint("Increase blobext.max_databases and restart the server.")));
	if (!found)
	{
		LWLockInitialize(&shared->lock, control->table_lock->tranche);
		LWLockInitialize(&shared->growth_lock, control->table_lock->tranche);
		shared->loaded = false;
		blob_free_runs_init(&shared->free_runs);
		shared->reserved_pages = 0;
		shared->next_generation = shared->generation_limit = 0;
	}
	LWLockRelease(control->table_lock);
	return shared;
}

/*
 * A map that this transaction has moved goes back to its old file if the transaction fails, and
 * with it what was allocated since, while shared memory would not.
 */
static void
check_not_moved(Relation map)
{
	if (map->rd_firstRelfilenodeSubid != InvalidSubTransactionId)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot store in extents in the transaction that moved the extent map"),
				 errhint("Commit the transaction first.")));
}

/*
 * Comparisons read while their caller holds a buffer lock.  Whoever has the map locked (ALTER
 * TABLE, VACUUM FULL) may be waiting for that buffer: nobody would notice the deadlock, and no
 * interrupt could end it.  So wait for a limited time there.
 */
static void
lock_map(Oid map, LOCKMODE lock_mode)
{
	long		waited_ms = 0;

	if (InterruptHoldoffCount == 0)
	{
		LockRelationOid(map, lock_mode);
		return;
	}
	while (!ConditionalLockRelationOid(map, lock_mode))
	{
		if (waited_ms >= MAP_LOCK_TIMEOUT_MS)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not lock the extent map to read content"),
					 errdetail("Another transaction alters the extent map or vacuums it in full."),
					 errhint("Try again when it has ended.")));
		pg_usleep(MAP_LOCK_POLL_MS * 1000L);
		waited_ms += MAP_LOCK_POLL_MS;
	}
}

void
blob_space_open(BlobSpace *space, LOCKMODE lock_mode)
{
	Oid			map;

	blob_space_require_preload();
	map = blob_catalog_map_relation();
	lock_map(map, lock_mode);
	space->map = table_open(map, NoLock);
	space->lock_mode = lock_mode;
	if (lock_mode >= RowExclusiveLock)
		check_not_moved(space->map);
	space->id = blob_map_space_id(space->map);
}

void
blob_space_close(BlobSpace *space)
{
	table_close(space->map, space->lock_mode);
	space->map = NULL;
}

/* State of a load: everything between allocated extents is free. */
typedef struct LoadState
{
	BlobSpaceShared *shared;
	BlobPageNo	next_page;		/* pages below are dealt with */
} LoadState;

static void
report_overlap(BlobPageNo page)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the extent map is damaged at page " UINT64_FORMAT, page),
			 errdetail("An extent overlaps the one before it or lies outside of the store."),
			 errhint("Run blobext_check() to see which values are affected.")));
}

static void
load_extent(BlobPageNo first_page, const BlobMapEntry *entry, void *context)
{
	LoadState  *state = context;
	uint64		pages = blob_map_entry_pages(entry);

	if (first_page < state->next_page ||
		first_page + pages > state->shared->reserved_pages)
		report_overlap(first_page);
	if (first_page > state->next_page)
		blob_free_runs_give(area, &state->shared->free_runs, state->next_page,
							first_page - state->next_page);
	state->next_page = first_page + pages;
}

/*
 * Find the free space in the map, once after each start of the server.  While loaded is false
 * nobody else touches the members, so only the flag changes under the lock.
 */
static void
load(BlobSpace *space, BlobSpaceShared *shared)
{
	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	if (!shared->loaded)
	{
		BlobMapMeta meta;
		LoadState	state = {.shared = shared};

		blob_map_read_meta(space->map, &meta);
		blob_free_runs_clear(area, &shared->free_runs);
		shared->reserved_pages = meta.reserved_pages;
		/* Those below the limit may have been given before a crash. */
		shared->next_generation = shared->generation_limit = meta.generation_limit;

		/*
		 * A killed backend may have had writes in flight to extents whose ALLOC record was lost
		 * with it: pages that look free now, and must not be given out before those writes end.
		 */
		for (BlobPageNo page = 0; page < meta.reserved_pages; page += BLOB_SEGMENT_PAGES)
			blob_segment_settle(&space->id, blob_segment_of(page));

		blob_map_visit(space->map, load_extent, &state);
		if (state.next_page < meta.reserved_pages)
			blob_free_runs_give(area, &shared->free_runs, state.next_page,
								meta.reserved_pages - state.next_page);

		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		shared->loaded = true;
		LWLockRelease(&shared->lock);
	}
	LWLockRelease(&shared->growth_lock);
}

/* Give the pages of extents back after a failed allocation. Never called for logged ones. */
static void
give_back(BlobSpaceShared *shared, const BlobExtent *extents, int extent_count)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < extent_count; i++)
		blob_free_runs_give(area, &shared->free_runs, extents[i].first_page, extents[i].pages);
	LWLockRelease(&shared->lock);
}

/* How much to reserve when so many pages are needed; never most of what the disk has left. */
static uint64
growth_pages(const BlobSpaceShared *shared, uint64 needed_pages)
{
	uint64		pages = shared->reserved_pages / 8;
	struct statvfs file_system;

	pages = Max(MIN_GROWTH_PAGES, Min(MAX_GROWTH_PAGES, pages));
	if (pages <= needed_pages)
		return needed_pages;
	if (statvfs(BLOB_STORE_DIR, &file_system) == 0 &&
		pages * BLOB_PAGE_SIZE > (uint64) file_system.f_bavail * file_system.f_frsize / 4)
		return needed_pages;
	return pages;
}

/* Reserve disk space for at least needed_pages in one run, unless somebody just did. */
static void
grow(BlobSpace *space, BlobSpaceShared *shared, uint64 needed_pages)
{
	uint64		longest;
	uint64		pages;
	BlobPageNo	first_page;

	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);

	LWLockAcquire(&shared->lock, LW_SHARED);
	longest = blob_free_runs_longest(area, &shared->free_runs);
	first_page = shared->reserved_pages;
	LWLockRelease(&shared->lock);
	if (longest >= needed_pages)
	{
		LWLockRelease(&shared->growth_lock);
		return;
	}

	pages = growth_pages(shared, needed_pages);
	if (first_page + pages > MAX_STORE_PAGES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the extent store of this database is full")));
	blob_segment_reserve(&space->id, first_page, first_page + pages);
	blob_map_set_reserved(space->map, first_page + pages);

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->reserved_pages = first_page + pages;
	blob_free_runs_give(area, &shared->free_runs, first_page, pages);
	LWLockRelease(&shared->lock);
	LWLockRelease(&shared->growth_lock);
}

/* Make sure that so many more generations can be drawn. */
static void
reserve_generations(BlobSpace *space, BlobSpaceShared *shared, int count)
{
	BlobGeneration limit;
	bool		enough;

	LWLockAcquire(&shared->growth_lock, LW_EXCLUSIVE);
	LWLockAcquire(&shared->lock, LW_SHARED);
	enough = shared->next_generation + count <= shared->generation_limit;
	limit = shared->generation_limit + Max(count, GENERATION_BATCH);
	LWLockRelease(&shared->lock);

	if (!enough)
	{
		blob_map_set_generation_limit(space->map, limit);
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		shared->generation_limit = limit;
		LWLockRelease(&shared->lock);
	}
	LWLockRelease(&shared->growth_lock);
}

/* Sizes of the plan's extents; returns their number. */
static int
lay_out(const BlobTierPlan *plan, BlobExtent *extents)
{
	int			count = plan->extent_count;

	for (int i = 0; i < count; i++)
	{
		extents[i].pages = blob_tier_pages(i);
		extents[i].is_tail = false;
	}
	if (plan->tail_pages > 0)
	{
		extents[count].pages = plan->tail_pages;
		extents[count].is_tail = true;
		count++;
	}
	return count;
}

/* Take all extents as one run. */
static bool
take_side_by_side(BlobSpaceShared *shared, uint64 total_pages, BlobExtent *extents, int count)
{
	BlobPageNo	page;

	if (!blob_free_runs_take(area, &shared->free_runs, total_pages, &page))
		return false;
	for (int i = 0; i < count; i++)
	{
		extents[i].first_page = page;
		page += extents[i].pages;
	}
	return true;
}

/*
 * Take the extents one by one, the largest (last) first.  Only where the free space is so large a
 * part of the store that growing it would waste the disk.  On failure all are given back; that
 * needs memory, and if there is none, the pages are lost until the next start.
 */
static bool
take_scattered(BlobSpaceShared *shared, uint64 total_pages, BlobExtent *extents, int count)
{
	uint64		free_pages = shared->free_runs.page_count;

	if (free_pages < total_pages || free_pages < shared->reserved_pages / 8)
		return false;
	for (int i = count - 1; i >= 0; i--)
	{
		if (blob_free_runs_take(area, &shared->free_runs, extents[i].pages,
								&extents[i].first_page))
			continue;
		for (int taken = i + 1; taken < count; taken++)
			blob_free_runs_give(area, &shared->free_runs, extents[taken].first_page,
								extents[taken].pages);
		return false;
	}
	return true;
}

static void
draw_generations(BlobSpaceShared *shared, BlobExtent *extents, int count)
{
	for (int i = 0; i < count; i++)
		extents[i].generation = shared->next_generation++;
}

/* Take pages and generations in memory, growing the store as needed. */
static void
take(BlobSpace *space, BlobSpaceShared *shared, uint64 total_pages, BlobExtent *extents, int count)
{
	for (;;)
	{
		bool		generations_left;
		bool		taken = false;

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
		generations_left = shared->next_generation + count <= shared->generation_limit;
		if (shared->loaded && generations_left)
		{
			taken = take_side_by_side(shared, total_pages, extents, count) ||
				take_scattered(shared, total_pages, extents, count);
			if (taken)
				draw_generations(shared, extents, count);
		}
		LWLockRelease(&shared->lock);

		if (taken)
			return;
		if (!shared->loaded)
			load(space, shared);
		else if (!generations_left)
			reserve_generations(space, shared, count);
		else
			grow(space, shared, total_pages);
	}
}

/* Log and map what was taken in memory; on failure give back what is not in the map. */
static void
publish(BlobSpace *space, BlobSpaceShared *shared, const BlobExtent *extents, int count,
		uint64 size_bytes)
{
	int			logged_count = 0;	/* changed through its address only: survives longjmp */

	PG_TRY();
	{
		blob_map_allocate(space->map, &space->id, extents, count, size_bytes, &logged_count);
	}
	PG_CATCH();
	{
		give_back(shared, extents + logged_count, count - logged_count);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

int
blob_space_allocate(BlobSpace *space, const BlobTierPlan *plan, uint64 size_bytes,
					BlobExtent *extents)
{
	BlobSpaceShared *shared = find_shared(&space->id);
	int			count = lay_out(plan, extents);

	Assert(!RecoveryInProgress());	/* replay changes the map behind our back */
	Assert(TransactionIdIsValid(GetTopTransactionIdIfAny()));

	take(space, shared, plan->total_pages, extents, count);
	publish(space, shared, extents, count, size_bytes);
	return count;
}

BlobGeneration
blob_space_cutoff(BlobSpace *space)
{
	BlobSpaceShared *shared = find_shared(&space->id);
	BlobGeneration next;

	if (!shared->loaded)
		load(space, shared);
	LWLockAcquire(&shared->lock, LW_SHARED);
	next = shared->next_generation;
	LWLockRelease(&shared->lock);
	return next - 1;
}
