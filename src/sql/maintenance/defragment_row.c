/*
 * sql/maintenance/defragment_row.c
 *	  blobext_defragment(): one row gets a value that was written anew, or keeps its own.
 *
 * sql/README.md, "blobext_defragment()", says which step guards against what.
 */
#include "postgres.h"

#include "assign/column_storage.h"
#include "blob/blob.h"
#include "blob/recompress.h"
#include "blob/seal.h"
#include "core/attempt.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/defragment_row.h"
#include "utils/memutils.h"

typedef enum Outcome
{
	CHANGED,
	SKIPPED						/* changed, or locked by others, or by a trigger's will */
} Outcome;

typedef struct Attempt
{
	BlobDefragment *run;
	const BlobDefragmentCandidate *candidate;
	uint64		written_bytes;	/* of the value that it has written, if it has */
	bool		is_first;		/* to store the value in a row */
	Outcome		outcome;
} Attempt;

/* Whether two values say that they have the same content: hashes of data are no proof. */
static bool
is_same_content(const BlobValue *a, const struct varlena *other)
{
	uint8		digests[2][BLOB_DIGEST_BYTES];
	BlobValue	b;

	blob_value_unpack(other, &b);
	blob_seal_digest(a, digests[0]);
	blob_seal_digest(&b, digests[1]);
	return a->size_bytes == b.size_bytes &&
		memcmp(digests[0], digests[1], BLOB_DIGEST_BYTES) == 0;
}

/*
 * A compressed value keeps its method; another one is stored as new values of its column are.
 */
static BlobMethod
get_method(const Attempt *attempt, const BlobValue *value)
{
	Oid			table = attempt->candidate->row.table;

	if (value->descriptor.is_compressed &&
		value->descriptor.compression.method != BLOB_METHOD_NONE)
		return (BlobMethod) value->descriptor.compression.method;
	return blob_column_storage_of_name(table, attempt->run->exchange.column.name).method;
}

/* Write a value anew, in memory that lasts for the batch. */
static void
write_fresh(Attempt *attempt, const BlobValue *value)
{
	BlobDefragment *run = attempt->run;
	BlobFreshValue *fresh = &run->fresh;
	MemoryContext old_context;

	*fresh = (BlobFreshValue) {0};
	attempt->written_bytes = value->size_bytes;
	run->exchange.batch_bytes += value->size_bytes;
	old_context = MemoryContextSwitchTo(run->batch_context);
	fresh->datum = blob_recompress(value, get_method(attempt, value));
	/* As the assignment will leave it: the rows that have it are found by a hash of the datum. */
	blob_datum_set_defers_digest(fresh->datum,
								 blob_column_storage(run->exchange.column.relid,
													 run->exchange.column.number).defers_digest);
	MemoryContextSwitchTo(old_context);
	fresh->value_id = attempt->candidate->value_id;
	fresh->hash = (int64) blob_column_hash_datum(fresh->datum);
	fresh->is_known = true;
}

/*
 * The new value for a row: that of the rows before it which had the same datum, or one that is
 * written now.  NULL if the former is in a row that has changed, or is locked: a call stores no
 * value twice.
 */
static struct varlena *
get_fresh(Attempt *attempt, const BlobValue *value)
{
	BlobDefragment *run = attempt->run;
	BlobFreshValue *fresh = &run->fresh;
	struct varlena *datum;

	if (!fresh->is_known || fresh->value_id != attempt->candidate->value_id)
	{
		write_fresh(attempt, value);
		return fresh->datum;
	}
	if (fresh->datum != NULL)
		return fresh->datum;
	datum = blob_column_value(run->exchange.lock_source, &fresh->row, run->batch_context);
	if (datum == NULL || (int64) blob_column_hash_datum(datum) != fresh->hash)
		return NULL;
	return fresh->datum = datum;
}

/* Lock the row, if it has still this value, and exchange that.  Never waits for the row's lock. */
static Outcome
exchange(Attempt *attempt, const struct varlena *before, const struct varlena *after)
{
	BlobDefragment *run = attempt->run;
	const BlobColumnRow *row = &attempt->candidate->row;
	const struct varlena *locked = blob_column_value(run->exchange.lock_target, row,
													 run->exchange.row_context);
	BlobValue	value;

	if (locked == NULL || !blob_column_is_same_datum(locked, before))
		return SKIPPED;
	blob_value_unpack(after, &value);
	if (!value.is_inline)
		blob_require_valid(&value.descriptor);
	if (!blob_exchange_update(&run->exchange, row, after, &run->fresh.row))
		return SKIPPED;
	attempt->is_first = !run->fresh.has_row;
	run->fresh.has_row = true;
	return CHANGED;
}

/* A BlobAttemptStep.  The content is copied before the row is locked. */
static void
rewrite(void *argument)
{
	Attempt    *attempt = argument;
	BlobDefragment *run = attempt->run;
	struct varlena *before = blob_column_value(run->exchange.fetch, &attempt->candidate->row,
											   run->exchange.row_context);
	struct varlena *after;
	BlobValue	value;

	attempt->outcome = SKIPPED;
	if (before == NULL || (int64) blob_column_hash_datum(before) != attempt->candidate->value_id)
		return;
	blob_value_unpack(before, &value);
	if (value.is_inline)
		return;
	after = get_fresh(attempt, &value);
	if (after == NULL || !is_same_content(&value, after))
		return;
	attempt->outcome = exchange(attempt, before, after);
}

static void
warn(BlobDefragment *run, const BlobColumnRow *row, const char *problem)
{
	blob_exchange_count(&run->exchange, BLOB_DEFRAGMENT_ROWS_FAILED, 1);
	blob_exchange_warn(&run->exchange, row, problem);
}

/* The error of an attempt, of which nothing is left. */
static void
handle_error(Attempt *attempt, const ErrorData *error)
{
	if (blob_batch_is_of_concurrency(error->sqlerrcode))
		blob_exchange_count(&attempt->run->exchange, BLOB_DEFRAGMENT_ROWS_SKIPPED, 1);
	else
		warn(attempt->run, &attempt->candidate->row, error->message);
}

void
blob_defragment_handle_row(BlobDefragment *run, const BlobDefragmentCandidate *candidate)
{
	Attempt		attempt = {.run = run, .candidate = candidate};
	ErrorData  *error = NULL;

	CHECK_FOR_INTERRUPTS();
	if (!candidate->is_readable)
	{
		warn(run, &candidate->row, "the directory of its frames cannot be read");
		return;
	}
	MemoryContextSwitchTo(run->exchange.row_context);
	error = blob_attempt(rewrite, &attempt);
	run->exchange.batch_done++;
	if (error != NULL && blob_batch_is_to_be_thrown(error->sqlerrcode))
		ReThrowError(error);
	if (error != NULL)
	{
		if (attempt.written_bytes > 0)
			run->fresh = (BlobFreshValue) {0};
		handle_error(&attempt, error);
	}
	else if (attempt.outcome == SKIPPED)
		blob_exchange_count(&run->exchange, BLOB_DEFRAGMENT_ROWS_SKIPPED, 1);
	else
	{
		blob_exchange_count(&run->exchange, BLOB_DEFRAGMENT_ROWS_CHANGED, 1);
		if (attempt.is_first)
			blob_exchange_count(&run->exchange, BLOB_DEFRAGMENT_VALUES_WRITTEN, 1);
	}
	blob_exchange_count(&run->exchange, BLOB_DEFRAGMENT_BYTES_WRITTEN, attempt.written_bytes);
	MemoryContextReset(run->exchange.row_context);
}
