/*
 * sql/maintenance/dedup.c
 *	  blobext_dedup(): rows whose values have the same content share one value.
 *
 * A procedure that commits.  It works with the rights of its caller, by statements that the caller
 * could have written: SELECT, SELECT ... FOR SHARE, UPDATE.  sql/README.md, "blobext_dedup()", has
 * the argument why no change of others is lost, and why the collector goes on meanwhile.
 *
 * From one transaction to the next it keeps digests and places of rows, and no value.  Within
 * one it keeps the value that rows were compared with last, and its content if that is small.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/share.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "sql/maintenance/dedup_parts.h"
#include "sql/maintenance/dedup_row.h"
#include "sql/maintenance/progress.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(blobext_dedup);
PG_FUNCTION_INFO_V1(blobext_dedup_state);

#define NAME "blobext_dedup()"

/* No value is kept over a commit. */
static void
next_batch(BlobDedup *dedup)
{
	blob_dedup_forget_source(dedup);
	blob_exchange_next_batch(&dedup->exchange);
}

/* ---- all rows ---- */

typedef void (*RowVisitor) (BlobDedup *dedup, const BlobColumnRow *row, const BlobDedupKey *key,
							const BlobDedupDatum *datum);

static void
add_to_group(BlobDedup *dedup, const BlobColumnRow *row, const BlobDedupKey *key,
			 const BlobDedupDatum *datum)
{
	blob_dedup_groups_add(dedup->groups, key, datum, row);
}

/* In the second pass: remember a row whose value is not that of its group. */
static void
note_candidate(BlobDedup *dedup, const BlobColumnRow *row, const BlobDedupKey *key,
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
										  sizeof(BlobDedupCandidate) * dedup->candidate_room);
	}
	dedup->candidates[dedup->candidate_count++] =
		(BlobDedupCandidate) {.row = *row,.group = group,.datum = *datum};
}

/*
 * Visit a row, unless its value is inline, or its digest is open.  Leaves memory in the current
 * context.
 */
static void
visit_row(BlobDedup *dedup, HeapTuple tuple, TupleDesc row_type, RowVisitor visit)
{
	bool		is_null;
	Datum		datum = SPI_getbinval(tuple, row_type, 3, &is_null);
	BlobColumnRow row;
	BlobDedupKey key;
	BlobDedupDatum summary;
	BlobValue	value;
	struct varlena *plain;

	if (is_null || blob_datum_is_inline(datum))
		return;
	plain = PG_DETOAST_DATUM_PACKED(datum);
	blob_value_unpack(plain, &value);
	if (value.descriptor.is_open)
		return;
	key.size_bytes = value.size_bytes;
	memcpy(key.sha256, value.descriptor.sha256, BLOB_DIGEST_BYTES);
	summary.bytes = blob_share_spares(&value, NULL);
	summary.generation = value.descriptor.generation;
	summary.hash = blob_column_hash_datum(plain);
	row = blob_exchange_get_row(tuple, row_type);
	visit(dedup, &row, &key, &summary);
}

/* Visit the rows in blocks [first, first + blocks) of all tables. */
static void
scan_range(BlobDedup *dedup, BlockNumber first, BlockNumber blocks, RowVisitor visit)
{
	blob_exchange_scan(&dedup->exchange, first, blocks);
	MemoryContextSwitchTo(dedup->exchange.row_context);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		visit_row(dedup, SPI_tuptable->vals[i], SPI_tuptable->tupdesc, visit);
		MemoryContextReset(dedup->exchange.row_context);
	}
	SPI_freetuptable(SPI_tuptable);
	blob_exchange_count(&dedup->exchange, BLOB_DEDUP_BLOCKS_DONE, blocks);
}

/* Groups in some order, and the rows of a group in that of the table. */
static int
compare_candidates(const void *a, const void *b)
{
	const BlobDedupCandidate *first = a;
	const BlobDedupCandidate *second = b;

	if (first->group != second->group)
		return first->group < second->group ? -1 : 1;
	return ItemPointerCompare((ItemPointer) &first->row.tid, (ItemPointer) &second->row.tid);
}

/*
 * Values are not kept over a commit, so candidates are places of rows.  Those of a group follow
 * each other, so that its value is looked up, read and locked once in a batch.
 */
static void
handle_candidates(BlobDedup *dedup)
{
	qsort(dedup->candidates, dedup->candidate_count, sizeof(BlobDedupCandidate),
		  compare_candidates);
	for (int i = 0; i < dedup->candidate_count; i++)
	{
		blob_dedup_handle_row(dedup, &dedup->candidates[i]);
		if (blob_exchange_batch_is_full(&dedup->exchange))
			next_batch(dedup);
	}
	dedup->candidate_count = 0;
}

/* The digests that are in the groups' range now: both passes over the rows. */
static void
do_range(BlobDedup *dedup)
{
	BlockNumber step;
	BlockNumber length = blob_exchange_measure(&dedup->exchange, &step);

	blob_exchange_count(&dedup->exchange, BLOB_DEDUP_BLOCKS_TOTAL, (uint64) length * 2);
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
	blob_exchange_count(&dedup->exchange, BLOB_DEDUP_RANGES_DONE, 1);
}

/* ---- the procedure ---- */

/* All ranges.  The transaction in which CALL began ends first. */
static void
run(BlobDedup *dedup)
{
	BlobExchange *exchange = &dedup->exchange;

	blob_progress_begin(BLOB_PROGRESS_DEDUP);
	PG_TRY();
	{
		blob_progress_relation(exchange->column.relid);
		blob_exchange_prepare(exchange, "NOWAIT");
		blob_exchange_prepare_scan(exchange, psprintf(", %s", exchange->column.column), "");
		next_batch(dedup);
		do
			do_range(dedup);
		while (blob_dedup_groups_next(dedup->groups));
		SPI_commit();
	}
	PG_FINALLY();
	{
		blob_exchange_release(exchange);
		blob_progress_end();
	}
	PG_END_TRY();
}

/*
 * blobext_dedup(relation, column_name, verify, batch_rows): the rest are results, with null where
 * CALL has to have something.
 */
Datum
blobext_dedup(PG_FUNCTION_ARGS)
{
	BlobDedup	dedup = {0};
	BlobExchange *exchange = &dedup.exchange;

	blob_exchange_begin(exchange, fcinfo, NAME, 4, 3);
	dedup.verify = PG_GETARG_BOOL(2);
	dedup.source_context = AllocSetContextCreate(exchange->context, "blobext dedup source",
												 ALLOCSET_DEFAULT_SIZES);
	dedup.groups = blob_dedup_groups_make(exchange->context, (Size) maintenance_work_mem * 1024);
	dedup.candidate_room = 1024;
	dedup.candidates = palloc(sizeof(BlobDedupCandidate) * dedup.candidate_room);
	run(&dedup);
	return blob_exchange_end(exchange, fcinfo, BLOB_DEDUP_ROWS_SHARED, BLOB_DEDUP_COUNTERS);
}

/* Rows of view blobext_dedup_progress. */
Datum
blobext_dedup_state(PG_FUNCTION_ARGS)
{
	return blob_progress_show(fcinfo, BLOB_PROGRESS_DEDUP, BLOB_DEDUP_COUNTERS);
}
