/*
 * sql/maintenance/dedup_groups.c
 *	  blobext_dedup(): values of one content, found by size and digest, with bounded memory.
 *
 * The digests are ordered by their first eight bytes.  A range of them is in the table.  If the
 * table gets too large, the upper half of the range is left for later.
 */
#include "postgres.h"

#include "port/pg_bswap.h"
#include "sql/maintenance/dedup_parts.h"
#include "utils/hsearch.h"

/* Numbers that are remembered. */
#define MAX_NUMBERS (1024L * 1024)

#define SH_PREFIX group
#define SH_ELEMENT_TYPE BlobDedupGroup
#define SH_KEY_TYPE BlobDedupKey
#define SH_KEY key
#define SH_HASH_KEY(table, key) hash_of_key(&(key))
#define SH_EQUAL(table, a, b) is_equal(&(a), &(b))
#define SH_STORE_HASH
#define SH_GET_HASH(table, element) (element)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE

/* Not the bytes that order the digests: those of one range may agree. */
static inline uint32
hash_of_key(const BlobDedupKey *key)
{
	uint32		hash;

	memcpy(&hash, key->sha256 + BLOB_DIGEST_BYTES - sizeof(hash), sizeof(hash));
	return hash;
}

static inline bool
is_equal(const BlobDedupKey *a, const BlobDedupKey *b)
{
	return a->size_bytes == b->size_bytes && memcmp(a->sha256, b->sha256, BLOB_DIGEST_BYTES) == 0;
}

#include "lib/simplehash.h"

struct BlobDedupGroups
{
	MemoryContext context;
	Size		limit_bytes;
	uint64		first;			/* of the range, as place_of() */
	uint64		last;
	group_hash *table;
	HTAB	   *numbers;
};

static uint64
place_of(const BlobDedupKey *key)
{
	uint64		place;

	memcpy(&place, key->sha256, sizeof(place));
	return pg_ntoh64(place);
}

static bool
is_in_range(const BlobDedupGroups *groups, const BlobDedupKey *key)
{
	uint64		place = place_of(key);

	return place >= groups->first && place <= groups->last;
}

BlobDedupGroups *
blob_dedup_groups_make(MemoryContext context, Size limit_bytes)
{
	BlobDedupGroups *groups = MemoryContextAllocZero(context, sizeof(BlobDedupGroups));
	HASHCTL		control = {.keysize = sizeof(uint64), .entrysize = sizeof(uint64),
	.hcxt = context};

	groups->context = context;
	groups->limit_bytes = limit_bytes;
	groups->last = PG_UINT64_MAX;
	groups->table = group_create(context, 256, NULL);
	groups->numbers = hash_create("blobext values", 256, &control,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	return groups;
}

/*
 * Halve the range until half of the entries, or fewer, are left.  simplehash does not shrink, so
 * the next table begins small.
 */
static void
narrow(BlobDedupGroups *groups)
{
	group_hash *old = groups->table;
	uint32		enough = old->members / 2;
	group_iterator iterator;
	BlobDedupGroup *group;
	uint32		kept;

	do
	{
		groups->last = groups->first + (groups->last - groups->first) / 2;
		kept = 0;
		group_start_iterate(old, &iterator);
		while ((group = group_iterate(old, &iterator)) != NULL)
			kept += is_in_range(groups, &group->key) ? 1 : 0;
	} while (kept > enough && groups->last > groups->first);

	groups->table = group_create(groups->context, Max(kept, 256), NULL);
	group_start_iterate(old, &iterator);
	while ((group = group_iterate(old, &iterator)) != NULL)
	{
		BlobDedupGroup *copy;
		uint32		hash;
		char		status;
		bool		found;

		if (!is_in_range(groups, &group->key))
			continue;
		copy = group_insert(groups->table, group->key, &found);
		hash = copy->hash;
		status = copy->status;
		*copy = *group;
		copy->hash = hash;
		copy->status = status;
	}
	group_destroy(old);
}

/* simplehash decides by itself when it grows: then between half and nine tenths are in use. */
static bool
is_full(const BlobDedupGroups *groups)
{
	return ((Size) groups->table->members + 1) * 2 * sizeof(BlobDedupGroup) >
		groups->limit_bytes;
}

/*
 * Less space comes first, as one value may be compressed and the other is not.  Two values may have
 * one generation, if both have grown from the same base.
 */
static bool
is_better(const BlobDedupDatum *a, const BlobDedupDatum *b)
{
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes;
	return a->generation < b->generation ||
		(a->generation == b->generation && a->hash < b->hash);
}

static void
choose(BlobDedupGroup *group, const BlobDedupDatum *datum, const BlobColumnRow *row)
{
	group->has_source = true;
	group->source = *row;
	group->rows = 1;
	group->datum = *datum;
}

void
blob_dedup_groups_add(BlobDedupGroups *groups, const BlobDedupKey *key,
					  const BlobDedupDatum *datum, const BlobColumnRow *row)
{
	BlobDedupGroup *group;
	bool		found;

	if (is_full(groups))
		narrow(groups);
	if (!is_in_range(groups, key))
		return;
	group = group_insert(groups->table, *key, &found);
	if (!found)
	{
		group->several = false;
		choose(group, datum, row);
	}
	else if (group->datum.hash == datum->hash)
		group->rows++;
	else
	{
		group->several = true;
		if (is_better(datum, &group->datum))
			choose(group, datum, row);
	}
}

BlobDedupGroup *
blob_dedup_groups_find(BlobDedupGroups *groups, const BlobDedupKey *key)
{
	BlobDedupGroup *group = group_lookup(groups->table, *key);

	return group != NULL && group->several ? group : NULL;
}

bool
blob_dedup_groups_next(BlobDedupGroups *groups)
{
	if (groups->last == PG_UINT64_MAX)
		return false;
	groups->first = groups->last + 1;
	groups->last = PG_UINT64_MAX;
	group_reset(groups->table);
	return true;
}

bool
blob_dedup_groups_is_new(BlobDedupGroups *groups, uint64 number)
{
	bool		found;

	if (hash_get_num_entries(groups->numbers) >= MAX_NUMBERS)
	{
		HASHCTL		control = {.keysize = sizeof(uint64), .entrysize = sizeof(uint64),
		.hcxt = groups->context};

		hash_destroy(groups->numbers);
		groups->numbers = hash_create("blobext values", 256, &control,
									  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	hash_search(groups->numbers, &number, HASH_ENTER, &found);
	return !found;
}
