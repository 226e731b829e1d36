/*
 * gc/quiesce.c
 *	  Waits until no process has values in memory that the scan could miss: steps 3 and 5.
 *
 * Transactions are watched, not waited for with a lock: prepared ones must be skipped, and
 * a process that waits for us must not be kept waiting.
 */
#include "postgres.h"

#include "access/transam.h"
#include "core/clock.h"
#include "gc/blank.h"
#include "gc/constants.h"
#include "gc/gc_internal.h"
#include "gc/holders.h"
#include "gc/since.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"

/* The transactions and holders whose end one pass of step 5 awaits. */
typedef struct Pass
{
	VirtualTransactionId *transactions; /* those that ran at L */
	int			transaction_count;
	BlobGcHolderState *before;	/* each slot's state just before L, and at L */
	BlobGcHolderState *at;
	uint32		question;		/* to the transactions that look blank, of a moment after L */
	TimestampTz next_question;	/* when it is asked again */
	bool	   *ours;			/* slots of this database */
	bool		again;			/* a holder passed values on: another pass is needed */
} Pass;

/* How long a process has for its answer. */
#define QUESTION_INTERVAL_MS 1000

/* The process that is waited for, and why. */
typedef struct Blocker
{
	int			pid;
	const char *what;
	char	   *since;			/* of the last one that was named, to be found once */
} Blocker;

/* Is there a snapshot older than S1?  *pid: a process that has one. */
bool
blob_gc_older_snapshot_exists(const BlobGcRound *round, int *pid)
{
	TransactionId limit = round->snapshot->xmin;
	VirtualTransactionId *found;
	int			count;

	TransactionIdRetreat(limit);
	found = GetCurrentVirtualXIDs(limit, true, false, PROC_IN_VACUUM, &count);
	/* Prepared transactions have no xmin. */
	*pid = 0;
	if (count > 0)
		blob_gc_transaction_runs(found[0], pid);
	pfree(found);
	return count > 0;
}

/* The process that is waited for; since when is found if it, or the reason, is another one. */
static void
name(Blocker *named, const Blocker *blocker)
{
	if (named->pid == blocker->pid && named->what == blocker->what)
		return;
	*named = *blocker;
	named->since = blob_gc_since(named->pid, false);
}

bool
blob_gc_wait_for_snapshots(BlobGcRound *round)
{
	BlobGcWait	wait;
	Blocker		blocker = {.what = "holds an older snapshot"};
	Blocker		named = {0};

	blob_gc_wait_begin(&wait);
	while (blob_gc_older_snapshot_exists(round, &blocker.pid))
	{
		name(&named, &blocker);
		if (!blob_gc_wait_more(round, &wait, "process %d %s%s", named.pid, named.what,
							   named.since))
			return false;
	}
	blob_gc_status_waiting(NULL);
	return true;
}

/* Is the first transaction of a holder at most the given one, of the same backend? */
static bool
carries_since(BlobGcHolder holder, LocalTransactionId transaction)
{
	return LocalTransactionIdIsValid(holder.first) &&
		(int32) (holder.first - transaction) <= 0;
}

/* The process that this slot's part of the pass waits for; false if there is nothing. */
static bool
slot_blocks(Pass *pass, int slot, Blocker *blocker)
{
	BlobGcHolderState *at = &pass->at[slot];
	BlobGcHolderState *before = &pass->before[slot];
	BlobGcHolderState now;
	Oid			database;

	if (!pass->ours[slot] ||
		(!LocalTransactionIdIsValid(at->cursors.first) &&
		 !LocalTransactionIdIsValid(before->cursors.first) &&
		 !LocalTransactionIdIsValid(at->procedure.first)))
		return false;

	now = blob_gc_holder_state(slot);
	blocker->what = NULL;
	if (LocalTransactionIdIsValid(at->procedure.first) &&
		carries_since(now.procedure, at->procedure.last))
		blocker->what = "runs a procedure or DO block that can commit";
	if ((LocalTransactionIdIsValid(at->cursors.first) &&
		 carries_since(now.cursors, at->cursors.last)) ||
		(LocalTransactionIdIsValid(before->cursors.first) &&
		 carries_since(now.cursors, before->cursors.last)))
		blocker->what = "has an open cursor WITH HOLD";

	/* A backend that has read a held cursor may have values of it. */
	if (LocalTransactionIdIsValid(at->cursors.first) ||
		LocalTransactionIdIsValid(before->cursors.first))
		pass->again = true;
	return blocker->what != NULL && blob_gc_holder_backend(slot, &database, &blocker->pid);
}

/*
 * A transaction that left a holder behind goes on until that one ends.  One that was blank after L
 * is as good as one that began then.
 */
static bool
transaction_blocks(const Pass *pass, VirtualTransactionId transaction, Blocker *blocker)
{
	int			slot = blob_gc_holder_slot(transaction);
	LocalTransactionId id = transaction.localTransactionId;
	BlobGcHolderState now;
	Oid			database;

	if (blob_gc_blank_answered(pass->question, transaction))
		return false;
	if (blob_gc_transaction_runs(transaction, &blocker->pid))
	{
		blocker->what = "has been in a transaction since before";
		return true;
	}
	now = blob_gc_holder_state(slot);
	if (carries_since(now.procedure, id))
		blocker->what = "runs a procedure or DO block that can commit";
	else if (carries_since(now.cursors, id))
		blocker->what = "has an open cursor WITH HOLD";
	else
		return false;
	return blob_gc_holder_backend(slot, &database, &blocker->pid);
}

static bool
pass_blocks(Pass *pass, Blocker *blocker)
{
	for (int i = 0; i < pass->transaction_count; i++)
	{
		if (transaction_blocks(pass, pass->transactions[i], blocker))
			return true;
	}
	for (int slot = 0; slot < blob_gc_holder_slot_count(); slot++)
	{
		if (slot_blocks(pass, slot, blocker))
			return true;
	}
	return false;
}

/*
 * Now and then again: a message may be lost, and a transaction may have been in BEGIN at the moment
 * L.
 */
static void
ask(Pass *pass)
{
	TimestampTz now = GetCurrentTimestamp();

	if (blob_clock_is_before(now, pass->next_question, QUESTION_INTERVAL_MS))
		return;
	pass->next_question = TimestampTzPlusMilliseconds(now, QUESTION_INTERVAL_MS);
	blob_gc_blank_ask(pass->question, pass->transactions, pass->transaction_count);
}

static void
read_slots(BlobGcHolderState *states)
{
	for (int slot = 0; slot < blob_gc_holder_slot_count(); slot++)
		states[slot] = blob_gc_holder_state(slot);
}

/* Prepared transactions that were recovered after a start look as if they ran, in no backend. */
static void
leave_out_recovered(Pass *pass)
{
	int			kept = 0;

	for (int i = 0; i < pass->transaction_count; i++)
	{
		if (blob_gc_holder_slot(pass->transactions[i]) >= 0)
			pass->transactions[kept++] = pass->transactions[i];
	}
	pass->transaction_count = kept;
}

/*
 * The moment L.  Slots are read before and after the transactions are listed: a transaction that
 * ends in between has registered what it leaves behind, and if that is gone again, the number of
 * events tells.
 */
static Pass *
begin_pass(void)
{
	int			slots = blob_gc_holder_slot_count();
	Pass	   *pass = palloc0(sizeof(Pass));
	int			pid;

	pass->before = palloc(sizeof(BlobGcHolderState) * slots);
	pass->at = palloc(sizeof(BlobGcHolderState) * slots);
	pass->ours = palloc0(sizeof(bool) * slots);
	read_slots(pass->before);
	pass->transactions = GetCurrentVirtualXIDs(InvalidTransactionId, false, false,
											   PROC_IN_VACUUM, &pass->transaction_count);
	leave_out_recovered(pass);
	read_slots(pass->at);
	pass->question = blob_gc_blank_new_question();
	for (int slot = 0; slot < slots; slot++)
	{
		Oid			database = InvalidOid;

		pass->ours[slot] = slot != blob_gc_holder_own_slot() &&
			blob_gc_holder_backend(slot, &database, &pid) && database == MyDatabaseId;
		if (pass->ours[slot] && pass->before[slot].cursor_events != pass->at[slot].cursor_events)
			pass->again = true;
	}
	return pass;
}

/* Whether a backend that was waited for held a new cursor meanwhile: it may be closed again. */
static bool
cursors_were_opened(const Pass *pass)
{
	for (int i = 0; i < pass->transaction_count; i++)
	{
		int			slot = blob_gc_holder_slot(pass->transactions[i]);

		if (blob_gc_holder_state(slot).cursor_events != pass->before[slot].cursor_events)
			return true;
	}
	for (int slot = 0; slot < blob_gc_holder_slot_count(); slot++)
	{
		if (pass->ours[slot] && LocalTransactionIdIsValid(pass->at[slot].procedure.first) &&
			blob_gc_holder_state(slot).cursor_events != pass->before[slot].cursor_events)
			return true;
	}
	return false;
}

/* Did a procedure run at the moment L that may have begun before constants were given up? */
static bool
procedures_ran(const Pass *pass)
{
	for (int slot = 0; slot < blob_gc_holder_slot_count(); slot++)
	{
		if (pass->ours[slot] && LocalTransactionIdIsValid(pass->at[slot].procedure.first))
			return true;
	}
	return false;
}

bool
blob_gc_wait_for_transactions(BlobGcRound *round, bool give_up_constants)
{
	BlobGcHolderState own = blob_gc_holder_state(blob_gc_holder_own_slot());
	BlobGcWait	wait;
	Pass	   *pass;
	bool		is_first = true;

	if (LocalTransactionIdIsValid(own.cursors.first))
		return blob_gc_skip(round, "this session has an open cursor WITH HOLD");

	blob_gc_wait_begin(&wait);
	do
	{
		Blocker		blocker;
		Blocker		named = {0};

		if (give_up_constants)
			blob_gc_constants_give_up();
		pass = begin_pass();
		round->last_moment = pass->question;
		for (ask(pass); pass_blocks(pass, &blocker); ask(pass))
		{
			name(&named, &blocker);
			if (!blob_gc_wait_more(round, &wait, "process %d %s%s", named.pid, named.what,
								   named.since))
				return false;
		}
		if (cursors_were_opened(pass))
			pass->again = true;
		/*
		 * A value that it carried may have become a constant; those that run at the next L began
		 * later.
		 */
		if (give_up_constants && is_first && procedures_ran(pass))
			pass->again = true;
		is_first = false;
		if (pass->again &&
			!blob_gc_wait_more(round, &wait, "held cursors are opened and closed all the time"))
			return false;
	} while (pass->again);
	blob_gc_status_waiting(NULL);
	return true;
}
