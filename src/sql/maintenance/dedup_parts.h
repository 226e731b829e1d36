/*
 * sql/maintenance/dedup_parts.h
 *	  Declarations that the files of blobext_dedup() and blob_intern() share; see dedup.c.
 */
#ifndef BLOB_SQL_DEDUP_PARTS_H
#define BLOB_SQL_DEDUP_PARTS_H

#include "postgres.h"

#include "core/descriptor.h"
#include "sql/maintenance/column.h"

/* ---- dedup_groups.c: values of one content, by size and digest ---- */

typedef struct BlobDedupKey
{
	uint8		sha256[BLOB_DIGEST_BYTES];
	uint64		size_bytes;
} BlobDedupKey;

/* A datum in short: the space of its extents, its generation, and a hash of all of it. */
typedef struct BlobDedupDatum
{
	uint64		bytes;
	BlobGeneration generation;
	uint64		hash;
} BlobDedupDatum;

/*
 * Rows whose values have one content.  datum is the one of their values that takes the least space,
 * of these the oldest, which the others shall get: so a call that was interrupted goes on with the
 * same one, and later calls change new rows only.  source is a row that has it.
 */
typedef struct BlobDedupGroup
{
	BlobDedupKey key;
	uint32		hash;			/* of the key; for the table */
	char		status;			/* for the table */
	bool		several;		/* not all rows have the same datum */
	bool		has_source;
	BlobColumnRow source;
	uint32		rows;			/* that have it, as far as they were seen */
	BlobDedupDatum datum;
} BlobDedupGroup;

typedef struct BlobDedupGroups BlobDedupGroups;

/*
 * Groups in at most limit_bytes of memory.  The space of all digests is gone through in as many
 * ranges as that takes, each with two passes over the rows.  The first range begins.
 */
extern BlobDedupGroups *blob_dedup_groups_make(MemoryContext context, Size limit_bytes);

/* First pass: a row has this value.  Values outside of the range are left out. */
extern void blob_dedup_groups_add(BlobDedupGroups *groups, const BlobDedupKey *key,
								  const BlobDedupDatum *datum, const BlobColumnRow *row);

/* Second pass: the group of a value, or NULL if its range is another one, or no row differs. */
extern BlobDedupGroup *blob_dedup_groups_find(BlobDedupGroups *groups, const BlobDedupKey *key);

/* Begin the next range; false if there is none. */
extern bool blob_dedup_groups_next(BlobDedupGroups *groups);

/* Whether a number comes for the first time; may say so again after a million of others. */
extern bool blob_dedup_groups_is_new(BlobDedupGroups *groups, uint64 number);

#endif							/* BLOB_SQL_DEDUP_PARTS_H */
