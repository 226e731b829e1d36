/*
 * blob/durability.h
 *	  What this backend wrote and has not yet made durable; see the README of this folder.
 */
#ifndef BLOB_DURABILITY_H
#define BLOB_DURABILITY_H

#include "core/page.h"

/* Register the transaction callbacks; once per process, from _PG_init. */
extern void blob_durability_init(void);

/* Memory for one more entry is taken here: call it before writing. May throw. */
extern void blob_durability_prepare(int segment_count);

/* Note that pages of this segment were written. Never throws after blob_durability_prepare(). */
extern void blob_durability_note(const BlobSpaceId *space, uint32 segment_no);

/*
 * Make all that was noted durable.  Called at pre-commit and pre-prepare; and by stores after
 * that point of the same transaction (another extension's callback may store values).
 */
extern void blob_durability_sync(void);

/* Whether stores must call blob_durability_sync() themselves now. */
extern bool blob_durability_is_late(void);

#endif							/* BLOB_DURABILITY_H */
