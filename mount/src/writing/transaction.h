/*
 * writing/transaction.h
 *	  Transactions that change a file system: repeated when they may be, never twice when the
 *	  connection is lost in COMMIT.
 *
 * Each connection has a row with a mark in the file system's schema.  A transaction sets the mark
 * from n - 1 to n.  If its connection is lost, a new one locks that row, which waits for the old
 * backend, and reads it: n says that the transaction was committed, n - 1 that it was not.  The new
 * mark is a fresh number, so that the old transaction, should it still run, fails.
 */
#ifndef TRANSACTION_H
#define TRANSACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/tree.h"
#include "connections/values.h"
#include "sources/source.h"

struct transactions;

/* What a function of the file system's schema returns. */
struct outcome
{
	int			status;			/* 0 or an errno: then nothing was changed */
	bool		is_unknown;		/* with an error: it may have been committed all the same */
	bool		has_attributes;
	bool		has_version;
	struct attributes attributes;
};

/* fs: the schema, quoted.  is_async: no commit waits for the server's disk. */
struct transactions *transactions_create(struct pool *pool, const char *fs, bool is_async);
void transactions_destroy(struct transactions *transactions);

/*
 * Add a statement that calls a function of the schema: "create($1, $2)" with this number of
 * parameters, behind which the mark's come.  Returns its number; the next number is the same call
 * without the mark.
 */
int transactions_add(struct transactions *transactions, const char *call, int parameter_count);

/*
 * One step of a transaction, on its connection: 0, an errno, or ERROR_LOST, with the SQLSTATE.  It
 * may run several times.
 */
struct transaction;
typedef int (*transaction_step) (struct transaction *transaction, void *context);

struct transaction
{
	struct transactions *transactions;
	struct connection *connection;
	struct outcome *outcome;
	int64_t		mark;			/* that this transaction sets */
	bool		has_mark;		/* it was set by an earlier call */
	bool		is_durable;		/* its commit waits for the server's disk */
	bool		has_begun;		/* BEGIN was sent already */
	char		sqlstate[6];
};

/*
 * Run a call of the schema within a transaction: its outcome goes to transaction->outcome.  Takes
 * the mark with it, so it is the transaction's last call.
 */
int transaction_call(struct transaction *transaction, int statement,
					 const struct parameters *parameters);

/*
 * Run a transaction; is_single: the step is one call, so neither BEGIN nor COMMIT is sent.  0 or an
 * errno.  If it was committed and the answer was lost, outcome has neither attributes nor version.
 */
int transaction_run(struct transactions *transactions, transaction_step step, void *context,
					bool is_durable, bool is_single, struct outcome *outcome);

/* The same for a single call without a step. */
int transaction_run_call(struct transactions *transactions, int statement,
						 const struct parameters *parameters, bool is_durable,
						 struct outcome *outcome);

/*
 * A transaction of which parts are sent before its outcome matters, on a connection that the caller
 * has taken, and holds until it calls one of the other two.  0, or an error: then abandon it.
 */
int transaction_begin(struct transactions *transactions, struct connection *connection);

/* In place of transaction_run(): the step is first run within that transaction. */
int transaction_finish(struct transactions *transactions, struct connection *connection,
					   transaction_step step, void *context, bool is_durable,
					   struct outcome *outcome);

/* Roll back. */
void transaction_abandon(struct connection *connection);

/*
 * A thread that is bound to a connection (pool.h) is within a transaction: transaction_run()
 * neither begins nor commits nor repeats.  This commits: 0 or an errno.
 */
int transactions_commit_bound(struct transactions *transactions);

/* The mark of a connection may be another one: its transaction was rolled back. */
void transactions_forget_mark(struct transactions *transactions,
							  const struct connection *connection);

/* Everything that was committed before is on the server's disk when this returns 0. */
int transactions_flush(struct transactions *transactions);

#endif							/* TRANSACTION_H */
