/*
 * sql/maintenance/check_partition.c
 *	  blobext_check(): bounds and keys of partitioned tables.
 *
 * Both are content.  But older libraries kept the stored value that a function returned as a bound,
 * and let keys be made that fold to a stored value.
 */
#include "postgres.h"

#include "blob/blob.h"
#include "catalog/pg_class.h"
#include "containers/bound.h"
#include "sql/maintenance/check.h"
#include "sql/value.h"
#include "assign/assign.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* A visitor: the problem of a value in a bound goes to a char *. */
static void
check_bound_value(Datum datum, void *context)
{
	char	  **problem = context;
	BlobValue	value = blob_sql_unpack(datum);

	if (value.is_inline)
		return;
	*problem = psprintf("the partition's bound refers to stored content of " UINT64_FORMAT
						" bytes%s; see blobext_repair_bounds()", value.size_bytes,
						blob_find_stale_extent(&value.descriptor) >= 0 ?
						", which does not exist any more" : "");
}

static char *
find_bound_problem(void *relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(*(Oid *) relid));
	char	   *problem = NULL;
	bool		is_null;
	Datum		bound;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	bound = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relpartbound, &is_null);
	if (!is_null)
		blob_bound_walk(TextDatumGetCString(bound), check_bound_value, &problem);
	ReleaseSysCache(tuple);
	return problem;
}

static char *
find_key_problem(void *relid)
{
	char	   *problem = blob_assign_partition_key_problem(*(Oid *) relid);

	return problem == NULL ? NULL :
		psprintf("the partition key could refer to stored content: %s", problem);
}

void
blob_check_partition(BlobCheck *check, Relation relation)
{
	MemoryContext old_context = MemoryContextSwitchTo(check->row_context);
	Oid			relid = RelationGetRelid(relation);
	char	   *problem;

	if (relation->rd_rel->relispartition)
	{
		problem = blob_check_find(find_bound_problem, &relid);
		if (problem != NULL)
			blob_check_report(check, RelationGetRelid(relation), NULL, NULL, problem);
	}
	if (relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
	{
		problem = blob_check_find(find_key_problem, &relid);
		if (problem != NULL)
			blob_check_report(check, RelationGetRelid(relation), NULL, NULL, problem);
	}
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(check->row_context);
}
