/*
 * sql/batch.h
 *	  Procedures that commit after each batch.
 */
#ifndef BLOB_SQL_BATCH_H
#define BLOB_SQL_BATCH_H

/*
 * Commit, and begin the transaction of the next batch.  SPI is connected with SPI_OPT_NONATOMIC.
 * The caller has no values in memory.
 *
 * The transaction is READ COMMITTED: each statement sees what others have committed before it,
 * whatever the session's default is.  So a row that another transaction changes is no error.
 */
extern void blob_batch_next(void);

/*
 * ERROR 0A000 for a table whose rows no UPDATE changes, because a rule does something else instead.
 * Locks the table in mode ACCESS SHARE to the end of the transaction.
 */
extern void blob_batch_require_updates(Oid relid);

#endif							/* BLOB_SQL_BATCH_H */
