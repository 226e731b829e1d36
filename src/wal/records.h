/*
 * wal/records.h
 *	  WAL records of blobext's resource manager.
 *
 * Their layout and the meaning of the info bits are on disk; BLOB_WAL_VERSION grows when one
 * changes.  The first bytes of every record are a BlobWalHeader.
 */
#ifndef BLOB_WAL_RECORDS_H
#define BLOB_WAL_RECORDS_H

#include "core/page.h"

/* 128 is PostgreSQL's id for experiments; set another at build time to run beside others. */
#ifndef BLOB_RMGR_ID
#define BLOB_RMGR_ID 128
#endif

#define BLOB_RMGR_NAME "blobext"
#define BLOB_WAL_VERSION 1

/* Bits of XLogRecGetInfo() that a resource manager may use: the upper four. */
#define BLOB_WAL_META 0x00
#define BLOB_WAL_ALLOC 0x10
#define BLOB_WAL_CONTENT 0x20
#define BLOB_WAL_SEGMENT 0x30
#define BLOB_WAL_FREE 0x40
#define BLOB_WAL_REMOVE 0x50
#define BLOB_WAL_RESTORE 0x60
#define BLOB_WAL_CLAIM 0x70
#define BLOB_WAL_TRIM 0x80
#define BLOB_WAL_OMITTED 0x90
#define BLOB_WAL_DROP 0xA0
#define BLOB_WAL_OP_MASK 0xF0

/* No record holds more content than this. */
#define BLOB_WAL_CONTENT_MAX_BYTES (1024 * 1024)

typedef struct BlobWalHeader
{
	uint64		incarnation;
	Oid			dboid;
	uint32		version;		/* BLOB_WAL_VERSION */
} BlobWalHeader;

/*
 * META: the map's meta page changed (store created, generations reserved).
 * Block 0: the meta page; its data: the whole BlobMapMeta.
 */
typedef struct BlobWalMeta
{
	BlobWalHeader header;
	BlobGeneration generation_limit;	/* no extent has drawn this number or a larger one */
} BlobWalMeta;

/*
 * ALLOC: extents became allocated.  Logged before anything can refer to them.
 * Blocks 0 … n: map pages; data of each: an array of BlobWalMapChange.
 */
typedef struct BlobWalAlloc
{
	BlobWalHeader header;
	uint32		extent_count;
	uint32		padding;
	uint64		page_count;
	BlobPageNo	first_page;		/* of the first extent, for people who read the WAL */
	BlobGeneration generation;	/* the largest of the extents */
} BlobWalAlloc;

typedef struct BlobWalMapChange
{
	uint32		slot;			/* entry of the map page */
	uint32		padding;
	uint64		generation_state;	/* new value of the entry, see store/map_page.h */
	uint64		measure;
} BlobWalMapChange;

/*
 * CONTENT: the bytes of some pages.  The pages were written before; redo writes them again, the
 * rest of the last page as zeros.  No blocks; data: the bytes.
 */
typedef struct BlobWalContent
{
	BlobWalHeader header;
	BlobPageNo	first_page;
	uint32		length_bytes;
	uint32		padding;
} BlobWalContent;

/*
 * OMITTED: in place of CONTENT, where content is not logged.  Content was written to extents of
 * these generations; the writes have completed, and nothing refers to it yet.  A server that
 * replays this for another one lacks that content.  No blocks; data: the ranges of generations.
 */
typedef struct BlobWalOmitted
{
	BlobWalHeader header;
	uint32		range_count;
	uint32		padding;
	BlobPageNo	first_page;		/* of what was written, for people who read the WAL */
	uint64		page_count;
} BlobWalOmitted;

/*
 * SEGMENT: the store's files were extended to end_page.  Files are durable before this is logged.
 * Block 0: the meta page; its data: the whole BlobMapMeta.
 */
typedef struct BlobWalSegment
{
	BlobWalHeader header;
	BlobPageNo	first_page;		/* reserved: [first_page, end_page) */
	BlobPageNo	end_page;
} BlobWalSegment;

/*
 * FREE: extents became free.  They are not given out again before a completed checkpoint whose
 * redo pointer lies past this record: replay never writes into pages that were given out since.
 * Blocks 0 … n: map pages; data of each: the slots (uint16) of the entries that become zero.
 */
typedef struct BlobWalFree
{
	BlobWalHeader header;
	uint32		extent_count;
	TransactionId horizon;		/* standbys cancel queries whose snapshot sees it as running */
	uint64		page_count;
	BlobPageNo	first_page;		/* of the first extent, for people who read the WAL */
	BlobGeneration generation;	/* the largest of the extents */
} BlobWalFree;

/*
 * REMOVE: a segment in which nothing is allocated is without a file from here on; the file is
 * removed after this was flushed.  first_page, end_page: all of the segment.
 * RESTORE: absent pages have a file again.  It is durable before this is logged.
 * Blocks 0 … n: map pages; data of each: an array of BlobWalMapChange.
 */
typedef BlobWalSegment BlobWalAbsence;

/*
 * CLAIM: the high-water mark of an extent was raised, before the first byte behind the old one is
 * written.  Redo takes the larger mark.
 * TRIM: an extent that no descriptor names yet became a tail of fewer pages; the others are free
 * at once (from_bytes, to_bytes: its length before and after).
 * Block 0: the map page; its data: one BlobWalMapChange.
 */
typedef struct BlobWalClaim
{
	BlobWalHeader header;
	BlobPageNo	first_page;		/* of the extent */
	BlobGeneration generation;	/* its own */
	uint64		from_bytes;
	uint64		to_bytes;
} BlobWalClaim;

/*
 * DROP: the store's map is gone, with its database or its extension, by a transaction that
 * committed before.  The directory is removed after this was flushed.  No blocks; no data but the
 * header.
 */
typedef struct BlobWalDrop
{
	BlobWalHeader header;
} BlobWalDrop;

StaticAssertDecl(sizeof(BlobWalHeader) == 16, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalMeta) == 24, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalAlloc) == 48, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalMapChange) == 24, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalContent) == 32, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalSegment) == 32, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalFree) == 48, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalClaim) == 48, "WAL record layout");

/* Description for pg_walinspect (wal/describe.c). */
struct XLogReaderState;
struct StringInfoData;
extern void blob_wal_describe(struct StringInfoData *out, struct XLogReaderState *record);
extern const char *blob_wal_identify(uint8 info);

#endif							/* BLOB_WAL_RECORDS_H */
