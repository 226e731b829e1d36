/*
 * gc/changed.c
 *	  A set of blocks, see gc/changed.h: a hash table of bitmaps, one for each part of a file.
 */
#include "postgres.h"

#include "gc/changed.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#define PART_BLOCKS 512

/* The entry of this part has no bits, but from which block on all blocks of the file are there. */
#define NO_PART PG_UINT32_MAX

typedef struct PartKey
{
	Oid			tablespace;
	Oid			file;
	uint32		part;			/* number of its first block / PART_BLOCKS, or NO_PART */
} PartKey;

typedef struct Part
{
	PartKey		key;
	BlockNumber first_block;	/* of NO_PART */
	uint64		bits[PART_BLOCKS / 64];
} Part;

struct BlobGcChanged
{
	HTAB	   *parts;

	/* The last part that was asked for, since blocks are asked for in their order. */
	PartKey		asked;
	const Part *found;			/* or NULL */
	BlockNumber first_block;	/* the lesser of the file's, and of all files */
};

BlobGcChanged *
blob_gc_changed_make(void)
{
	BlobGcChanged *changed = palloc0(sizeof(BlobGcChanged));
	HASHCTL		control = {.keysize = sizeof(PartKey), .entrysize = sizeof(Part)};

	control.hcxt = CurrentMemoryContext;
	changed->parts = hash_create("changed blocks", 256, &control,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	changed->asked.part = NO_PART;
	return changed;
}

static Part *
enter(BlobGcChanged *changed, Oid tablespace, Oid file, uint32 part)
{
	PartKey		key = {.tablespace = tablespace, .file = file, .part = part};
	bool		found;
	Part	   *entry = hash_search(changed->parts, &key, HASH_ENTER, &found);

	if (!found)
	{
		entry->first_block = InvalidBlockNumber;
		memset(entry->bits, 0, sizeof(entry->bits));
	}
	changed->asked.part = NO_PART;
	return entry;
}

void
blob_gc_changed_add(BlobGcChanged *changed, Oid tablespace, Oid file, BlockNumber block)
{
	Part	   *part = enter(changed, tablespace, file, block / PART_BLOCKS);

	part->bits[block % PART_BLOCKS / 64] |= UINT64CONST(1) << block % 64;
}

void
blob_gc_changed_add_from(BlobGcChanged *changed, Oid tablespace, Oid file,
						 BlockNumber first_block)
{
	Part	   *part = enter(changed, tablespace, file, NO_PART);

	part->first_block = Min(part->first_block, first_block);
}

static const Part *
find(const BlobGcChanged *changed, Oid tablespace, Oid file, uint32 part)
{
	PartKey		key = {.tablespace = tablespace, .file = file, .part = part};

	return hash_search(changed->parts, &key, HASH_FIND, NULL);
}

static void
ask(BlobGcChanged *changed, const PartKey *key)
{
	const Part *file = find(changed, key->tablespace, key->file, NO_PART);
	const Part *all = find(changed, key->tablespace, InvalidOid, NO_PART);

	changed->found = find(changed, key->tablespace, key->file, key->part);
	changed->first_block = Min(file == NULL ? InvalidBlockNumber : file->first_block,
							   all == NULL ? InvalidBlockNumber : all->first_block);
	changed->asked = *key;
}

bool
blob_gc_changed_has(BlobGcChanged *changed, Oid tablespace, Oid file, BlockNumber block)
{
	PartKey		key = {.tablespace = tablespace, .file = file, .part = block / PART_BLOCKS};

	if (memcmp(&key, &changed->asked, sizeof(key)) != 0)
		ask(changed, &key);
	return block >= changed->first_block ||
		(changed->found != NULL &&
		 (changed->found->bits[block % PART_BLOCKS / 64] >> block % 64 & 1) != 0);
}
