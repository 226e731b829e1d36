/*
 * assign/support.c
 *	  Planner support of the length coercion and of blob_store().
 *
 * Both functions are VOLATILE, because they allocate, and take an inline value.  The planner can
 * replace two kinds of calls by a cheaper expression:
 *
 * A literal that is small enough to stay in the row needs no call.  So small values cost as much as
 * those of bytea, and ALTER TABLE ... ADD COLUMN with a small default does not rewrite the table.
 * If the limit is lowered after planning, the literal stays inline, which is legal at any size.
 *
 * The cast of a bytea would first copy all content to an inline value.  blob_store(bytea) takes the
 * content without that copy.
 */
#include "postgres.h"

#include "core/catalog.h"
#include "core/descriptor.h"
#include "core/settings.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"

#include "assign/assign.h"

PG_FUNCTION_INFO_V1(blob_store_support);

/* Is this a literal that may stay inline? */
static bool
is_small_literal(Node *node)
{
	Const	   *literal = (Const *) node;
	BlobValue	value;

	if (!IsA(node, Const) || literal->constisnull)
		return false;
	blob_value_unpack(PG_DETOAST_DATUM_PACKED(literal->constvalue), &value);
	return value.is_inline && value.size_bytes <= (uint64) blob_inline_limit_bytes;
}

/* blobstate(bytea) as blob_store(bytea), or NULL. */
static Node *
store_of_cast(Node *node)
{
	FuncExpr   *cast = (FuncExpr *) node;
	Oid			store = blob_catalog_store_bytea_function();

	if (!IsA(node, FuncExpr) || !OidIsValid(store) ||
		cast->funcid != blob_catalog_cast_function())
		return NULL;
	return (Node *) makeFuncExpr(store, cast->funcresulttype, cast->args, InvalidOid, InvalidOid,
								 COERCE_EXPLICIT_CALL);
}

/* blob_store_support(internal) returns internal */
Datum
blob_store_support(PG_FUNCTION_ARGS)
{
	Node	   *request = (Node *) PG_GETARG_POINTER(0);
	Node	   *result = NULL;

	if (IsA(request, SupportRequestSimplify))
	{
		FuncExpr   *call = ((SupportRequestSimplify *) request)->fcall;
		Node	   *argument = (Node *) linitial(call->args);

		result = is_small_literal(argument) ? argument : store_of_cast(argument);
		if (result != NULL)
			result = relabel_to_typmod(result, exprTypmod((Node *) call));
	}
	PG_RETURN_POINTER(result);
}
