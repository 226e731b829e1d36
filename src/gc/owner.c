/*
 * gc/owner.c
 *	  The owner of temporary tables tells a round what they refer to, see gc/temporary.h.
 *
 * The signal for processes that are behind with invalidation messages makes an idle one begin and
 * commit a transaction.  In the callback before that commit it reads its tables, and answers.
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
#include "core/compat.h"
#include "gc/blank.h"
#include "gc/constants.h"
#include "gc/methods.h"
#include "gc/notes.h"
#include "gc/temporary.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/sinval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

/* An owner waits so long for a lock on a catalog. */
#define ANSWER_LOCK_TIMEOUT_MS 1000

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
			(class->relkind == RELKIND_RELATION || class->relkind == RELKIND_MATVIEW ||
			 class->relkind == RELKIND_INDEX))
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

/* False: too many pages.  An index of one page has no key, and that page may be in no buffer. */
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

static Oid
table_of(Relation relation)
{
	return relation->rd_index != NULL ? relation->rd_index->indrelid : RelationGetRelid(relation);
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
	round->refers = false;
	is_done = mark_opened(round);
	if (round->refers)
		blob_gc_referring_add(&round->result->referring, table_of(round->relation));
	relation_close(round->relation, AccessShareLock);
	round->relation = NULL;
	return is_done;
}

/*
 * What the functions of step 8 want to know of a round.  No row counts as kept: both kinds of bits
 * are the same.
 */
static void
prepare_marking(BlobGcRound *round, BlobGcResult *result, BlobGcAnswerMemory *memory)
{
	memset(round, 0, sizeof(*round));
	memset(result, 0, sizeof(*result));
	round->asked = &memory->question;
	round->question = memory->question;
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

/* Mark all of them for the round that this memory is of. */
static BlobGcAnswer
mark_own_tables(BlobGcAnswerMemory *memory, Oid schema)
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
	blob_gc_referring_add_all(&memory->referring, &result.referring);
	UnregisterSnapshot(round.snapshot);
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(round.context);
	return is_done ? BLOB_GC_TOLD : BLOB_GC_LARGE;
}

typedef struct Telling
{
	dsm_handle	handle;
	uint32		question;
	Oid			schema;
	BlobGcAnswer answer;
} Telling;

static bool
is_for_this_process(dsm_segment *segment, uint32 question)
{
	const BlobGcAnswerMemory *memory = dsm_segment_address(segment);

	return dsm_segment_map_length(segment) >= sizeof(BlobGcAnswerMemory) &&
		memory->magic == BLOB_GC_ANSWER_MAGIC && memory->question == question &&
		memory->pid == MyProcPid;
}

/* A BlobAttemptStep.  If the round has ended, no process looks at the answer. */
static void
tell(void *argument)
{
	Telling    *telling = argument;
	dsm_segment *segment;

	/* A damaged page would pass for one without references. */
	if (zero_damaged_pages)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("zero_damaged_pages is on")));
	segment = dsm_attach(telling->handle);
	if (segment == NULL)
		return;
	if (is_for_this_process(segment, telling->question))
		telling->answer = mark_own_tables(dsm_segment_address(segment), telling->schema);
	dsm_detach(segment);
	CHECK_FOR_INTERRUPTS();		/* a timeout of these locks is no error of the next command */
}

/*
 * An error is an answer, and none of the client's session.  The process is reading a command, and
 * keeps cancels back: here they would leave a wait for a lock without an end, and an error would
 * forget that they are kept back.  Nothing that this transaction has set stays: the flag that it
 * has looked at a temporary table would truncate tables at its commit.
 */
static ErrorData *
attempt_to_tell(Telling *telling)
{
	int			old_flags = MyXactFlags;
	int			old_lock_timeout = LockTimeout;
	uint32		old_holdoff = InterruptHoldoffCount;
	uint32		old_cancel_holdoff = QueryCancelHoldoffCount;
	bool		old_exit = ExitOnAnyError;
	ErrorData  *error;

	if (LockTimeout == 0 || LockTimeout > ANSWER_LOCK_TIMEOUT_MS)
		LockTimeout = ANSWER_LOCK_TIMEOUT_MS;
	QueryCancelHoldoffCount = 0;
	ExitOnAnyError = false;
	error = blob_attempt(tell, telling);
	(void) get_timeout_indicator(LOCK_TIMEOUT, true);
	ExitOnAnyError = old_exit;
	InterruptHoldoffCount = old_holdoff;
	QueryCancelHoldoffCount = old_cancel_holdoff;
	LockTimeout = old_lock_timeout;
	MyXactFlags = old_flags;
	return error;
}

static void
try_to_tell(Telling *telling)
{
	ErrorData  *error;

	blob_stop_transaction_timeout();
	error = attempt_to_tell(telling);
	Assert(!TransactionIdIsValid(GetTopTransactionIdIfAny()));
	if (error == NULL)
		return;
	telling->answer = BLOB_GC_UNKNOWN;
	ereport(LOG_SERVER_ONLY,
			(errcode(error->sqlerrcode),
			 errmsg("blobext: temporary tables could not be read for the collector: %s",
					error->message)));
	FreeErrorData(error);
}

/* The moment E, see README.md.  Constants may be from tables that were emptied since. */
static void
answer(BlobGcOwnerSlot *slot, uint32 question)
{
	Telling		telling = {.question = question, .answer = BLOB_GC_UNKNOWN};
	Oid			toast_schema;

	pg_read_barrier();
	telling.handle = pg_atomic_read_u32(&slot->memory);
	GetTempNamespaceState(&telling.schema, &toast_schema);
	if (!OidIsValid(telling.schema))
		telling.answer = BLOB_GC_TOLD;
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
 * That happens while it reads a command, when cancels are kept back.
 */
static pg_attribute_hot void
at_transaction_event(XactEvent event, void *arg)
{
	BlobGcOwnerSlot *slot;
	uint32		question;

	if (MyBackendType != B_BACKEND)
		return;
	slot = blob_gc_own_slot();
	question = pg_atomic_read_u32(&slot->question);
	if (question == (uint32) (pg_atomic_read_u64(&slot->answer) >> 32))
		return;
	if (event == XACT_EVENT_PRE_COMMIT && blob_gc_blank_is_idle())
		answer(slot, question);
	else if ((event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
			  event == XACT_EVENT_PREPARE) && QueryCancelHoldoffCount == 0)
		catchupInterruptPending = true;
}

void
blob_gc_owner_register(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}
