/*
 * gc/carriers.h
 *	  Which backends can carry values in memory from one transaction to the next.
 */
#ifndef BLOB_GC_CARRIERS_H
#define BLOB_GC_CARRIERS_H

#include "postgres.h"

#include "storage/lock.h"

/* The local transaction ids of the first and last transaction that contributed. */
typedef struct BlobGcCarrier
{
	LocalTransactionId first;	/* invalid: nothing is carried */
	LocalTransactionId last;
} BlobGcCarrier;

typedef struct BlobGcCarrierState
{
	BlobGcCarrier cursors;		/* open WITH HOLD cursors of transactions that have committed */
	BlobGcCarrier procedure;	/* running procedure or DO block that may commit */
	uint32		cursor_events;	/* how often a cursor began to be held */
} BlobGcCarrierState;

/* Slots are numbered from 0 as backends are; all of them, of whatever database. */
extern int	blob_gc_carrier_slot_count(void);
extern BlobGcCarrierState blob_gc_carrier_state(int slot);

/* The slot of a virtual transaction's backend (negative: it has none); of this one. */
extern int	blob_gc_carrier_slot(VirtualTransactionId transaction);
extern int	blob_gc_carrier_own_slot(void);

/* The database, and process id, of the backend that uses a slot; false if nobody does. */
extern bool blob_gc_carrier_backend(int slot, Oid *database, int *pid);

/* Whether a virtual transaction runs, in a process (not prepared), and is no lazy VACUUM. */
extern bool blob_gc_transaction_runs(VirtualTransactionId transaction, int *pid);

#endif							/* BLOB_GC_CARRIERS_H */
