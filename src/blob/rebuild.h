/*
 * blob/rebuild.h
 *	  Makes a value of another type anew with the blobstate values inside of it replaced.
 */
#ifndef BLOB_REBUILD_H
#define BLOB_REBUILD_H

#include "postgres.h"

/* Gives the datum that replaces a blobstate, or the same pointer to keep it. */
typedef Datum (*BlobReplacer) (Datum blobstate, void *context);

/*
 * The value with each blobstate replaced, wherever it is: arrays, rows, domains, ranges,
 * multiranges, and any of these within another.  The same pointer if all are kept.  The value may
 * be toasted.  Works in the current memory context and leaves its garbage there; needs catalog
 * access.  Nothing is compared but ranges of a multirange, nor are domains checked: what replaces a
 * value must be equal to it.
 */
extern Datum blob_rebuild(Datum datum, Oid type, BlobReplacer replace, void *context);

#endif							/* BLOB_REBUILD_H */
