/*
 * sql/operators/operand.h
 *	  Arguments of comparisons: keys of datums, detoasted no further than the decision needs.
 *
 * An index compresses inline values of some hundred bytes, and the descent through a B-tree
 * compares many keys.  Mostly the first bytes decide.  So of a compressed datum the first bytes are
 * decompressed first.
 */
#ifndef BLOB_SQL_OPERAND_H
#define BLOB_SQL_OPERAND_H

#include "core/descriptor.h"

/* An argument, and the copy that detoasting made, if any. */
typedef struct BlobOperand
{
	BlobKey		key;
	uint64		missing_bytes;	/* of the datum, behind the bytes that the key points to */
	void	   *copy;
} BlobOperand;

/*
 * Load an argument of type blobstate, or bytea.  With is_head, a compressed datum may be
 * decompressed in part: then missing_bytes > 0, and the key has the right size, but not all bytes.
 */
typedef void (*BlobOperandLoader) (Datum datum, bool is_head, BlobOperand *operand);
extern void blob_operand_load(Datum datum, bool is_head, BlobOperand *operand);
extern void blob_operand_load_bytea(Datum datum, bool is_head, BlobOperand *operand);

/* Free the copy. */
extern void blob_operand_release(BlobOperand *operand);

/*
 * Load two arguments, as much of them as their comparison needs.  Either *order is set and neither
 * needs to be released, and the result is true; or both are loaded as a whole.  is_equality: any
 * order other than 0 may be set if they are not equal.
 */
extern bool blob_operand_load_pair(Datum left_datum, BlobOperandLoader load_left,
								   Datum right_datum, BlobOperandLoader load_right,
								   bool is_equality, BlobOperand *left, BlobOperand *right,
								   int *order);

#endif							/* BLOB_SQL_OPERAND_H */
