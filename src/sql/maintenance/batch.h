/*
 * sql/maintenance/batch.h
 *	  Procedures that commit after each batch.
 */
#ifndef BLOB_SQL_BATCH_H
#define BLOB_SQL_BATCH_H

#include "postgres.h"

#include "fmgr.h"

/* ERROR 25001 or 25006 unless this is a CALL by itself, which can commit.  name: for messages. */
extern void blob_batch_require_own_transactions(FunctionCallInfo fcinfo, const char *name);

/*
 * Commit, and begin the transaction of the next batch.  SPI is connected with SPI_OPT_NONATOMIC.
 * The caller has no values in memory.
 *
 * The transaction is READ COMMITTED: each statement sees what others have committed before it,
 * whatever the session's default is.  So a row that another transaction changes is no error.
 */
extern void blob_batch_next(void);

/*
 * The row that a procedure returns, of count counters as bigint.  In the context of the caller of
 * the procedure, after SPI_finish().
 */
extern Datum blob_batch_result(FunctionCallInfo fcinfo, const char *name, const uint64 *counters,
							   int count);

/* Whether an error says that a value cannot be read, so that others may be. */
extern bool blob_batch_is_of_value(int sqlstate);

/* Whether an error says that others have a lock, or were faster: the row may be done later. */
extern bool blob_batch_is_of_concurrency(int sqlstate);

/* Cancellation, shutdown, a full disk: errors that say nothing about the values. */
extern bool blob_batch_is_to_be_thrown(int sqlstate);

/*
 * ERROR 0A000 for a table whose rows no UPDATE changes, because a rule does something else instead.
 * Locks the table in mode ACCESS SHARE to the end of the transaction.
 */
extern void blob_batch_require_updates(Oid relid);

/*
 * The lock of a row that an UPDATE of the column takes, as SELECT ... FOR has it: UPDATE if the
 * column is part of a key, because a foreign key of others may refer to it.  A statement that has
 * locked rows so without waiting does not wait when it updates them.
 */
extern const char *blob_batch_row_lock(Oid relid, const char *column);

#endif							/* BLOB_SQL_BATCH_H */
