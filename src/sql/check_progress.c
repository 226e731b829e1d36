/*
 * sql/check_progress.c
 *	  View blobext_check_progress: how far the checks that run have come.
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
#include "store/store.h"
#include "sql/check.h"
#include "sql/check_progress.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/sinvaladt.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(blobext_check_state);

#define COLUMN_COUNT 6

typedef struct ProgressEntry
{
	pg_atomic_uint32 pid;		/* 0: no check runs */
	pg_atomic_uint32 database;
	pg_atomic_uint32 relation;
	pg_atomic_uint64 relations_done;
	pg_atomic_uint64 relations_total;
	pg_atomic_uint64 values_done;
	pg_atomic_uint64 bytes_read;
} ProgressEntry;

static ProgressEntry *entries;

static Size
shmem_bytes(void)
{
	return mul_size(MaxBackends, sizeof(ProgressEntry));
}

void
blob_check_progress_shmem_request(void)
{
	RequestAddinShmemSpace(shmem_bytes());
}

/* In the postmaster, under AddinShmemInitLock; again after a crash. */
void
blob_check_progress_shmem_init(void)
{
	bool		found;

	entries = ShmemInitStruct("blobext check", shmem_bytes(), &found);
	if (found)
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u32(&entries[i].pid, 0);
		pg_atomic_init_u32(&entries[i].database, InvalidOid);
		pg_atomic_init_u32(&entries[i].relation, InvalidOid);
		pg_atomic_init_u64(&entries[i].relations_done, 0);
		pg_atomic_init_u64(&entries[i].relations_total, 0);
		pg_atomic_init_u64(&entries[i].values_done, 0);
		pg_atomic_init_u64(&entries[i].bytes_read, 0);
	}
}

static ProgressEntry *
own_entry(void)
{
	return &entries[blob_own_backend()];
}

void
blob_check_progress_begin(void)
{
	ProgressEntry *entry = own_entry();

	pg_atomic_write_u32(&entry->database, MyDatabaseId);
	pg_atomic_write_u32(&entry->relation, InvalidOid);
	pg_atomic_write_u64(&entry->relations_done, 0);
	pg_atomic_write_u64(&entry->relations_total, 0);
	pg_atomic_write_u64(&entry->values_done, 0);
	pg_atomic_write_u64(&entry->bytes_read, 0);
	pg_write_barrier();
	pg_atomic_write_u32(&entry->pid, (uint32) MyProcPid);
}

void
blob_check_progress_relations(uint64 total)
{
	pg_atomic_write_u64(&own_entry()->relations_total, total);
}

void
blob_check_progress_relation(Oid relid)
{
	pg_atomic_write_u32(&own_entry()->relation, relid);
}

void
blob_check_progress_relation_done(void)
{
	ProgressEntry *entry = own_entry();

	pg_atomic_write_u64(&entry->relations_done, pg_atomic_read_u64(&entry->relations_done) + 1);
}

void
blob_check_progress_value(uint64 bytes_read)
{
	ProgressEntry *entry = own_entry();

	pg_atomic_write_u64(&entry->values_done, pg_atomic_read_u64(&entry->values_done) + 1);
	pg_atomic_write_u64(&entry->bytes_read, pg_atomic_read_u64(&entry->bytes_read) + bytes_read);
}

void
blob_check_progress_end(void)
{
	pg_atomic_write_u32(&own_entry()->pid, 0);
}

/* Rows (pid, relation, relations_done, relations_total, values_done, bytes_read). */
Datum
blobext_check_state(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	blob_store_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < MaxBackends; i++)
	{
		ProgressEntry *entry = &entries[i];
		int			pid = (int) pg_atomic_read_u32(&entry->pid);
		Oid			relation = pg_atomic_read_u32(&entry->relation);
		PGPROC	   *process;
		Datum		values[COLUMN_COUNT];
		bool		nulls[COLUMN_COUNT] = {0};

		if (pid == 0 || pg_atomic_read_u32(&entry->database) != MyDatabaseId)
			continue;
		process = blob_backend_process(i);
		if (process == NULL || process->pid != pid)
			continue;
		values[0] = Int32GetDatum(pid);
		values[1] = ObjectIdGetDatum(relation);
		nulls[1] = !OidIsValid(relation);
		values[2] = Int64GetDatum((int64) pg_atomic_read_u64(&entry->relations_done));
		values[3] = Int64GetDatum((int64) pg_atomic_read_u64(&entry->relations_total));
		values[4] = Int64GetDatum((int64) pg_atomic_read_u64(&entry->values_done));
		values[5] = Int64GetDatum((int64) pg_atomic_read_u64(&entry->bytes_read));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
