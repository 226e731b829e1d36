/*
 * gc/temporary.h
 *	  Temporary tables of other sessions: their owners tell a round which extents they refer to.  See
 *	  "Temporary tables of other sessions" in README.md.
 */
#ifndef BLOB_GC_TEMPORARY_H
#define BLOB_GC_TEMPORARY_H

#include "postgres.h"

#include "gc/gc_internal.h"

/* An owner reads no more pages than these for an answer. */
#define BLOB_GC_ANSWER_PAGES 32768

/* Shared memory, and the callback of each backend; from the library's entry point. */
extern void blob_gc_temporary_shmem_request(void);
extern void blob_gc_temporary_shmem_init(void);
extern void blob_gc_temporary_register(void);

/*
 * Between steps 5 and 6: ask the owners of the temporary tables in round->roots, and wait for their
 * answers.  False, with a reason noted, if one does not answer, or does not know.
 */
extern bool blob_gc_ask_owners(BlobGcRound *round);

/* Step 6: has each owner in this list answered, after the last L? */
extern bool blob_gc_owners_have_answered(const BlobGcRound *round, const BlobGcRoots *roots);

/* Mark the extents that owners have told, for the range of the marks; the end of a round. */
extern void blob_gc_told_mark(BlobGcRound *round);
extern void blob_gc_told_end(BlobGcRound *round);

#ifdef USE_ASSERT_CHECKING
/* Each owner in round->roots has answered a question of after the last L, or has ended. */
extern void blob_gc_temporary_assert_answered(const BlobGcRound *round);
#else
#define blob_gc_temporary_assert_answered(round) ((void) 0)
#endif

#endif							/* BLOB_GC_TEMPORARY_H */
