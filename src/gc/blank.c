/*
 * gc/blank.c
 *	  Transactions that have run nothing since BEGIN, see gc/blank.h.
 *
 * Each backend has a slot in shared memory, which it alone writes: the transaction that looks
 * blank, a hint which one to ask, and the last answer. A question comes as an invalidation
 * message, because the answer says that all messages before it have been received, too. One that
 * is idle in its transaction receives messages when it gets the signal for those that are behind
 * with them.
 */
#include "postgres.h"

#include "access/xact.h"
#include "core/compat.h"
#include "gc/blank.h"
#include "gc/holders.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "port/atomics.h"
#include "replication/walsender.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "storage/sinval.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* The hash value of a message about pg_constraint behind which another one has the question. */
#define QUESTION_MARK 0xB10BE573

typedef struct BlankSlot
{
	pg_atomic_uint32 looks_blank;	/* the local id of a transaction */
	pg_atomic_uint64 answer;	/* the local id of a transaction, and the question */
	pg_atomic_uint64 idle;		/* how many transactions had run anything, and the question */
} BlankSlot;

typedef struct BlankShared
{
	pg_atomic_uint32 last_question;
	BlankSlot	slots[FLEXIBLE_ARRAY_MEMBER];
} BlankShared;

static BlankShared *shared;

/* Local ids of this backend's transactions: one that BEGIN left blank; one that can be no more. */
static LocalTransactionId begun = InvalidLocalTransactionId;
static LocalTransactionId spoilt = InvalidLocalTransactionId;

/* Transactions of this backend that took a snapshot, and utility statements. */
static uint32 uses;

/* Utility statements that are under way, some of which have several transactions. */
static int	statement_depth;

/* The next message is a question. */
static bool is_question;

/* ---- shared memory ---- */

static Size
shared_bytes(void)
{
	return add_size(offsetof(BlankShared, slots),
					mul_size(blob_gc_holder_slot_count(), sizeof(BlankSlot)));
}

void
blob_gc_blank_shmem_request(void)
{
	RequestAddinShmemSpace(shared_bytes());
}

void
blob_gc_blank_shmem_init(void)
{
	bool		found;

	shared = ShmemInitStruct("blobext blank transactions", shared_bytes(), &found);
	if (found)
		return;
	pg_atomic_init_u32(&shared->last_question, 0);
	for (int i = 0; i < blob_gc_holder_slot_count(); i++)
	{
		pg_atomic_init_u32(&shared->slots[i].looks_blank, InvalidLocalTransactionId);
		pg_atomic_init_u64(&shared->slots[i].answer, 0);
		pg_atomic_init_u64(&shared->slots[i].idle, 0);
	}
}

/* ---- this backend ---- */

static BlankSlot *
own_slot(void)
{
	return &shared->slots[blob_gc_holder_own_slot()];
}

/*
 * PostgreSQL takes the first snapshot of a transaction before anything of it can read a value, and
 * remembers that until its end.  A snapshot of the catalogs goes when a message is received.
 */
static bool
has_seen_nothing(void)
{
	return !FirstSnapshotSet && !HaveRegisteredOrActiveSnapshot() &&
		!TransactionIdIsValid(MyProc->xmin);
}

static bool
has_holder(void)
{
	BlobGcHolderState state = blob_gc_holder_state(blob_gc_holder_own_slot());

	return LocalTransactionIdIsValid(state.cursors.first) ||
		LocalTransactionIdIsValid(state.procedure.first);
}

/* Could this transaction as well begin now? */
static bool
is_blank(void)
{
	LocalTransactionId transaction = blob_local_transaction(MyProc);

	return LocalTransactionIdIsValid(transaction) && transaction == begun &&
		transaction != spoilt && has_seen_nothing() &&
		!TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		GetCurrentTransactionNestLevel() == 1 && !has_holder() && !am_walsender;
}

static bool
leaves_blank(const Node *statement, ProcessUtilityContext context)
{
	if (context != PROCESS_UTILITY_TOPLEVEL)
		return false;
	switch (nodeTag(statement))
	{
		case T_TransactionStmt:
			return ((const TransactionStmt *) statement)->kind == TRANS_STMT_BEGIN ||
				((const TransactionStmt *) statement)->kind == TRANS_STMT_START;
		case T_VariableSetStmt:
		case T_VariableShowStmt:
			return true;
		default:
			return false;
	}
}

/* Also before the part of a string or pipeline that comes before its BEGIN. */
void
blob_gc_blank_statement_begin(BlobGcBlankStatement *state, const PlannedStmt *pstmt,
							  ProcessUtilityContext context)
{
	begun = InvalidLocalTransactionId;
	uses++;
	statement_depth++;
	state->has_begun = true;
	state->leaves_blank = leaves_blank(pstmt->utilityStmt, context);
	if (!state->leaves_blank)
		spoilt = blob_local_transaction(MyProc);
}

void
blob_gc_blank_statement_end(BlobGcBlankStatement *state)
{
	if (state->has_begun)
		statement_depth--;
}

/* A statement may have ended its transaction and begun another one, to which it leaves values. */
void
blob_gc_blank_statement_done(const BlobGcBlankStatement *state)
{
	LocalTransactionId transaction = blob_local_transaction(MyProc);

	if (!state->leaves_blank)
		spoilt = transaction;
	else if (IsTransactionBlock() && transaction != spoilt)
	{
		begun = transaction;
		pg_atomic_write_u32(&own_slot()->looks_blank, transaction);
	}
}

/*
 * The messages before the question have been received.  A transaction that is not blank never will
 * be, and is not asked again.
 */
static void
answer(uint32 question)
{
	uint64		transaction = blob_local_transaction(MyProc);

	if (is_blank())
		pg_atomic_write_u64(&own_slot()->answer, transaction << 32 | question);
	else if (LocalTransactionIdIsValid((LocalTransactionId) transaction))
		pg_atomic_write_u32(&own_slot()->looks_blank, InvalidLocalTransactionId);
}

/*
 * A transaction begins, maybe one that is for messages alone: the session has no value.  Not between
 * the transactions of a statement, and not in a process that is no client's.
 */
static void
answer_idle(uint32 question)
{
	if (MyBackendType == B_BACKEND && statement_depth == 0 && !has_holder() && !am_walsender)
		pg_atomic_write_u64(&own_slot()->idle, (uint64) uses << 32 | question);
}

/* Before the snapshot is forgotten. */
static void
at_transaction_event(XactEvent event, void *arg)
{
	if ((event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE) &&
		FirstSnapshotSet)
		uses++;
}

/* A hash value of 0 says that messages were lost, maybe the question. */
static void
receive(Datum arg, int cache_id, uint32 hash_value)
{
	bool		asks = is_question && hash_value != 0;

	is_question = hash_value == QUESTION_MARK;
	if (!asks)
		return;
	if (IsTransactionOrTransactionBlock())
		answer(hash_value);
	else
		answer_idle(hash_value);
}

void
blob_gc_blank_register(void)
{
	CacheRegisterSyscacheCallback(CONSTROID, receive, (Datum) 0);
	RegisterXactCallback(at_transaction_event, NULL);
}

#ifdef USE_ASSERT_CHECKING
void
blob_gc_blank_assert_seen(void)
{
	Assert(FirstSnapshotSet || HistoricSnapshotActive());
}
#endif

/* ---- the round ---- */

uint32
blob_gc_blank_new_question(void)
{
	uint32		question;

	do
		question = pg_atomic_fetch_add_u32(&shared->last_question, 1) + 1;
	while (question == 0 || question == QUESTION_MARK);
	return question;
}

bool
blob_gc_blank_answered(uint32 question, VirtualTransactionId transaction)
{
	BlankSlot  *slot = &shared->slots[blob_gc_holder_slot(transaction)];
	uint64		expected = (uint64) transaction.localTransactionId << 32 | question;

	return pg_atomic_read_u64(&slot->answer) == expected;
}

static bool
is_to_be_asked(uint32 question, VirtualTransactionId transaction, int *pid)
{
	BlankSlot  *slot = &shared->slots[blob_gc_holder_slot(transaction)];

	return pg_atomic_read_u32(&slot->looks_blank) == transaction.localTransactionId &&
		!blob_gc_blank_answered(question, transaction) &&
		blob_gc_transaction_runs(transaction, pid);
}

/* Both messages at once, so that no other one gets between them. */
static void
send_question(uint32 question)
{
	SharedInvalidationMessage messages[2];
	const uint32 hash_values[2] = {QUESTION_MARK, question};

	memset(messages, 0, sizeof(messages));	/* padding */
	for (int i = 0; i < 2; i++)
	{
		messages[i].cc.id = (int8) CONSTROID;
		messages[i].cc.dbId = MyDatabaseId;
		messages[i].cc.hashValue = hash_values[i];
	}
	SendSharedInvalidMessages(messages, 2);
}

/* The message comes before the signal, which is for those that are behind with messages. */
void
blob_gc_blank_ask(uint32 question, const VirtualTransactionId *transactions, int count)
{
	bool		is_sent = false;
	int			pid;

	for (int i = 0; i < count; i++)
	{
		if (!is_to_be_asked(question, transactions[i], &pid))
			continue;
		if (!is_sent)
			send_question(question);
		is_sent = true;
		SendProcSignal(pid, PROCSIG_CATCHUP_INTERRUPT,
					   blob_signal_slot(blob_gc_holder_slot(transactions[i])));
	}
}

bool
blob_gc_idle_answered(uint32 question, int backend, uint32 *answered_uses)
{
	uint64		answered = pg_atomic_read_u64(&shared->slots[backend].idle);

	*answered_uses = (uint32) (answered >> 32);
	return (uint32) answered == question;
}

void
blob_gc_idle_ask(uint32 question, const int *backends, int count)
{
	send_question(question);
	for (int i = 0; i < count; i++)
	{
		Oid			database;
		int			pid;

		if (blob_gc_holder_backend(backends[i], &database, &pid) && database == MyDatabaseId)
			SendProcSignal(pid, PROCSIG_CATCHUP_INTERRUPT, blob_signal_slot(backends[i]));
	}
}
