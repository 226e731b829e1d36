/*
 * store/shared.c
 *	  The stores in shared memory: a hash table, whose entries have the sets of pages of a store.
 */
#include "postgres.h"

#include "core/compat.h"
#include "core/settings.h"
#include "io/segment.h"
#include "miscadmin.h"
#include "store/disk_room.h"
#include "store/store_internal.h"
#include "store/unlogged.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#define TRANCHE_NAME "blobext_store"

/* Memory for free runs that exists from the start; more comes from DSM segments. */
#define DSA_INITIAL_BYTES (256 * 1024)

#define SPARE_STORES 64

typedef struct StoreControl
{
	LWLock	   *table_lock;		/* protects the hash table; its entries never move */
	pg_atomic_uint64 dropped_lsn;	/* of the last DROP */
	char		dsa_place[FLEXIBLE_ARRAY_MEMBER];
} StoreControl;

static StoreControl *control;
static HTAB *store_table;
dsa_area   *blob_store_area;

static Size
control_bytes(void)
{
	return add_size(offsetof(StoreControl, dsa_place), DSA_INITIAL_BYTES);
}

/*
 * How many stores the table has room for.  The spare entries are for stores of dropped extensions
 * beside the new ones of their databases, and for those that come by replay: from PostgreSQL 19 on
 * a table takes no more memory than it was made with.
 */
static int
table_room(void)
{
	return blob_segment_database_room() + SPARE_STORES;
}

void
blob_store_shmem_request(void)
{
	RequestAddinShmemSpace(control_bytes());
	RequestAddinShmemSpace(hash_estimate_size(table_room(), sizeof(BlobStoreShared)));
	RequestAddinShmemSpace(blob_unlogged_shmem_size());
	RequestAddinShmemSpace(blob_disk_room_shmem_size());
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

/* Called with AddinShmemInitLock held. */
void
blob_store_shmem_init(void)
{
	bool		found;
	HASHCTL		info = {
		.keysize = sizeof(BlobStoreId),
		.entrysize = sizeof(BlobStoreShared)
	};

	control = ShmemInitStruct("blobext stores", control_bytes(), &found);
	if (!found)
	{
		dsa_area   *created;

		control->table_lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
		pg_atomic_init_u64(&control->dropped_lsn, InvalidXLogRecPtr);
		created = dsa_create_in_place(control->dsa_place, DSA_INITIAL_BYTES,
									  control->table_lock->tranche, NULL);
		dsa_pin(created);
		dsa_detach(created);
	}
	store_table = blob_shmem_init_hash("blobext store table", table_room(), &info,
									   HASH_ELEM | HASH_BLOBS);
	blob_unlogged_shmem_init();
	blob_disk_room_shmem_init();
}

bool
blob_store_is_preloaded(void)
{
	return control != NULL;
}

void
blob_store_require_preload(void)
{
	if (!blob_store_is_preloaded())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("blobext must be loaded via shared_preload_libraries"),
				 errhint("Add blobext to shared_preload_libraries and restart the server.")));
}

/* Several processes may drop stores at once. */
void
blob_store_note_drop(XLogRecPtr lsn)
{
	uint64		last = pg_atomic_read_u64(&control->dropped_lsn);

	while (last < lsn && !pg_atomic_compare_exchange_u64(&control->dropped_lsn, &last, lsn))
		;
}

bool
blob_store_may_replay_drop(void)
{
	return control != NULL &&
		pg_atomic_read_u64(&control->dropped_lsn) > blob_store_completed_redo();
}

static void
attach_area(void)
{
	MemoryContext old_context;

	if (blob_store_area != NULL)
		return;
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	blob_store_area = dsa_attach_in_place(control->dsa_place, NULL);
	dsa_pin_mapping(blob_store_area);
	MemoryContextSwitchTo(old_context);
}

/* The shared part of a store, or NULL.  The caller holds table_lock. */
static BlobStoreShared *
find_shared(const BlobStoreId *id)
{
	BlobStoreId key;

	memset(&key, 0, sizeof(key));	/* padding is part of the hash key */
	key.dboid = id->dboid;
	key.incarnation = id->incarnation;
	return hash_search(store_table, &key, HASH_FIND, NULL);
}

/* ---- the number of stores ---- */

/*
 * Other databases than this one that have a store: a directory, or an entry, because the directory
 * comes with the first segment.  The caller holds table_lock, so that none is added meanwhile.
 */
static int
count_other_databases(Oid database)
{
	BlobStoreId *stores;
	int			store_count = blob_segment_list_stores(&stores);
	Oid		   *others = palloc(sizeof(Oid) *
								(store_count + hash_get_num_entries(store_table) + 1));
	int			count = 0;
	int			distinct = 0;
	HASH_SEQ_STATUS scan;
	BlobStoreShared *shared;

	for (int i = 0; i < store_count; i++)
		others[count++] = stores[i].dboid;
	hash_seq_init(&scan, store_table);
	while ((shared = hash_seq_search(&scan)) != NULL)
		others[count++] = shared->id.dboid;
	qsort(others, count, sizeof(Oid), oid_cmp);
	for (int i = 0; i < count; i++)
	{
		if (others[i] != database && (i == 0 || others[i] != others[i - 1]))
			distinct++;
	}
	pfree(others);
	pfree(stores);
	return distinct;
}

/*
 * ERROR if the store is a new one, and as many databases have one as blobext.max_databases says.
 * A store that has files is let in, whatever the number is.  The caller holds table_lock.
 */
static void
require_place(const BlobStoreId *id)
{
	int			count;

	if (blob_segment_dir_exists(id))
		return;
	count = count_other_databases(id->dboid);
	if (count >= blob_max_databases)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many databases hold an extent store"),
				 errdetail("%d other databases of this server have one, and blobext.max_databases "
						   "is %d.", count, blob_max_databases),
				 errhint("Increase blobext.max_databases and restart the server.")));
}

BlobStoreShared *
blob_store_shared(const BlobStoreId *id)
{
	BlobStoreShared *shared;
	BlobStoreId key;
	bool		found;

	attach_area();
	memset(&key, 0, sizeof(key));	/* padding is part of the hash key */
	key.dboid = id->dboid;
	key.incarnation = id->incarnation;

	LWLockAcquire(control->table_lock, LW_SHARED);
	shared = find_shared(id);
	LWLockRelease(control->table_lock);
	if (shared != NULL)
		return shared;

	LWLockAcquire(control->table_lock, LW_EXCLUSIVE);
	if (find_shared(id) == NULL)
		require_place(id);
	shared = hash_search(store_table, &key, HASH_ENTER_NULL, &found);
	if (shared == NULL)			/* more came by replay or DROP EXTENSION than there is room for */
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the table of extent stores is full"),
				 errhint("Restart the server: the table has room for all stores that it finds at "
						 "its start.")));
	if (!found)
	{
		LWLockInitialize(&shared->lock, control->table_lock->tranche);
		LWLockInitialize(&shared->growth_lock, control->table_lock->tranche);
		pg_atomic_init_u32(&shared->growth_waiters, 0);
		shared->begun = shared->loaded = false;
		blob_free_runs_init(&shared->free_runs);
		blob_pending_init(&shared->pending);
		blob_free_runs_init(&shared->resting);
		shared->resting_lsn = shared->freed_lsn = InvalidXLogRecPtr;
		shared->pace = (BlobHolePace) {0};
		blob_free_runs_init(&shared->hollow);
		blob_pending_init(&shared->hollow_pending);
		shared->removed_lsn = InvalidXLogRecPtr;
		shared->knows_no_holes = false;
		shared->holes_are_checked = false;
		shared->has_sums = false;
		shared->checkpoint_request = 0;
		shared->checkpoint_lsn = InvalidXLogRecPtr;
		shared->checkpoint_awaited = false;
		shared->checkpoint_pause_ms = 0;
		shared->reserved_pages = 0;
		shared->used_pages = 0;
		shared->next_generation = shared->generation_limit = 0;
		shared->allocated_pages = 0;
#ifdef USE_ASSERT_CHECKING
		shared->extent_pages = shared->held_pages = shared->lost_pages = 0;
		shared->unloaded_pages = 0;
#endif
	}
	LWLockRelease(control->table_lock);
	return shared;
}

/* Under the lock of the store. */
static void
fill_usage(const BlobStoreShared *shared, XLogRecPtr covered, BlobStoreUsage *usage)
{
	uint64		freed_pages = shared->free_runs.page_count + shared->resting.page_count +
		blob_pending_pages(&shared->pending);

	usage->database = shared->id.dboid;
	usage->pending_pages = blob_pending_count_after(blob_store_area, &shared->pending, covered, 0,
													BLOB_MAX_PAGE_NO + 1);
	usage->free_pages = freed_pages - usage->pending_pages;
	usage->file_pages = blob_store_file_pages(shared);
	usage->allocated_pages = usage->file_pages - freed_pages;
}

int
blob_store_usages(BlobStoreUsage **usages)
{
	HASH_SEQ_STATUS scan;
	BlobStoreShared *shared;
	XLogRecPtr	covered = blob_store_covered();
	int			count = 0;

	attach_area();
	LWLockAcquire(control->table_lock, LW_SHARED);
	*usages = palloc0((hash_get_num_entries(store_table) + 1) * sizeof(BlobStoreUsage));
	hash_seq_init(&scan, store_table);
	while ((shared = hash_seq_search(&scan)) != NULL)
	{
		LWLockAcquire(&shared->lock, LW_SHARED);
		if (shared->loaded)
			fill_usage(shared, covered, &(*usages)[count++]);
		LWLockRelease(&shared->lock);
	}
	LWLockRelease(control->table_lock);
	return count;
}

int
blob_store_list(BlobStoreId **ids)
{
	HASH_SEQ_STATUS scan;
	BlobStoreShared *shared;
	int			count = 0;

	LWLockAcquire(control->table_lock, LW_SHARED);
	*ids = palloc((hash_get_num_entries(store_table) + 1) * sizeof(BlobStoreId));
	hash_seq_init(&scan, store_table);
	while ((shared = hash_seq_search(&scan)) != NULL)
		(*ids)[count++] = shared->id;
	LWLockRelease(control->table_lock);
	return count;
}

bool
blob_store_has_entry(const BlobStoreId *id)
{
	bool		has_entry;

	LWLockAcquire(control->table_lock, LW_SHARED);
	has_entry = find_shared(id) != NULL;
	LWLockRelease(control->table_lock);
	return has_entry;
}

BlobStoreShared *
blob_store_shared_if_loaded(const BlobStoreId *id)
{
	BlobStoreShared *shared;

	attach_area();
	LWLockAcquire(control->table_lock, LW_SHARED);
	shared = find_shared(id);
	LWLockRelease(control->table_lock);
	return shared != NULL && shared->loaded ? shared : NULL;
}

uint64
blob_store_allocated_pages(const BlobStoreId *id)
{
	BlobStoreShared *shared;
	uint64		pages = 0;

	LWLockAcquire(control->table_lock, LW_SHARED);
	shared = find_shared(id);
	if (shared != NULL)
	{
		LWLockAcquire(&shared->lock, LW_SHARED);
		pages = shared->allocated_pages;
		LWLockRelease(&shared->lock);
	}
	LWLockRelease(control->table_lock);
	return pages;
}

BlobStoreShared *
blob_store_lock_table(const BlobStoreId *id)
{
	LWLockAcquire(control->table_lock, LW_SHARED);
	return find_shared(id);
}

void
blob_store_unlock_table(void)
{
	LWLockRelease(control->table_lock);
}

/* Free all nodes of all sets.  No other process uses them. */
static void
clear_sets(BlobStoreShared *shared)
{
	blob_free_runs_clear(blob_store_area, &shared->free_runs);
	blob_pending_clear(blob_store_area, &shared->pending);
	blob_free_runs_clear(blob_store_area, &shared->resting);
	blob_free_runs_clear(blob_store_area, &shared->hollow);
	blob_pending_clear(blob_store_area, &shared->hollow_pending);
}

void
blob_store_forget(const BlobStoreId *id)
{
	BlobStoreShared *shared;

	attach_area();
	LWLockAcquire(control->table_lock, LW_EXCLUSIVE);
	shared = find_shared(id);
	if (shared != NULL)
	{
		clear_sets(shared);
		hash_search(store_table, &shared->id, HASH_REMOVE, NULL);
	}
	LWLockRelease(control->table_lock);
}
