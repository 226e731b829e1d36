/*
 * containers/bound.h
 *	  Blobstate values in partition bounds: constants in the text form of a PartitionBoundSpec, as
 *	  in pg_class.relpartbound.
 */
#ifndef BLOB_BOUND_H
#define BLOB_BOUND_H

#include "postgres.h"

#include "containers/rebuild.h"
#include "containers/walk.h"

/* Call visit for every blobstate in a bound.  For memory and catalogs see blob_walk_datum(). */
extern void blob_bound_walk(const char *bound, BlobWalkVisitor visit, void *context);

/* The bound with each blobstate replaced, see blob_rebuild(); NULL if all are kept. */
extern char *blob_bound_rebuild(const char *bound, BlobReplacer replace, void *context);

#endif							/* BLOB_BOUND_H */
