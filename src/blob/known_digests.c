/*
 * blob/known_digests.c
 *	  Digests of open values, see blob/known_digests.h.
 *
 * One lock protects the list, and nothing else is locked under it.  A value has one of the places
 * of a set, which its generation chooses.  They are given out in turns.
 */
#include "postgres.h"

#include "blob/known_digests.h"
#include "common/hashfn.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define TRANCHE "blobext_known_digests"

/* 1,024 values, about 100 kB. */
#define SETS 256
#define WAYS 4

typedef struct KnownDigest
{
	BlobStoreId store;
	BlobGeneration generation;	/* BLOB_INVALID_GENERATION: the place is free */
	BlobSeal	seal;
} KnownDigest;

typedef struct KnownDigests
{
	int			next_way;		/* which place of a set is given out next */
	KnownDigest sets[SETS][WAYS];
} KnownDigests;

static KnownDigests *known;
static LWLock *lock;

void
blob_known_digests_shmem_request(void)
{
	RequestAddinShmemSpace(sizeof(KnownDigests));
	RequestNamedLWLockTranche(TRANCHE, 1);
}

/* Under AddinShmemInitLock; again after a crash, which empties the list. */
void
blob_known_digests_shmem_init(void)
{
	bool		found;

	known = ShmemInitStruct("blobext known digests", sizeof(KnownDigests), &found);
	lock = &GetNamedLWLockTranche(TRANCHE)->lock;
	if (!found)
		memset(known, 0, sizeof(*known));
}

/* The caller holds the lock. */
static KnownDigest *
find_set(BlobGeneration generation)
{
	return known->sets[murmurhash32((uint32) generation) % SETS];
}

static KnownDigest *
find_in_set(KnownDigest *set, const BlobStoreId *store, BlobGeneration generation)
{
	for (int i = 0; i < WAYS; i++)
	{
		if (set[i].generation == generation && blob_store_id_equals(&set[i].store, store))
			return &set[i];
	}
	return NULL;
}

bool
blob_known_digests_find(const BlobStoreId *store, BlobGeneration generation, BlobSeal *seal)
{
	const KnownDigest *entry;

	Assert(generation != BLOB_INVALID_GENERATION);
	LWLockAcquire(lock, LW_SHARED);
	entry = find_in_set(find_set(generation), store, generation);
	if (entry != NULL)
		*seal = entry->seal;
	LWLockRelease(lock);
	return entry != NULL;
}

void
blob_known_digests_note(const BlobStoreId *store, BlobGeneration generation,
						const BlobSeal *seal)
{
	KnownDigest *set;
	KnownDigest *entry;

	Assert(generation != BLOB_INVALID_GENERATION);
	LWLockAcquire(lock, LW_EXCLUSIVE);
	set = find_set(generation);
	entry = find_in_set(set, store, generation);
	if (entry == NULL)
	{
		entry = &set[known->next_way];
		known->next_way = (known->next_way + 1) % WAYS;
		entry->store = *store;
		entry->generation = generation;
		entry->seal = *seal;
	}
	/* Each process that has read the content has found the same bytes. */
	Assert(memcmp(&entry->seal, seal, sizeof(*seal)) == 0);
	LWLockRelease(lock);
}

void
blob_known_digests_forget_store(const BlobStoreId *store)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int set = 0; set < SETS; set++)
	{
		for (int way = 0; way < WAYS; way++)
		{
			if (blob_store_id_equals(&known->sets[set][way].store, store))
				known->sets[set][way].generation = BLOB_INVALID_GENERATION;
		}
	}
	LWLockRelease(lock);
}
