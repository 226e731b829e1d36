/*
 * gc/blank.h
 *	  Which transactions have run nothing since BEGIN, see "Blank transactions" in README.md.
 */
#ifndef BLOB_GC_BLANK_H
#define BLOB_GC_BLANK_H

#include "postgres.h"

#include "storage/lock.h"
#include "tcop/utility.h"

/* Shared memory, and the callback of each backend; from the library's entry point. */
extern void blob_gc_blank_shmem_request(void);
extern void blob_gc_blank_shmem_init(void);
extern void blob_gc_blank_register(void);

/*
 * A utility statement: during it, the transaction is not blank.  begin: before all else; done:
 * after it, if there was no error.
 */
typedef struct BlobGcBlankStatement
{
	bool		leaves_blank;	/* BEGIN, SET or SHOW of the client */
	bool		is_begin;		/* BEGIN, if it leaves_blank */
	LocalTransactionId begun;	/* what had begun before it */
} BlobGcBlankStatement;

extern void blob_gc_blank_statement_begin(BlobGcBlankStatement *state, const PlannedStmt *pstmt,
										  ProcessUtilityContext context);
extern void blob_gc_blank_statement_done(const BlobGcBlankStatement *state);

/*
 * The round's side.  A question is a number (not 0), which is drawn after the moment L.  ask: send
 * it to those of these transactions that look blank and have not answered it; sends nothing if
 * there is none.  answered: this transaction was blank when its process had received the question.
 */
extern uint32 blob_gc_blank_new_question(void);
extern void blob_gc_blank_ask(uint32 question, const VirtualTransactionId *transactions,
							  int count);
extern bool blob_gc_blank_answered(uint32 question, VirtualTransactionId transaction);

/*
 * Is this process idle, in a transaction that it has begun for messages alone, and without a value
 * in memory?  To be asked before that commits.
 */
extern bool blob_gc_blank_is_idle(void);

/* A query is about to run: its transaction has a snapshot. */
#ifdef USE_ASSERT_CHECKING
extern void blob_gc_blank_assert_seen(void);
#else
#define blob_gc_blank_assert_seen() ((void) 0)
#endif

#endif							/* BLOB_GC_BLANK_H */
