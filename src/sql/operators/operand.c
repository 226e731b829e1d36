/*
 * sql/operators/operand.c
 *	  Arguments of comparisons, see sql/operators/operand.h.
 *
 * A detoasted copy of an argument is freed at once: sorts and index scans call comparators many
 * times in one memory context.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "blob/compare.h"
#include "fmgr.h"
#include "sql/operators/operand.h"

/* Enough of a datum for all that a key points to: of a descriptor, and the prefix of content. */
#define HEAD_BYTES BLOB_DESCRIPTOR_FIXED_BYTES

StaticAssertDecl(HEAD_BYTES >= BLOB_FORM_BYTES + BLOB_PREFIX_BYTES, "prefix of an inline value");

/* The datum in plain form, or its first bytes; sets operand->missing_bytes and operand->copy. */
static struct varlena *
detoast(Datum datum, bool is_head, BlobOperand *operand)
{
	struct varlena *given = (struct varlena *) DatumGetPointer(datum);
	struct varlena *plain;

	operand->missing_bytes = 0;
	if (is_head && VARATT_IS_COMPRESSED(given))
	{
		Size		bytes = toast_raw_datum_size(datum) - VARHDRSZ;

		plain = PG_DETOAST_DATUM_SLICE(datum, 0, HEAD_BYTES);
		operand->missing_bytes = bytes - VARSIZE_ANY_EXHDR(plain);
	}
	else
		plain = PG_DETOAST_DATUM_PACKED(datum);
	operand->copy = plain != given ? plain : NULL;
	return plain;
}

void
blob_operand_load(Datum datum, bool is_head, BlobOperand *operand)
{
	blob_key_load(detoast(datum, is_head, operand), &operand->key);
	if (operand->key.kind == BLOB_KEY_INLINE)
		operand->key.size_bytes += operand->missing_bytes;
}

void
blob_operand_load_bytea(Datum datum, bool is_head, BlobOperand *operand)
{
	struct varlena *plain = detoast(datum, is_head, operand);

	blob_key_of_bytes(VARDATA_ANY(plain),
					  VARSIZE_ANY_EXHDR(plain) + operand->missing_bytes, &operand->key);
}

void
blob_operand_release(BlobOperand *operand)
{
	if (operand->copy != NULL)
		pfree(operand->copy);
}

/* The bytes of the content that are in memory. */
static uint64
known_bytes(const BlobOperand *operand)
{
	if (operand->key.kind != BLOB_KEY_INLINE)
		return Min(operand->key.size_bytes, BLOB_PREFIX_BYTES);
	return operand->key.size_bytes - operand->missing_bytes;
}

/* Whether the first bytes of two arguments, or for equality their sizes, decide. */
static bool
decides(const BlobOperand *left, const BlobOperand *right, bool is_equality, int *order)
{
	if (is_equality && left->key.size_bytes != right->key.size_bytes)
		*order = 1;
	else
		*order = memcmp(left->key.data, right->key.data,
						Min(known_bytes(left), known_bytes(right)));
	return *order != 0;
}

bool
blob_operand_load_pair(Datum left_datum, BlobOperandLoader load_left,
					   Datum right_datum, BlobOperandLoader load_right, bool is_equality,
					   BlobOperand *left, BlobOperand *right, int *order)
{
	bool		is_decided;

	load_left(left_datum, true, left);
	load_right(right_datum, true, right);
	if (left->missing_bytes == 0 && right->missing_bytes == 0)
		return false;
	is_decided = decides(left, right, is_equality, order);
	blob_operand_release(left);
	blob_operand_release(right);
	if (!is_decided)
	{
		load_left(left_datum, false, left);
		load_right(right_datum, false, right);
	}
	return is_decided;
}
