/*
 * blob/page_writer.h
 *	  The extents of a value that is being written: allocates and claims pages, and writes stored
 *	  bytes to them.  Part of a writer (blob/writer.h), which decides what these bytes are.
 *
 * Memory of its owner, and nothing else.  Between two calls no lock is held, and no request is in
 * flight but writes that trail, if a put allows that (extents/pipeline.h).
 */
#ifndef BLOB_PAGE_WRITER_H
#define BLOB_PAGE_WRITER_H

#include "core/descriptor.h"
#include "extents/pipeline.h"
#include "store/drafts.h"

/* An extent of the value, in the order of its stored bytes. */
typedef struct BlobWriterExtent
{
	BlobExtent	extent;
	uint64		used_pages;		/* pages with stored bytes of this value */
	uint64		claimed_pages;	/* to its high-water mark, if this writer has set it */
	bool		is_shared;		/* with the base */
	/* of a tree: */
	int			base_no;		/* number of the extent in the base; -1: a new one */
	uint8		tier;			/* BLOB_SLOT_TAIL: a tail */
	uint64		start_pages;	/* stored offset of its first page */
	bool		is_closed;		/* no more pages of it are claimed */
} BlobWriterExtent;

struct BlobPageWriter;
struct BlobStore;

/* Chooses the next pages of the value, as runs; allocates and claims as needed. */
typedef void (*BlobPageTaker) (struct BlobPageWriter *writer, struct BlobStore *store,
							   uint64 pages);

/* Only page_writer.c changes the members, but those that say so. */
typedef struct BlobPageWriter
{
	MemoryContext context;
	BlobDraft  *draft;			/* NULL before the first allocation */
	BlobStoreId store;			/* of the draft */
	bool		keeps_room;		/* owner's: ends with a remainder; else the last extent fits */
	bool		is_estimated;	/* owner's: expected_bytes is a guess */
	BlobPageTaker take;			/* of a tree, set by blob/slot_writer.c: extents are slots */
	bool		has_tail;		/* among the extents */
	bool		has_room;		/* the store had room for expected_bytes when asked */
	uint64		expected_bytes; /* owner's: all stored bytes; 0: unknown */
	uint64		stored_bytes;	/* in extents: where the next page goes */
	BlobPipeline pipeline;
	BlobGeneration generation;	/* the largest */
	BlobValue	base;			/* owner's: the value that this one shares extents with */
	BlobWriterExtent *extents;
	int			extent_count;
	int			extent_capacity;
	int			current;		/* the extent that is being filled */
	BlobWriteRun *runs;			/* pages to be written by the current call */
	int			run_count;
	int			run_capacity;
	bool		has_remainder_page;
	BlobPageNo	remainder_page;
	uint64		slot_room;		/* of a tree: bytes that a new extent should have */
	uint64		first_new;		/* of a tree: stored offset of the first new byte */
	bool		lacks_sums;		/* of a tree: pages were taken in an extent without checksums */
} BlobPageWriter;

/* What one call writes: whole pages, and perhaps the page of the remainder behind them. */
typedef struct BlobPageStep
{
	uint64		pages;			/* of extents, without the page of the remainder */
	bool		wants_remainder_page;
	bool		is_last;
	BlobPut		put;			/* without store and runs */
} BlobPageStep;

/* Begin with zeroed memory.  Extents, and what describes them, are allocated in the context. */
extern void blob_page_writer_begin(BlobPageWriter *writer, MemoryContext context);

/* Share the first keep_pages stored pages of the base.  The last extent may be used in part. */
extern void blob_page_writer_share(BlobPageWriter *writer, uint64 keep_pages);

/* Whether more came than was expected, so that the value would not end with its tail. */
extern bool blob_page_writer_ends_behind_tail(const BlobPageWriter *writer, uint64 last_pages);

/*
 * Allocate or claim the pages of a step, and write its bytes; they are logged where content is.
 * Locks the map in RowExclusive mode meanwhile.  Assigns an XID, so that the commit writes a
 * record, which comes after the content.
 */
extern void blob_page_writer_store(BlobPageWriter *writer, BlobPageStep *step);

/*
 * Make the datum of the value, whose writes have completed, and complete its draft.  descriptor has
 * everything but generation, tail_content_pages and the page of the remainder; if it is compressed,
 * all but stored_bytes.  frames: as for blob_compressed_pack().
 */
extern struct varlena *blob_page_writer_complete(BlobPageWriter *writer,
												 BlobDescriptor *descriptor,
												 const BlobFrame *frames);

/* ---- for blob/slot_writer.c ---- */

/* Add a last extent, all zero. */
extern BlobWriterExtent *blob_page_writer_add_extent(BlobPageWriter *writer);

/* Add pages of an extent to those that the current call writes. */
extern void blob_page_writer_add_run(BlobPageWriter *writer, const BlobExtent *extent,
									 uint64 page_in_extent, uint64 pages);

/* Pages of the runs chosen so far. */
extern uint64 blob_page_writer_taken_pages(const BlobPageWriter *writer);

/*
 * Complete the draft, since the value's descriptor is about to leave.  New extents without used
 * pages are no part of the value: they remain in the draft, and are freed.
 */
extern void blob_page_writer_complete_draft(BlobPageWriter *writer);

/* ---- */

/* Free the memory, and abandon extents that were allocated and are in no value. */
extern void blob_page_writer_end(BlobPageWriter *writer);

#endif							/* BLOB_PAGE_WRITER_H */
