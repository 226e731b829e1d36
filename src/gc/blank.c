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
#include "common/pg_prng.h"
#include "core/compat.h"
#include "gc/blank.h"
#include "gc/constants.h"
#include "gc/holders.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "port/atomics.h"
#include "replication/walsender.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "storage/sinval.h"
#include "storage/sinvaladt.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/*
 * The hash value of a message about pg_constraint behind which another one has the question: that
 * of OID 9999 (murmurhash32()).  OIDs below 10,000 are assigned by hand, and no constraint has this
 * one.
 */
#define QUESTION_MARK 0xD20B0FA7

typedef struct BlankSlot
{
	pg_atomic_uint32 looks_blank;	/* the local id of a transaction */
	pg_atomic_uint64 answer;	/* the local id of a transaction, and the question */
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
	pg_atomic_init_u32(&shared->last_question, pg_prng_uint32(&pg_global_prng_state));
	for (int i = 0; i < blob_gc_holder_slot_count(); i++)
	{
		pg_atomic_init_u32(&shared->slots[i].looks_blank, InvalidLocalTransactionId);
		pg_atomic_init_u64(&shared->slots[i].answer, 0);
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

/* A snapshot of the catalogs may be left from messages about them: it goes first. */
bool
blob_gc_blank_is_idle(void)
{
	if (MyBackendType != B_BACKEND || am_walsender || debug_query_string != NULL ||
		ActivePortal != NULL || IsTransactionBlock())
		return false;
	InvalidateCatalogSnapshot();
	return has_seen_nothing() && !TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		GetCurrentTransactionNestLevel() == 1 && !has_holder();
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
	state->begun = begun;
	begun = InvalidLocalTransactionId;
	state->leaves_blank = leaves_blank(pstmt->utilityStmt, context);
	state->is_begin = IsA(pstmt->utilityStmt, TransactionStmt);
	if (!state->leaves_blank)
		spoilt = blob_local_transaction(MyProc);
}

/* A statement may have ended its transaction and begun another one, to which it leaves values. */
void
blob_gc_blank_statement_done(const BlobGcBlankStatement *state)
{
	LocalTransactionId transaction = blob_local_transaction(MyProc);

	if (!state->leaves_blank)
		spoilt = transaction;
	else if (!state->is_begin)
		begun = state->begun;
	else if (IsTransactionBlock() && transaction != spoilt)
		begun = transaction;
	if (begun == transaction && LocalTransactionIdIsValid(transaction))
		pg_atomic_write_u32(&own_slot()->looks_blank, transaction);
}

/*
 * The messages before the question have been received.  A transaction that has seen something is
 * not asked again.
 */
static void
answer(uint32 question)
{
	uint64		transaction = blob_local_transaction(MyProc);

	if (is_blank())
		pg_atomic_write_u64(&own_slot()->answer, transaction << 32 | question);
	else if (FirstSnapshotSet || (LocalTransactionId) transaction == spoilt)
		pg_atomic_write_u32(&own_slot()->looks_blank, InvalidLocalTransactionId);
}

/* A hash value of 0 says that messages were lost, maybe the question. */
static void
receive(Datum arg, int cache_id, uint32 hash_value)
{
	bool		asks = is_question && hash_value != 0;

	is_question = hash_value == QUESTION_MARK;
	if (asks)
		answer(hash_value);
}

void
blob_gc_blank_register(void)
{
	CacheRegisterSyscacheCallback(CONSTROID, receive, (Datum) 0);
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
	while (question == 0 || question == QUESTION_MARK ||
		   question == BLOB_GC_FIRST_CONSTANTS_MARK || question == BLOB_GC_LAST_CONSTANTS_MARK);
	return question;
}

bool
blob_gc_blank_answered(uint32 question, VirtualTransactionId transaction)
{
	BlankSlot  *slot = &shared->slots[blob_gc_holder_slot(transaction)];
	uint64		expected = (uint64) transaction.localTransactionId << 32 | question;

	return pg_atomic_read_u64(&slot->answer) == expected;
}

/* A process that has an xmin is in a query, or was. */
static bool
is_to_be_asked(uint32 question, VirtualTransactionId transaction, int *pid)
{
	BlankSlot  *slot = &shared->slots[blob_gc_holder_slot(transaction)];

	return pg_atomic_read_u32(&slot->looks_blank) == transaction.localTransactionId &&
		!blob_gc_blank_answered(question, transaction) &&
		blob_gc_transaction_runs(transaction, pid) &&
		!TransactionIdIsValid(blob_backend_process(blob_gc_holder_slot(transaction))->xmin);
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
		SendProcSignal(pid, PROCSIG_CATCHUP_INTERRUPT, blob_signal_slot(transactions[i]));
	}
}
