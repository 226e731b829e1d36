/*
 * io/segment_sync.c
 *	  Durability of segment files: one fdatasync() for all backends that wait for it.
 *
 * The protocol.  Each segment file hashes to one of a fixed number of slots.  A backend whose
 * writes have completed
 *
 *	0. writes its dirty pages of the segment (dirty.c);
 *	1. draws a ticket: my_seq = ++slot->write_seq;
 *	2. takes the slot's lock exclusively;
 *	3. if the slot says that this very segment was synced up to a ticket >= my_seq, it is done;
 *	4. else reads target = write_seq, calls fdatasync(), and records (segment, target).
 *
 * The invariant, under the lock:  "an fdatasync() of slot->synced, which succeeded, began after
 * every ticket <= synced_seq was drawn".  It holds because target is read before the call.  A
 * backend draws its ticket after its writes completed, so step 3 answers rightly.  While one
 * backend is in fdatasync(), others queue up on the lock.  The first of them syncs for all that
 * drew a ticket before it read target; the rest leave in step 3.
 *
 * Collisions.  Two segments in one slot share write_seq.  That only makes tickets larger than
 * either would have alone, and the argument never needs them to be dense.  The recorded identity is
 * that of the one segment that was synced last; a backend of the other segment sees a foreign
 * identity, and syncs by itself.  So a collision can cost a superfluous fdatasync(), never a
 * missing one.
 *
 * A removed and remade file has the same identity.  Therefore the file is looked up *after* target
 * was read: the look-up notices every removal that happened before it (see segment.c).  So the file
 * that is synced is the one that all tickets <= target were drawn for, or a newer one.
 *
 * Any process's fdatasync() covers completed writes through any descriptor of the file.  An error
 * of write-back is reported to the first process that syncs.  There it is a PANIC for the cluster.
 * It is never retried, because the kernel may have marked the lost pages clean.
 */
#include "postgres.h"

#include <unistd.h>

#include "common/hashfn.h"
#include "utils/wait_event.h"
#include "io/dirty.h"
#include "io/io_internal.h"
#include "io/segment.h"
#include "io/stat.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

typedef struct SyncSlot
{
	pg_atomic_uint64 write_seq; /* tickets drawn */
	uint64		synced_seq;		/* under the slot's lock: see the invariant above */
	BlobSegmentId synced;		/* under the slot's lock: synced_seq is about it */
	char		padding[64 - 32];	/* one slot per cache line */
} SyncSlot;

StaticAssertDecl(sizeof(SyncSlot) == 64, "SyncSlot must fill a cache line");

static SyncSlot *sync_slots = NULL;
static LWLockPadded *sync_locks = NULL;

Size
blob_segment_sync_shmem_size(void)
{
	return mul_size(BLOB_SYNC_SLOTS, sizeof(SyncSlot));
}

/* Called under AddinShmemInitLock. */
void
blob_segment_sync_shmem_init(void)
{
	bool		found;

	sync_slots = ShmemInitStruct("blobext segment sync", blob_segment_sync_shmem_size(), &found);
	sync_locks = GetNamedLWLockTranche(BLOB_SYNC_TRANCHE);
	if (found)
		return;

	/* Identity zero belongs to no segment: no database has OID 0. */
	memset(sync_slots, 0, blob_segment_sync_shmem_size());
	for (int i = 0; i < BLOB_SYNC_SLOTS; i++)
		pg_atomic_init_u64(&sync_slots[i].write_seq, 0);
}

/*
 * fdatasync() the segment, PANIC on failure.  Returns false if there is no such file.  The slot's
 * lock is held; if opening the file is an ERROR, the transaction's abort releases it.
 */
static bool
sync_file(const BlobStoreId *store, uint32 segment_no)
{
	int			fd = blob_segment_open(store, segment_no, BLOB_SEGMENT_MISSING_OK);
	int			result;

	if (fd < 0)
		return false;

	pgstat_report_wait_start(PG_WAIT_EXTENSION);
	do
	{
		result = fdatasync(fd);
	} while (result != 0 && errno == EINTR);
	pgstat_report_wait_end();

	if (result != 0)
	{
		char		path[MAXPGPATH];
		int			save_errno = errno;

		blob_segment_path(path, sizeof(path), store, segment_no);
		errno = save_errno;
		ereport(PANIC,
				(errcode_for_file_access(),
				 errmsg("could not fdatasync blob segment file \"%s\": %m", path)));
	}
	return true;
}

/* Takes the slot's LWLock; the caller holds no lock of this tranche. */
bool
blob_segment_sync_written(const BlobStoreId *store, uint32 segment_no)
{
	BlobSegmentId identity = {store->incarnation, store->dboid, segment_no};
	SyncSlot   *slot;
	LWLock	   *lock;
	uint64		my_seq;
	uint64		target_seq;
	bool		exists = true;
	int			slot_no;

	slot_no = hash_bytes((const unsigned char *) &identity, sizeof(identity)) % BLOB_SYNC_SLOTS;
	slot = &sync_slots[slot_no];
	lock = &sync_locks[slot_no].lock;

	/* A full barrier: other backends see the ticket only after the completion of our writes. */
	my_seq = pg_atomic_add_fetch_u64(&slot->write_seq, 1);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (slot->synced_seq >= my_seq &&
		memcmp(&slot->synced, &identity, sizeof(identity)) == 0)
	{
		LWLockRelease(lock);
		blob_stat_count(shared_syncs, 1);
		return true;
	}

	target_seq = pg_atomic_read_u64(&slot->write_seq);
	pg_memory_barrier();
	Assert(target_seq >= my_seq);

	exists = sync_file(store, segment_no);
	if (exists)
	{
		slot->synced = identity;
		slot->synced_seq = target_seq;
	}
	LWLockRelease(lock);

	if (exists)
		blob_stat_count(syncs, 1);
	return exists;
}

/*
 * Takes the locks of dirty.c, then the slot's LWLock; the caller holds no lock of these tranches.
 */
bool
blob_segment_sync(const BlobStoreId *store, uint32 segment_no, uint64 start_time)
{
	/* These writes count as completed before the ticket is drawn. */
	return blob_dirty_write_segment(store, segment_no, start_time) &&
		(!enableFsync || blob_segment_sync_written(store, segment_no));
}
