/*
 * sql/operators.c
 *	  Comparison operators, support functions of the operator classes, min and max.
 *
 * Operators against bytea take its content as it is, so that neither a parameter nor a constant of
 * that type needs a cast, which would hide the column from its index.
 *
 * A detoasted copy of an argument is freed at once: sorts and index scans call these functions
 * many times in one memory context.
 */
#include "postgres.h"

#include "blob/compare.h"
#include "common/hashfn.h"
#include "fmgr.h"

/* An argument, and the copy that detoasting made, if any. */
typedef struct Operand
{
	BlobKey		key;
	void	   *copy;
} Operand;

static struct varlena *
detoast(Datum datum, Operand *operand)
{
	struct varlena *plain = PG_DETOAST_DATUM_PACKED(datum);

	operand->copy = (Pointer) plain != DatumGetPointer(datum) ? plain : NULL;
	return plain;
}

static void
load_blob(Datum datum, Operand *operand)
{
	blob_key_load(detoast(datum, operand), &operand->key);
}

static void
load_bytea(Datum datum, Operand *operand)
{
	struct varlena *plain = detoast(datum, operand);

	blob_key_of_bytes(VARDATA_ANY(plain), VARSIZE_ANY_EXHDR(plain), &operand->key);
}

static void
release(Operand *operand)
{
	if (operand->copy != NULL)
		pfree(operand->copy);
}

typedef void (*Loader) (Datum datum, Operand *operand);

/* ---- by content ---- */

static int
compare(FunctionCallInfo fcinfo, Loader load_left, Loader load_right)
{
	Operand		left;
	Operand		right;
	int			order;

	load_left(PG_GETARG_DATUM(0), &left);
	load_right(PG_GETARG_DATUM(1), &right);
	order = blob_compare(&left.key, &right.key);
	release(&left);
	release(&right);
	return order;
}

/* Sizes are had without detoasting only from descriptors; inline values are small, as a rule. */
static bool
equal(FunctionCallInfo fcinfo, Loader load_left, Loader load_right)
{
	Operand		left;
	Operand		right;
	bool		result;

	load_left(PG_GETARG_DATUM(0), &left);
	load_right(PG_GETARG_DATUM(1), &right);
	result = blob_equal(&left.key, &right.key);
	release(&left);
	release(&right);
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

DEFINE_COMPARISONS(load_blob, load_blob,)
DEFINE_COMPARISONS(load_blob, load_bytea, _bytea)
DEFINE_COMPARISONS(load_bytea, load_blob, _of_bytea)

/* ---- by digest ---- */

PG_FUNCTION_INFO_V1(blob_digest_lt);
PG_FUNCTION_INFO_V1(blob_digest_le);
PG_FUNCTION_INFO_V1(blob_digest_gt);
PG_FUNCTION_INFO_V1(blob_digest_ge);
PG_FUNCTION_INFO_V1(blob_digest_cmp);
PG_FUNCTION_INFO_V1(blob_digest_cmp_bytea);
PG_FUNCTION_INFO_V1(blob_digest_cmp_of_bytea);

static int
compare_digests(FunctionCallInfo fcinfo, Loader load_left, Loader load_right)
{
	Operand		left;
	Operand		right;
	int			order;

	load_left(PG_GETARG_DATUM(0), &left);
	load_right(PG_GETARG_DATUM(1), &right);
	order = blob_compare_digests(&left.key, &right.key);
	release(&left);
	release(&right);
	return order;
}

Datum
blob_digest_lt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_digests(fcinfo, load_blob, load_blob) < 0);
}

Datum
blob_digest_le(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_digests(fcinfo, load_blob, load_blob) <= 0);
}

Datum
blob_digest_gt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_digests(fcinfo, load_blob, load_blob) > 0);
}

Datum
blob_digest_ge(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_digests(fcinfo, load_blob, load_blob) >= 0);
}

Datum
blob_digest_cmp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_digests(fcinfo, load_blob, load_blob));
}

Datum
blob_digest_cmp_bytea(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_digests(fcinfo, load_blob, load_bytea));
}

Datum
blob_digest_cmp_of_bytea(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_digests(fcinfo, load_bytea, load_blob));
}

/* ---- hashing: of the digest, so that inline and descriptor of one content hash alike ---- */

PG_FUNCTION_INFO_V1(blob_hash);
PG_FUNCTION_INFO_V1(blob_hash_extended);
PG_FUNCTION_INFO_V1(blob_hash_bytea);
PG_FUNCTION_INFO_V1(blob_hash_extended_bytea);

static Datum
hash(FunctionCallInfo fcinfo, Loader load)
{
	Operand		operand;
	Datum		result;

	load(PG_GETARG_DATUM(0), &operand);
	result = hash_any(blob_key_digest(&operand.key), BLOB_DIGEST_BYTES);
	release(&operand);
	return result;
}

static Datum
hash_extended(FunctionCallInfo fcinfo, Loader load)
{
	Operand		operand;
	Datum		result;

	load(PG_GETARG_DATUM(0), &operand);
	result = hash_any_extended(blob_key_digest(&operand.key), BLOB_DIGEST_BYTES,
							   PG_GETARG_INT64(1));
	release(&operand);
	return result;
}

Datum
blob_hash(PG_FUNCTION_ARGS)
{
	return hash(fcinfo, load_blob);
}

Datum
blob_hash_extended(PG_FUNCTION_ARGS)
{
	return hash_extended(fcinfo, load_blob);
}

Datum
blob_hash_bytea(PG_FUNCTION_ARGS)
{
	return hash(fcinfo, load_bytea);
}

Datum
blob_hash_extended_bytea(PG_FUNCTION_ARGS)
{
	return hash_extended(fcinfo, load_bytea);
}

/* ---- min, max ---- */

PG_FUNCTION_INFO_V1(blob_smaller);
PG_FUNCTION_INFO_V1(blob_larger);

Datum
blob_smaller(PG_FUNCTION_ARGS)
{
	return PG_GETARG_DATUM(compare(fcinfo, load_blob, load_blob) <= 0 ? 0 : 1);
}

Datum
blob_larger(PG_FUNCTION_ARGS)
{
	return PG_GETARG_DATUM(compare(fcinfo, load_blob, load_blob) >= 0 ? 0 : 1);
}
