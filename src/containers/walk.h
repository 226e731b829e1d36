/*
 * containers/walk.h
 *	  Finds blobstate values inside of values of other types: domains, arrays, rows, ranges.
 */
#ifndef BLOB_WALK_H
#define BLOB_WALK_H

#include "postgres.h"

#include "access/tupdesc.h"

/* Whether values of this type can hold blobstate.  Needs catalog access. */
extern bool blob_walk_type_holds(Oid type);

/*
 * Whether a value of this type is, or contains, one of another (inner) type.  Needs catalog access.
 */
extern bool blob_walk_type_reaches(Oid type, Oid inner);

/* Whether any column of the row type can hold blobstate.  Needs catalog access. */
extern bool blob_walk_row_holds(TupleDesc row_type);

/*
 * Call visit for every blobstate in a value, which may be toasted.  Works in the current memory
 * context and leaves its garbage there.  XX001 where an array, row or range is damaged: nothing is
 * read behind it.  The datum itself has a sound header (containers/sound.h), as one in memory has.
 */
typedef void (*BlobWalkVisitor) (Datum blobstate, void *context);
extern void blob_walk_datum(Datum datum, Oid type, BlobWalkVisitor visit, void *context);

#endif							/* BLOB_WALK_H */
