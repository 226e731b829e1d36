/*
 * assign/statistics.c
 *	  Keep descriptors out of the statistics that ANALYZE stores.
 *
 * The type's own typanalyze (sql/operators/analyze.c) stores content only.  PostgreSQL's functions
 * for arrays, rows and ranges store values as they find them in the sample.  So columns of such
 * types get the statistics target 0, which means no statistics.  They get it at the end of the
 * statement that makes the column, since no DDL could set it earlier.  Statistics objects that
 * would store values are refused.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_index.h"
#include "catalog/pg_statistic_ext.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "commands/tablecmds.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "containers/walk.h"
#include "core/catalog_scan.h"
#include "core/compat.h"
#include "assign/assign.h"

/* Relations of this statement whose columns are still to be checked. */
static List *noted_relations = NIL;

void
blob_assign_note_relation(Oid relid)
{
	MemoryContext previous = MemoryContextSwitchTo(TopMemoryContext);

	noted_relations = list_append_unique_oid(noted_relations, relid);
	MemoryContextSwitchTo(previous);
}

void
blob_assign_forget_relations(void)
{
	list_free(noted_relations);
	noted_relations = NIL;
}

/* ---- statistics targets of columns ---- */

static bool
is_container(Oid type, Oid blob_type)
{
	return type >= FirstNormalObjectId && !blob_assign_is_blob_type(type, blob_type) &&
		blob_walk_type_holds(type);
}

static int
statistics_target(HeapTuple attribute)
{
	bool		isnull;
	Datum		target = SysCacheGetAttr(ATTNUM, attribute, Anum_pg_attribute_attstattarget,
										 &isnull);

	return blob_statistics_target(isnull, target);
}

/*
 * Command to set a column's target to 0, NULL if the target may stay.  Index columns go by number.
 */
static AlterTableCmd *
make_clearing_command(Oid relid, AttrNumber attnum, bool is_index)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid), Int16GetDatum(attnum));
	AlterTableCmd *cmd = NULL;
	Form_pg_attribute column;
	int			target;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	column = (Form_pg_attribute) GETSTRUCT(tuple);
	target = statistics_target(tuple);
	if (!column->attisdropped && target != 0 && is_container(column->atttypid, blob_assign_type()))
	{
		cmd = makeNode(AlterTableCmd);
		cmd->subtype = AT_SetStatistics;
		cmd->def = (Node *) makeInteger(0);
		if (is_index)
			cmd->num = attnum;
		else
			cmd->name = pstrdup(NameStr(column->attname));
		if (target > 0)
			ereport(NOTICE,
					(errmsg("statistics target of column \"%s\" stays 0", NameStr(column->attname)),
					 errdetail("Statistics of type %s would refer to stored content.",
							   format_type_be(column->atttypid))));
	}
	ReleaseSysCache(tuple);
	return cmd;
}

/*
 * Run ALTER TABLE ... SET STATISTICS 0.  Event triggers that see the commands within a statement
 * see it as a command of its own.
 */
static void
run_commands(Form_pg_class relation, List *cmds, ObjectType object_type)
{
	AlterTableStmt *statement = makeNode(AlterTableStmt);

	statement->relation = makeRangeVar(get_namespace_name(relation->relnamespace),
									   pstrdup(NameStr(relation->relname)), -1);
	statement->cmds = cmds;
	statement->objtype = object_type;
	EventTriggerAlterTableStart((Node *) statement);
	AlterTableInternal(relation->oid, cmds, false);
	EventTriggerAlterTableEnd();
}

/* Only index columns that are expressions have statistics of their own. */
static bool
is_index_expression(Oid index, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	Form_pg_index form;
	bool		is_expression;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_index) GETSTRUCT(tuple);
	is_expression = attnum <= form->indnkeyatts && form->indkey.values[attnum - 1] == 0;
	ReleaseSysCache(tuple);
	return is_expression;
}

/* Set the targets of all columns of a relation that need it; nothing if the relation is gone. */
static void
clear_targets_of_relation(Oid relid)
{
	HeapTuple	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class relation;
	bool		is_index;
	List	   *cmds = NIL;

	if (!HeapTupleIsValid(tuple))
		return;
	relation = (Form_pg_class) GETSTRUCT(tuple);
	is_index = relation->relkind == RELKIND_INDEX || relation->relkind == RELKIND_PARTITIONED_INDEX;
	if (is_index || relation->relkind == RELKIND_RELATION ||
		relation->relkind == RELKIND_PARTITIONED_TABLE || relation->relkind == RELKIND_MATVIEW ||
		relation->relkind == RELKIND_FOREIGN_TABLE)
	{
		for (AttrNumber attnum = 1; attnum <= relation->relnatts; attnum++)
		{
			AlterTableCmd *cmd = NULL;

			if (!is_index || is_index_expression(relid, attnum))
				cmd = make_clearing_command(relid, attnum, is_index);
			if (cmd != NULL)
				cmds = lappend(cmds, cmd);
		}
		if (cmds != NIL)
			run_commands(relation, cmds, is_index ? OBJECT_INDEX : OBJECT_TABLE);
	}
	heap_freetuple(tuple);
}

/*
 * Relations that are gone (the statement failed, or dropped them) are skipped.  Our own changes
 * note their relations again; the last call discards these notes.
 */
void
blob_assign_clear_statistics_targets(void)
{
	List	   *relations;
	ListCell   *lc;

	if (noted_relations == NIL || !IsTransactionState() || IsAbortedTransactionBlockState())
		return;
	relations = list_copy(noted_relations);
	blob_assign_forget_relations();
	if (!OidIsValid(blob_assign_type()))
		return;

	CommandCounterIncrement();
	foreach(lc, relations)
		clear_targets_of_relation(lfirst_oid(lc));
	blob_assign_forget_relations();
}

/* ---- statistics objects ---- */

/* Has a statistics object, a row of pg_statistic_ext, this kind? */
static bool
has_kind(HeapTuple tuple, TupleDesc row_type, char kind)
{
	bool		isnull;
	Datum		datum = heap_getattr(tuple, Anum_pg_statistic_ext_stxkind, row_type, &isnull);
	Datum	   *kinds;
	int			count;

	if (isnull)
		return false;
	deconstruct_array(DatumGetArrayTypeP(datum), CHAROID, 1, true, TYPALIGN_CHAR, &kinds, NULL,
					  &count);
	for (int i = 0; i < count; i++)
	{
		if (DatumGetChar(kinds[i]) == kind)
			return true;
	}
	return false;
}

static void
refuse_statistics(Form_pg_statistic_ext form, Oid type, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("statistics object \"%s\" would store values of type blobstate",
					NameStr(form->stxname)),
			 errdetail("Values of type %s in a system catalog would refer to stored content.",
					   format_type_be(type)),
			 errhint("%s", hint)));
}

/*
 * Refuse a statistics object that stores values of types in which inner (blobstate, or a type that
 * holds it) occurs.  Numbers of distinct values and dependencies hold no values.  An expression has
 * a column's statistics too, so its type must be none that PostgreSQL analyzes by itself.
 */
static void
check_statistics_object(HeapTuple tuple, TupleDesc row_type, Oid inner)
{
	Form_pg_statistic_ext form = (Form_pg_statistic_ext) GETSTRUCT(tuple);
	bool		has_values = has_kind(tuple, row_type, STATS_EXT_MCV);
	bool		isnull;
	Datum		datum;
	ListCell   *lc;

	for (int i = 0; has_values && i < form->stxkeys.dim1; i++)
	{
		Oid			type = get_atttype(form->stxrelid, form->stxkeys.values[i]);

		if (blob_walk_type_reaches(type, inner))
			refuse_statistics(form, type, "Name the kinds: CREATE STATISTICS ... "
							  "(ndistinct, dependencies).");
	}

	datum = heap_getattr(tuple, Anum_pg_statistic_ext_stxexprs, row_type, &isnull);
	if (isnull)
		return;
	foreach(lc, castNode(List, stringToNode(TextDatumGetCString(datum))))
	{
		Oid			type = exprType((Node *) lfirst(lc));

		if (blob_walk_type_reaches(type, inner) &&
			(has_values || !blob_assign_is_blob_type(type, blob_assign_type())))
			refuse_statistics(form, type, "Use an expression of another type, such as sha256() "
							  "of the value.");
	}
}

/* Check the object with this OID, or all objects if it is InvalidOid. */
static void
check_statistics_objects(Oid oid, Oid inner)
{
	BlobCatalogScan scan = OidIsValid(oid) ?
		blob_catalog_scan_oid(StatisticExtRelationId, SnapshotSelf, StatisticExtOidIndexId,
							  Anum_pg_statistic_ext_oid, oid) :
		blob_catalog_scan(StatisticExtRelationId, SnapshotSelf);
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
		check_statistics_object(tuple, RelationGetDescr(scan.catalog), inner);
}

void
blob_assign_check_statistics(Oid oid)
{
	check_statistics_objects(oid, blob_assign_type());
}

/* ---- composite types that come to hold blobstate ---- */

Oid
blob_assign_new_column_type(Oid relid, AttrNumber attnum)
{
	ScanKeyData keys[2];
	BlobCatalogScan scan;
	HeapTuple	tuple;
	Oid			type = InvalidOid;

	ScanKeyInit(&keys[0], Anum_pg_attribute_attrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_attribute_attnum, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(attnum));
	scan = blob_catalog_scan_keys(AttributeRelationId, SnapshotSelf, AttributeRelidNumIndexId, 2,
								  keys);
	tuple = blob_catalog_scan_next(&scan);
	if (tuple != NULL)
		type = ((Form_pg_attribute) GETSTRUCT(tuple))->atttypid;
	blob_catalog_scan_end(&scan);
	return type;
}

/*
 * Does anything depend on the object as a whole?  Internal parts of the object, such as array types
 * and TOAST tables, do not count.
 */
static bool
is_used(Oid catalog, Oid object)
{
	ScanKeyData keys[3];
	BlobCatalogScan scan;
	HeapTuple	tuple;
	bool		is_used = false;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(catalog));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(object));
	ScanKeyInit(&keys[2], Anum_pg_depend_refobjsubid, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(0));
	scan = blob_catalog_scan_keys(DependRelationId, NULL, DependReferenceIndexId, 3, keys);
	while (!is_used && (tuple = blob_catalog_scan_next(&scan)) != NULL)
		is_used = ((Form_pg_depend) GETSTRUCT(tuple))->deptype != DEPENDENCY_INTERNAL;
	blob_catalog_scan_end(&scan);
	return is_used;
}

/*
 * Note the relations of all columns whose type contains this row type.  An index over such a column
 * is ordered by content from now on.
 */
static void
note_relations_of_type(Oid row_type)
{
	BlobCatalogScan scan = blob_catalog_scan(AttributeRelationId, NULL);
	HeapTuple	tuple;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_attribute column = (Form_pg_attribute) GETSTRUCT(tuple);

		if (!column->attisdropped && column->atttypid >= FirstNormalObjectId &&
			blob_walk_type_reaches(column->atttypid, row_type))
		{
			blob_assign_note_relation(column->attrelid);
			blob_assign_announce_content_index(column->attrelid);
		}
	}
}

/*
 * Does anything use rows of this relation as values?  An index on an expression of whole rows
 * depends on their type in PostgreSQL 15, but on the relation alone in 17.
 */
static bool
is_row_type_used(Oid relid, Oid row_type)
{
	return is_used(TypeRelationId, row_type) ||
		is_used(TypeRelationId, get_array_type(row_type)) ||
		is_used(RelationRelationId, relid);
}

/*
 * A column was added, or given another type.  If it holds blobstate, every type that contains the
 * relation's row type holds blobstate from now on.  That is rare: row types of tables are seldom
 * used.
 */
void
blob_assign_check_attribute(Oid relid, AttrNumber attnum)
{
	Oid			row_type = get_rel_type_id(relid);

	if (!OidIsValid(row_type) || !is_row_type_used(relid, row_type) ||
		!blob_walk_type_holds(blob_assign_new_column_type(relid, attnum)))
		return;
	blob_assign_check_indexes_of_type(row_type);
	check_statistics_objects(InvalidOid, row_type);
	note_relations_of_type(row_type);
	blob_assign_note_keys();
}
