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

/*
 * A call for blobstate(bytea) as blob_store(bytea), or NULL.  A call that knows its column has that
 * as further arguments.
 */
static Node *
store_of_cast(const FuncExpr *call)
{
	FuncExpr   *cast = linitial(call->args);
	bool		has_column = call->funcid == blob_catalog_function(BLOB_FUNCTION_STORE_IN_COLUMN);
	Oid			store = blob_catalog_function(has_column ? BLOB_FUNCTION_STORE_BYTEA_IN_COLUMN :
											  BLOB_FUNCTION_STORE_BYTEA);
	List	   *arguments;

	if (!IsA(cast, FuncExpr) || !OidIsValid(store) ||
		cast->funcid != blob_catalog_function(BLOB_FUNCTION_CAST))
		return NULL;
	arguments = list_make1(linitial(cast->args));
	if (has_column)
		arguments = lappend(lappend(arguments, lsecond(call->args)), lthird(call->args));
	return (Node *) makeFuncExpr(store, cast->funcresulttype, arguments, InvalidOid, InvalidOid,
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

		result = is_small_literal(argument) ? argument : store_of_cast(call);
		if (result != NULL)
			result = relabel_to_typmod(result, exprTypmod((Node *) call));
	}
	PG_RETURN_POINTER(result);
}
