/*
 * heal/heal_internal.h
 *	  What the files of a run share.
 */
#ifndef BLOB_HEAL_INTERNAL_H
#define BLOB_HEAL_INTERNAL_H

#include "heal/connection.h"
#include "heal/fork.h"
#include "heal/heal.h"
#include "heal/source.h"
#include "storage/buffile.h"
#include "utils/hsearch.h"

/* The unit of requests, and of comparison. */
#define BLOB_HEAL_SECTION_BYTES BLOB_SOURCE_MAX_BYTES

/* Pages of an extent that were written, for the buffer. */
typedef struct BlobHealWritten
{
	BlobExtent	extent;
	uint64		start;			/* bytes in the extent */
	uint64		end;
} BlobHealWritten;

struct BlobHeal
{
	MemoryContext context;
	BlobConnection *connection;
	BlobStoreId store;
	char		store_name[BLOB_SOURCE_STORE_BYTES];
	XLogRecPtr	fork;
	BlobGeneration common_below;
	bool		source_is_standby;
	bool		logs_content;
	BufFile    *staging;		/* fetched sections of one value */
	char	   *section;		/* BLOB_HEAL_SECTION_BYTES */
	char	   *aligned;		/* BLOB_IO_BUFFER_BYTES for direct I/O */
	void		(*is_tracked) (uint64 bytes);
	BlobHealTotals totals;

	/* The batch: written, not durable yet. */
	HTAB	   *proven;			/* generations that need not be noted any more */
	BlobHealWritten *written;
	int			written_count;
	int			written_capacity;
	uint64		batch_bytes;
};

/* ---- restore.c ---- */

/*
 * Write whole pages of an extent, whose last page is filled up with zeros, and log them if content
 * is logged.  has_digest: SHA-256 says that they are right, so the map gets their checksums, which
 * may be damaged; others keep theirs.  False, with nothing more written, if the extent is not in
 * the map any more.
 */
extern bool blob_restore_write(BlobHeal *heal, const BlobExtent *extent, uint64 start,
							   const char *data, uint32 length_bytes, bool has_digest);

/* All bytes of the extent that a value may have are written: it does not lack them any more. */
extern void blob_restore_prove(BlobHeal *heal, const BlobExtent *extent);
extern bool blob_restore_is_proven(BlobHeal *heal, BlobGeneration generation);

/*
 * Take generations out of the note: their content is there, or they are not allocated any more.
 * Copies of this server learn by the WAL that they have the content, where it was logged; else that
 * they lack it.
 */
extern void blob_restore_forget(BlobHeal *heal, const BlobGenerationRange *ranges, int count);

/* For qsort(). */
extern int	blob_heal_compare_generations(const void *a, const void *b);

/* Whether the batch should be made durable. */
extern bool blob_restore_is_full(const BlobHeal *heal);

/* ---- lost_files.c ---- */

/*
 * Segment files that are missing or too short: note the extents that are lost with them, and make
 * the files.
 */
extern void blob_lost_files_remake(BlobHeal *heal);

#endif							/* BLOB_HEAL_INTERNAL_H */
