/*
 * gc/changed.c
 *	  A set of blocks, see gc/changed.h: a hash table of bitmaps, one for each part of a file.
 */
#include "postgres.h"

#include "gc/changed.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#define PART_BLOCKS 512

/* No file has a part of this number. */
#define NO_PART PG_UINT32_MAX

typedef struct PartKey
{
	Oid			file;
	uint32		part;			/* number of its first block / PART_BLOCKS */
} PartKey;

typedef struct Part
{
	PartKey		key;
	uint64		bits[PART_BLOCKS / 64];
} Part;

struct BlobGcChanged
{
	HTAB	   *parts;
	Oid		   *files;			/* sorted */
	int			file_count;

	/* The last part that was asked for, since blocks are asked for in their order. */
	PartKey		asked;
	const Part *found;			/* or NULL */
};

BlobGcChanged *
blob_gc_changed_make(const Oid *files, int file_count)
{
	BlobGcChanged *changed = palloc0(sizeof(BlobGcChanged));
	HASHCTL		control = {.keysize = sizeof(PartKey), .entrysize = sizeof(Part)};

	changed->files = palloc_extended(Max(file_count, 1) * sizeof(Oid), MCXT_ALLOC_HUGE);
	if (file_count > 0)
		memcpy(changed->files, files, file_count * sizeof(Oid));
	qsort(changed->files, file_count, sizeof(Oid), oid_cmp);
	changed->file_count = file_count;

	control.hcxt = CurrentMemoryContext;
	changed->parts = hash_create("changed blocks", 256, &control,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	changed->asked.part = NO_PART;
	return changed;
}

void
blob_gc_changed_add(BlobGcChanged *changed, Oid file, BlockNumber block)
{
	PartKey		key = {.file = file, .part = block / PART_BLOCKS};
	bool		found;
	Part	   *part;

	if (bsearch(&file, changed->files, changed->file_count, sizeof(Oid), oid_cmp) == NULL)
		return;
	part = hash_search(changed->parts, &key, HASH_ENTER, &found);
	if (!found)
		memset(part->bits, 0, sizeof(part->bits));
	part->bits[block % PART_BLOCKS / 64] |= UINT64CONST(1) << block % 64;
	changed->asked.part = NO_PART;
}

bool
blob_gc_changed_has(BlobGcChanged *changed, Oid file, BlockNumber block)
{
	PartKey		key = {.file = file, .part = block / PART_BLOCKS};

	if (memcmp(&key, &changed->asked, sizeof(key)) != 0)
	{
		changed->found = hash_search(changed->parts, &key, HASH_FIND, NULL);
		changed->asked = key;
	}
	return changed->found != NULL &&
		(changed->found->bits[block % PART_BLOCKS / 64] >> block % 64 & 1) != 0;
}
