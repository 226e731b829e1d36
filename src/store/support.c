/*
 * store/support.c
 *	  Planner support of the length coercion and of blob_store(): small literals need no call.
 *
 * Both functions are VOLATILE, because they allocate.  For a literal that is small enough to stay
 * in the row they do nothing, so the planner may drop them.  That makes small values cost what
 * bytea costs where it matters most: ALTER TABLE ... ADD COLUMN with a small default need not
 * rewrite the table.  A limit that is lowered after planning does not matter: an inline value of
 * any size is legal.
 */
#include "postgres.h"

#include "core/descriptor.h"
#include "core/settings.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"

#include "store/store.h"

PG_FUNCTION_INFO_V1(blob_store_support);

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

		if (is_small_literal(argument))
			result = relabel_to_typmod(argument, exprTypmod((Node *) call));
	}
	PG_RETURN_POINTER(result);
}
