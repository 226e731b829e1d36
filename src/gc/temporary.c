/*
 * gc/temporary.c
 *	  Temporary tables of other sessions: question and answer, see gc/temporary.h.
 *
 * Each backend has a slot in shared memory: a round writes questions there, the backend its
 * answers.  The extents that it tells are bits in dynamic shared memory of the round, which asks one
 * owner after the other.  The signal for those that are behind with invalidation messages makes an
 * idle process begin and commit a transaction; in the callback before that commit it answers.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "core/attempt.h"
#include "core/catalog.h"
#include "core/catalog_scan.h"
#include "core/clock.h"
#include "core/compat.h"
#include "gc/blank.h"
#include "gc/constants.h"
#include "gc/holders.h"
#include "gc/methods.h"
#include "gc/notes.h"
#include "gc/since.h"
#include "gc/temporary.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "storage/shmem.h"
#include "storage/sinval.h"
#include "store/map.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

/* How long an owner has before it gets the signal once more. */
#define QUESTION_INTERVAL_MS 1000

/* An owner waits so long for a lock on a catalog. */
#define ANSWER_LOCK_TIMEOUT_MS 1000

typedef enum Answer
{
	ANSWER_TOLD = 1,			/* bits are set for all extents */
	ANSWER_LARGE,				/* more than BLOB_GC_ANSWER_PAGES */
	ANSWER_FAILED				/* not known; there is a line in the log */
} Answer;

typedef struct OwnerSlot
{
	pg_atomic_uint32 memory;	/* dsm_handle of the question: an AnswerMemory */
	pg_atomic_uint32 question;	/* behind it; written by the round */
	pg_atomic_uint64 answer;	/* the question, and an Answer; written by the owner */
} OwnerSlot;

/* In dynamic shared memory.  The magic tells it from memory of others with a handle used again. */
#define ANSWER_MAGIC UINT64CONST(0xB10BE5770A45E12D)

typedef struct AnswerMemory
{
	uint64		magic;
	uint32		question;		/* the owner that has it may write; 0: none */
	bool		dry_run;		/* nothing is pruned */
	BlobPageNo	end_page;
	uint8		bits[FLEXIBLE_ARRAY_MEMBER];	/* of pages below end_page, as in BlobGcMarks */
} AnswerMemory;

/* The side of a round. */
typedef struct BlobGcTold
{
	dsm_segment *segment;
	AnswerMemory *memory;
	uint32	   *questions;		/* by the number of the process; 0: not asked since the last L */
} BlobGcTold;

static OwnerSlot *slots;

/* ---- shared memory ---- */

static Size
slots_bytes(void)
{
	return mul_size(blob_gc_holder_slot_count(), sizeof(OwnerSlot));
}

void
blob_gc_temporary_shmem_request(void)
{
	RequestAddinShmemSpace(slots_bytes());
}

void
blob_gc_temporary_shmem_init(void)
{
	bool		found;

	slots = ShmemInitStruct("blobext temporary tables", slots_bytes(), &found);
	if (found)
		return;
	for (int i = 0; i < blob_gc_holder_slot_count(); i++)
	{
		pg_atomic_init_u32(&slots[i].memory, DSM_HANDLE_INVALID);
		pg_atomic_init_u32(&slots[i].question, 0);
		pg_atomic_init_u64(&slots[i].answer, 0);
	}
}

/* ---- the owner ---- */

/* Relations of the temporary schema of this process that may have rows or keys. */
static List *
list_relations(Oid schema)
{
	BlobCatalogScan scan = blob_catalog_scan(RelationRelationId, NULL);
	HeapTuple	tuple;
	List	   *relids = NIL;

	while ((tuple = blob_catalog_scan_next(&scan)) != NULL)
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		if (class->relnamespace == schema &&
			(class->relkind == RELKIND_RELATION || class->relkind == RELKIND_INDEX))
			relids = lappend_oid(relids, class->oid);
	}
	return relids;
}

static void
refuse(Relation relation, const char *problem)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("temporary relation \"%s\" %s", RelationGetRelationName(relation),
						   problem)));
}

/* False: too many pages.  An index of one page has no key, and its first page may be in no buffer. */
static bool
mark_opened(BlobGcRound *round)
{
	Relation	relation = round->relation;

	Assert(RelationUsesLocalBuffers(relation) && !RELATION_IS_OTHER_TEMP(relation));
	(void) blob_gc_list_columns(round);
	if (round->column_count == 0)
		return true;
	if (relation->rd_rel->relkind == RELKIND_INDEX)
	{
		if (relation->rd_rel->relam != BTREE_AM_OID)
			refuse(relation, "is of an access method that the collector does not know");
		return RelationGetNumberOfBlocks(relation) <= 1 || blob_gc_mark_btree(round);
	}
	if (!blob_gc_is_heap(relation->rd_tableam))
		refuse(relation, "is not read and written by the functions of heap alone");
	return blob_gc_mark_heap(round);
}

/* A table that is gone was dropped by another session: this one cannot read it any more. */
static bool
mark_relation(BlobGcRound *round, Oid relid)
{
	BlobGcRoot	root = {.relid = relid};
	bool		is_done;

	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("temporary relation %u is locked by another process", relid)));
	round->relation = try_relation_open(relid, NoLock);
	if (round->relation == NULL)
	{
		UnlockRelationOid(relid, AccessShareLock);
		return true;
	}
	round->root = &root;
	is_done = mark_opened(round);
	relation_close(round->relation, AccessShareLock);
	round->relation = NULL;
	return is_done;
}

/*
 * What the functions of step 8 want to know of a round.  No row counts as kept: both kinds of bits
 * are the same.
 */
static void
prepare_marking(BlobGcRound *round, BlobGcResult *result, AnswerMemory *memory)
{
	memset(round, 0, sizeof(*round));
	memset(result, 0, sizeof(*result));
	round->is_answer = true;
	round->result = result;
	round->options.dry_run = memory->dry_run;
	round->context = AllocSetContextCreate(CurrentMemoryContext, "blobext temporary tables",
										   ALLOCSET_DEFAULT_SIZES);
	round->row_context = AllocSetContextCreate(round->context, "blobext temporary row",
											   ALLOCSET_DEFAULT_SIZES);
	round->blob_type = blob_catalog_type();
	blob_catalog_require(round->blob_type, "type blobstate");
	round->marks.end_page = memory->end_page;
	round->marks.bits = round->marks.kept_bits = memory->bits;
	blob_gc_notes_use_none(round);
}

static Answer
mark_own_tables(AnswerMemory *memory, Oid schema)
{
	BlobGcRound round;
	BlobGcResult result;
	MemoryContext old_context;
	ListCell   *cell;
	bool		is_done = true;

	prepare_marking(&round, &result, memory);
	old_context = MemoryContextSwitchTo(round.context);
	/* For TOAST, and so that the horizon of pruning is known. */
	round.snapshot = RegisterSnapshot(GetCatalogSnapshot(InvalidOid));
	foreach(cell, list_relations(schema))
	{
		is_done = is_done && mark_relation(&round, lfirst_oid(cell));
	}
	UnregisterSnapshot(round.snapshot);
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(round.context);
	return is_done ? ANSWER_TOLD : ANSWER_LARGE;
}

typedef struct Telling
{
	dsm_handle	handle;
	uint32		question;
	Oid			schema;
	Answer		answer;
} Telling;

/* A BlobAttemptStep.  If the round has ended, nobody looks at the answer. */
static void
tell(void *argument)
{
	Telling    *telling = argument;
	dsm_segment *segment = dsm_attach(telling->handle);
	AnswerMemory *memory;

	if (segment == NULL)
		return;
	memory = dsm_segment_address(segment);
	if (dsm_segment_map_length(segment) >= sizeof(AnswerMemory) &&
		memory->magic == ANSWER_MAGIC && memory->question == telling->question)
		telling->answer = mark_own_tables(memory, telling->schema);
	dsm_detach(segment);
}

/*
 * Whatever fails is an answer, and nothing that this transaction has set stays: the flag that it has
 * looked at a temporary table would truncate tables at its commit.
 */
static void
try_to_tell(Telling *telling)
{
	int			old_flags = MyXactFlags;
	int			old_lock_timeout = LockTimeout;
	ErrorData  *error;

	blob_stop_transaction_timeout();
	if (LockTimeout == 0 || LockTimeout > ANSWER_LOCK_TIMEOUT_MS)
		LockTimeout = ANSWER_LOCK_TIMEOUT_MS;
	error = blob_attempt(tell, telling);
	LockTimeout = old_lock_timeout;
	MyXactFlags = old_flags;
	Assert(!TransactionIdIsValid(GetTopTransactionIdIfAny()));
	if (error == NULL)
		return;
	telling->answer = ANSWER_FAILED;
	ereport(LOG_SERVER_ONLY,
			(errcode(error->sqlerrcode),
			 errmsg("blobext: temporary tables could not be read for the collector: %s",
					error->message)));
	FreeErrorData(error);
}

static OwnerSlot *
own_slot(void)
{
	return &slots[blob_gc_holder_own_slot()];
}

/* The moment E, see README.md.  Constants may be from tables that were emptied since. */
static void
answer(OwnerSlot *slot, uint32 question)
{
	Telling		telling = {.question = question, .answer = ANSWER_FAILED};
	Oid			toast_schema;

	pg_read_barrier();
	telling.handle = pg_atomic_read_u32(&slot->memory);
	GetTempNamespaceState(&telling.schema, &toast_schema);
	if (!OidIsValid(telling.schema))
		telling.answer = ANSWER_TOLD;
	else
	{
		blob_gc_constants_give_up_own();
		try_to_tell(&telling);
	}
	pg_memory_barrier();		/* the answer comes behind the bits */
	pg_atomic_write_u64(&slot->answer, (uint64) question << 32 | telling.answer);
}

/*
 * A process that is asked while it is busy looks for messages again before its next command.  One
 * that has begun this transaction for messages alone does not, else it would do so without end.
 */
static pg_attribute_hot void
at_transaction_event(XactEvent event, void *arg)
{
	OwnerSlot  *slot;
	uint32		question;

	if (MyBackendType != B_BACKEND)
		return;
	slot = own_slot();
	question = pg_atomic_read_u32(&slot->question);
	if (question == (uint32) (pg_atomic_read_u64(&slot->answer) >> 32))
		return;
	if (event == XACT_EVENT_PRE_COMMIT && blob_gc_blank_is_idle())
		answer(slot, question);
	else if ((event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
			  event == XACT_EVENT_PREPARE) && blob_gc_blank_has_seen_something())
		catchupInterruptPending = true;
}

void
blob_gc_temporary_register(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}

/* ---- the round ---- */

/* Pages that are reserved later are allocated after the cutoff. */
static BlobGcTold *
make_told(BlobGcRound *round)
{
	BlobGcTold *told = MemoryContextAllocZero(round->context, sizeof(BlobGcTold));
	BlobMapMeta meta;
	Size		bytes;

	blob_map_read_meta(round->store.map, &meta);
	bytes = add_size(offsetof(AnswerMemory, bits), meta.reserved_pages / 8 + 1);
	told->segment = dsm_create(bytes, 0);
	told->memory = dsm_segment_address(told->segment);
	memset(told->memory, 0, bytes);
	told->memory->magic = ANSWER_MAGIC;
	told->memory->dry_run = round->options.dry_run;
	told->memory->end_page = meta.reserved_pages;
	told->questions = MemoryContextAlloc(round->context,
										 sizeof(uint32) * blob_gc_holder_slot_count());
	return told;
}

static bool
has_ended(const BlobGcTemporary *temporary)
{
	Oid			database;
	int			pid;

	return !blob_gc_holder_backend(temporary->owner, &database, &pid) || pid != temporary->pid;
}

/* 0: it has not answered the question of this round, or was not asked. */
static Answer
answer_of(const BlobGcTold *told, const BlobGcTemporary *temporary)
{
	uint64		answer = pg_atomic_read_u64(&slots[temporary->owner].answer);
	uint32		question = told->questions[temporary->owner];

	return question != 0 && answer >> 32 == question ? (Answer) (uint32) answer : 0;
}

/* One question at a time: the owner alone writes to the memory. */
static void
send_question(BlobGcTold *told, const BlobGcTemporary *temporary)
{
	OwnerSlot  *slot = &slots[temporary->owner];
	uint32		question = blob_gc_blank_new_question();

	told->memory->question = told->questions[temporary->owner] = question;
	pg_atomic_write_u32(&slot->memory, dsm_segment_handle(told->segment));
	pg_memory_barrier();
	pg_atomic_write_u32(&slot->question, question);
	pg_memory_barrier();
}

/* Not again and again: the process of a client that is busy would look for messages all the time. */
static void
wake_up(const BlobGcTemporary *temporary, TimestampTz *next)
{
	TimestampTz now = GetCurrentTimestamp();

	if (blob_clock_is_before(now, *next, QUESTION_INTERVAL_MS))
		return;
	*next = TimestampTzPlusMilliseconds(now, QUESTION_INTERVAL_MS);
	SendProcSignal(temporary->pid, PROCSIG_CATCHUP_INTERRUPT,
				   blob_backend_signal_slot(temporary->owner));
}

/* False, with a reason noted: the owner does not answer. */
static bool
wait_for_answer(BlobGcRound *round, const BlobGcTemporary *temporary)
{
	BlobGcWait	wait;
	TimestampTz next = 0;
	char	   *since = NULL;

	blob_gc_wait_begin(&wait);
	for (;;)
	{
		wake_up(temporary, &next);
		if (answer_of(round->told, temporary) != 0 || has_ended(temporary))
			break;
		if (since == NULL)
			since = blob_gc_since(temporary->pid, false);
		if (!blob_gc_wait_more(round, &wait,
							   "process %d is too busy to tell what its temporary table %s holds%s",
							   temporary->pid, temporary->name, since))
			return false;
	}
	blob_gc_status_waiting(NULL);
	pg_memory_barrier();		/* the bits come before the answer */
	return true;
}

static bool
ask_owner(BlobGcRound *round, const BlobGcTemporary *temporary)
{
	int			pid = temporary->pid;

	if (answer_of(round->told, temporary) == ANSWER_TOLD)
		return true;
	send_question(round->told, temporary);
	if (!wait_for_answer(round, temporary))
		return false;
	switch (answer_of(round->told, temporary))
	{
		case ANSWER_LARGE:
			return blob_gc_skip(round, "process %d has more than %d MB of temporary tables that "
								"can hold values%s", pid,
								(int) (BLOB_GC_ANSWER_PAGES / (1024 * 1024 / BLCKSZ)),
								blob_gc_since(pid, true));
		case ANSWER_FAILED:
			return blob_gc_skip(round, "process %d could not read its temporary tables, for a "
								"reason that is in the log of the server%s", pid,
								blob_gc_since(pid, true));
		case ANSWER_TOLD:
			break;
	}
	return true;				/* or it has ended */
}

bool
blob_gc_ask_owners(BlobGcRound *round)
{
	const BlobGcRoots *roots = round->roots;

	if (roots->temporary_count > 0 && round->told == NULL)
		round->told = make_told(round);
	if (round->told != NULL)
		memset(round->told->questions, 0, sizeof(uint32) * blob_gc_holder_slot_count());
	for (int i = 0; i < roots->temporary_count; i++)
	{
		if (!ask_owner(round, &roots->temporary[i]))
			return false;
	}
	return true;
}

bool
blob_gc_owners_have_answered(const BlobGcRound *round, const BlobGcRoots *roots)
{
	for (int i = 0; i < roots->temporary_count; i++)
	{
		if (round->told == NULL || answer_of(round->told, &roots->temporary[i]) != ANSWER_TOLD)
			return false;
	}
	return true;
}

void
blob_gc_told_mark(BlobGcRound *round)
{
	BlobGcMarks *marks = &round->marks;
	const AnswerMemory *memory;

	if (round->told == NULL)
		return;
	memory = round->told->memory;
	Assert(marks->first_page % 8 == 0);
	for (BlobPageNo page = marks->first_page; page < Min(marks->end_page, memory->end_page);
		 page += 8)
		marks->bits[(page - marks->first_page) / 8] |= memory->bits[page / 8];
}

/* An owner that is late does not find the memory, or finds that it has no question. */
void
blob_gc_told_end(BlobGcRound *round)
{
	if (round->told == NULL)
		return;
	round->told->memory->question = 0;
	dsm_detach(round->told->segment);
	round->told = NULL;
}

#ifdef USE_ASSERT_CHECKING
void
blob_gc_temporary_assert_answered(const BlobGcRound *round)
{
	for (int i = 0; i < round->roots->temporary_count; i++)
	{
		const BlobGcTemporary *temporary = &round->roots->temporary[i];
		uint32		question = round->told->questions[temporary->owner];

		if (has_ended(temporary))
			continue;
		Assert((int32) (question - round->last_moment) > 0);
		Assert(answer_of(round->told, temporary) == ANSWER_TOLD);
	}
}
#endif
