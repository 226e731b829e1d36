/*
 * gc/gc_internal.h
 *	  What the files of this folder share: the state of one round.
 */
#ifndef BLOB_GC_INTERNAL_H
#define BLOB_GC_INTERNAL_H

#include "postgres.h"

#include "access/htup_details.h"
#include "core/compat.h"
#include "gc/gc.h"
#include "gc/roots.h"
#include "gc/status.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "store/store.h"
#include "utils/rel.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

/* The pages [first_page, end_page) whose first extents are looked at, a bit for each. */
typedef struct BlobGcMarks
{
	BlobPageNo	first_page;
	BlobPageNo	end_page;
	uint8	   *bits;
	uint8	   *kept_bits;		/* of rows that are kept; NULL if there was none */
} BlobGcMarks;

/* A column that can hold blobstate. */
typedef struct BlobGcColumn
{
	AttrNumber	number;
	Oid			type;
} BlobGcColumn;

typedef struct BlobGcRound
{
	BlobGcOptions options;
	BlobGcResult *result;
	BlobStore	store;
	Oid			blob_type;
	BlobGeneration cutoff;
	Snapshot	snapshot;		/* S1 */
	BlobGcRoots *roots;
	XLogRecPtr	slot_position;	/* W */
	uint64		allocated_pages;	/* counter at the cutoff */
	bool		is_empty;		/* nothing was ever stored here */
	uint32		last_moment;	/* the question that was drawn after the last L */
	struct BlobGcTold *told;	/* what owners of temporary tables have told, or NULL */
	BlobGcMarks marks;
	struct BlobGcNotes *notes;	/* during steps 8 and 9 */
	BufferAccessStrategy strategy;
	MemoryContext context;		/* of the round: data that is kept between steps */
	MemoryContext row_context;	/* reset for each tuple */
	TransactionId newest_deleter;	/* of rows that are kept, or invalid */
	bool		keeps_catalog_rows; /* some are of a table that logical decoding reads */
	TransactionId newest_passed;	/* deleter of rows that were passed over, or invalid */
	TimestampTz next_yield_check;
	int			delay_balance;	/* pages since the last sleep */

	/* No round: an owner of temporary tables marks these, while *asked is the question; or NULL. */
	const volatile uint32 *asked;
	uint32		question;
	uint64		answer_pages;	/* that it has read */
#ifdef USE_ASSERT_CHECKING
	int			step;			/* of README.md: the last one that has begun */
	const struct BlobGcNote *note;	/* of the page that is read to compare, or NULL */
#endif

	/* The relation being scanned. */
	Relation	relation;
	BlobGcRoot *root;
	uint64	   *key_pages;		/* counts pages of extents that are marked first now, or NULL */
	bool		keeps[MaxHeapTuplesPerPage + 1];	/* by offset: rows of a page that are kept */
	bool		is_kept;		/* of the row that is being marked */
	bool		refers;			/* a reference to an extent was met since this was reset */
	LOCKMODE	lock_mode;
	TransactionId horizon;		/* of removable tuples, when the scan of a table began */
	int			column_count;
	BlobGcColumn *columns;
} BlobGcRound;

/* yield.c: note why the round ends; always false. */
extern bool blob_gc_skip(BlobGcRound *round, const char *format,...) pg_attribute_printf(2, 3);

/* The same for a reason that goes by itself: a command, a slot that is being created. */
#define blob_gc_skip_now(round, ...) \
	((round)->result->is_passing = true, blob_gc_skip((round), __VA_ARGS__))

/*
 * yield.c: bounded waiting.  Sleeps a moment, and shows what for; serves interrupts.  False, with
 * that as the reason noted, when time is over, or when another process waits for us.
 */
typedef struct BlobGcWait
{
	TimestampTz end;
	long		sleep_ms;
} BlobGcWait;

extern void blob_gc_wait_begin(BlobGcWait *wait);
extern bool blob_gc_wait_more(BlobGcRound *round, BlobGcWait *wait, const char *format,...)
			pg_attribute_printf(3, 4);

/* yield.c: false, with a reason noted, when a process waits for a lock that this round holds. */
extern bool blob_gc_may_go_on(BlobGcRound *round);

/* yield.c: to be called for each page read, without locks on it; false ends the round. */
extern bool blob_gc_page_done(BlobGcRound *round);

/*
 * yield.c: locks that are taken without queueing; false, with a reason noted, if they cannot
 * be had.  That of the round keeps other rounds out of the database.  That of a relation is waited
 * for, without queueing, for gc_wait_timeout.
 */
extern bool blob_gc_lock_round(BlobGcRound *round);
extern bool blob_gc_lock_relation(BlobGcRound *round, Oid relid, LOCKMODE mode);
#ifdef USE_ASSERT_CHECKING
extern bool blob_gc_round_is_locked(const BlobGcRound *round);
#endif

/*
 * quiesce.c: steps 3 and 5.  give_up_constants: caches give up constants before the moment L,
 * however often that is chosen anew.
 */
extern bool blob_gc_wait_for_snapshots(BlobGcRound *round);
extern bool blob_gc_older_snapshot_exists(const BlobGcRound *round, int *pid);
extern bool blob_gc_wait_for_transactions(BlobGcRound *round, bool give_up_constants);

/* slots.c: steps 2, 7 and 10 */
extern bool blob_gc_no_slot_begins(BlobGcRound *round);
extern bool blob_gc_note_slots(BlobGcRound *round);
extern bool blob_gc_wait_for_slots(BlobGcRound *round);

/* mark.c */
extern void blob_gc_marks_begin(BlobGcRound *round, BlobPageNo first_page, BlobPageNo end_page);
extern void blob_gc_marks_end(BlobGcRound *round);
extern bool blob_gc_is_marked(const BlobGcMarks *marks, BlobPageNo first_page);

/* Is it marked, and do only rows refer to it that were deleted, and are kept? */
extern bool blob_gc_is_kept(const BlobGcMarks *marks, BlobPageNo first_page);

/* Mark the extents of all values in a datum.  Leaves garbage in the current memory context. */
extern void blob_gc_mark(BlobGcRound *round, Datum datum, Oid type);

struct BlobGcNote;

/* Mark what the note of a page names. */
extern void blob_gc_mark_noted(BlobGcRound *round, const struct BlobGcNote *note);

/*
 * mark.c: errors that what a tuple has can cause; what can be wrong with a tuple or page of the
 * relation that is scanned is an ERROR that names the place.
 */
extern bool blob_gc_is_content_error(int sqlstate);
pg_noreturn extern void blob_gc_report_damage(BlobGcRound *round, ItemPointer place,
											  const char *problem);

/*
 * scan.c: step 8, all of it.  List the columns of the opened relation that can hold values, in the
 * context of the round; returns BlobGcRoot.columns of it.
 */
extern bool blob_gc_mark_roots(BlobGcRound *round);
extern uint64 blob_gc_list_columns(BlobGcRound *round);

/* heap.c and btree.c: step 8; the relation is open, its columns are listed. */
extern bool blob_gc_mark_heap(BlobGcRound *round);
extern bool blob_gc_mark_btree(BlobGcRound *round);
extern bool blob_gc_mark_catalogs(BlobGcRound *round);

/* A tuple on a locked page of the relation that is scanned. */
static inline void
blob_gc_set_tuple(HeapTuple tuple, BlobGcRound *round, Buffer buffer, OffsetNumber offset)
{
	Page		page = BufferGetPage(buffer);
	ItemId		item = PageGetItemId(page, offset);

	tuple->t_len = ItemIdGetLength(item);
	tuple->t_tableOid = RelationGetRelid(round->relation);
	tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
	ItemPointerSet(&tuple->t_self, BufferGetBlockNumber(buffer), offset);
}

/*
 * keys.c: extents that only keys of B-trees hold.  Note properties of the relation that is about to
 * be marked; in the end, tell the view, and list tables that VACUUM would help, most bytes
 * first, at most BLOB_GC_DEAD_KEY_TABLES.
 */
extern void blob_gc_keys_note(BlobGcRound *round);
extern void blob_gc_keys_report(BlobGcRound *round);
extern int	blob_gc_keys_tables(BlobGcRound *round, BlobGcDeadKeys *tables);

/*
 * kept.c: note which rows of a locked page, whose lines are sound, were deleted before the round,
 * as S1 sees it, and may not be removed yet.  It is a matter of counting: they are marked as all
 * others are.
 */
extern void blob_gc_kept_note(BlobGcRound *round, Buffer buffer);

/*
 * Whether a tuple on a locked buffer is dead to all snapshots of this server; horizon:
 * VACUUM's, which a standby's feedback may have brought back.  A tuple that only the standby may
 * see is noted for FREE (newest_passed).
 */
extern bool blob_gc_kept_is_dead(BlobGcRound *round, HeapTuple tuple, TransactionId horizon,
								 Buffer buffer);

/* In the end, find what keeps rows, and tell the view. */
extern void blob_gc_kept_report(BlobGcRound *round);

/* sweep.c: step 11, for the range of the marks; false ends the round. */
extern bool blob_gc_sweep(BlobGcRound *round);

#endif							/* BLOB_GC_INTERNAL_H */
