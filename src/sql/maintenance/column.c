/*
 * sql/maintenance/column.c
 *	  The column whose values a procedure exchanges, see sql/maintenance/column.h.
 *
 * Rows are reached through the table that the caller has named, by statements with the rights of
 * the caller: so privileges and policies are those of that table, also for rows of partitions.
 */
#include "postgres.h"

#include "access/relation.h"
#include "assign/assign.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "common/hashfn.h"
#include "core/catalog.h"
#include "miscadmin.h"
#include "sql/maintenance/batch.h"
#include "sql/maintenance/column.h"
#include "sql/value.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Lock a table.  ERROR 42P01, 42809, 0A000 for another relation, and for rows elsewhere. */
static Relation
open_table(Oid relid, const char *function)
{
	Relation	table = blob_sql_open_relation(relid);

	if (table->rd_rel->relkind != RELKIND_RELATION &&
		table->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", RelationGetRelationName(table)),
				 errdetail("%s works on rows of tables and partitioned tables.", function)));
	if (blob_assign_is_distributed(relid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the rows of \"%s\" are on other servers",
						RelationGetRelationName(table)),
				 errhint("Call %s for the tables of the shards, on their servers.", function)));
	return table;
}

/* The attribute of a name.  ERROR 42703 if the table has no such column. */
static Form_pg_attribute
find_attribute(Relation table, const char *name)
{
	TupleDesc	attributes = RelationGetDescr(table);

	for (int i = 0; i < attributes->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(attributes, i);

		if (!attribute->attisdropped && strcmp(NameStr(attribute->attname), name) == 0)
			return attribute;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of relation \"%s\" does not exist", name,
					RelationGetRelationName(table))));
}

/* ERROR 42804 for a column of another type, 428C9 for one that no statement can change. */
static void
check_attribute(Relation table, Form_pg_attribute attribute)
{
	if (getBaseType(attribute->atttypid) != blob_catalog_type())
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of relation \"%s\" is of type %s, not blobstate",
						NameStr(attribute->attname), RelationGetRelationName(table),
						format_type_be(attribute->atttypid)),
				 errdetail("The column must be of type blobstate, or of a domain over it.")));
	if (attribute->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("column \"%s\" of relation \"%s\" is a generated column",
						NameStr(attribute->attname), RelationGetRelationName(table)),
				 errdetail("Its values are computed from other columns.")));
}

void
blob_column_find(Oid relid, const char *name, const char *function,
					   BlobColumn *column)
{
	Relation	table = open_table(relid, function);
	Form_pg_attribute attribute = find_attribute(table, name);

	check_attribute(table, attribute);
	column->relid = relid;
	column->name = pstrdup(name);
	column->table =
		quote_qualified_identifier(get_namespace_name(RelationGetNamespace(table)),
								   RelationGetRelationName(table));
	column->column = pstrdup(quote_identifier(name));
	column->number = attribute->attnum;
	relation_close(table, NoLock);
}

static void
require_privilege(const BlobColumn *column, AclMode privilege)
{
	Oid			role = GetUserId();

	if (pg_class_aclcheck(column->relid, role, privilege) != ACLCHECK_OK &&
		pg_attribute_aclcheck(column->relid, column->number, role, privilege) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(column->relid));
}

void
blob_column_require_privileges(const BlobColumn *column)
{
	require_privilege(column, ACL_SELECT);
	require_privilege(column, ACL_UPDATE);
}

void
blob_column_require_same(const BlobColumn *before, const BlobColumn *now)
{
	if (before->number != now->number || strcmp(before->table, now->table) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("relation %s was altered meanwhile", before->table),
				 errdetail("Rows that have been done stay as they are."),
				 errhint("Call the procedure again to go on.")));
}

List *
blob_column_list_tables(const BlobColumn *column)
{
	List	   *relations = find_all_inheritors(column->relid, AccessShareLock, NULL);
	List	   *tables = NIL;
	ListCell   *cell;

	foreach(cell, relations)
	{
		Oid			relid = lfirst_oid(cell);
		char		kind = get_rel_relkind(relid);

		if (kind == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("rows of %s are in the foreign table \"%s\"", column->table,
							get_rel_name(relid)),
					 errhint("Name one by one the partitions or children that are tables of "
							 "this server.")));
		if (kind == RELKIND_RELATION)
			tables = lappend_oid(tables, relid);
	}
	return tables;
}

SPIPlanPtr
blob_column_prepare(const char *query, int count, Oid *types)
{
	SPIPlanPtr	plan = SPI_prepare(query, count, types);

	if (plan == NULL)
		elog(ERROR, "cannot prepare \"%s\": %s", query, SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "cannot keep the plan of \"%s\"", query);
	return plan;
}

const char *
blob_column_row_lock(const BlobColumn *column)
{
	const char *lock = blob_batch_row_lock(column->relid, column->name);
	ListCell   *table;

	foreach(table, blob_column_list_tables(column))
	{
		const char *needed = blob_batch_row_lock(lfirst_oid(table), column->name);

		if (strlen(needed) < strlen(lock))
			lock = needed;
	}
	return lock;
}

void
blob_column_execute(SPIPlanPtr plan, Datum *values, int expected)
{
	int			result = SPI_execute_plan(plan, values, NULL, false, 0);

	if (result != expected)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
}

struct varlena *
blob_column_value(SPIPlanPtr plan, const BlobColumnRow *row, MemoryContext context)
{
	Datum		values[] = {ObjectIdGetDatum(row->table), PointerGetDatum(&row->tid)};
	struct varlena *value = NULL;

	blob_column_execute(plan, values, SPI_OK_SELECT);
	if (SPI_processed > 0)
	{
		bool		is_null;
		Datum		datum =
			SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null);
		MemoryContext old_context = MemoryContextSwitchTo(context);

		if (!is_null)
			value = PG_DETOAST_DATUM_COPY(datum);
		MemoryContextSwitchTo(old_context);
	}
	SPI_freetuptable(SPI_tuptable);
	return value;
}

bool
blob_column_is_same_row(const BlobColumnRow *a, const BlobColumnRow *b)
{
	return a->table == b->table && ItemPointerEquals((ItemPointer) &a->tid, (ItemPointer) &b->tid);
}

bool
blob_column_is_same_datum(const struct varlena *a, const struct varlena *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

uint64
blob_column_hash_datum(const struct varlena *datum)
{
	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(datum),
							   VARSIZE_ANY_EXHDR(datum), 0);
}
