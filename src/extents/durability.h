/*
 * extents/durability.h
 *	  Segments that this process wrote to and has not yet made crash-safe; see "The durability
 *	  protocol" in the README of this folder.
 */
#ifndef BLOB_DURABILITY_H
#define BLOB_DURABILITY_H

#include "core/page.h"

/* Register the transaction callbacks; once per process, from _PG_init. */
extern void blob_durability_register(void);

/* Allocate memory for segment_count more entries.  Call this before writing.  May throw. */
extern void blob_durability_prepare(int segment_count);

/*
 * Whether a write of this many bytes is to be logged (CONTENT).  It is, where content is logged
 * anyway, on a promoted server until its first checkpoint is complete, and where that is cheaper
 * than a sync.  Ask once for each write, since the answer counts against the bytes that a
 * transaction may log in place of a sync, and wakes the syncer.  May read catalogs and throw.
 */
extern bool blob_durability_wants_log(uint64 bytes);

/*
 * Note that pages of this segment will be written, and whether they will be logged.  Never throws
 * after blob_durability_prepare().
 */
extern void blob_durability_note(const BlobStoreId *store, uint32 segment_no, bool is_logged);

/*
 * Make all noted segments crash-safe: sync them, or leave that to the syncer (io/syncer.h).  Called
 * at pre-commit and pre-prepare; and by writes after that point of the same transaction, since
 * callbacks of other extensions may store values.  A failed sync is a PANIC.  An ERROR (a file has
 * disappeared, or cannot be opened) leaves the entry.
 */
extern void blob_durability_make_crash_safe(void);

/*
 * The same while the caller has nothing else to do, so that the commit need not: if no value of
 * this transaction has done so before, since each sync costs the device the same, and others wait.
 */
extern void blob_durability_use_wait(void);

/* Whether a noted segment is not crash-safe yet; whether that is so, or OMITTED has yet to come. */
extern bool blob_durability_is_unsafe(void);
extern bool blob_durability_is_pending(void);

/*
 * Set the rule by which blob_durability_before_return() decides.  It comes from the layer that
 * knows where values go.  It returns true where a descriptor may become the key of an index that is
 * ordered by content.  It may read catalogs and throw.
 */
extern void blob_durability_set_rule(bool (*must_be_durable) (void));

/*
 * Call this before a descriptor is returned, when all writes have completed.  Makes pending
 * segments crash-safe if the rule asks for it, or if the callback of pre-commit has run already.
 */
extern void blob_durability_before_return(void);

/*
 * Call this before an answer depends on content or digest of descriptors.  It is a last net, see
 * the README of this folder.
 */
static inline void
blob_durability_before_compare(void)
{
	if (unlikely(blob_durability_is_pending()))
		blob_durability_make_crash_safe();
}

/*
 * Announce that this process is about to free extents in a segment, including those that this
 * transaction wrote.  Then the segment's file may go.
 */
extern void blob_durability_give_up(const BlobStoreId *store, uint32 segment_no);

#endif							/* BLOB_DURABILITY_H */
