/*
 * sql/dedup_column.c
 *	  blobext_dedup() and blob_intern(): the column whose values are shared.
 *
 * Rows are reached through the table that the caller has named, by statements with the rights of
 * the caller: so privileges and policies are those of that table, also for rows of partitions.
 */
#include "postgres.h"

#include "access/relation.h"
#include "assign/assign.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "core/catalog.h"
#include "miscadmin.h"
#include "sql/dedup.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Lock a table.  ERROR 42P01, 42809, 0A000 for another relation, and for rows elsewhere. */
static Relation
open_table(Oid relid, const char *function)
{
	Relation	table = try_relation_open(relid, AccessShareLock);

	if (table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (table->rd_rel->relkind != RELKIND_RELATION &&
		table->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", RelationGetRelationName(table)),
				 errdetail("%s shares values of rows in tables and partitioned tables.",
						   function)));
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
				 errdetail("Only values of type blobstate, or of a domain over it, can be "
						   "shared.")));
	if (attribute->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("column \"%s\" of relation \"%s\" is a generated column",
						NameStr(attribute->attname), RelationGetRelationName(table)),
				 errdetail("Its values are computed from other columns.")));
}

void
blob_dedup_find_column(Oid relid, const char *name, const char *function,
					   BlobDedupColumn *column)
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
require_privilege(const BlobDedupColumn *column, AclMode privilege)
{
	Oid			role = GetUserId();

	if (pg_class_aclcheck(column->relid, role, privilege) != ACLCHECK_OK &&
		pg_attribute_aclcheck(column->relid, column->number, role, privilege) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, get_rel_name(column->relid));
}

void
blob_dedup_require_privileges(const BlobDedupColumn *column)
{
	require_privilege(column, ACL_SELECT);
	require_privilege(column, ACL_UPDATE);
}

void
blob_dedup_require_same(const BlobDedupColumn *before, const BlobDedupColumn *now)
{
	if (before->number != now->number || strcmp(before->table, now->table) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("relation %s was altered meanwhile", before->table),
				 errdetail("Rows that have been done stay as they are."),
				 errhint("Call the procedure again to go on.")));
}

List *
blob_dedup_list_tables(const BlobDedupColumn *column)
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
blob_dedup_prepare(const char *query, int count, Oid *types)
{
	SPIPlanPtr	plan = SPI_prepare(query, count, types);

	if (plan == NULL)
		elog(ERROR, "cannot prepare \"%s\": %s", query, SPI_result_code_string(SPI_result));
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "cannot keep the plan of \"%s\"", query);
	return plan;
}

bool
blob_dedup_is_to_be_thrown(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_OPERATOR_INTERVENTION ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_INSUFFICIENT_RESOURCES;
}
