/*
 * assign/bounds.c
 *	  Partition bounds are content.
 *
 * PostgreSQL evaluates a bound once, when the partition is made or attached, and keeps the result
 * in pg_class.  A descriptor there would break the table as soon as its extents are collected.
 * Meanwhile the length coercion returns content (blob_assign_suppressed()).  But any function or
 * cast of a user can return a descriptor, by itself or within a value of another type.  So each
 * bound that a statement has stored is read at the end of the statement.  If it has a descriptor,
 * the bound is made anew with the content in its place.
 *
 * Until then the transaction that evaluated the bound is running: the collector waits for it, and
 * no other process sees the bound.  The statement itself compares with the value as it was
 * evaluated; the two are equal.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "storage/lockdefs.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "blob/blob.h"
#include "assign/assign.h"
#include "assign/open_keys.h"
#include "containers/bound.h"

/*
 * The text form has at least two characters for a byte, a row of pg_class must fit into a page, and
 * PostgreSQL compresses to a 255th at best.  So larger content cannot fit, and is not read.
 */
#define MAX_BOUND_BYTES (1024 * 1024)

bool
blob_assign_evaluates_bounds(Node *statement)
{
	ListCell   *cell;

	if (IsA(statement, CreateStmt) || IsA(statement, CreateForeignTableStmt))
		return ((CreateStmt *) statement)->partbound != NULL;
	if (!IsA(statement, AlterTableStmt))
		return false;
	foreach(cell, ((AlterTableStmt *) statement)->cmds)
	{
		if (lfirst_node(AlterTableCmd, cell)->subtype == AT_AttachPartition)
			return true;
	}
	return false;
}

/* ---- conversion ---- */

Datum
blob_assign_bound_content(Datum datum, void *context)
{
	BlobValue	value;

	blob_value_unpack(PG_DETOAST_DATUM_PACKED(datum), &value);
	if (value.is_inline)
		return datum;
	if (value.size_bytes > MAX_BOUND_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("content of " UINT64_FORMAT " bytes is too large for a partition bound",
						value.size_bytes),
				 errdetail("Partition bounds are kept as content in a row of pg_class, which must "
						   "fit into a page."),
				 errhint("Partition by an expression such as blob_prefix() or sha256().")));
	return blob_internalize(datum);
}

/*
 * Invalidate every relation that derives something from the bound: the parent, the default
 * partition, everything below.
 */
static void
invalidate_hierarchy(Oid parent)
{
	ListCell   *cell;

	foreach(cell, find_all_inheritors(parent, NoLock, NULL))
	{
		HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(lfirst_oid(cell)));

		if (!HeapTupleIsValid(tuple))
			continue;			/* dropped: relations further below are not locked */
		CacheInvalidateRelcacheByTuple(tuple);
		ReleaseSysCache(tuple);
	}
}

/* Replace the bound in a row of pg_class, and invalidate the relations that derive from it. */
static void
update_bound(Relation catalog, HeapTuple tuple, const char *bound)
{
	Oid			relid = ((Form_pg_class) GETSTRUCT(tuple))->oid;
	Datum		values[Natts_pg_class] = {0};
	bool		nulls[Natts_pg_class] = {false};
	bool		replace[Natts_pg_class] = {false};
	HeapTuple	new_tuple;

	values[Anum_pg_class_relpartbound - 1] = CStringGetTextDatum(bound);
	replace[Anum_pg_class_relpartbound - 1] = true;
	new_tuple = heap_modify_tuple(tuple, RelationGetDescr(catalog), values, nulls, replace);
	CatalogTupleUpdate(catalog, &new_tuple->t_self, new_tuple);
	invalidate_hierarchy(get_partition_parent(relid, true));
	CommandCounterIncrement();
}

static void
describe_conversion(void *argument)
{
	errcontext("bound of partition \"%s\", to be kept as content", (const char *) argument);
}

bool
blob_assign_rebuild_bound(Oid relid, BlobReplacer replace, void *context)
{
	Relation	catalog = table_open(RelationRelationId, RowExclusiveLock);
	HeapTuple	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(relid));
	char	   *new_bound = NULL;
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = describe_conversion
	};

	if (HeapTupleIsValid(tuple))
	{
		bool		is_null;
		Datum		bound = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relpartbound, &is_null);

		callback.arg = NameStr(((Form_pg_class) GETSTRUCT(tuple))->relname);
		error_context_stack = &callback;
		if (!is_null)
			new_bound = blob_bound_rebuild(TextDatumGetCString(bound), replace, context);
		if (new_bound != NULL)
			update_bound(catalog, tuple, new_bound);
		error_context_stack = callback.previous;
		heap_freetuple(tuple);
	}
	table_close(catalog, RowExclusiveLock);
	return new_bound != NULL;
}

/* ---- notes of a statement ---- */

/* Where notes of the statement in progress go; NULL if none are wanted. */
static BlobAssignNotes *notes = NULL;

BlobAssignNotes *
blob_assign_take_notes(BlobAssignNotes *new_notes)
{
	BlobAssignNotes *previous = notes;

	notes = new_notes;
	return previous;
}

/*
 * A relation has been given a parent.  PARTITION OF has stored the bound by now, ATTACH PARTITION
 * stores it right after.  The note is an OID, so renames in between do not matter.
 */
void
blob_assign_note_partition(Oid relid)
{
	MemoryContext previous;

	if (notes == NULL)
		return;
	previous = MemoryContextSwitchTo(notes->context);
	notes->partitions = list_append_unique_oid(notes->partitions, relid);
	MemoryContextSwitchTo(previous);
}

static void
note_keys(List *relids)
{
	MemoryContext previous = MemoryContextSwitchTo(notes->context);

	notes->keys = list_concat_unique_oid(notes->keys, relids);
	MemoryContextSwitchTo(previous);
}

void
blob_assign_note_created(Oid relid)
{
	if (notes != NULL)
		note_keys(list_make1_oid(relid));
}

bool
blob_assign_note_index(Oid relid)
{
	MemoryContext previous;

	if (notes == NULL)
		return false;
	previous = MemoryContextSwitchTo(notes->context);
	notes->indexes = list_append_unique_oid(notes->indexes, relid);
	MemoryContextSwitchTo(previous);
	return true;
}

void
blob_assign_note_function(Oid function)
{
	if (notes != NULL)
		note_keys(blob_assign_partition_keys_using(function));
}

void
blob_assign_note_keys(void)
{
	if (notes != NULL)
		note_keys(blob_assign_partition_keys());
}

/*
 * The statement still holds its locks on the relations that it made or attached.  So no other
 * process updates their rows of pg_class, or changes the hierarchy above them.
 */
void
blob_assign_finish_notes(const BlobAssignNotes *finished)
{
	ListCell   *cell;

	if ((finished->partitions == NIL && finished->keys == NIL && finished->indexes == NIL) ||
		!OidIsValid(blob_assign_type()))
		return;
	CommandCounterIncrement();
	foreach(cell, finished->partitions)
	{
		(void) blob_assign_rebuild_bound(lfirst_oid(cell), blob_assign_bound_content, NULL);
		blob_open_keys_check_hierarchy(lfirst_oid(cell));
	}
	foreach(cell, finished->keys)
		blob_assign_check_partition_key(lfirst_oid(cell));
	foreach(cell, finished->indexes)
		blob_open_keys_check_build(lfirst_oid(cell));
}
