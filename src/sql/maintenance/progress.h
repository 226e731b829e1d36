/*
 * sql/maintenance/progress.h
 *	  How far long operations have come, for views: a kind, a relation and counters per process.
 *
 * An operation is of one kind, which has its own view, with a row for each process of the database
 * that is in such an operation: (pid, relation, counters in their order).  sql/README.md,
 * "Progress", says how to add one.
 */
#ifndef BLOB_SQL_PROGRESS_H
#define BLOB_SQL_PROGRESS_H

#include "postgres.h"

#include "fmgr.h"

typedef enum BlobProgressKind
{
	BLOB_PROGRESS_NONE,
	BLOB_PROGRESS_CHECK,		/* view blobext_check_progress */
	BLOB_PROGRESS_DEDUP,		/* view blobext_dedup_progress */
	BLOB_PROGRESS_FETCH,		/* view blobext_fetch_progress */
	BLOB_PROGRESS_ADD_CHECKSUMS,	/* view blobext_add_checksums_progress */
	BLOB_PROGRESS_DEFRAGMENT,	/* view blobext_defragment_progress */
	BLOB_PROGRESS_SEAL			/* view blobext_seal_progress */
} BlobProgressKind;

/* The most that a kind may have. */
#define BLOB_PROGRESS_COUNTERS 8

extern void blob_progress_shmem_request(void);
extern void blob_progress_shmem_init(void);

/*
 * An operation begins in this process, with all counters at 0; it ends, in PG_FINALLY.  It may
 * commit in between.  One that begins within another one, by a trigger for instance, is not shown,
 * and does not change the numbers of the outer one.
 */
extern void blob_progress_begin(BlobProgressKind kind);
extern void blob_progress_end(void);

/* The table, index or partition that it works on. */
extern void blob_progress_relation(Oid relid);

extern void blob_progress_set(int counter, uint64 value);
extern void blob_progress_add(int counter, uint64 value);

/*
 * The body of a set-returning function behind a view: the first count counters of all operations
 * of this kind in the database.
 */
extern Datum blob_progress_show(FunctionCallInfo fcinfo, BlobProgressKind kind, int count);

#endif							/* BLOB_SQL_PROGRESS_H */
