/*
 * gc/temporary.h
 *	  Temporary tables of other sessions: their owners tell a round which extents they refer to,
 *	  see "Temporary tables of other sessions" in README.md.
 */
#ifndef BLOB_GC_TEMPORARY_H
#define BLOB_GC_TEMPORARY_H

#include "postgres.h"

#include "gc/gc_internal.h"
#include "port/atomics.h"
#include "storage/dsm.h"

/* An owner reads no more pages than these for an answer. */
#define BLOB_GC_ANSWER_PAGES 32768

/* What an owner says. */
typedef enum BlobGcAnswer
{
	BLOB_GC_TOLD = 1,			/* bits are set for all extents */
	BLOB_GC_LARGE,				/* more than BLOB_GC_ANSWER_PAGES */
	BLOB_GC_UNKNOWN				/* there is a line in the log */
} BlobGcAnswer;

/* Of each backend, in shared memory. */
typedef struct BlobGcOwnerSlot
{
	pg_atomic_uint32 memory;	/* dsm_handle of the question: a BlobGcAnswerMemory */
	pg_atomic_uint32 question;	/* behind it; written by the round */
	pg_atomic_uint64 answer;	/* the question, and a BlobGcAnswer; written by the owner */
} BlobGcOwnerSlot;

/* In dynamic shared memory.  The magic tells it from memory of others with a handle used again. */
#define BLOB_GC_ANSWER_MAGIC UINT64CONST(0xB10BE5770A45E12D)

typedef struct BlobGcAnswerMemory
{
	uint64		magic;
	uint32		question;		/* 0: none any more */
	int			pid;			/* the process that may write, and has this question */
	bool		dry_run;		/* nothing is pruned */
	BlobPageNo	end_page;
	BlobGcReferring referring;	/* tables that refer to one of these pages */
	uint8		bits[FLEXIBLE_ARRAY_MEMBER];	/* of pages below end_page, as in BlobGcMarks */
} BlobGcAnswerMemory;

/* Shared memory, and the callback of each backend (owner.c); from the library's entry point. */
extern void blob_gc_temporary_shmem_request(void);
extern void blob_gc_temporary_shmem_init(void);
extern void blob_gc_owner_register(void);

/* The slot of this process, which is a backend. */
extern BlobGcOwnerSlot *blob_gc_own_slot(void);

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
