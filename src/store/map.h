/*
 * store/map.h
 *	  The extent map: which extents are allocated, by which generation.
 *
 * A relation of the table access method blobext_map (store/map_am.c), with pages in shared buffers.
 * The caller has it open, and locked: AccessShareLock to look, RowExclusiveLock to change.
 */
#ifndef BLOB_MAP_H
#define BLOB_MAP_H

#include "core/compat.h"
#include "store/map_page.h"
#include "storage/bufmgr.h"
#include "utils/relcache.h"
#include "wal/records.h"

/* Write the meta page of a new map, and log META.  The caller holds AccessExclusiveLock. */
extern void blob_map_create(Relation map);

/* Read the meta page; ERROR if it is not one of this library's format. */
extern void blob_map_read_meta(Relation map, BlobMapMeta *meta);

/* The same, and the LSN of the page: that of its last change. */
extern XLogRecPtr blob_map_read_meta_lsn(Relation map, BlobMapMeta *meta);

/* The store's identity, cached with the relation. */
extern BlobStoreId blob_map_store_id(Relation map);

/* Whether the map has format 3.  (New extents get checksums as shared memory says, store.c.) */
extern bool blob_map_has_sums(Relation map);

/* Note that generations below limit may have been drawn; logs META. */
extern void blob_map_set_generation_limit(Relation map, BlobGeneration limit);

/*
 * Extend the map by blocks of zeros, so that it has those of all pages below end_page: allocations
 * there need not.
 */
extern void blob_map_extend(Relation map, BlobPageNo end_page);

/* Note that files are reserved, durably, up to end_page; logs SEGMENT. */
extern void blob_map_set_reserved(Relation map, BlobPageNo end_page);

/*
 * The entry of an extent's first page; a free entry if the map has no such page.  Takes a share
 * lock on one buffer.
 */
extern PGDLLEXPORT BlobMapEntry blob_map_lookup(Relation map, BlobPageNo first_page);

/* The same, and the LSN of its block: that of the last change there. */
extern BlobMapEntry blob_map_lookup_lsn(Relation map, BlobPageNo first_page, XLogRecPtr *lsn);

/*
 * Share-lock the block of that entry.  previous is a buffer that this function returned, or
 * InvalidBuffer; it is released, unless it is that of the same block.  Returns InvalidBuffer if the
 * map has no such entry.  None of the block's entries changes before UnlockReleaseBuffer().
 */
extern Buffer blob_map_lock_entry(Relation map, BlobPageNo first_page, Buffer previous);

/* An entry of a block that is locked. */
extern BlobMapEntry blob_map_locked_entry(Buffer buffer, BlobPageNo first_page);

/* Begin to read the block of that entry, if it is not in shared buffers, without waiting for it. */
extern void blob_map_prefetch(Relation map, BlobPageNo first_page);

/*
 * Mark extents as allocated and log ALLOC.  Extents of tier sizes are numbered from first_extent_no
 * on.  size_bytes of content fill the extents from the first on, which gives their high-water
 * marks.
 *
 * There may be several records.  On an error *logged_count says how many extents, from the first
 * on, are in the map all the same.
 */
extern void blob_map_allocate(Relation map, const BlobStoreId *store, const BlobExtent *extents,
							  int extent_count, int first_extent_no, uint64 size_bytes,
							  int *logged_count);

/* The result of a claim. */
typedef enum BlobClaimResult
{
	BLOB_CLAIM_WON,
	BLOB_CLAIM_LOST,			/* the high-water mark is another one */
	BLOB_CLAIM_STALE			/* the extent was freed, or is another value's */
} BlobClaimResult;

/*
 * Raise the high-water mark of an extent of tier size from from_bytes to to_bytes and log CLAIM, if
 * the mark is from_bytes and the extent's generation at most max_generation.  If the claim is won,
 * extent->generation is set.  Takes an exclusive lock on one buffer.
 */
extern BlobClaimResult blob_map_claim(Relation map, BlobExtent *extent,
									  BlobGeneration max_generation, uint64 from_bytes,
									  uint64 to_bytes);

/*
 * Make an extent a tail of `pages` pages, fewer than it has, and log TRIM; sum: the checksum that
 * its entry has then (of one page), or 0.  Only the extent's allocator may do that, before a
 * descriptor names it.  ERROR (data corrupted) if the map has another extent.
 */
extern void blob_map_trim(Relation map, const BlobExtent *extent, uint64 pages, uint32 sum);

/* An extent to be freed, and the generation and length that it must have. */
typedef struct BlobFreedExtent
{
	BlobPageNo	first_page;
	uint64		pages;			/* in a draft: not known */
	BlobGeneration generation;
} BlobFreedExtent;

/*
 * How many of these extents, sorted by first page and taken from the first on, one record can free:
 * at least one.
 */
extern int	blob_map_free_batch(const BlobFreedExtent *extents, int count);

/*
 * Free such a batch and log FREE, with this reuse class.  Returns the record's end.  ERROR (data
 * corrupted), with nothing freed, if the map has another generation or length for one of them.
 */
extern XLogRecPtr blob_map_free(Relation map, const BlobFreedExtent *extents, int count,
								TransactionId horizon, BlobWalReuse reuse);

/*
 * Whether a segment has no file: all of its pages are absent.  And where its absent pages begin, or
 * its end.
 */
extern bool blob_map_is_absent(Relation map, uint32 segment_no);
extern BlobPageNo blob_map_absent_page(Relation map, uint32 segment_no);

/*
 * Mark all pages of a segment as absent and log REMOVE; returns the record's end.  If the segment
 * is the last one, all of it counts as reserved from then on.  The entries of its hollow pages go;
 * they are not too many (blob_map_list_hollow).
 */
extern XLogRecPtr blob_map_set_absent(Relation map, uint32 segment_no);

/*
 * List the hollow runs of a segment as the entries have them, in *runs, which is palloc'd and has
 * room for one more; returns their number.  *are_many: their entries lie in too many blocks for one
 * record.
 */
extern int	blob_map_list_hollow(Relation map, uint32 segment_no, BlobPageRun **runs,
								 bool *are_many);

/*
 * The map gets this format, unless it has it or a later one; logs META, and does not flush it.
 * Before the first use of the format.  Returns whether the format was an older one.
 */
extern bool blob_map_raise_format(Relation map, uint32 version);

/* Runs of one PUNCH. */
#define BLOB_MAP_PUNCH_MAX_RUNS 31

/*
 * Mark runs of free pages as punched, each inside of one segment, in page order, and log PUNCH;
 * returns the record's end.
 */
extern XLogRecPtr blob_map_punch(Relation map, const BlobPageRun *runs, int count);

/*
 * Join the punched entries of a segment, all of whose pages are hollow, so that few are left; logs
 * PUNCH.
 */
extern void blob_map_join_punched(Relation map, uint32 segment_no);

/* The entry of hollow pages that begins here.  ERROR (data corrupted) if there is none. */
extern BlobMapEntry blob_map_hollow_entry(Relation map, BlobPageNo first_page);

/*
 * Note that hollow pages, from the first one of an entry on, have blocks again, which are durable;
 * logs RESTORE.  Ends with the entry, or at end_page if that comes first; returns where.  Exported,
 * so that test/unit/stop_calls.c can take its place.
 */
extern PGDLLEXPORT BlobPageNo blob_map_fill(Relation map, BlobPageNo first_page,
											BlobPageNo end_page);

/* Copy one block of the map.  Takes a share lock on its buffer. */
extern void blob_map_copy_block(Relation map, BlockNumber block, BufferAccessStrategy strategy,
								Page copy);

/*
 * Call visit for each extent and each run of hollow pages, in page order.  The second: for damaged
 * entries, too, which a reader may take for those of extents (its look compares less).
 */
typedef void (*BlobMapVisitor) (BlobPageNo first_page, const BlobMapEntry *entry, void *context);
extern void blob_map_visit_all(Relation map, BlobMapVisitor visit, void *context);
extern void blob_map_visit_damaged_too(Relation map, BlobMapVisitor visit, void *context);

/*
 * Call visit for each allocated extent whose first page lies in [first_page, end_page), in page
 * order; end_page may lie past the end of the store.  One share lock on one buffer at a time, none
 * during visit; reads through the caller's strategy (NULL: none).  An extent that is allocated or
 * freed meanwhile may be seen or not.
 */
extern void blob_map_visit_range(Relation map, BlobPageNo first_page, BlobPageNo end_page,
								 BufferAccessStrategy strategy, BlobMapVisitor visit,
								 void *context);

#endif							/* BLOB_MAP_H */
