/*
 * sql/values/match.c
 *	  position() and LIKE: searching in content with bounded memory.
 *
 * A pattern of LIKE is a sequence of segments with % between them.  The first segment lies at the
 * beginning, the last one at the end, and each other one at the first place behind the one before:
 * if there is any match, there is this one.  So a search never goes back.
 */
#include "postgres.h"

#include "blob/search.h"
#include "fmgr.h"
#include "sql/value.h"

PG_FUNCTION_INFO_V1(blob_position);
PG_FUNCTION_INFO_V1(blob_like);
PG_FUNCTION_INFO_V1(blob_not_like);

/* position(bytea IN blobstate): from 1; 0 if it is not there. */
Datum
blob_position(PG_FUNCTION_ARGS)
{
	bytea	   *bytes = PG_GETARG_BYTEA_PP(1);
	BlobNeedle	needle = {.bytes = VARDATA_ANY(bytes), .length_bytes = VARSIZE_ANY_EXHDR(bytes)};
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	uint64		offset;

	if (needle.length_bytes == 0)
		PG_RETURN_INT64(1);
	offset = blob_search(&value, 0, PG_UINT64_MAX, &needle);
	PG_RETURN_INT64(offset == BLOB_NOT_FOUND ? 0 : (int64) offset + 1);
}

/* ---- LIKE ---- */

typedef struct Pattern
{
	const char *next;
	const char *end;
	char	   *bytes;			/* of the current segment */
	bool	   *is_any;
	uint64		length_bytes;
	bool		is_literal;		/* the current segment has no _ */
	bool		is_all_any;		/* it has nothing else */
	bool		is_last;		/* no % comes behind it */
	bool		has_open_escape;	/* it ends with an escape character, which escapes nothing */
	uint64		run_from;		/* where the run of % and _ before it begins, at the first % */
	uint64		run_bytes;		/* of the content, one for each _ of the run */
} Pattern;

static void
add_to_segment(Pattern *pattern, char byte, bool is_any)
{
	pattern->bytes[pattern->length_bytes] = byte;
	pattern->is_any[pattern->length_bytes++] = is_any;
	if (is_any)
		pattern->is_literal = false;
	else
		pattern->is_all_any = false;
}

/* Make the next segment the current one. */
static void
next_segment(Pattern *pattern)
{
	pattern->length_bytes = 0;
	pattern->is_literal = true;
	pattern->is_all_any = true;
	while (pattern->next < pattern->end && *pattern->next != '%')
	{
		char		byte = *pattern->next++;

		if (byte == '_')
			add_to_segment(pattern, 0, true);
		else if (byte != '\\')
			add_to_segment(pattern, byte, false);
		else if (pattern->next < pattern->end)
			add_to_segment(pattern, *pattern->next++, false);
		else
			pattern->has_open_escape = true;
	}
	pattern->is_last = pattern->next == pattern->end;
	if (!pattern->is_last)
		pattern->next++;
}

/* Where the segment lies, at from..last. */
static uint64
find(const BlobValue *value, const Pattern *pattern, uint64 from, uint64 last)
{
	BlobNeedle	needle = {
		.bytes = pattern->bytes,
		.is_any = pattern->is_literal ? NULL : pattern->is_any,
		.length_bytes = pattern->length_bytes
	};

	return blob_search(value, from, last, &needle);
}

/*
 * The pattern ends with an open escape.  ERROR 22025 if there is a byte that it would be compared
 * with, as for bytea; otherwise there is no match.  Directly behind a run of % and _ the escape is
 * looked at if there was a byte at the first %, and one for each _ after it.
 */
static void
require_no_byte_for_escape(const BlobValue *value, Pattern *pattern, uint64 from, bool is_first)
{
	bool		is_reached;

	if (!is_first && pattern->is_all_any)
		is_reached = value->size_bytes - pattern->run_from >=
			Max(pattern->run_bytes + pattern->length_bytes, 1);
	else
	{
		add_to_segment(pattern, 0, true);
		is_reached = find(value, pattern, from, is_first ? 0 : PG_UINT64_MAX) != BLOB_NOT_FOUND;
	}
	if (is_reached)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_ESCAPE_SEQUENCE),
				 errmsg("LIKE pattern must not end with escape character")));
}

/* Whether the whole value matches. */
static bool
matches(const BlobValue *value, Pattern *pattern)
{
	uint64		from = 0;

	for (bool is_first = true;; is_first = false)
	{
		uint64		offset;

		next_segment(pattern);
		if (pattern->has_open_escape)
		{
			require_no_byte_for_escape(value, pattern, from, is_first);
			return false;
		}
		if (pattern->is_last)
		{
			uint64		last = value->size_bytes - pattern->length_bytes;

			if (!is_first && pattern->length_bytes == 0)
				return true;
			return pattern->length_bytes <= value->size_bytes - from &&
				(!is_first || last == 0) &&
				find(value, pattern, last, last) != BLOB_NOT_FOUND;
		}
		offset = find(value, pattern, from, is_first ? 0 : PG_UINT64_MAX);
		if (offset == BLOB_NOT_FOUND)
			return false;
		from = offset + pattern->length_bytes;
		if (!is_first && pattern->is_all_any)
			pattern->run_bytes += pattern->length_bytes;
		else
		{
			pattern->run_from = from;
			pattern->run_bytes = 0;
		}
	}
}

static bool
like(FunctionCallInfo fcinfo)
{
	BlobValue	value = blob_sql_unpack(PG_GETARG_DATUM(0));
	bytea	   *given = PG_GETARG_BYTEA_PP(1);
	Size		given_bytes = VARSIZE_ANY_EXHDR(given);
	Pattern		pattern = {.next = VARDATA_ANY(given), .end = VARDATA_ANY(given) + given_bytes};
	bool		result;

	pattern.bytes = palloc(given_bytes + 1);	/* and a byte for an open escape */
	pattern.is_any = palloc(sizeof(bool) * (given_bytes + 1));
	result = matches(&value, &pattern);
	pfree(pattern.bytes);
	pfree(pattern.is_any);
	return result;
}

Datum
blob_like(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(like(fcinfo));
}

Datum
blob_not_like(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(!like(fcinfo));
}
