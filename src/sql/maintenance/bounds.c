/*
 * sql/maintenance/bounds.c
 *	  blobext_repair_bounds(): partition bounds that refer to stored content become content.
 *
 * Bounds are content today, but older libraries kept the value that a function returned, as a
 * reference.  While the content exists, it takes the place of the reference; that changes no bound.
 * Once the collector of such a version has freed it, only its first bytes and its digest are known,
 * and nothing can read the parent's bounds, not even DETACH PARTITION.  So the bound becomes one
 * that is readable, and the partition is detached at once, because its rows may lie outside of
 * that.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "assign/assign.h"
#include "blob/blob.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "containers/bound.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/value.h"
#include "storage/lmgr.h"
#include "store/store.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(blobext_repair_bounds);

#define LOST "content of the bound does not exist any more"

/* Whether a bound refers to content in extents, and whether some of that was freed. */
typedef struct References
{
	bool		to_content;
	bool		to_lost_content;
} References;

static void
note_reference(Datum datum, void *context)
{
	References *references = context;
	BlobValue	value = blob_sql_unpack(datum);

	if (value.is_inline)
		return;
	references->to_content = true;
	if (blob_find_stale_extent(&value.descriptor) >= 0)
		references->to_lost_content = true;
}

static References
find_references(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	References	references = {false, false};
	bool		is_null;
	Datum		bound;

	if (!HeapTupleIsValid(tuple))
		return references;
	bound = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relpartbound, &is_null);
	if (!is_null)
		blob_bound_walk(TextDatumGetCString(bound), note_reference, &references);
	ReleaseSysCache(tuple);
	return references;
}

/* Partitions whose bounds refer to stored content. */
static List *
list_partitions(void)
{
	BlobCatalogScan scan = blob_catalog_scan(RelationRelationId, NULL);
	List	   *partitions = NIL;
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		CHECK_FOR_INTERRUPTS();
		if (class->relispartition && find_references(class->oid).to_content)
			partitions = lappend_oid(partitions, class->oid);
	}
	return partitions;
}

/* Lock a partition and its parent, in the order of DDL; false if it is none any more. */
static bool
lock_partition(Oid relid, LOCKMODE mode)
{
	Oid			parent;

	if (!get_rel_relispartition(relid))
		return false;
	parent = get_partition_parent(relid, true);
	LockRelationOid(parent, mode);
	LockRelationOid(relid, mode);
	return get_rel_relispartition(relid) && get_partition_parent(relid, true) == parent;
}

/* ---- content that exists ---- */

/* A BlobAttemptStep. */
static void
rebuild_bound(void *argument)
{
	Oid			relid = *(const Oid *) argument;

	if (lock_partition(relid, ShareUpdateExclusiveLock))
		(void) blob_assign_rebuild_bound(relid, blob_assign_bound_content, NULL);
}

/* Null, or why the bound stays as it is. */
static char *
store_content(Oid relid)
{
	ErrorData  *error = blob_attempt(rebuild_bound, &relid);

	if (error == NULL)
		return NULL;
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);
	return error->message;
}

/* ---- content that is lost ---- */

/*
 * A BlobReplacer: something readable in place of lost content.  The first bytes place it among
 * other bounds, a number keeps those of one range in their order, the digest tells it from others.
 */
static Datum
replace_lost(Datum datum, void *context)
{
	int		   *number = context;
	BlobValue	value = blob_sql_unpack(datum);
	struct varlena *result;
	char	   *content;

	if (value.is_inline || blob_find_stale_extent(&value.descriptor) < 0)
		return datum;
	result = blob_inline_make(BLOB_PREFIX_BYTES + 1 + BLOB_DIGEST_BYTES);
	content = blob_inline_content(result);
	memcpy(content, value.descriptor.prefix, BLOB_PREFIX_BYTES);
	content[BLOB_PREFIX_BYTES] = (char) Min((*number)++, PG_UINT8_MAX);
	blob_descriptor_identity(&value.descriptor, (uint8 *) content + BLOB_PREFIX_BYTES + 1);
	return PointerGetDatum(result);
}

static void
detach_partition(Oid relid)
{
	char	   *command = psprintf("ALTER TABLE %s DETACH PARTITION %s",
								   blob_catalog_relation_name(get_partition_parent(relid, true)),
								   blob_catalog_relation_name(relid));

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\"", command);
	SPI_finish();
}

/* All are made readable first: a parent is read with all its bounds.  Gives those that are lost. */
static List *
detach_lost(List *relids)
{
	List	   *lost = NIL;
	ListCell   *cell;

	foreach(cell, relids)
	{
		Oid			relid = lfirst_oid(cell);
		int			number = 0;

		if (lock_partition(relid, AccessExclusiveLock) &&
			blob_assign_rebuild_bound(relid, replace_lost, &number))
			lost = lappend_oid(lost, relid);
	}
	foreach(cell, lost)
		detach_partition(lfirst_oid(cell));
	return lost;
}

/* ---- the function ---- */

static void
put_outcome(ReturnSetInfo *result, Oid relid, const char *outcome)
{
	Datum		values[2] = {ObjectIdGetDatum(relid), CStringGetTextDatum(outcome)};
	bool		nulls[2] = {false, false};

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static const char *
repair(Oid relid)
{
	char	   *problem = store_content(relid);

	return problem == NULL ? "the bound is content now" : psprintf("not changed: %s", problem);
}

/*
 * blobext_repair_bounds(detach_lost boolean): rows (partition, outcome), one for each partition
 * whose bound refers to stored content.  A bound whose content is lost is changed only with
 * detach_lost.  Partitions are locked one at a time, until the end of the transaction.
 */
Datum
blobext_repair_bounds(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		may_detach = PG_GETARG_BOOL(0);
	List	   *lost = NIL;
	ListCell   *cell;

	blob_store_require_preload();
	PreventCommandDuringRecovery("blobext_repair_bounds()");
	PreventCommandIfReadOnly("blobext_repair_bounds()");
	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, list_partitions())
	{
		Oid			relid = lfirst_oid(cell);

		CHECK_FOR_INTERRUPTS();
		if (find_references(relid).to_lost_content)
			lost = lappend_oid(lost, relid);
		else
			put_outcome(result, relid, repair(relid));
	}
	if (!may_detach)
	{
		foreach(cell, lost)
			put_outcome(result, lfirst_oid(cell), "not changed: " LOST ", "
						"blobext_repair_bounds(detach_lost => true) detaches the partition");
		return (Datum) 0;
	}
	foreach(cell, detach_lost(lost))
		put_outcome(result, lfirst_oid(cell), "detached: " LOST);
	return (Datum) 0;
}
