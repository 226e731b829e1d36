/*
 * sql/maintenance/fragmentation.h
 *	  Which values of a column are scattered, or have dead bytes.
 */
#ifndef BLOB_SQL_FRAGMENTATION_H
#define BLOB_SQL_FRAGMENTATION_H

#include "postgres.h"

#include "fmgr.h"
#include "sql/maintenance/column.h"

/*
 * The rule: a value is written anew if its dead bytes exceed max_dead_ratio of its live ones, or if
 * it lies in more runs than one for each started megabyte and max_extra_runs; but not if a value
 * of another row shares an extent with it.
 */
typedef struct BlobFragmentationRule
{
	double		max_dead_ratio;
	int			max_extra_runs;
} BlobFragmentationRule;

/*
 * The rule in two arguments of a function, from a number on.  ERROR 22023 for limits that are none,
 * 22004 if one is null.  function: for messages.
 */
extern BlobFragmentationRule blob_fragmentation_get_rule(FunctionCallInfo fcinfo, int first,
														 const char *function);

/*
 * The beginning of a statement, for the rule in $1 and $2: WITH and queries of which the last one,
 * "judged", has a row for each row with a value in extents: part, tid, value_id (the same for
 * copies of a datum), content_bytes, runs, natural_runs, dead_bytes, is_shared, is_due.  dead_bytes
 * and is_due are null if the value's directory cannot be read.  "extent" has (part, value_id,
 * first_page, pages).
 */
extern char *blob_fragmentation_query(const BlobColumn *column);

/* The types of its parameters. */
extern void blob_fragmentation_types(Oid types[2]);

/* The rule as values of its parameters. */
extern void blob_fragmentation_values(const BlobFragmentationRule *rule, Datum values[2]);

#endif							/* BLOB_SQL_FRAGMENTATION_H */
