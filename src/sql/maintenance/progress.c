/*
 * sql/maintenance/progress.c
 *	  How far long operations have come, see sql/maintenance/progress.h.
 *
 * One entry for each backend, written by that backend alone.  Each number is written and read at
 * one go; a reader may see the numbers of different moments, which does no harm.  An entry counts
 * if its process is the one that has the backend's number now, so nothing has to be cleaned up by
 * processes that end in the middle.
 */
#include "postgres.h"

#include "core/compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "sql/maintenance/progress.h"
#include "store/store.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/sinvaladt.h"
#include "utils/tuplestore.h"

/* Columns of a view before the counters. */
#define FIRST_COLUMNS 2

typedef struct ProgressEntry
{
	pg_atomic_uint32 pid;		/* 0: no operation runs */
	pg_atomic_uint32 kind;
	pg_atomic_uint32 database;
	pg_atomic_uint32 relation;
	pg_atomic_uint64 counters[BLOB_PROGRESS_COUNTERS];
} ProgressEntry;

static ProgressEntry *entries;

/* Operations that this process is in, one within the other. */
static int	depth;

static Size
shmem_bytes(void)
{
	return mul_size(MaxBackends, sizeof(ProgressEntry));
}

void
blob_progress_shmem_request(void)
{
	RequestAddinShmemSpace(shmem_bytes());
}

/* In the postmaster, under AddinShmemInitLock; again after a crash. */
void
blob_progress_shmem_init(void)
{
	bool		found;

	entries = ShmemInitStruct("blobext progress", shmem_bytes(), &found);
	if (found)
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u32(&entries[i].pid, 0);
		pg_atomic_init_u32(&entries[i].kind, BLOB_PROGRESS_NONE);
		pg_atomic_init_u32(&entries[i].database, InvalidOid);
		pg_atomic_init_u32(&entries[i].relation, InvalidOid);
		for (int j = 0; j < BLOB_PROGRESS_COUNTERS; j++)
			pg_atomic_init_u64(&entries[i].counters[j], 0);
	}
}

static ProgressEntry *
own_entry(void)
{
	return &entries[blob_own_backend()];
}

void
blob_progress_begin(BlobProgressKind kind)
{
	ProgressEntry *entry = own_entry();

	if (depth++ > 0)
		return;
	pg_atomic_write_u32(&entry->kind, kind);
	pg_atomic_write_u32(&entry->database, MyDatabaseId);
	pg_atomic_write_u32(&entry->relation, InvalidOid);
	for (int i = 0; i < BLOB_PROGRESS_COUNTERS; i++)
		pg_atomic_write_u64(&entry->counters[i], 0);
	pg_write_barrier();
	pg_atomic_write_u32(&entry->pid, (uint32) MyProcPid);
}

void
blob_progress_end(void)
{
	Assert(depth > 0);
	if (--depth == 0)
		pg_atomic_write_u32(&own_entry()->pid, 0);
}

void
blob_progress_relation(Oid relid)
{
	if (depth == 1)
		pg_atomic_write_u32(&own_entry()->relation, relid);
}

void
blob_progress_set(int counter, uint64 value)
{
	Assert(counter < BLOB_PROGRESS_COUNTERS);
	if (depth == 1)
		pg_atomic_write_u64(&own_entry()->counters[counter], value);
}

void
blob_progress_add(int counter, uint64 value)
{
	Assert(counter < BLOB_PROGRESS_COUNTERS);
	blob_progress_set(counter, pg_atomic_read_u64(&own_entry()->counters[counter]) + value);
}

/* Whether the i-th entry is that of an operation of this kind in this database. */
static bool
is_shown(int i, BlobProgressKind kind)
{
	ProgressEntry *entry = &entries[i];
	int			pid = (int) pg_atomic_read_u32(&entry->pid);
	PGPROC	   *process;

	if (pid == 0)
		return false;
	pg_read_barrier();
	if (pg_atomic_read_u32(&entry->kind) != (uint32) kind ||
		pg_atomic_read_u32(&entry->database) != MyDatabaseId)
		return false;
	process = blob_backend_process(i);
	return process != NULL && process->pid == pid;
}

Datum
blob_progress_show(FunctionCallInfo fcinfo, BlobProgressKind kind, int count)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	Assert(count <= BLOB_PROGRESS_COUNTERS);
	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < MaxBackends; i++)
	{
		ProgressEntry *entry = &entries[i];
		Oid			relation = pg_atomic_read_u32(&entry->relation);
		Datum		values[FIRST_COLUMNS + BLOB_PROGRESS_COUNTERS];
		bool		nulls[FIRST_COLUMNS + BLOB_PROGRESS_COUNTERS] = {0};

		if (!is_shown(i, kind))
			continue;
		values[0] = Int32GetDatum((int) pg_atomic_read_u32(&entry->pid));
		values[1] = ObjectIdGetDatum(relation);
		nulls[1] = !OidIsValid(relation);
		for (int j = 0; j < count; j++)
			values[FIRST_COLUMNS + j] =
				Int64GetDatum((int64) pg_atomic_read_u64(&entry->counters[j]));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
