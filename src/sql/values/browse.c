/*
 * sql/values/browse.c
 *	  blobext_browse(): a view of a table with summaries in place of its values.
 *
 * The view is made by SQL, with the rights of the caller, so it is the caller's; it reads the table
 * with the rights of the role that queries it.  All names in that SQL are qualified and quoted,
 * and values are cast to blobstate: a function for a domain over it is not called.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "commands/comment.h"
#include "core/catalog.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "sql/value.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/varlena.h"

PG_FUNCTION_INFO_V1(blobext_browse);

#define SUFFIX "_browse"

/* Views with a comment that begins so may be replaced. */
#define MARK "made by blobext_browse()"

static void
execute(const char *command)
{
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "\"%s\" is no utility statement", command);
}

static const char *
qualified(Oid namespace_id, const char *name)
{
	return quote_qualified_identifier(get_namespace_name(namespace_id), name);
}

/* A column of the view as CREATE OR REPLACE VIEW compares it. */
typedef struct ViewColumn
{
	const char *name;
	Oid			type;
	int32		typmod;
	Oid			collation;
} ViewColumn;

/* Whether a type is blobstate, or a domain over it. */
static bool
is_blobstate(Oid type)
{
	return OidIsValid(type) && getBaseType(type) == blob_catalog_type();
}

/*
 * Append the expression of a column: itself, or a summary, or an array of summaries.  Returns what
 * the view has then.
 */
static ViewColumn
append_column(StringInfo query, const FormData_pg_attribute *attribute)
{
	const char *name = quote_identifier(NameStr(attribute->attname));
	const char *summary = blob_catalog_function_name(BLOB_FUNCTION_SUMMARY);
	const char *type = blob_catalog_type_name();
	ViewColumn	column = {NameStr(attribute->attname), TEXTOID, -1, DEFAULT_COLLATION_OID};

	if (is_blobstate(attribute->atttypid))
		appendStringInfo(query, "%s(%s::%s) AS %s", summary, name, type, name);
	else if (is_blobstate(get_element_type(getBaseType(attribute->atttypid))))
	{
		appendStringInfo(query, "CASE WHEN %s IS NOT NULL THEN ARRAY(SELECT %s(element::%s) FROM "
						 "pg_catalog.unnest(%s) WITH ORDINALITY AS one(element, number) "
						 "ORDER BY number) END AS %s", name, summary, type, name, name);
		column.type = TEXTARRAYOID;
	}
	else
	{
		appendStringInfoString(query, name);
		column.type = attribute->atttypid;
		column.typmod = attribute->atttypmod;
		column.collation = attribute->attcollation;
	}
	return column;
}

/*
 * The query of the view, and its columns.  ERROR 42809 if the relation has nothing to summarise.
 */
static char *
make_query(Relation relation, ViewColumn *columns, int *column_count)
{
	TupleDesc	attributes = RelationGetDescr(relation);
	bool		has_values = false;
	StringInfoData query;

	*column_count = 0;
	initStringInfo(&query);
	appendStringInfoString(&query, "SELECT ");
	for (int i = 0; i < attributes->natts; i++)
	{
		const FormData_pg_attribute *attribute = TupleDescAttr(attributes, i);
		ViewColumn *column = &columns[*column_count];

		if (attribute->attisdropped)
			continue;
		if ((*column_count)++ > 0)
			appendStringInfoString(&query, ", ");
		*column = append_column(&query, attribute);
		has_values |= column->type != attribute->atttypid;
	}
	if (!has_values)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" has no column of type blobstate",
						RelationGetRelationName(relation)),
				 errdetail("A view with summaries would be the same as the relation.")));
	appendStringInfo(&query, " FROM %s", qualified(RelationGetNamespace(relation),
												   RelationGetRelationName(relation)));
	return query.data;
}

/*
 * The name of the view: as the caller has it, or that of the relation with a suffix, in its schema.
 */
static RangeVar *
choose_name(Relation relation, text *wanted)
{
	char	   *name = pstrdup(RelationGetRelationName(relation));
	int			length;

	if (wanted != NULL)
		return makeRangeVarFromNameList(textToQualifiedNameList(wanted));
	length = pg_mbcliplen(name, strlen(name), NAMEDATALEN - sizeof(SUFFIX));
	return makeRangeVar(get_namespace_name(RelationGetNamespace(relation)),
						psprintf("%.*s%s", length, name, SUFFIX), -1);
}

/* ERROR 42710 unless the relation of that name is a view that this function made. */
static void
require_own_view(Oid relation_id)
{
	char	   *comment = GetComment(relation_id, RelationRelationId, 0);

	if (get_rel_relkind(relation_id) != RELKIND_VIEW || comment == NULL ||
		strncmp(comment, MARK, strlen(MARK)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("relation \"%s\" exists, and blobext_browse() has not made it",
						get_rel_name(relation_id)),
				 errhint("Name another view in the second argument.")));
}

/* Whether CREATE OR REPLACE VIEW can give a view these columns: it only adds some at the end. */
static bool
is_replaceable(Oid view_id, const ViewColumn *columns, int column_count)
{
	Relation	view = relation_open(view_id, AccessShareLock);
	TupleDesc	attributes = RelationGetDescr(view);
	bool		is_same = attributes->natts <= column_count;

	for (int i = 0; is_same && i < attributes->natts; i++)
	{
		const FormData_pg_attribute *attribute = TupleDescAttr(attributes, i);

		is_same = strcmp(NameStr(attribute->attname), columns[i].name) == 0 &&
			attribute->atttypid == columns[i].type && attribute->atttypmod == columns[i].typmod &&
			attribute->attcollation == columns[i].collation;
	}
	relation_close(view, AccessShareLock);
	return is_same;
}

/*
 * Make the view, or replace it.  If the columns are others than before, because the table was
 * altered, it is dropped first; that is an error if other objects depend on it.
 */
static Oid
make_view(Relation relation, RangeVar *name)
{
	ViewColumn *columns = palloc(sizeof(ViewColumn) * RelationGetDescr(relation)->natts);
	int			column_count;
	char	   *query = make_query(relation, columns, &column_count);
	Oid			namespace_id = RangeVarGetCreationNamespace(name);
	Oid			existing = get_relname_relid(name->relname, namespace_id);
	const char *view = qualified(namespace_id, name->relname);

	if (OidIsValid(existing))
	{
		require_own_view(existing);
		if (!is_replaceable(existing, columns, column_count))
			execute(psprintf("DROP VIEW %s", view));
	}
	execute(psprintf("CREATE OR REPLACE VIEW %s WITH (security_invoker = true) AS %s", view,
					 query));
	execute(psprintf("COMMENT ON VIEW %s IS '" MARK "'", view));
	return get_relname_relid(name->relname, namespace_id);
}

/* Lock a relation until the transaction ends.  ERROR 42809 if no view can be made of it. */
static Relation
open_relation(Oid relation_id)
{
	Relation	relation = blob_sql_open_relation(relation_id);

	switch (relation->rd_rel->relkind)
	{
		case RELKIND_RELATION:
		case RELKIND_PARTITIONED_TABLE:
		case RELKIND_FOREIGN_TABLE:
		case RELKIND_MATVIEW:
		case RELKIND_VIEW:
			return relation;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" is not a table or a view",
							RelationGetRelationName(relation))));
	}
}

/*
 * blobext_browse(relation, view): returns the view.  Not strict, because the view may be left out.
 */
Datum
blobext_browse(PG_FUNCTION_ARGS)
{
	Relation	relation;
	Oid			view_id;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("relation must not be null")));
	relation = open_relation(PG_GETARG_OID(0));
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	view_id = make_view(relation, choose_name(relation, PG_ARGISNULL(1) ? NULL :
											  PG_GETARG_TEXT_PP(1)));
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	/* The lock stays, so that the relation keeps its name until the view is committed. */
	relation_close(relation, NoLock);
	PG_RETURN_OID(view_id);
}
