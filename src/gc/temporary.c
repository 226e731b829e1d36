/*
 * gc/temporary.c
 *	  Temporary tables of other sessions, which cannot be read: step 6 of README.md.
 *
 * A table without a page is as good as one that its owner makes later.  Files alone do not tell
 * that, because a transaction may have a value in memory that it has read from a table which it has
 * emptied.  So files are looked at between two answers of the owner, between which it was idle.
 */
#include "postgres.h"

#include "core/clock.h"
#include "gc/blank.h"
#include "gc/constants.h"
#include "gc/gc_internal.h"
#include "gc/holders.h"
#include "gc/since.h"
#include "miscadmin.h"

/* How long an owner has for an answer. */
#define ANSWER_MS 1000

/* The owner that has not answered, by its place, or -1. */
static int
find_silent(uint32 question, const BlobGcRoots *roots, uint32 *uses)
{
	for (int i = 0; i < roots->owner_count; i++)
	{
		if (!blob_gc_idle_answered(question, roots->owners[i], &uses[i]))
			return i;
	}
	return -1;
}

static bool
skip_for(BlobGcRound *round, int backend)
{
	Oid			database;
	int			pid;

	if (!blob_gc_holder_backend(backend, &database, &pid))
		return blob_gc_skip_now(round, "a session with a temporary table ended meanwhile");
	return blob_gc_skip(round, "process %d, which is not idle, has a temporary table that can hold "
						"values%s", pid, blob_gc_since(pid, true));
}

/* Ask the owners, and wait for their answers. */
static bool
ask(BlobGcRound *round, const BlobGcRoots *roots, uint32 *uses)
{
	uint32		question = blob_gc_blank_new_question();
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ANSWER_MS);
	int			silent;

	blob_gc_idle_ask(question, roots->owners, roots->owner_count);
	while ((silent = find_silent(question, roots, uses)) >= 0)
	{
		if (!blob_gc_may_go_on(round))
			return false;
		if (!blob_clock_is_before(GetCurrentTimestamp(), end, ANSWER_MS))
			return skip_for(round, roots->owners[silent]);
		blob_clock_sleep(1);
	}
	return true;
}

static bool
is_among(const BlobGcRoots *roots, int backend)
{
	for (int i = 0; i < roots->owner_count; i++)
	{
		if (roots->owners[i] == backend)
			return true;
	}
	return false;
}

/* The files that the list shows between two answers are empty, or the list has an obstacle. */
static bool
look(BlobGcRound *round, const BlobGcRoots *roots)
{
	BlobGcRoots *between = blob_gc_list_roots(round->context);

	if (between->obstacle != NULL)
		return blob_gc_skip(round, "%s", between->obstacle);
	for (int i = 0; i < between->owner_count; i++)
	{
		if (!is_among(roots, between->owners[i]))
			return skip_for(round, between->owners[i]);
	}
	return true;
}

/* Constants first: a function may have read one from a table that was emptied since. */
bool
blob_gc_temporary_are_empty(BlobGcRound *round, const BlobGcRoots *roots)
{
	uint32	   *before;
	uint32	   *after;

	if (roots->owner_count == 0)
		return true;
	before = palloc(sizeof(uint32) * roots->owner_count);
	after = palloc(sizeof(uint32) * roots->owner_count);
	blob_gc_constants_give_up();
	if (!ask(round, roots, before) || !look(round, roots) || !ask(round, roots, after))
		return false;
	for (int i = 0; i < roots->owner_count; i++)
	{
		if (before[i] != after[i])
			return skip_for(round, roots->owners[i]);
	}
	return true;
}
