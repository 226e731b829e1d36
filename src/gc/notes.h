/*
 * gc/notes.h
 *	  Notes of pages: what the rows of a page refer to, from one round to the next, for as long as
 *	  the page does not change.  See README.md, "Notes of pages".
 */
#ifndef BLOB_GC_NOTES_H
#define BLOB_GC_NOTES_H

#include "postgres.h"

#include "core/page.h"
#include "storage/block.h"

struct BlobGcRound;
struct BlobGcNotes;

/* The note of a page: first pages of extents, one for each reference. */
typedef struct BlobGcNote
{
	const BlobPageNo *references;
	uint32		count;
} BlobGcNote;

/*
 * Marking begins: open the notes that are there; write: make new ones.  Marking has ended, and so
 * has the comparison of lists after it: if both were successful, the new ones take the place of the
 * others.
 */
extern void blob_gc_notes_open(struct BlobGcRound *round, bool write);
extern void blob_gc_notes_close(struct BlobGcRound *round, bool is_complete);

/* Marking begins, and knows no notes nor makes any: neither open nor close. */
extern void blob_gc_notes_use_none(struct BlobGcRound *round);

/*
 * A table that is being marked, or has no notes: its blocks are passed in ascending order, each
 * once.  find: true if the page has not changed since it was noted; its note is kept, and is there
 * until the next block.  False: the page is to be read.
 */
extern void blob_gc_notes_begin_table(struct BlobGcRound *round, bool may_have_notes);
extern bool blob_gc_notes_find(struct BlobGcRound *round, BlockNumber block, BlobGcNote *note);
extern void blob_gc_notes_end_table(struct BlobGcRound *round);

#ifdef USE_ASSERT_CHECKING
/* Whether the note that was found still holds; the caller has locked the page. */
extern bool blob_gc_notes_holds(struct BlobGcRound *round, BlockNumber block);
#endif

/*
 * A page of this table that is read; in between, all references that are marked go to its note.
 * is_all_visible: its PD_ALL_VISIBLE; a page without it gets no note.
 */
extern void blob_gc_notes_begin_page(struct BlobGcRound *round, BlockNumber block,
									 bool is_all_visible);
extern void blob_gc_notes_add(struct BlobGcNotes *notes, BlobPageNo first_page);
extern void blob_gc_notes_end_page(struct BlobGcRound *round);

/* The references of this page cannot be told: no note of it. */
extern void blob_gc_notes_drop_page(struct BlobGcNotes *notes);

#endif							/* BLOB_GC_NOTES_H */
