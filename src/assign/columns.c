/*
 * assign/columns.c
 *	  Put the hidden type modifier on the blobstate columns that a DDL statement declares.
 *
 * Elements of CREATE SCHEMA, the statements of extension scripts and of IMPORT FOREIGN SCHEMA
 * arrive as statements of their own.  Foreign tables get the modifier like all others, because a
 * partition's columns must agree with its parent's in it.  planner.c keeps their values content.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_type.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "core/catalog.h"
#include "assign/assign.h"

/*
 * The name is resolved as the statement itself will resolve it.  If a name has no meaning, or comes
 * with a modifier, it is left for the statement to complain about.  Returns blobstate, or its array
 * type, if the type is that or a domain over it, else InvalidOid.
 */
static Oid
label_type_name(TypeName *type_name)
{
	Type		type;
	Oid			type_oid;

	if (type_name == NULL || type_name->typmods != NIL || type_name->typemod != -1 ||
		type_name->pct_type || type_name->setof)
		return InvalidOid;

	type = LookupTypeName(NULL, type_name, NULL, true);
	if (type == NULL)
		return InvalidOid;
	type_oid = ((Form_pg_type) GETSTRUCT(type))->oid;
	ReleaseSysCache(type);

	if (type_oid == blob_catalog_type() || type_oid == blob_catalog_array_type())
		type_name->typemod = BLOB_ASSIGN_TYPMOD;
	type_oid = getBaseType(type_oid);
	if (type_oid == blob_catalog_type() || type_oid == blob_catalog_array_type())
		return type_oid;
	return InvalidOid;
}

/*
 * Take the modifier off an expression, by a cast to the type without one.  The statement puts the
 * coercion on top of it then, also if it is a column, which may be open or inline.
 */
static Node *
cast_expression(Node *expression, Oid type)
{
	TypeCast   *cast;

	if (expression == NULL || !OidIsValid(type))
		return expression;
	cast = makeNode(TypeCast);
	cast->arg = expression;
	cast->typeName = makeTypeNameFromOid(type, -1);
	cast->location = -1;
	return (Node *) cast;
}

/* Label a new column, and cast the expression that computes it. */
static void
label_column(ColumnDef *column)
{
	Oid			type = label_type_name(column->typeName);
	ListCell   *cell;

	foreach(cell, column->constraints)
	{
		Constraint *constraint = lfirst_node(Constraint, cell);

		if (constraint->contype == CONSTR_GENERATED)
			constraint->raw_expr = cast_expression(constraint->raw_expr, type);
	}
}

/* Label the columns in a list of table elements, or of attributes. */
static void
label_columns(List *elements)
{
	ListCell   *lc;

	foreach(lc, elements)
	{
		Node	   *element = (Node *) lfirst(lc);

		if (IsA(element, ColumnDef))
			label_column((ColumnDef *) element);
	}
}

/*
 * Label the columns of ALTER TABLE, and of ALTER TYPE, which is an ALTER TABLE of the composite
 * type's relation.
 */
static void
label_alter_table(AlterTableStmt *statement)
{
	ListCell   *lc;

	foreach(lc, statement->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		ColumnDef  *column;

		if (cmd->def == NULL || !IsA(cmd->def, ColumnDef))
			continue;
		column = (ColumnDef *) cmd->def;
		if (cmd->subtype == AT_AddColumn)
			label_column(column);
		else if (cmd->subtype == AT_AlterColumnType)
			column->raw_default = cast_expression(column->raw_default,
												  label_type_name(column->typeName));
	}
}

void
blob_assign_label_statement(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_CreateStmt:
			label_columns(((CreateStmt *) statement)->tableElts);
			break;
		case T_CreateForeignTableStmt:
			label_columns(((CreateForeignTableStmt *) statement)->base.tableElts);
			break;
		case T_AlterTableStmt:
			label_alter_table((AlterTableStmt *) statement);
			break;
		case T_CompositeTypeStmt:
			label_columns(((CompositeTypeStmt *) statement)->coldeflist);
			break;
		case T_CreateDomainStmt:
			(void) label_type_name(((CreateDomainStmt *) statement)->typeName);
			break;
		default:
			break;
	}
}
