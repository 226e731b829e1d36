/*
 * gc/temporary.c
 *	  The owner of temporary tables marks what they refer to, see "Temporary tables of other sessions"
 *	  in README.md.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "containers/walk.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"
#include "core/compat.h"
#include "gc/gc_internal.h"
#include "gc/methods.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* The columns of the opened relation that can hold values. */
static void
list_columns(BlobGcRound *round)
{
	TupleDesc	row_type = RelationGetDescr(round->relation);

	round->columns = palloc(sizeof(BlobGcColumn) * row_type->natts);
	round->column_count = 0;
	for (int i = 0; i < row_type->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(row_type, i);

		if (column->attisdropped || !blob_walk_type_holds(column->atttypid))
			continue;
		round->columns[round->column_count].number = column->attnum;
		round->columns[round->column_count].type = column->atttypid;
		round->column_count++;
	}
}

/* Own tables can be locked by others only for a moment, or to be dropped. */
static void
mark_relation(BlobGcRound *round, Oid relid)
{
	BlobGcRoot	root = {.relid = relid};

	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("temporary relation %u is locked by another process", relid)));
	round->relation = relation_open(relid, NoLock);
	list_columns(round);
	round->root = &root;
	if (round->column_count == 0)
		 /* nothing */ ;
	else if (round->relation->rd_rel->relkind == RELKIND_INDEX)
	{
		if (round->relation->rd_index->indisready)
			(void) blob_gc_mark_btree(round);
	}
	else if (blob_gc_is_heap(round->relation->rd_tableam))
		(void) blob_gc_mark_heap(round);
	else
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("temporary table \"%s\" is not read as heap's are",
							   RelationGetRelationName(round->relation))));
	relation_close(round->relation, AccessShareLock);
	round->relation = NULL;
}

/* Relations with rows or items of the temporary schema of this session. */
static List *
list_relations(Oid schema)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlobCatalogScan scan = blob_catalog_scan(RelationRelationId, snapshot);
	HeapTuple	tuple;
	List	   *relids = NIL;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		if (class->relnamespace == schema &&
			(class->relkind == RELKIND_RELATION || class->relkind == RELKIND_INDEX))
			relids = lappend_oid(relids, class->oid);
	}
	UnregisterSnapshot(snapshot);
	return relids;
}

/*
 * A BlobAttemptStep: mark all of them.  The caller has prepared the marks of the round, which are
 * those of the whole store.
 */
static void
mark_own_tables(void *argument)
{
	BlobGcRound *round = argument;
	Oid			schema;
	Oid			toast_schema;
	ListCell   *cell;

	GetTempNamespaceState(&schema, &toast_schema);
	if (!OidIsValid(schema))
		return;
	round->snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(cell, list_relations(schema))
		mark_relation(round, lfirst_oid(cell));
	UnregisterSnapshot(round->snapshot);
}
