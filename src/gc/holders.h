/*
 * gc/holders.h
 *	  Which backends can carry values in memory from one transaction to the next.
 */
#ifndef BLOB_GC_HOLDERS_H
#define BLOB_GC_HOLDERS_H

#include "postgres.h"

#include "storage/lock.h"
#include "tcop/utility.h"

/* The local transaction ids of the first and last transaction that contributed. */
typedef struct BlobGcHolder
{
	LocalTransactionId first;	/* invalid: nothing is carried */
	LocalTransactionId last;
} BlobGcHolder;

typedef struct BlobGcHolderState
{
	BlobGcHolder cursors;		/* open WITH HOLD cursors of transactions that have committed */
	BlobGcHolder procedure;		/* running procedure or DO block that may commit */
	uint32		cursor_events;	/* how often a cursor began to be held */
} BlobGcHolderState;

/* Shared memory and the transaction callback; from the library's entry point. */
extern void blob_gc_holders_shmem_request(void);
extern void blob_gc_holders_shmem_init(void);
extern void blob_gc_holders_register(void);

/*
 * A utility statement: the holders that it makes are registered before it runs.  end: after it,
 * also after an error; done: after that, if there was none.
 */
typedef struct BlobGcHolderStatement
{
	bool		is_procedure;	/* a procedure or DO block that may commit */
} BlobGcHolderStatement;

extern void blob_gc_holders_statement_begin(BlobGcHolderStatement *state,
											const PlannedStmt *pstmt,
											ProcessUtilityContext context);
extern void blob_gc_holders_statement_end(BlobGcHolderStatement *state);
extern void blob_gc_holders_statement_done(const BlobGcHolderStatement *state);

/*
 * In a procedure of this library, at the beginning of a transaction, before it reads anything: it
 * has no value of an earlier transaction.  So rounds need not wait for its end, but for that of its
 * transactions, one at a time.  Does nothing where another procedure or DO block has called this
 * one, because that may have values.
 */
extern void blob_gc_holders_carry_nothing(void);

/* Slots are numbered from 0 as backends are; all of them, of whatever database. */
extern int	blob_gc_holder_slot_count(void);
extern BlobGcHolderState blob_gc_holder_state(int slot);

/* The slot of a virtual transaction's backend (negative: it has none); of this one. */
extern int	blob_gc_holder_slot(VirtualTransactionId transaction);
extern int	blob_gc_holder_own_slot(void);

/* The database, and process id, of the backend that uses a slot; false if none does. */
extern bool blob_gc_holder_backend(int slot, Oid *database, int *pid);

/* Whether a virtual transaction runs, in a process (not prepared), and is no lazy VACUUM. */
extern bool blob_gc_transaction_runs(VirtualTransactionId transaction, int *pid);

#endif							/* BLOB_GC_HOLDERS_H */
