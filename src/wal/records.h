/*
 * wal/records.h
 *	  WAL records of blobext's resource manager.
 *
 * Their layout and the meaning of the info bits are on disk.  The first bytes of every record are
 * a BlobWalHeader, which names the version of the format.  Replay knows the versions below; any
 * other one is a PANIC.  A change of a layout or of a meaning needs a new version.
 *
 * Version 1: the records of 0.1 and 0.2.
 * Version 2: as version 1, and
 *
 *	  META, SEGMENT		the meta page may be longer than that of a map of format 1
 *	  SEGMENT, REMOVE, RESTORE	end with a storage place and four reserved bytes
 *	  CONTENT			the padding of version 1 is the storage place
 *	  FREE				ends with the reuse class of the pages and four reserved bytes
 *	  DROP				lists the storage places that have a directory of the store
 *	  PUNCH, FETCHED	new
 *
 * Version 3: as version 2, and SUMS.  META has it if the map has format 3.
 *
 * The other records are the same in all versions.  Reserved bytes are zero; replay checks that.
 * Padding is zero, too; it is not checked.
 */
#ifndef BLOB_WAL_RECORDS_H
#define BLOB_WAL_RECORDS_H

#include "core/page.h"

/*
 * The build option RMGR_ID of the Makefile sets another id.  128 is PostgreSQL's id for
 * experiments; "Resource manager id" in the README of this folder says what changing it means.
 */
#ifndef BLOB_RMGR_ID
#define BLOB_RMGR_ID 128
#endif

#define BLOB_RMGR_NAME "blobext"

/* Versions of the format that replay knows.  wal/insert.c says which one is written. */
#define BLOB_WAL_VERSION_1 1
#define BLOB_WAL_VERSION_2 2
#define BLOB_WAL_VERSION_3 3
#define BLOB_WAL_NEWEST_VERSION BLOB_WAL_VERSION_3

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
#define BLOB_WAL_PUNCH 0xB0
#define BLOB_WAL_FETCHED 0xC0
#define BLOB_WAL_SUMS 0xD0
#define BLOB_WAL_OP_MASK 0xF0

/* No record holds more content than this. */
#define BLOB_WAL_CONTENT_MAX_BYTES (1024 * 1024)

typedef struct BlobWalHeader
{
	uint64		incarnation;
	Oid			dboid;
	uint32		version;
} BlobWalHeader;

/*
 * META: the map's meta page changed (store created, generations reserved).
 * Block 0: the meta page; its data: all that the page holds, which is BLOB_WAL_META_PAGE_V1_BYTES
 * in version 1 and may be more from version 2 on (store/map_page.h).  The version is the number of
 * the map's format: where checksums are, a library that does not know them stops here.
 */
#define BLOB_WAL_META_PAGE_V1_BYTES 56

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
 * CONTENT: the bytes of some pages.  The write of the pages has completed, or was deferred, before
 * the record is inserted.  Redo writes them again, with zeros up to the end of the last page.  All
 * of them lie in segments of one storage place.  No blocks; data: the bytes.
 */
typedef struct BlobWalContent
{
	BlobWalHeader header;
	BlobPageNo	first_page;
	uint32		length_bytes;
	uint32		place;			/* version 1: zero, too */
} BlobWalContent;

/*
 * OMITTED: in place of CONTENT, where content is not logged.  Content was written to extents of
 * these generations; the writes have completed, and nothing refers to it yet.  A server that
 * replays this record for another one lacks that content.  No blocks; data: the ranges of
 * generations.
 */
typedef struct BlobWalOmitted
{
	BlobWalHeader header;
	uint32		range_count;
	uint32		padding;
	BlobPageNo	first_page;		/* of the written pages, for people who read the WAL */
	uint64		page_count;
} BlobWalOmitted;

/*
 * SEGMENT: the store's files were extended to end_page.  Files are durable before this is logged.
 * Block 0: the meta page; its data: as for META.
 */
typedef struct BlobWalSegment
{
	BlobWalHeader header;
	BlobPageNo	first_page;		/* reserved: [first_page, end_page) */
	BlobPageNo	end_page;
	/* version 2: */
	uint32		place;			/* of the files */
	uint32		reserved;
} BlobWalSegment;

#define BLOB_WAL_SEGMENT_V1_BYTES 32

/* When the pages of a FREE may be given out again. */
typedef enum BlobWalReuse
{
	/*
	 * After a completed checkpoint whose redo pointer lies past the record: replay never writes
	 * into pages that were given out since.  Version 1 knows this class only.
	 */
	BLOB_REUSE_AFTER_CHECKPOINT = 0,

	/*
	 * As soon as the record is flushed and no write of the old content is left, but until such a
	 * checkpoint only to writers all of whose content is in the WAL: replay writes the old content,
	 * meets the record, and writes the new content.
	 */
	BLOB_REUSE_AFTER_FLUSH = 1
} BlobWalReuse;

/*
 * FREE: extents became free.  Blocks 0 … n: map pages; data of each: the slots (uint16) of the
 * entries that become zero.
 */
typedef struct BlobWalFree
{
	BlobWalHeader header;
	uint32		extent_count;
	TransactionId horizon;		/* standbys cancel queries whose snapshot sees it as running */
	uint64		page_count;
	BlobPageNo	first_page;		/* of the first extent, for people who read the WAL */
	BlobGeneration generation;	/* the largest of the extents */
	/* version 2: */
	uint32		reuse;			/* BlobWalReuse */
	uint32		reserved;
} BlobWalFree;

#define BLOB_WAL_FREE_V1_BYTES 48

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
 * committed before.  The directory is removed after this was flushed.  No blocks.  Version 2: data:
 * the storage places (uint32) where the store has a directory besides the default place.  The
 * record itself must say so, because the map that knows is gone.
 */
typedef struct BlobWalDrop
{
	BlobWalHeader header;
	/* version 2: */
	uint32		place_count;
	uint32		reserved;
} BlobWalDrop;

#define BLOB_WAL_DROP_V1_BYTES 16

/*
 * PUNCH (version 2): the blocks of free pages are given back to the file system after this was
 * flushed.  Blocks 0 … n, 32 at most: map pages; data of each: an array of BlobWalMapChange.  Data:
 * the runs of pages, each inside of one segment, all in segments of one storage place.  The runs
 * are not taken from the blocks' data, which a full-page image leaves out.
 */
typedef struct BlobWalPunch
{
	BlobWalHeader header;
	uint32		run_count;
	uint32		place;
	uint64		page_count;		/* of all runs */
} BlobWalPunch;

typedef struct BlobWalRun
{
	BlobPageNo	first_page;
	uint64		pages;
} BlobWalRun;

/*
 * FETCHED (version 2): content of extents of these generations was lacking, and was fetched from
 * another server; all of it is in CONTENT before this record.  Or the extents were freed before.  A
 * server that notes the generations as unlogged forgets that.  No blocks; data: the ranges of
 * generations, or nothing.
 */
typedef struct BlobWalFetched
{
	BlobWalHeader header;
	uint32		range_count;
	uint32		reserved;
} BlobWalFetched;

/*
 * SUMS (version 3): checksums of pages of extents whose content is known: nothing refers to it yet,
 * or it was compared with the digest of a value.  Blocks 0 … n, BLOB_WAL_SUMS_MAX_BLOCKS at most:
 * map pages; data of each: runs, a BlobWalSumRun and its sums (uint32), one after the other.
 */
typedef struct BlobWalSums
{
	BlobWalHeader header;
	uint64		sum_count;
	BlobPageNo	entry_page;		/* of the first entry, for people who read the WAL */
} BlobWalSums;

/* Sums of consecutive places of a map page. */
typedef struct BlobWalSumRun
{
	uint16		slot;			/* of the first one */
	uint16		sum_no;			/* in its entry, or BLOB_SUM_BEGIN, see store/page_sums.h */
	uint32		sum_count;
} BlobWalSumRun;

#define BLOB_WAL_SUMS_MAX_BLOCKS 4

StaticAssertDecl(sizeof(BlobWalHeader) == 16, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalMeta) == 24, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalAlloc) == 48, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalMapChange) == 24, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalContent) == 32, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalOmitted) == 40, "WAL record layout");
StaticAssertDecl(sizeof(BlobGenerationRange) == 16, "WAL record layout");
StaticAssertDecl(offsetof(BlobWalSegment, place) == BLOB_WAL_SEGMENT_V1_BYTES, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalSegment) == 40, "WAL record layout");
StaticAssertDecl(offsetof(BlobWalFree, reuse) == BLOB_WAL_FREE_V1_BYTES, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalFree) == 56, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalClaim) == 48, "WAL record layout");
StaticAssertDecl(offsetof(BlobWalDrop, place_count) == BLOB_WAL_DROP_V1_BYTES, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalDrop) == 24, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalPunch) == 32, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalRun) == 16, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalFetched) == 24, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalSums) == 32, "WAL record layout");
StaticAssertDecl(sizeof(BlobWalSumRun) == 8, "WAL record layout");

/* Bytes of a record's fixed part; 0 if this version has no such record. */
static inline size_t
blob_wal_fixed_bytes(uint8 op, uint32 version)
{
	bool		is_v1 = version == BLOB_WAL_VERSION_1;

	switch (op)
	{
		case BLOB_WAL_META:
			return sizeof(BlobWalMeta);
		case BLOB_WAL_ALLOC:
			return sizeof(BlobWalAlloc);
		case BLOB_WAL_CONTENT:
			return sizeof(BlobWalContent);
		case BLOB_WAL_OMITTED:
			return sizeof(BlobWalOmitted);
		case BLOB_WAL_SEGMENT:
		case BLOB_WAL_REMOVE:
		case BLOB_WAL_RESTORE:
			return is_v1 ? BLOB_WAL_SEGMENT_V1_BYTES : sizeof(BlobWalSegment);
		case BLOB_WAL_FREE:
			return is_v1 ? BLOB_WAL_FREE_V1_BYTES : sizeof(BlobWalFree);
		case BLOB_WAL_CLAIM:
		case BLOB_WAL_TRIM:
			return sizeof(BlobWalClaim);
		case BLOB_WAL_DROP:
			return is_v1 ? BLOB_WAL_DROP_V1_BYTES : sizeof(BlobWalDrop);
		case BLOB_WAL_PUNCH:
			return is_v1 ? 0 : sizeof(BlobWalPunch);
		case BLOB_WAL_FETCHED:
			return is_v1 ? 0 : sizeof(BlobWalFetched);
		case BLOB_WAL_SUMS:
			return version < BLOB_WAL_VERSION_3 ? 0 : sizeof(BlobWalSums);
		default:
			return 0;
	}
}

/* Description for pg_walinspect (wal/describe.c). */
struct XLogReaderState;
struct StringInfoData;
extern void blob_wal_describe(struct StringInfoData *out, struct XLogReaderState *record);
extern const char *blob_wal_identify(uint8 info);

#endif							/* BLOB_WAL_RECORDS_H */
