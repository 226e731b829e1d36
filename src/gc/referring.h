/*
 * gc/referring.h
 *	  Which tables refer to extents: a set that has each table that does, and few others.
 *
 * The schedule of rounds remembers it in shared memory, so it has a fixed size, however many tables
 * there are.  See autogc/README.md, "Tables that count".
 */
#ifndef BLOB_GC_REFERRING_H
#define BLOB_GC_REFERRING_H

#include "postgres.h"

/* A Bloom filter of two hashes.  With 100 tables in it one of 1,700 others seems to be there. */
#define BLOB_GC_REFERRING_BITS 8192

typedef struct BlobGcReferring
{
	uint8		bits[BLOB_GC_REFERRING_BITS / 8];
} BlobGcReferring;

extern void blob_gc_referring_add(BlobGcReferring *referring, Oid table);

/* Add all tables of another set. */
extern void blob_gc_referring_add_all(BlobGcReferring *referring, const BlobGcReferring *others);

/* False: the table was not added.  True: it was, or has the hashes of others that were. */
extern bool blob_gc_referring_has(const BlobGcReferring *referring, Oid table);

#endif							/* BLOB_GC_REFERRING_H */
