/*
 * store/limits.h
 *	  The file "limits" of a store: which generation limit the map had at which position in the
 *	  WAL.
 *
 * Each entry is a fact about this server's history: at this LSN of the map's meta page, this was
 * the limit.  One is noted when free space is loaded, before the first generation is drawn after a
 * start.  So a promoted server knows the limit at its promotion.  For heal/, which needs to know
 * what was drawn before two histories parted; a lost entry costs knowledge, no more.
 */
#ifndef BLOB_LIMITS_H
#define BLOB_LIMITS_H

#include "access/xlogdefs.h"
#include "core/page.h"

/* Note an entry, unless it is the last one.  The caller holds the growth lock.  Failures: LOG. */
extern void blob_limits_note(const BlobStoreId *store, XLogRecPtr lsn, BlobGeneration limit);

/* The largest limit at a position not beyond lsn; BLOB_INVALID_GENERATION if none is known. */
extern BlobGeneration blob_limits_at(const BlobStoreId *store, XLogRecPtr lsn);

#endif							/* BLOB_LIMITS_H */
