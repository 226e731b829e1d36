/*
 * wal/insert.h
 *	  Insertion of blobext's WAL records.
 *
 * The functions with buffers run inside the caller's critical section; the buffers are locked
 * exclusively, changed and marked dirty; the functions set the pages' LSN.
 */
#ifndef BLOB_WAL_INSERT_H
#define BLOB_WAL_INSERT_H

#include "access/xlogdefs.h"
#include "storage/buf.h"
#include "wal/records.h"

/*
 * No record has a lower version.  It is always BLOB_WAL_VERSION_1; tests raise it in their copy of
 * this module, to see that all records of version 2 are replayed.
 */
extern uint32 blob_wal_least_version;

/*
 * Where the last record ends, of any process: a position that XLogFlush() can reach.
 * GetXLogInsertRecPtr() says where the next one begins, which at the end of a page is behind the
 * next page's header, where nothing is to be flushed yet.
 */
extern XLogRecPtr blob_wal_end(void);

/* Map pages of one ALLOC record. */
#define BLOB_WAL_ALLOC_MAX_BLOCKS 32

typedef struct BlobWalMapBlock
{
	Buffer		buffer;
	bool		is_new;			/* the page had never been initialised: no image needed */
	BlobWalMapChange *changes;
	int			change_count;
} BlobWalMapBlock;

/* Call before the critical section: reserves memory for block_count blocks. */
extern void blob_wal_prepare_alloc(int block_count);

/*
 * Log that the extents became allocated; blocks[] has the map pages with their changed entries.
 */
extern void blob_wal_log_alloc(const BlobStoreId *store, BlobWalMapBlock *blocks, int block_count,
							   const BlobExtent *extents, int extent_count);

/* Map pages, and extents in all, of one FREE record. */
#define BLOB_WAL_FREE_MAX_BLOCKS 32
#define BLOB_WAL_FREE_MAX_EXTENTS 1024

typedef struct BlobWalFreeBlock
{
	Buffer		buffer;
	uint16	   *slots;
	int			slot_count;
} BlobWalFreeBlock;

/* record: all but the header is filled in. */
extern XLogRecPtr blob_wal_log_free(const BlobStoreId *store, const BlobWalFree *record,
									const BlobWalFreeBlock *blocks, int block_count);

/*
 * info:  BLOB_WAL_REMOVE or BLOB_WAL_RESTORE.  If meta_buffer is valid, the record has an image of
 * the meta page as well.
 */
extern XLogRecPtr blob_wal_log_absence(const BlobStoreId *store, uint8 info,
									   BlobPageNo first_page, BlobPageNo end_page,
									   const BlobWalMapBlock *blocks, int block_count,
									   Buffer meta_buffer);

/*
 * Runs of free pages, each inside of one segment, in page order; the map has format 2.  The caller
 * flushes the record before it makes the holes.  For the conditions see "Holes" in the README.
 */
extern XLogRecPtr blob_wal_log_punch(const BlobStoreId *store, const BlobWalRun *runs,
									 int run_count, const BlobWalMapBlock *blocks,
									 int block_count);

/* A run of SUMS in one of the blocks of the record. */
typedef struct BlobWalSumsPart
{
	BlobWalSumRun run;
	int			block_no;		/* in buffers[]; parts are in the order of the blocks */
	const uint32 *sums;
} BlobWalSumsPart;

#define BLOB_WAL_SUMS_MAX_PARTS 64

/* Call before the critical section. */
extern void blob_wal_prepare_sums(int block_count, int part_count);

/* are_new[]: the page had never been initialised: no image needed.  The map has format 3. */
extern void blob_wal_log_sums(const BlobStoreId *store, BlobPageNo entry_page,
							  const Buffer *buffers, const bool *are_new, int block_count,
							  const BlobWalSumsPart *parts, int part_count);

/* info: BLOB_WAL_CLAIM or BLOB_WAL_TRIM; record: all but the header is filled in. */
extern void blob_wal_log_claim(const BlobStoreId *store, uint8 info, const BlobWalClaim *record,
							   Buffer buffer, const BlobWalMapChange *change);

/* meta is the page's content (meta_bytes long), which redo copies; map_format: what it says. */
extern void blob_wal_log_meta(const BlobStoreId *store, Buffer meta_buffer, bool is_new,
							  uint32 map_format, const void *meta, uint32 meta_bytes,
							  BlobGeneration generation_limit);
extern void blob_wal_log_segment(const BlobStoreId *store, Buffer meta_buffer,
								 const void *meta, uint32 meta_bytes,
								 BlobPageNo first_page, BlobPageNo end_page);

/* The record's end. */
extern XLogRecPtr blob_wal_log_drop(const BlobStoreId *store);

/* From how many places in memory the content of one record can be gathered. */
#define BLOB_WAL_CONTENT_MAX_PARTS 32

typedef struct BlobWalContentPart
{
	const char *data;
	uint32		length_bytes;
} BlobWalContentPart;

/*
 * Log content (at most BLOB_WAL_CONTENT_MAX_BYTES) from first_page on: the parts one after the
 * other.  The write of these pages must have completed, or the pages are dirty (io/dirty.h).  Not
 * in a critical section; may throw.  With flush_soon the record is flushed early, because the
 * caller has more to do: in the background, or by the caller if much is not flushed.
 */
extern void blob_wal_log_content(const BlobStoreId *store, BlobPageNo first_page,
								 const BlobWalContentPart *parts, int part_count,
								 bool flush_soon);

/*
 * Log that content of extents of these generations was written and is not in the WAL; record: all
 * but the header is filled in.  The same rules as for content.
 */
extern void blob_wal_log_omitted(const BlobStoreId *store, const BlobWalOmitted *record,
								 const BlobGenerationRange *ranges);

/*
 * Log that lacking content of these generations is there now: all of it was logged before, and is
 * durable.  The record's end.
 */
extern XLogRecPtr blob_wal_log_fetched(const BlobStoreId *store, const BlobGenerationRange *ranges,
									   int range_count);

/*
 * Have the device begin to write the WAL up to here, without waiting for it, so that the commit has
 * less to wait for.  more_comes: the caller is about to insert more content, and calls again.  If
 * another process writes or syncs WAL, that is left out; the WAL writer is asked to go on after it
 * if the caller wishes (asks), or half of the server's WAL buffers is full.  See "Writing early" in
 * the README.
 */
extern void blob_wal_write_early(bool more_comes, bool asks);

#endif							/* BLOB_WAL_INSERT_H */
