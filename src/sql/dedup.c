/*
 * sql/dedup.c
 *	  blobext_dedup(): rows whose values have the same content share one value.
 *
 * A procedure that commits.  It works with the rights of its caller, by statements that the caller
 * could have written: SELECT, SELECT ... FOR SHARE, UPDATE.  README.md, "blobext_dedup()", has the
 * argument why no change of others is lost, and why the collector goes on meanwhile.
 *
 * From one transaction to the next it keeps digests and places of rows, and no value.  Within
 * one it keeps the value that rows were compared with last, and its content if that is small.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "blob/blob.h"
#include "blob/share.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "core/compat.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "sql/batch.h"
#include "sql/dedup.h"
#include "sql/progress.h"
#include "sql/value.h"
#include "storage/bufmgr.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(blobext_dedup);
PG_FUNCTION_INFO_V1(blobext_dedup_state);

#define NAME "blobext_dedup()"

/* Blocks of a table that one statement reads; fewer of each if there are many tables. */
#define RANGE_BLOCKS 256

/* A batch ends when this much content was read, too. */
#define BATCH_BYTES (UINT64CONST(128) * 1024 * 1024)

#define MAX_WARNINGS 20

/* Columns of view blobext_dedup_progress, and of the result the last four but BYTES_COMPARED. */
enum
{
	RANGES_DONE,
	BLOCKS_DONE,
	BLOCKS_TOTAL,
	BYTES_COMPARED,
	ROWS_SHARED,
	BYTES_SAVED,
	ROWS_SKIPPED,
	ROWS_FAILED,
	COUNTERS
};

#define FIRST_RESULT ROWS_SHARED
#define RESULT_COLUMNS (COUNTERS - FIRST_RESULT)

/* A row whose value may be exchanged for that of its group. */
typedef struct Candidate
{
	BlobDedupRow row;
	BlobDedupGroup *group;
	BlobDedupDatum datum;
} Candidate;

/*
 * The value of a group that a row was compared with last; all of it ends with the batch.  The
 * candidates of a group follow each other.
 */
typedef struct KnownSource
{
	struct varlena *datum;		/* NULL: there is none */
	char	   *content;		/* NULL: not read, or too large */
	BlobDedupRow row;
	bool		is_locked;		/* this transaction has the row locked, with this datum */
} KnownSource;

typedef struct Dedup
{
	BlobDedupColumn column;
	bool		verify;
	int			batch_rows;
	MemoryContext context;		/* to the end, over commits */
	MemoryContext row_context;	/* reset for each row, and in each transaction */
	MemoryContext source_context;	/* of known, reset in each transaction */
	KnownSource known;
	BlobDedupGroups *groups;
	SPIPlanPtr	scan;
	SPIPlanPtr	fetch;
	SPIPlanPtr	lock_source;
	SPIPlanPtr	lock_target;
	SPIPlanPtr	update;
	Candidate  *candidates;		/* of a range of blocks */
	int			candidate_count;
	int			candidate_room;
	int			batch_done;		/* rows of this transaction */
	uint64		batch_bytes;	/* content that it has read */
	int			warnings;
	uint64		counters[COUNTERS];
} Dedup;

static void
count(Dedup *dedup, int counter, uint64 value)
{
	dedup->counters[counter] += value;
	blob_progress_set(counter, dedup->counters[counter]);
}

/* ---- transactions ---- */

static void
forget_source(Dedup *dedup)
{
	MemoryContextReset(dedup->source_context);
	dedup->known = (KnownSource) {0};
}

/* The next transaction; ERROR if the names mean something else now. */
static void
next_batch(Dedup *dedup)
{
	BlobDedupColumn now;

	forget_source(dedup);
	MemoryContextReset(dedup->row_context);
	blob_batch_next();
	dedup->batch_done = 0;
	dedup->batch_bytes = 0;
	MemoryContextSwitchTo(dedup->row_context);
	blob_dedup_find_column(dedup->column.relid, dedup->column.name, NAME, &now);
	blob_dedup_require_same(&dedup->column, &now);
	blob_batch_require_updates(now.relid);
	MemoryContextReset(dedup->row_context);
}

/* ---- statements ---- */

/* The lock of a row that an UPDATE takes: the strongest one that some table needs. */
static const char *
row_lock(const BlobDedupColumn *column)
{
	const char *lock = blob_batch_row_lock(column->relid, column->name);
	ListCell   *table;

	foreach(table, blob_dedup_list_tables(column))
	{
		const char *needed = blob_batch_row_lock(lfirst_oid(table), column->name);

		if (strlen(needed) < strlen(lock))
			lock = needed;
	}
	return lock;
}

/* The statements of a call; all names in them are qualified and quoted. */
static void
prepare(Dedup *dedup)
{
	const BlobDedupColumn *column = &dedup->column;
	Oid			types[] = {OIDOID, TIDOID, blob_catalog_type()};
	Oid			range[] = {TIDOID, TIDOID};
	char	   *place = "tableoid OPERATOR(pg_catalog.=) $1 AND ctid OPERATOR(pg_catalog.=) $2";
	char	   *fetch = psprintf("SELECT %s FROM %s WHERE %s", column->column, column->table,
								 place);

	dedup->scan =
		blob_dedup_prepare(psprintf("SELECT tableoid, ctid, %s FROM %s WHERE ctid "
									"OPERATOR(pg_catalog.>=) $1 AND ctid "
									"OPERATOR(pg_catalog.<) $2", column->column,
									column->table), 2, range);
	dedup->fetch = blob_dedup_prepare(fetch, 2, types);
	dedup->lock_source = blob_dedup_prepare(psprintf("%s FOR SHARE NOWAIT", fetch), 2, types);
	dedup->lock_target =
		blob_dedup_prepare(psprintf("%s FOR %s SKIP LOCKED", fetch, row_lock(column)), 2, types);
	dedup->update =
		blob_dedup_prepare(psprintf("UPDATE %s SET %s = $3 WHERE %s", column->table,
									column->column, place), 3, types);
}

static void
release_plans(Dedup *dedup)
{
	SPIPlanPtr	plans[] = {dedup->scan, dedup->fetch, dedup->lock_source, dedup->lock_target,
	dedup->update};

	for (int i = 0; i < (int) lengthof(plans); i++)
	{
		if (plans[i] != NULL)
			SPI_freeplan(plans[i]);
	}
}

static void
execute(SPIPlanPtr plan, Datum *values, int expected)
{
	int			result = SPI_execute_plan(plan, values, NULL, false, 0);

	if (result != expected)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
}

/*
 * The value of a row, by one of the statements for that, copied to the row's context; NULL if the
 * row is not there for it.
 */
static struct varlena *
get_value(Dedup *dedup, SPIPlanPtr plan, const BlobDedupRow *row)
{
	Datum		values[] = {ObjectIdGetDatum(row->table), PointerGetDatum(&row->tid)};
	struct varlena *value = NULL;

	execute(plan, values, SPI_OK_SELECT);
	if (SPI_processed > 0)
	{
		bool		is_null;
		Datum		datum =
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null);
		MemoryContext old_context = MemoryContextSwitchTo(dedup->row_context);

		if (!is_null)
			value = PG_DETOAST_DATUM_COPY(datum);
		MemoryContextSwitchTo(old_context);
	}
	SPI_freetuptable(SPI_tuptable);
	return value;
}

static bool
is_same_datum(const struct varlena *a, const struct varlena *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

/* ---- one row ---- */

typedef enum Outcome
{
	SHARED,
	OF_NO_USE,					/* it would save nothing */
	SKIPPED,					/* changed, or locked by others, or by a trigger's will */
	SOURCE_GONE,				/* the group's row has another value now, or none */
	SOURCE_REFUSED,				/* the caller may not lock it, or it changed just now */
	DIFFERENT
} Outcome;

typedef struct Attempt
{
	Dedup	   *dedup;
	const Candidate *candidate;
	bool		is_comparing;	/* an error is one of reading */
	bool		is_locking_source;
	bool		has_locked_source;
	bool		is_sound;		/* set by examine() */
	uint64		saved_bytes;
	Outcome		outcome;
} Attempt;

/* A value in extents of the group's content, or not. */
static bool
is_of_group(const BlobValue *value, const BlobDedupGroup *group)
{
	return !value->is_inline && value->size_bytes == group->key.size_bytes &&
		memcmp(value->descriptor.sha256, group->key.sha256, BLOB_DIGEST_BYTES) == 0;
}

static bool
is_same_row(const BlobDedupRow *a, const BlobDedupRow *b)
{
	return a->table == b->table && ItemPointerEquals((ItemPointer) &a->tid, (ItemPointer) &b->tid);
}

/*
 * The value of the group's row, which is known from now on; NULL if the row is not there.  No
 * other transaction changes a row that this one has locked.
 */
static struct varlena *
get_source(Dedup *dedup, const BlobDedupRow *row)
{
	KnownSource *known = &dedup->known;
	struct varlena *source;
	MemoryContext old_context;

	if (known->is_locked && is_same_row(&known->row, row))
		return known->datum;
	source = get_value(dedup, dedup->fetch, row);
	if (source == NULL || known->datum == NULL || !is_same_datum(known->datum, source))
		forget_source(dedup);
	if (source == NULL)
		return NULL;
	known->row = *row;
	known->is_locked = false;
	if (known->datum != NULL)
		return known->datum;
	old_context = MemoryContextSwitchTo(dedup->source_context);
	known->datum = (struct varlena *)
		DatumGetPointer(datumCopy(PointerGetDatum(source), false, -1));
	MemoryContextSwitchTo(old_context);
	return known->datum;
}

/* Compare the known source with a row's value. */
static bool
is_same_content(Dedup *dedup, const BlobValue *source, const BlobValue *target)
{
	KnownSource *known = &dedup->known;

	if (known->content == NULL)
	{
		MemoryContext old_context = MemoryContextSwitchTo(dedup->source_context);

		known->content = blob_share_read(source);
		MemoryContextSwitchTo(old_context);
	}
	return known->content != NULL ? blob_share_is_content(known->content, target) :
		blob_share_is_same(source, target);
}

/* Lock the row of the known source; false if it has another value now, or cannot be locked. */
static bool
lock_source(Attempt *attempt)
{
	Dedup	   *dedup = attempt->dedup;
	const KnownSource *known = &dedup->known;
	struct varlena *locked;

	if (!known->is_locked)
	{
		attempt->is_locking_source = true;
		locked = get_value(dedup, dedup->lock_source, &known->row);
		attempt->is_locking_source = false;
		if (locked == NULL || !is_same_datum(locked, known->datum))
			return false;
	}
	attempt->has_locked_source = true;
	return true;
}

/*
 * Lock both rows, until the transaction ends, if they still have these values, and exchange the
 * target's.  Never waits for the lock of a row.
 */
static Outcome
exchange(Attempt *attempt, const BlobValue *source, const struct varlena *target)
{
	Dedup	   *dedup = attempt->dedup;
	const BlobDedupRow *row = &attempt->candidate->row;
	Datum		values[] = {ObjectIdGetDatum(row->table), PointerGetDatum(&row->tid),
	PointerGetDatum(dedup->known.datum)};
	struct varlena *locked;

	if (!lock_source(attempt))
		return SOURCE_REFUSED;
	locked = get_value(dedup, dedup->lock_target, row);
	if (locked == NULL || !is_same_datum(locked, target))
		return SKIPPED;
	blob_require_valid(&source->descriptor);
	execute(dedup->update, values, SPI_OK_UPDATE);
	return SPI_processed > 0 ? SHARED : SKIPPED;
}

/*
 * A BlobAttemptStep: give a row the value of its group.  Contents are compared before the rows are
 * locked.
 */
static void
share(void *argument)
{
	Attempt    *attempt = argument;
	Dedup	   *dedup = attempt->dedup;
	BlobDedupGroup *group = attempt->candidate->group;
	struct varlena *source = get_source(dedup, &group->source);
	struct varlena *target = get_value(dedup, dedup->fetch, &attempt->candidate->row);
	BlobValue	source_value;
	BlobValue	target_value;

	attempt->outcome = SKIPPED;
	if (target == NULL)
		return;
	blob_value_unpack(target, &target_value);
	if (!is_of_group(&target_value, group))
		return;
	attempt->outcome = SOURCE_GONE;
	if (source == NULL)
		return;
	blob_value_unpack(source, &source_value);
	if (!is_of_group(&source_value, group))
		return;
	attempt->outcome = OF_NO_USE;
	attempt->saved_bytes = blob_share_spares(&target_value, &source_value);
	if (attempt->saved_bytes == 0)
		return;
	if (dedup->verify)
	{
		attempt->is_comparing = true;
		attempt->outcome = DIFFERENT;
		dedup->batch_bytes += source_value.size_bytes;
		if (!is_same_content(dedup, &source_value, &target_value))
			return;
		count(dedup, BYTES_COMPARED, source_value.size_bytes);
		attempt->is_comparing = false;
	}
	attempt->outcome = exchange(attempt, &source_value, target);
}

static bool
is_of_concurrency(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK ||
		sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
}

static void
warn(Dedup *dedup, const BlobDedupRow *row, const char *problem)
{
	if (dedup->warnings++ >= MAX_WARNINGS)
		return;
	ereport(WARNING,
			(errmsg("row (%u,%u) of \"%s\" keeps its value: %s",
					ItemPointerGetBlockNumber(&row->tid), ItemPointerGetOffsetNumber(&row->tid),
					get_rel_name(row->table), problem)));
	if (dedup->warnings == MAX_WARNINGS)
		ereport(WARNING, (errmsg("further rows that keep their values are only counted")));
}

/* A BlobAttemptStep: is the row's own value as its digest says? */
static void
examine(void *argument)
{
	Attempt    *attempt = argument;
	struct varlena *target = get_value(attempt->dedup, attempt->dedup->fetch,
									   &attempt->candidate->row);
	BlobValue	value;

	if (target == NULL)
		return;
	blob_value_unpack(target, &value);
	attempt->dedup->batch_bytes += value.size_bytes;
	attempt->is_sound = is_of_group(&value, attempt->candidate->group) &&
		blob_share_is_sound(&value);
}

/* This row's value is that of the group from now on. */
static void
become_source(const Candidate *candidate)
{
	BlobDedupGroup *group = candidate->group;

	group->source = candidate->row;
	group->datum = candidate->datum;
	group->has_source = true;
	group->rows = 1;
}

/*
 * The row with the group's value is gone, or locked.  If others have that value, one of them will
 * come by, in this call or in the next one; else this row takes its place.
 */
static void
replace_source(Dedup *dedup, const Candidate *candidate)
{
	if (candidate->group->rows <= 1)
	{
		become_source(candidate);
		return;
	}
	candidate->group->has_source = false;
	count(dedup, ROWS_SKIPPED, 1);
}

/* One of the two values is damaged.  If it is the group's, the row's takes its place. */
static void
handle_damage(Attempt *attempt, const char *problem)
{
	Dedup	   *dedup = attempt->dedup;
	ErrorData  *error = blob_attempt(examine, attempt);

	count(dedup, ROWS_FAILED, 1);
	warn(dedup, &attempt->candidate->row, problem);
	if (error != NULL && blob_dedup_is_to_be_thrown(error->sqlerrcode))
		ReThrowError(error);
	if (error == NULL && attempt->is_sound)
		become_source(attempt->candidate);
}

/* The error of an attempt, of which nothing is left. */
static void
handle_error(Attempt *attempt, ErrorData *error)
{
	Dedup	   *dedup = attempt->dedup;

	if (blob_dedup_is_to_be_thrown(error->sqlerrcode))
		ReThrowError(error);
	if (is_of_concurrency(error->sqlerrcode))
	{
		if (attempt->is_locking_source)
			replace_source(dedup, attempt->candidate);
		else
			count(dedup, ROWS_SKIPPED, 1);
		return;
	}
	if (attempt->is_comparing)
	{
		handle_damage(attempt, error->message);
		return;
	}
	count(dedup, ROWS_FAILED, 1);
	warn(dedup, &attempt->candidate->row, error->message);
}

/* What follows from an attempt that made no error. */
static void
handle_outcome(Attempt *attempt)
{
	Dedup	   *dedup = attempt->dedup;
	const Candidate *candidate = attempt->candidate;

	switch (attempt->outcome)
	{
		case SHARED:
			count(dedup, ROWS_SHARED, 1);
			if (blob_dedup_groups_is_new(dedup->groups, candidate->datum.hash))
				count(dedup, BYTES_SAVED, attempt->saved_bytes);
			break;
		case OF_NO_USE:
			break;
		case SKIPPED:
			count(dedup, ROWS_SKIPPED, 1);
			break;
		case SOURCE_REFUSED:
			become_source(candidate);
			break;
		case SOURCE_GONE:
			replace_source(dedup, candidate);
			break;
		case DIFFERENT:
			handle_damage(attempt, "its content is not that of another value with the same size "
						  "and digest; blobext_check() says which one is damaged");
			break;
	}
}

/* Give a row its group's value, or not, and count it.  May end the batch. */
static void
handle_candidate(Dedup *dedup, const Candidate *candidate)
{
	Attempt		attempt = {.dedup = dedup, .candidate = candidate};
	ErrorData  *error;

	CHECK_FOR_INTERRUPTS();
	/* The group's value may have become that of this row meanwhile. */
	if (candidate->group->datum.hash == candidate->datum.hash)
		return;
	if (!candidate->group->has_source)
	{
		count(dedup, ROWS_SKIPPED, 1);
		return;
	}
	MemoryContextSwitchTo(dedup->row_context);
	error = blob_attempt(share, &attempt);
	dedup->batch_done++;
	/* A lock that the attempt took is the transaction's only if the attempt was not undone. */
	if (error != NULL)
		dedup->known.is_locked = false;
	else if (attempt.has_locked_source)
		dedup->known.is_locked = true;
	if (error != NULL)
		handle_error(&attempt, error);
	else
		handle_outcome(&attempt);
	MemoryContextReset(dedup->row_context);
	if (dedup->batch_done >= dedup->batch_rows || dedup->batch_bytes >= BATCH_BYTES)
		next_batch(dedup);
}

/* ---- all rows ---- */

typedef void (*RowVisitor) (Dedup *dedup, const BlobDedupRow *row, const BlobDedupKey *key,
							const BlobDedupDatum *datum);

static void
add_to_group(Dedup *dedup, const BlobDedupRow *row, const BlobDedupKey *key,
			 const BlobDedupDatum *datum)
{
	blob_dedup_groups_add(dedup->groups, key, datum, row);
}

/* In the second pass: remember a row whose value is not that of its group. */
static void
note_candidate(Dedup *dedup, const BlobDedupRow *row, const BlobDedupKey *key,
			   const BlobDedupDatum *datum)
{
	BlobDedupGroup *group = blob_dedup_groups_find(dedup->groups, key);

	if (group == NULL)
		return;
	if (group->datum.hash == datum->hash)
	{
		/* The row that was seen last has the best chance to be there still. */
		group->source = *row;
		group->has_source = true;
		return;
	}
	if (dedup->candidate_count == dedup->candidate_room)
	{
		dedup->candidate_room *= 2;
		dedup->candidates = repalloc_huge(dedup->candidates,
										  sizeof(Candidate) * dedup->candidate_room);
	}
	dedup->candidates[dedup->candidate_count++] =
		(Candidate) {.row = *row,.group = group,.datum = *datum};
}

/* Visit a row, unless its value is inline.  Leaves memory in the current context. */
static void
visit_row(Dedup *dedup, HeapTuple tuple, TupleDesc row_type, RowVisitor visit)
{
	bool		is_null;
	Datum		datum = SPI_getbinval(tuple, row_type, 3, &is_null);
	BlobDedupRow row;
	BlobDedupKey key;
	BlobDedupDatum summary;
	BlobValue	value;
	struct varlena *plain;

	if (is_null || blob_datum_is_inline(datum))
		return;
	plain = PG_DETOAST_DATUM_PACKED(datum);
	blob_value_unpack(plain, &value);
	key.size_bytes = value.size_bytes;
	memcpy(key.sha256, value.descriptor.sha256, BLOB_DIGEST_BYTES);
	summary.bytes = blob_share_spares(&value, NULL);
	summary.generation = value.descriptor.generation;
	summary.hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(plain),
									   VARSIZE_ANY_EXHDR(plain), 0);
	row.table = DatumGetObjectId(SPI_getbinval(tuple, row_type, 1, &is_null));
	row.tid = *(ItemPointer) DatumGetPointer(SPI_getbinval(tuple, row_type, 2, &is_null));
	visit(dedup, &row, &key, &summary);
}

/* Visit the rows in blocks [first, first + blocks) of all tables. */
static void
scan_range(Dedup *dedup, BlockNumber first, BlockNumber blocks, RowVisitor visit)
{
	ItemPointerData from;
	ItemPointerData to;
	Datum		values[] = {PointerGetDatum(&from), PointerGetDatum(&to)};

	ItemPointerSet(&from, first, 0);
	ItemPointerSet(&to, first + Min(blocks, MaxBlockNumber - first), 0);
	execute(dedup->scan, values, SPI_OK_SELECT);
	MemoryContextSwitchTo(dedup->row_context);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		visit_row(dedup, SPI_tuptable->vals[i], SPI_tuptable->tupdesc, visit);
		MemoryContextReset(dedup->row_context);
	}
	SPI_freetuptable(SPI_tuptable);
	count(dedup, BLOCKS_DONE, blocks);
}

/* Groups in some order, and the rows of a group in that of the table. */
static int
compare_candidates(const void *a, const void *b)
{
	const Candidate *first = a;
	const Candidate *second = b;

	if (first->group != second->group)
		return first->group < second->group ? -1 : 1;
	return ItemPointerCompare((ItemPointer) &first->row.tid, (ItemPointer) &second->row.tid);
}

/*
 * Values are not kept over a commit, so candidates are places of rows.  Those of a group follow
 * each other, so that its value is looked up, read and locked once in a batch.
 */
static void
handle_candidates(Dedup *dedup)
{
	qsort(dedup->candidates, dedup->candidate_count, sizeof(Candidate), compare_candidates);
	for (int i = 0; i < dedup->candidate_count; i++)
		handle_candidate(dedup, &dedup->candidates[i]);
	dedup->candidate_count = 0;
}

/* The length of the longest table, in blocks, and the number of tables. */
static BlockNumber
measure(Dedup *dedup, int *tables)
{
	List	   *relations;
	BlockNumber longest = 0;
	ListCell   *cell;

	MemoryContextSwitchTo(dedup->row_context);
	relations = blob_dedup_list_tables(&dedup->column);
	*tables = Max(list_length(relations), 1);
	foreach(cell, relations)
	{
		Relation	table = relation_open(lfirst_oid(cell), AccessShareLock);

		longest = Max(longest, RelationGetNumberOfBlocks(table));
		relation_close(table, NoLock);
	}
	MemoryContextReset(dedup->row_context);
	return longest;
}

/* The digests that are in the groups' range now: both passes over the rows. */
static void
do_range(Dedup *dedup)
{
	int			tables;
	BlockNumber length = measure(dedup, &tables);
	BlockNumber step = Max(RANGE_BLOCKS / tables, 1);

	count(dedup, BLOCKS_TOTAL, (uint64) length * 2);
	for (uint64 block = 0; block < length; block += step)
	{
		scan_range(dedup, block, Min(step, length - block), add_to_group);
		next_batch(dedup);
	}
	for (uint64 block = 0; block < length; block += step)
	{
		scan_range(dedup, block, Min(step, length - block), note_candidate);
		next_batch(dedup);
		handle_candidates(dedup);
	}
	count(dedup, RANGES_DONE, 1);
}

/* ---- the procedure ---- */

/* All ranges.  The transaction in which CALL began ends first. */
static void
run(Dedup *dedup)
{
	blob_progress_begin(BLOB_PROGRESS_DEDUP);
	PG_TRY();
	{
		blob_progress_relation(dedup->column.relid);
		prepare(dedup);
		next_batch(dedup);
		do
			do_range(dedup);
		while (blob_dedup_groups_next(dedup->groups));
		SPI_commit();
	}
	PG_FINALLY();
	{
		release_plans(dedup);
		blob_progress_end();
	}
	PG_END_TRY();
}

/* ERROR unless this is a CALL by itself, which can commit. */
static void
require_own_transactions(FunctionCallInfo fcinfo)
{
	PreventCommandDuringRecovery(NAME);
	PreventCommandIfReadOnly(NAME);
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		((const CallContext *) fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block", NAME),
				 errdetail("It commits after each batch of rows."),
				 errhint("Use CALL outside of transaction blocks and functions.")));
}

static void
require_arguments(FunctionCallInfo fcinfo)
{
	for (int i = 0; i < 4; i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("arguments of %s must not be null", NAME)));
	}
	if (PG_GETARG_INT32(3) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("batch_rows must be at least 1")));
}

static Datum
make_result(FunctionCallInfo fcinfo, const uint64 *counters)
{
	Datum		values[RESULT_COLUMNS];
	bool		nulls[RESULT_COLUMNS] = {0};
	TupleDesc	row_type;

	if (get_call_result_type(fcinfo, NULL, &row_type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "%s does not return a row", NAME);
	for (int i = 0; i < RESULT_COLUMNS; i++)
		values[i] = Int64GetDatum((int64) counters[FIRST_RESULT + i]);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(row_type), values, nulls));
}

/*
 * blobext_dedup(relation, column_name, verify, batch_rows): the rest are results, with null where
 * CALL has to have something.
 */
Datum
blobext_dedup(PG_FUNCTION_ARGS)
{
	Dedup		dedup = {0};
	MemoryContext caller_context = CurrentMemoryContext;

	blob_store_require_preload();
	require_own_transactions(fcinfo);
	require_arguments(fcinfo);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");
	/* The current context outlives transactions. */
	dedup.context = CurrentMemoryContext;
	dedup.row_context = AllocSetContextCreate(dedup.context, "blobext dedup row",
											  ALLOCSET_DEFAULT_SIZES);
	dedup.source_context = AllocSetContextCreate(dedup.context, "blobext dedup source",
												 ALLOCSET_DEFAULT_SIZES);
	blob_dedup_find_column(PG_GETARG_OID(0), text_to_cstring(PG_GETARG_TEXT_PP(1)), NAME,
						   &dedup.column);
	blob_dedup_require_privileges(&dedup.column);
	dedup.verify = PG_GETARG_BOOL(2);
	dedup.batch_rows = PG_GETARG_INT32(3);
	dedup.groups = blob_dedup_groups_make(dedup.context, (Size) maintenance_work_mem * 1024);
	dedup.candidate_room = 1024;
	dedup.candidates = palloc(sizeof(Candidate) * dedup.candidate_room);
	run(&dedup);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	MemoryContextSwitchTo(caller_context);
	return make_result(fcinfo, dedup.counters);
}

/* Rows of view blobext_dedup_progress. */
Datum
blobext_dedup_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_DEDUP, COUNTERS);
}
