/*
 * core/page.h
 *	  Units of the extent store: pages, segments, extents, stores.
 *
 * A page is the unit of addressing and of direct I/O.  Page numbers are 64 bit and count from 0
 * through all segment files of one store.  A store holds the extents of one database in one
 * incarnation of the extension there.
 *
 * These figures are part of the on-disk format: never change them without a new format version.
 */
#ifndef BLOB_PAGE_H
#define BLOB_PAGE_H

#include "postgres.h"

#define BLOB_PAGE_SIZE 4096

/* Pages per segment file: 1 GiB. */
#define BLOB_SEGMENT_PAGES UINT64CONST(262144)

/* In place of a segment number: all segments of a store. */
#define BLOB_ALL_SEGMENTS UINT32_MAX

/* Page numbers are stored in 48 bits: 2^48 pages are one exbibyte. */
#define BLOB_MAX_PAGE_NO ((UINT64CONST(1) << 48) - 1)

typedef uint64 BlobPageNo;
typedef uint64 BlobGeneration;	/* 56 bits are used; 0 is never given */

#define BLOB_INVALID_GENERATION UINT64CONST(0)

/*
 * A storage place is where the files of a segment lie.  0 is the default place, BLOB_STORE_DIR of
 * the data directory.  From FirstNormalObjectId on a place is the tablespace of that OID; the
 * numbers between are reserved.  This library has the default place only.  Formats that hold a
 * place: wal/records.h, store/map_page.h.
 */
#define BLOB_DEFAULT_PLACE 0

/* Identity of a store: the database, and a random number that tells re-creations apart. */
typedef struct BlobStoreId
{
	Oid			dboid;
	uint64		incarnation;
} BlobStoreId;

/* BlobStoreId has padding, so it is not compared as bytes. */
static inline bool
blob_store_id_equals(const BlobStoreId *left, const BlobStoreId *right)
{
	return left->dboid == right->dboid && left->incarnation == right->incarnation;
}

/* Identity of a segment; has no padding, so it can be hashed and compared as bytes. */
typedef struct BlobSegmentId
{
	uint64		incarnation;
	Oid			dboid;
	uint32		segment_no;
} BlobSegmentId;

StaticAssertDecl(sizeof(BlobSegmentId) == 16, "BlobSegmentId must not have padding");

/* One extent as the allocator has returned it. */
typedef struct BlobExtent
{
	BlobPageNo	first_page;
	uint64		pages;
	BlobGeneration generation;
	bool		is_tail;		/* exact last extent, not of a tier size */
	bool		has_sums;		/* the map has checksums of its pages; set with the generation */
} BlobExtent;

/* Pages one after the other, through any number of segments. */
typedef struct BlobPageRun
{
	BlobPageNo	first_page;
	uint64		pages;
} BlobPageRun;

/* Generations from first to last, both included. */
typedef struct BlobGenerationRange
{
	BlobGeneration first;
	BlobGeneration last;
} BlobGenerationRange;

/* Number of pages that size_bytes need; the last one may be partly filled. */
static inline uint64
blob_pages_for(uint64 size_bytes)
{
	return size_bytes / BLOB_PAGE_SIZE + (size_bytes % BLOB_PAGE_SIZE != 0);
}

static inline uint32
blob_segment_of(BlobPageNo page)
{
	return (uint32) (page / BLOB_SEGMENT_PAGES);
}

/* The end of the segment of a page. */
static inline BlobPageNo
blob_segment_end(BlobPageNo page)
{
	return page - page % BLOB_SEGMENT_PAGES + BLOB_SEGMENT_PAGES;
}

#endif							/* BLOB_PAGE_H */
