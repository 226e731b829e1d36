/*
 * gc/holders.c
 *	  Registers held cursors, and procedures that may commit, see gc/holders.h.
 *
 * Each backend has a slot in shared memory, which it alone writes.  A procedure (or DO block) is
 * registered before it starts and until the transaction in which it ends has ended: its OUT
 * parameters, and cursors that it has opened, are still to be read when it returns.  A cursor WITH
 * HOLD is part of its transaction until that commits: it is registered in PRE_COMMIT, when
 * PostgreSQL has materialised it, and before the transaction stops being seen as running.  From
 * then on it is looked for at the end of each transaction and utility statement, as there are many
 * ways to close one.
 */
#include "postgres.h"

#include "access/xact.h"
#include "core/compat.h"
#include "gc/holders.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/sinvaladt.h"
#include "utils/memutils.h"
#include "utils/portal.h"

/* first and last share a word, so that they change together. */
typedef struct HolderSlot
{
	pg_atomic_uint64 cursors;
	pg_atomic_uint64 procedure;
	pg_atomic_uint32 cursor_events;
} HolderSlot;

/* A cursor that this backend declared WITH HOLD and that may still be there. */
typedef struct HeldCursor
{
	char		name[NAMEDATALEN];
	LocalTransactionId transaction; /* that materialised it; invalid: its own still runs */
} HeldCursor;

static HolderSlot *slots;
static HolderSlot *own_slot;
static HeldCursor *cursors;
static int	cursor_count;
static int	cursor_room;
static int	procedure_depth;

/* ---- shared memory ---- */

int
blob_gc_holder_slot_count(void)
{
	return MaxBackends;
}

static Size
slots_bytes(void)
{
	return mul_size(MaxBackends, sizeof(HolderSlot));
}

void
blob_gc_holders_shmem_request(void)
{
	RequestAddinShmemSpace(slots_bytes());
}

void
blob_gc_holders_shmem_init(void)
{
	bool		found;

	slots = ShmemInitStruct("blobext holders", slots_bytes(), &found);
	if (found)
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u64(&slots[i].cursors, 0);
		pg_atomic_init_u64(&slots[i].procedure, 0);
		pg_atomic_init_u32(&slots[i].cursor_events, 0);
	}
}

int
blob_gc_holder_slot(VirtualTransactionId transaction)
{
	return blob_backend_of_transaction(transaction);
}

int
blob_gc_holder_own_slot(void)
{
	return blob_own_backend();
}

static BlobGcHolder
unpack(uint64 word)
{
	BlobGcHolder holder = {
		.first = (LocalTransactionId) (word >> 32),
		.last = (LocalTransactionId) word
	};

	return holder;
}

BlobGcHolderState
blob_gc_holder_state(int slot)
{
	BlobGcHolderState state;

	/* Events first: a change that is missed shows up as an event later. */
	state.cursor_events = pg_atomic_read_u32(&slots[slot].cursor_events);
	pg_read_barrier();
	state.cursors = unpack(pg_atomic_read_u64(&slots[slot].cursors));
	state.procedure = unpack(pg_atomic_read_u64(&slots[slot].procedure));
	return state;
}

bool
blob_gc_holder_backend(int slot, Oid *database, int *pid)
{
	PGPROC	   *process = blob_backend_process(slot);

	if (process == NULL)
		return false;
	*database = process->databaseId;
	*pid = process->pid;
	return process->pid != 0;
}

/*
 * A prepared transaction has a copy of the virtual transaction id that its backend had, which the
 * backend itself has not any more.
 */
bool
blob_gc_transaction_runs(VirtualTransactionId transaction, int *pid)
{
	PGPROC	   *process = blob_backend_process(blob_gc_holder_slot(transaction));

	if (process == NULL ||
		blob_local_transaction(process) != transaction.localTransactionId ||
		(process->statusFlags & PROC_IN_VACUUM) != 0)
		return false;
	*pid = process->pid;
	return true;
}

/* ---- this backend ---- */

static void
clear_at_exit(int code, Datum arg)
{
	pg_atomic_write_u64(&own_slot->cursors, 0);
	pg_atomic_write_u64(&own_slot->procedure, 0);
	own_slot = NULL;
}

static void
use_slot(void)
{
	if (own_slot != NULL)
		return;
	own_slot = &slots[blob_gc_holder_own_slot()];
	on_shmem_exit(clear_at_exit, (Datum) 0);
}

static void
write_word(pg_atomic_uint64 *word, BlobGcHolder holder)
{
	pg_atomic_write_u64(word, (uint64) holder.first << 32 | holder.last);
	pg_memory_barrier();		/* before anything is read that could be carried */
}

/* The cursor is there, and would survive its transaction. */
static bool
is_held(const HeldCursor *cursor)
{
	Portal		portal = GetPortalByName(cursor->name);

	return PortalIsValid(portal) && (portal->cursorOptions & CURSOR_OPT_HOLD) != 0;
}

/*
 * Forget cursors that are gone and register the others; is_commit: those of the current transaction
 * begin to be held.  Runs in transaction callbacks: cannot fail, allocates nothing.
 */
static void
register_cursors(bool is_commit)
{
	BlobGcHolder registered = {InvalidLocalTransactionId, InvalidLocalTransactionId};
	int			kept = 0;

	if (own_slot == NULL || cursor_count == 0)
		return;
	for (int i = 0; i < cursor_count; i++)
	{
		HeldCursor	cursor = cursors[i];

		if (!is_held(&cursor))
			continue;
		if (is_commit && !LocalTransactionIdIsValid(cursor.transaction))
		{
			cursor.transaction = blob_local_transaction(MyProc);
			pg_atomic_fetch_add_u32(&own_slot->cursor_events, 1);
		}
		cursors[kept++] = cursor;
		if (!LocalTransactionIdIsValid(cursor.transaction))
			continue;
		if (!LocalTransactionIdIsValid(registered.first))
			registered.first = registered.last = cursor.transaction;
		if ((int32) (cursor.transaction - registered.first) < 0)
			registered.first = cursor.transaction;
		if ((int32) (cursor.transaction - registered.last) > 0)
			registered.last = cursor.transaction;
	}
	cursor_count = kept;
	write_word(&own_slot->cursors, registered);
}

/*
 * Nothing of a procedure that has ended outlives its transaction but tables and held cursors.  One
 * that still runs is in the middle of its own COMMIT or ROLLBACK.
 */
static void
forget_procedure(void)
{
	BlobGcHolder nothing = {InvalidLocalTransactionId, InvalidLocalTransactionId};

	if (own_slot != NULL && procedure_depth == 0)
		write_word(&own_slot->procedure, nothing);
}

static pg_attribute_hot void
at_transaction_event(XactEvent event, void *arg)
{
	register_cursors(event == XACT_EVENT_PRE_COMMIT);
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		forget_procedure();
}

/* Remember the name of a cursor that is about to be declared. */
static void
note_cursor(const char *name)
{
	use_slot();
	register_cursors(false);		/* makes room, and forgets a former one of that name */
	if (cursors == NULL)
		cursors = MemoryContextAlloc(TopMemoryContext,
									 sizeof(HeldCursor) * (cursor_room = 16));
	else if (cursor_count == cursor_room)
	{
		cursors = repalloc(cursors, sizeof(HeldCursor) * cursor_room * 2);
		cursor_room *= 2;
	}
	strlcpy(cursors[cursor_count].name, name, NAMEDATALEN);
	cursors[cursor_count].transaction = InvalidLocalTransactionId;
	cursor_count++;
}

/* Can this statement commit while it runs?  The rule is that of standard_ProcessUtility(). */
static bool
may_commit(const Node *statement, ProcessUtilityContext context)
{
	return (IsA(statement, CallStmt) || IsA(statement, DoStmt)) &&
		(context == PROCESS_UTILITY_TOPLEVEL || context == PROCESS_UTILITY_QUERY_NONATOMIC) &&
		!IsTransactionBlock();
}

static void
begin_procedure(void)
{
	LocalTransactionId transaction = blob_local_transaction(MyProc);
	BlobGcHolder holder = {transaction, transaction};

	use_slot();
	if (procedure_depth++ == 0 && pg_atomic_read_u64(&own_slot->procedure) == 0)
		write_word(&own_slot->procedure, holder);
}

void
blob_gc_holders_carry_nothing(void)
{
	LocalTransactionId transaction = blob_local_transaction(MyProc);
	BlobGcHolder holder = {transaction, transaction};

	if (procedure_depth == 1)
		write_word(&own_slot->procedure, holder);
}

/* If its last COMMIT or ROLLBACK failed, there may be no transaction any more that will end. */
static void
end_procedure(void)
{
	if (--procedure_depth == 0 && !IsTransactionOrTransactionBlock())
		forget_procedure();
}

void
blob_gc_holders_statement_begin(BlobGcHolderStatement *state, const PlannedStmt *pstmt,
								ProcessUtilityContext context)
{
	const Node *statement = pstmt->utilityStmt;

	if (may_commit(statement, context))
	{
		begin_procedure();
		state->is_procedure = true;
	}
	else if (IsA(statement, DeclareCursorStmt) &&
			 (((const DeclareCursorStmt *) statement)->options & CURSOR_OPT_HOLD) != 0)
		note_cursor(((const DeclareCursorStmt *) statement)->portalname);
}

void
blob_gc_holders_statement_end(BlobGcHolderStatement *state)
{
	if (state->is_procedure)
		end_procedure();
}

void
blob_gc_holders_statement_done(const BlobGcHolderStatement *state)
{
	if (!state->is_procedure)
		register_cursors(false);
}

void
blob_gc_holders_register(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}
