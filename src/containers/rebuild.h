/*
 * containers/rebuild.h
 *	  Makes a value of another type anew with the blobstate values inside of it replaced.
 */
#ifndef BLOB_REBUILD_H
#define BLOB_REBUILD_H

#include "postgres.h"

/* Returns the datum that replaces a blobstate, or the same pointer to keep it. */
typedef Datum (*BlobReplacer) (Datum blobstate, void *context);

/*
 * The value with each blobstate replaced, wherever it is: arrays, rows, domains, ranges,
 * multiranges, and any of these within another.  The same pointer if all are kept.  The value may
 * be toasted.  Works in the current memory context and leaves its garbage there; needs catalog
 * access.  Only the ranges of a multirange are compared, and domains are not checked: so a
 * replacement must be equal to its original.
 */
extern Datum blob_rebuild(Datum datum, Oid type, BlobReplacer replace, void *context);

#endif							/* BLOB_REBUILD_H */
