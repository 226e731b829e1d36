/*
 * sql/maintenance/dedup_row.c
 *	  blobext_dedup(): one row gets the value of its group, or keeps its own.
 *
 * sql/README.md, "blobext_dedup()", says which step guards against which change of others.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "blob/share.h"
#include "core/attempt.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/dedup_row.h"
#include "utils/datum.h"
#include "utils/memutils.h"

void
blob_dedup_forget_source(BlobDedup *dedup)
{
	MemoryContextReset(dedup->source_context);
	dedup->known = (BlobDedupSource) {0};
}

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
	BlobDedup  *dedup;
	const BlobDedupCandidate *candidate;
	bool		is_comparing;	/* an error is one of reading */
	bool		is_locking_source;
	bool		has_locked_source;
	bool		is_sound;		/* set by examine() */
	uint64		saved_bytes;
	Outcome		outcome;
} Attempt;

/* A sealed value in extents of the group's content, or not. */
static bool
is_of_group(const BlobValue *value, const BlobDedupGroup *group)
{
	return !value->is_inline && !value->descriptor.is_open &&
		value->size_bytes == group->key.size_bytes &&
		memcmp(value->descriptor.sha256, group->key.sha256, BLOB_DIGEST_BYTES) == 0;
}

/*
 * The value of the group's row, which is known from now on; NULL if the row is not there.  No
 * other transaction changes a row that this one has locked.
 */
static struct varlena *
get_source(BlobDedup *dedup, const BlobColumnRow *row)
{
	BlobDedupSource *known = &dedup->known;
	struct varlena *source;
	MemoryContext old_context;

	if (known->is_locked && blob_column_is_same_row(&known->row, row))
		return known->datum;
	source = blob_column_value(dedup->exchange.fetch, row, dedup->exchange.row_context);
	if (source == NULL || known->datum == NULL || !blob_column_is_same_datum(known->datum, source))
		blob_dedup_forget_source(dedup);
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
is_same_content(BlobDedup *dedup, const BlobValue *source, const BlobValue *target)
{
	BlobDedupSource *known = &dedup->known;

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
	BlobDedup  *dedup = attempt->dedup;
	const BlobDedupSource *known = &dedup->known;
	struct varlena *locked;

	if (!known->is_locked)
	{
		attempt->is_locking_source = true;
		locked = blob_column_value(dedup->exchange.lock_source, &known->row,
								   dedup->exchange.row_context);
		attempt->is_locking_source = false;
		if (locked == NULL || !blob_column_is_same_datum(locked, known->datum))
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
	BlobDedup  *dedup = attempt->dedup;
	const BlobColumnRow *row = &attempt->candidate->row;
	struct varlena *locked;

	if (!lock_source(attempt))
		return SOURCE_REFUSED;
	locked = blob_column_value(dedup->exchange.lock_target, row, dedup->exchange.row_context);
	if (locked == NULL || !blob_column_is_same_datum(locked, target))
		return SKIPPED;
	blob_require_valid(&source->descriptor);
	return blob_exchange_update(&dedup->exchange, row, dedup->known.datum, NULL) ? SHARED :
		SKIPPED;
}

/*
 * A BlobAttemptStep: give a row the value of its group.  Contents are compared before the rows are
 * locked.
 */
static void
share(void *argument)
{
	Attempt    *attempt = argument;
	BlobDedup  *dedup = attempt->dedup;
	BlobDedupGroup *group = attempt->candidate->group;
	struct varlena *source = get_source(dedup, &group->source);
	struct varlena *target = blob_column_value(dedup->exchange.fetch, &attempt->candidate->row,
											   dedup->exchange.row_context);
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
		dedup->exchange.batch_bytes += source_value.size_bytes;
		if (!is_same_content(dedup, &source_value, &target_value))
			return;
		blob_exchange_count(&dedup->exchange, BLOB_DEDUP_BYTES_COMPARED, source_value.size_bytes);
		attempt->is_comparing = false;
	}
	attempt->outcome = exchange(attempt, &source_value, target);
}

/* A BlobAttemptStep: is the row's own value as its digest says? */
static void
examine(void *argument)
{
	Attempt    *attempt = argument;
	BlobExchange *exchange = &attempt->dedup->exchange;
	struct varlena *target = blob_column_value(exchange->fetch, &attempt->candidate->row,
											   exchange->row_context);
	BlobValue	value;

	if (target == NULL)
		return;
	blob_value_unpack(target, &value);
	attempt->dedup->exchange.batch_bytes += value.size_bytes;
	attempt->is_sound = is_of_group(&value, attempt->candidate->group) &&
		blob_share_is_sound(&value);
}

/* This row's value is that of the group from now on. */
static void
become_source(const BlobDedupCandidate *candidate)
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
replace_source(BlobDedup *dedup, const BlobDedupCandidate *candidate)
{
	if (candidate->group->rows <= 1)
	{
		become_source(candidate);
		return;
	}
	candidate->group->has_source = false;
	blob_exchange_count(&dedup->exchange, BLOB_DEDUP_ROWS_SKIPPED, 1);
}

/* One of the two values is damaged.  If it is the group's, the row's takes its place. */
static void
handle_damage(Attempt *attempt, const char *problem)
{
	BlobDedup  *dedup = attempt->dedup;
	ErrorData  *error = blob_attempt(examine, attempt);

	blob_exchange_count(&dedup->exchange, BLOB_DEDUP_ROWS_FAILED, 1);
	blob_exchange_warn(&dedup->exchange, &attempt->candidate->row, problem);
	if (error != NULL && blob_batch_is_to_be_thrown(error->sqlerrcode))
		ReThrowError(error);
	if (error == NULL && attempt->is_sound)
		become_source(attempt->candidate);
}

/* The error of an attempt, of which nothing is left. */
static void
handle_error(Attempt *attempt, ErrorData *error)
{
	BlobDedup  *dedup = attempt->dedup;

	if (blob_batch_is_to_be_thrown(error->sqlerrcode))
		ReThrowError(error);
	if (blob_batch_is_of_concurrency(error->sqlerrcode))
	{
		if (attempt->is_locking_source)
			replace_source(dedup, attempt->candidate);
		else
			blob_exchange_count(&dedup->exchange, BLOB_DEDUP_ROWS_SKIPPED, 1);
		return;
	}
	if (attempt->is_comparing)
	{
		handle_damage(attempt, error->message);
		return;
	}
	blob_exchange_count(&dedup->exchange, BLOB_DEDUP_ROWS_FAILED, 1);
	blob_exchange_warn(&dedup->exchange, &attempt->candidate->row, error->message);
}

/* What follows from an attempt that made no error. */
static void
handle_outcome(Attempt *attempt)
{
	BlobDedup  *dedup = attempt->dedup;
	const BlobDedupCandidate *candidate = attempt->candidate;

	switch (attempt->outcome)
	{
		case SHARED:
			blob_exchange_count(&dedup->exchange, BLOB_DEDUP_ROWS_SHARED, 1);
			if (blob_dedup_groups_is_new(dedup->groups, candidate->datum.hash))
				blob_exchange_count(&dedup->exchange, BLOB_DEDUP_BYTES_SAVED, attempt->saved_bytes);
			break;
		case OF_NO_USE:
			break;
		case SKIPPED:
			blob_exchange_count(&dedup->exchange, BLOB_DEDUP_ROWS_SKIPPED, 1);
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

void
blob_dedup_handle_row(BlobDedup *dedup, const BlobDedupCandidate *candidate)
{
	Attempt		attempt = {.dedup = dedup, .candidate = candidate};
	ErrorData  *error;

	CHECK_FOR_INTERRUPTS();
	/* The group's value may have become that of this row meanwhile. */
	if (candidate->group->datum.hash == candidate->datum.hash)
		return;
	if (!candidate->group->has_source)
	{
		blob_exchange_count(&dedup->exchange, BLOB_DEDUP_ROWS_SKIPPED, 1);
		return;
	}
	MemoryContextSwitchTo(dedup->exchange.row_context);
	error = blob_attempt(share, &attempt);
	dedup->exchange.batch_done++;
	/* A lock that the attempt took is the transaction's only if the attempt was not undone. */
	if (error != NULL)
		dedup->known.is_locked = false;
	else if (attempt.has_locked_source)
		dedup->known.is_locked = true;
	if (error != NULL)
		handle_error(&attempt, error);
	else
		handle_outcome(&attempt);
	MemoryContextReset(dedup->exchange.row_context);
}
