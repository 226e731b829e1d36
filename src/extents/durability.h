/*
 * extents/durability.h
 *	  What this backend wrote and has not yet made durable; see the README of this folder.
 */
#ifndef BLOB_DURABILITY_H
#define BLOB_DURABILITY_H

#include "core/page.h"

/* Register the transaction callbacks; once per process, from _PG_init. */
extern void blob_durability_register(void);

/* Memory for one more entry is taken here: call it before writing. May throw. */
extern void blob_durability_prepare(int segment_count);

/*
 * Whether a write of so many bytes is to be logged (CONTENT): where content is logged anyway, on
 * a promoted server until its first checkpoint is complete, and where that is cheaper than to sync
 * it.  Ask once for what is noted as one.  May read catalogs and
 * throw.
 */
extern bool blob_durability_wants_log(uint64 bytes);

/*
 * Note that pages of this segment will be written, and logged if it says so.  Never throws after
 * blob_durability_prepare().
 */
extern void blob_durability_note(const BlobStoreId *store, uint32 segment_no, bool is_logged);

/*
 * Make all that was noted crash-safe: sync it, or leave that to the syncer (io/syncer.h).  Called
 * at pre-commit and pre-prepare; and by stores after that point of the same transaction (another
 * extension's callback may store values).
 */
extern void blob_durability_make_crash_safe(void);

/* Whether something was noted and not synced yet. */
extern bool blob_durability_is_pending(void);

/*
 * The rule by which blob_durability_before_return() decides, from the layer that knows where values
 * go: true where a descriptor may become the key of an index that is ordered by content.  It may
 * read catalogs and throw.
 */
extern void blob_durability_set_rule(bool (*must_be_durable) (void));

/*
 * Call this before a descriptor is handed out, with all writes completed: syncs what is pending
 * if the rule asks for it, or if the sync of pre-commit has been already.
 */
extern void blob_durability_before_return(void);

/*
 * Call this before an answer depends on content or digest of descriptors: a last net, see the
 * README of this folder.
 */
static inline void
blob_durability_before_compare(void)
{
	if (unlikely(blob_durability_is_pending()))
		blob_durability_make_crash_safe();
}

/*
 * What was written to a segment, by this transaction too, is about to be freed: its file may go.
 */
extern void blob_durability_give_up(const BlobStoreId *store, uint32 segment_no);

#endif							/* BLOB_DURABILITY_H */
