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
#include "store/store.h"

struct BlobGcRound;
typedef struct BlobGcNotes BlobGcNotes;

/*
 * Marking begins: open the notes that are there; write: make new ones.  Marking ends: if it is
 * complete, the new ones take the place of the others.
 */
extern void blob_gc_notes_open(struct BlobGcRound *round, bool write);
extern void blob_gc_notes_close(struct BlobGcRound *round, bool is_complete);

/*
 * A table that is being marked: its blocks are passed in ascending order.  True: the page has not
 * changed since it was noted, and what its note names is marked.  False: it is to be read.
 */
extern void blob_gc_notes_begin_table(struct BlobGcRound *round, BlockNumber block_count);
extern bool blob_gc_notes_use(struct BlobGcRound *round, BlockNumber block);
extern void blob_gc_notes_end_table(struct BlobGcRound *round);

/*
 * A page of this table that is read; in between, all references that are marked go to its note.
 * is_all_visible: its PD_ALL_VISIBLE; a page without it gets no note.
 */
extern void blob_gc_notes_begin_page(struct BlobGcRound *round, BlockNumber block,
									 bool is_all_visible);
extern void blob_gc_notes_add(BlobGcNotes *notes, BlobPageNo first_page);
extern void blob_gc_notes_end_page(struct BlobGcRound *round);

/* What the page refers to cannot be told: no note of it. */
extern void blob_gc_notes_drop_page(BlobGcNotes *notes);

/* The launcher's: remove the files of all stores but these. */
extern void blob_gc_notes_keep(const BlobStoreId *stores, int count);

#endif							/* BLOB_GC_NOTES_H */
