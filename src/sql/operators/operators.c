/*
 * sql/operators/operators.c
 *	  Comparison operators, support functions of the operator classes, min and max.
 *
 * Operators against bytea take its content as it is, so that neither a parameter nor a constant of
 * that type needs a cast, which would hide the column from its index.
 */
#include "postgres.h"

#include "blob/compare.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "sql/operators/operand.h"

/* ---- by content ---- */

static int
compare(FunctionCallInfo fcinfo, BlobOperandLoader load_left, BlobOperandLoader load_right)
{
	BlobOperand left;
	BlobOperand right;
	int			order;

	if (blob_operand_load_pair(PG_GETARG_DATUM(0), load_left, PG_GETARG_DATUM(1), load_right,
							   false, &left, &right, &order))
		return order;
	order = blob_compare(&left.key, &right.key);
	blob_operand_release(&left);
	blob_operand_release(&right);
	return order;
}

static bool
equal(FunctionCallInfo fcinfo, BlobOperandLoader load_left, BlobOperandLoader load_right)
{
	BlobOperand left;
	BlobOperand right;
	int			order;
	bool		result;

	if (blob_operand_load_pair(PG_GETARG_DATUM(0), load_left, PG_GETARG_DATUM(1), load_right,
							   true, &left, &right, &order))
		return false;
	result = blob_equal(&left.key, &right.key);
	blob_operand_release(&left);
	blob_operand_release(&right);
	return result;
}

/* The seven functions of one pair of argument types. */
#define DEFINE_COMPARISONS(left, right, suffix) \
	PG_FUNCTION_INFO_V1(blob_eq##suffix); \
	PG_FUNCTION_INFO_V1(blob_ne##suffix); \
	PG_FUNCTION_INFO_V1(blob_lt##suffix); \
	PG_FUNCTION_INFO_V1(blob_le##suffix); \
	PG_FUNCTION_INFO_V1(blob_gt##suffix); \
	PG_FUNCTION_INFO_V1(blob_ge##suffix); \
	PG_FUNCTION_INFO_V1(blob_cmp##suffix); \
	Datum blob_eq##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL(equal(fcinfo, left, right)); } \
	Datum blob_ne##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL(!equal(fcinfo, left, right)); } \
	Datum blob_lt##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL(compare(fcinfo, left, right) < 0); } \
	Datum blob_le##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL(compare(fcinfo, left, right) <= 0); } \
	Datum blob_gt##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL(compare(fcinfo, left, right) > 0); } \
	Datum blob_ge##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL(compare(fcinfo, left, right) >= 0); } \
	Datum blob_cmp##suffix(PG_FUNCTION_ARGS) { PG_RETURN_INT32(compare(fcinfo, left, right)); }

DEFINE_COMPARISONS(blob_operand_load, blob_operand_load,)
DEFINE_COMPARISONS(blob_operand_load, blob_operand_load_bytea, _bytea)
DEFINE_COMPARISONS(blob_operand_load_bytea, blob_operand_load, _of_bytea)

/* ---- by digest ---- */

PG_FUNCTION_INFO_V1(blob_digest_lt);
PG_FUNCTION_INFO_V1(blob_digest_le);
PG_FUNCTION_INFO_V1(blob_digest_gt);
PG_FUNCTION_INFO_V1(blob_digest_ge);
PG_FUNCTION_INFO_V1(blob_digest_cmp);
PG_FUNCTION_INFO_V1(blob_digest_cmp_bytea);
PG_FUNCTION_INFO_V1(blob_digest_cmp_of_bytea);

static int
compare_digests(FunctionCallInfo fcinfo, BlobOperandLoader load_left, BlobOperandLoader load_right)
{
	BlobOperand left;
	BlobOperand right;
	int			order;

	load_left(PG_GETARG_DATUM(0), false, &left);
	load_right(PG_GETARG_DATUM(1), false, &right);
	order = blob_compare_digests(&left.key, &right.key);
	blob_operand_release(&left);
	blob_operand_release(&right);
	return order;
}

Datum
blob_digest_lt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_digests(fcinfo, blob_operand_load, blob_operand_load) < 0);
}

Datum
blob_digest_le(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_digests(fcinfo, blob_operand_load, blob_operand_load) <= 0);
}

Datum
blob_digest_gt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_digests(fcinfo, blob_operand_load, blob_operand_load) > 0);
}

Datum
blob_digest_ge(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_digests(fcinfo, blob_operand_load, blob_operand_load) >= 0);
}

Datum
blob_digest_cmp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_digests(fcinfo, blob_operand_load, blob_operand_load));
}

Datum
blob_digest_cmp_bytea(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_digests(fcinfo, blob_operand_load, blob_operand_load_bytea));
}

Datum
blob_digest_cmp_of_bytea(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_digests(fcinfo, blob_operand_load_bytea, blob_operand_load));
}

/* ---- hashing: of the digest, so that inline and descriptor of one content hash alike ---- */

PG_FUNCTION_INFO_V1(blob_hash);
PG_FUNCTION_INFO_V1(blob_hash_extended);
PG_FUNCTION_INFO_V1(blob_hash_bytea);
PG_FUNCTION_INFO_V1(blob_hash_extended_bytea);

static Datum
hash(FunctionCallInfo fcinfo, BlobOperandLoader load)
{
	BlobOperand operand;
	Datum		result;

	load(PG_GETARG_DATUM(0), false, &operand);
	result = hash_any(blob_key_digest(&operand.key), BLOB_DIGEST_BYTES);
	blob_operand_release(&operand);
	return result;
}

static Datum
hash_extended(FunctionCallInfo fcinfo, BlobOperandLoader load)
{
	BlobOperand operand;
	Datum		result;

	load(PG_GETARG_DATUM(0), false, &operand);
	result = hash_any_extended(blob_key_digest(&operand.key), BLOB_DIGEST_BYTES,
							   PG_GETARG_INT64(1));
	blob_operand_release(&operand);
	return result;
}

Datum
blob_hash(PG_FUNCTION_ARGS)
{
	return hash(fcinfo, blob_operand_load);
}

Datum
blob_hash_extended(PG_FUNCTION_ARGS)
{
	return hash_extended(fcinfo, blob_operand_load);
}

Datum
blob_hash_bytea(PG_FUNCTION_ARGS)
{
	return hash(fcinfo, blob_operand_load_bytea);
}

Datum
blob_hash_extended_bytea(PG_FUNCTION_ARGS)
{
	return hash_extended(fcinfo, blob_operand_load_bytea);
}

/* ---- min, max ---- */

PG_FUNCTION_INFO_V1(blob_smaller);
PG_FUNCTION_INFO_V1(blob_larger);

Datum
blob_smaller(PG_FUNCTION_ARGS)
{
	return PG_GETARG_DATUM(compare(fcinfo, blob_operand_load, blob_operand_load) <= 0 ? 0 : 1);
}

Datum
blob_larger(PG_FUNCTION_ARGS)
{
	return PG_GETARG_DATUM(compare(fcinfo, blob_operand_load, blob_operand_load) >= 0 ? 0 : 1);
}
