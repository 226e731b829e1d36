/*
 * gc/kept.c
 *	  Values that only rows keep which were deleted before the round began, and which PostgreSQL may
 *	  not remove yet: what keeps these rows.
 *
 * While a round marks, such rows are told from others, mark.c has a bit of its own for what they
 * refer to, and sweep.c counts.  In the end the keeper is found: of all that has an xmin or a
 * transaction id, what has the oldest one.  See README.md, "Rows that are kept".
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/transam.h"
#include "commands/dbcommands.h"
#include "core/compat.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "gc/gc_internal.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "replication/slot.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

bool
blob_gc_kept_is_dead(BlobGcRound *round, HeapTuple tuple, TransactionId horizon, Buffer buffer)
{
	TransactionId deleter;
	HTSV_Result state = HeapTupleSatisfiesVacuumHorizon(tuple, buffer, &deleter);

	if (state != HEAPTUPLE_RECENTLY_DEAD || TransactionIdPrecedes(deleter, horizon))
		return state == HEAPTUPLE_DEAD || state == HEAPTUPLE_RECENTLY_DEAD;
	if (!TransactionIdPrecedes(deleter, round->snapshot->xmin))
		return false;
	if (!TransactionIdIsValid(round->newest_passed) ||
		TransactionIdFollows(deleter, round->newest_passed))
		round->newest_passed = deleter;
	return true;
}

/*
 * In the order in which one is named if several are equally old: a transaction makes all snapshots
 * that are taken while it runs as old as itself.
 */
typedef enum KeeperKind
{
	KEEPER_NONE,
	KEEPER_PREPARED,
	KEEPER_TRANSACTION,
	KEEPER_SLOT,
	KEEPER_STANDBY,
	KEEPER_SNAPSHOT
} KeeperKind;

typedef struct Keeper
{
	KeeperKind	kind;
	TransactionId xid;			/* rows that were deleted by this one, or later, stay */
	int			pid;			/* of a process */
	Oid			database;		/* of a process */
	NameData	slot;
	char	   *prepared;		/* name of a prepared transaction */
} Keeper;

static void
see(Keeper *oldest, const Keeper *candidate)
{
	if (!TransactionIdIsNormal(candidate->xid))
		return;
	if (oldest->kind == KEEPER_NONE || TransactionIdPrecedes(candidate->xid, oldest->xid) ||
		(candidate->xid == oldest->xid && candidate->kind < oldest->kind))
		*oldest = *candidate;
}

/*
 * A transaction id counts whatever its database is, because each snapshot is taken with regard to
 * all of them; an xmin in this database only, but for the feedback of standbys.
 */
static void
see_process(Keeper *oldest, const PGPROC *process)
{
	Keeper		candidate = {.pid = process->pid, .database = process->databaseId};
	bool		is_feedback = (process->statusFlags & PROC_AFFECTS_ALL_HORIZONS) != 0;

	candidate.kind = KEEPER_TRANSACTION;
	candidate.xid = process->xid;
	see(oldest, &candidate);
	if ((process->statusFlags & (PROC_IN_VACUUM | PROC_IN_LOGICAL_DECODING)) != 0 ||
		(process->databaseId != MyDatabaseId && !is_feedback))
		return;
	candidate.kind = is_feedback ? KEEPER_STANDBY : KEEPER_SNAPSHOT;
	candidate.xid = process->xmin;
	see(oldest, &candidate);
}

/* Without those of prepared transactions, which say nothing of whether they are in use. */
static void
see_processes(Keeper *oldest)
{
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		const PGPROC *process = &ProcGlobal->allProcs[i];

		if (process != MyProc && process->pid != 0)
			see_process(oldest, process);
	}
	LWLockRelease(ProcArrayLock);
}

/* catalogs: rows of a table that logical decoding reads as a catalog are concerned, too. */
static void
see_slots(Keeper *oldest, bool catalogs)
{
	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < blob_slot_count(); i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];
		Keeper		candidate = {.kind = KEEPER_SLOT};
		TransactionId catalog_xmin;

		if (!slot->in_use)
			continue;
		SpinLockAcquire(&slot->mutex);
		candidate.xid = slot->effective_xmin;
		catalog_xmin = slot->effective_catalog_xmin;
		candidate.slot = slot->data.name;
		SpinLockRelease(&slot->mutex);
		see(oldest, &candidate);
		candidate.xid = catalog_xmin;
		if (catalogs)
			see(oldest, &candidate);
	}
	LWLockRelease(ReplicationSlotControlLock);
}

/* A row of pg_prepared_xacts. */
static void
see_prepared(Keeper *oldest, HeapTupleHeader row)
{
	Keeper		candidate = {.kind = KEEPER_PREPARED};
	bool		is_null;

	candidate.xid = DatumGetTransactionId(GetAttributeByNum(row, 1, &is_null));
	candidate.prepared = TextDatumGetCString(GetAttributeByNum(row, 2, &is_null));
	see(oldest, &candidate);
}

/* The server shows these by a function only, which is called here as the executor would. */
static void
see_all_prepared(Keeper *oldest)
{
	LOCAL_FCINFO(call, 0);
	ExprContext *context = CreateStandaloneExprContext();
	ReturnSetInfo result = {.type = T_ReturnSetInfo};
	FmgrInfo	function;

	fmgr_info(F_PG_PREPARED_XACT, &function);
	result.econtext = context;
	result.allowedModes = SFRM_ValuePerCall;
	result.returnMode = SFRM_ValuePerCall;
	InitFunctionCallInfoData(*call, &function, 0, InvalidOid, NULL, (Node *) &result);
	for (;;)
	{
		Datum		row;

		call->isnull = false;
		result.isDone = ExprSingleResult;
		row = FunctionCallInvoke(call);
		if (result.isDone != ExprMultipleResult)
			break;
		see_prepared(oldest, DatumGetHeapTupleHeader(row));
	}
	FreeExprContext(context, true);
}

/* A process, with its database if that is another one. */
static char *
process_name(const Keeper *keeper)
{
	char	   *database = NULL;

	if (OidIsValid(keeper->database) && keeper->database != MyDatabaseId)
		database = get_database_name(keeper->database);
	if (database == NULL)
		return psprintf("process %d", keeper->pid);
	return psprintf("process %d in database \"%s\"", keeper->pid, database);
}

/* Empty if nothing keeps the rows. */
static const char *
describe(const Keeper *keeper)
{
	switch (keeper->kind)
	{
		case KEEPER_PREPARED:
			return psprintf("prepared transaction \"%s\"", keeper->prepared);
		case KEEPER_TRANSACTION:
		case KEEPER_SNAPSHOT:
			return process_name(keeper);
		case KEEPER_SLOT:
			return psprintf("replication slot \"%s\"", NameStr(keeper->slot));
		case KEEPER_STANDBY:
			return psprintf("the standby that process %d sends to, by hot_standby_feedback",
							keeper->pid);
		case KEEPER_NONE:
			break;
	}
	return "";
}

void
blob_gc_kept_note(BlobGcRound *round, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);

	for (OffsetNumber offset = FirstOffsetNumber; offset <= PageGetMaxOffsetNumber(page); offset++)
	{
		TransactionId deleter;
		HeapTupleData tuple;

		if (!ItemIdIsNormal(PageGetItemId(page, offset)))
			continue;
		blob_gc_set_tuple(&tuple, round, buffer, offset);
		if ((tuple.t_data->t_infomask & HEAP_XMAX_INVALID) != 0 ||
			HeapTupleSatisfiesVacuumHorizon(&tuple, buffer, &deleter) != HEAPTUPLE_RECENTLY_DEAD ||
			TransactionIdPrecedes(deleter, round->horizon) ||
			XidInMVCCSnapshot(deleter, round->snapshot))
			continue;
		round->keeps[offset] = true;
		if (!TransactionIdIsValid(round->newest_deleter) ||
			TransactionIdFollows(deleter, round->newest_deleter))
			round->newest_deleter = deleter;
		if (RelationIsUsedAsCatalogTable(round->relation))
			round->keeps_catalog_rows = true;
	}
}

void
blob_gc_kept_report(BlobGcRound *round)
{
	BlobGcKept *kept = &round->result->kept;
	Keeper		oldest = {.kind = KEEPER_NONE};

	kept->is_known = true;
	if (kept->bytes > 0)
	{
		see_all_prepared(&oldest);
		see_processes(&oldest);
		see_slots(&oldest, round->keeps_catalog_rows);
		/* A snapshot that is newer than the last of these deletions keeps none of the rows. */
		if (oldest.kind != KEEPER_NONE &&
			TransactionIdPrecedesOrEquals(oldest.xid, round->newest_deleter))
			strlcpy(kept->by, describe(&oldest), sizeof(kept->by));
	}
	blob_gc_status_kept(kept);
}
