/*
 * writing/transaction.c
 *	  Transactions that change a file system.  mount/WRITING.md, "Marks: a COMMIT of
 *	  unknown outcome", has the argument.
 */
#include "writing/transaction.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/errors.h"
#include "connections/answer.h"
#include "connections/query.h"
#include "sources/fs_row.h"

enum
{
	MAX_ERRNO = 200,			/* and more than any */
	/* Of blobfs.result: a status, then a row of blobfs.attr. */
	COLUMN_STATUS = 0,
	COLUMN_ATTRIBUTES = 1,
	COLUMN_VERSION = 12,
	RESULT_COLUMNS = 13
};

/* The mark of a connection; belongs to the holder of the connection. */
struct mark
{
	bool		is_known;		/* number is what the row has, unless a crash took changes back */
	bool		is_taken;		/* the transaction of a bound thread has set it */
	int64_t		number;
};

struct transactions
{
	struct pool *pool;
	char	   *fs;
	bool		is_async;
	int64_t		id;				/* of this mount, among those that have marks */
	struct mark *marks;			/* by slot */
	int			begin;			/* statements */
	int			recover;
	int			end;
	int			flush;
};

static int64_t
draw_id(void)
{
	uint64_t	id;

	if (getrandom(&id, sizeof(id), 0) != (ssize_t) sizeof(id))
		fatal("no random numbers: %m");
	return (int64_t) (id >> 1);
}

static int
add_statement(struct transactions *transactions, const char *format, int columns)
{
	char	   *sql = format_string(format, transactions->fs);
	int			statement = pool_add_statement(transactions->pool, sql, columns, 1);

	free(sql);
	return statement;
}

struct transactions *
transactions_create(struct pool *pool, const char *fs, bool is_async)
{
	struct transactions *transactions = allocate(sizeof(*transactions));

	transactions->pool = pool;
	transactions->fs = copy_string(fs);
	transactions->is_async = is_async;
	transactions->id = draw_id();
	transactions->marks = allocate(pool_size(pool) * sizeof(struct mark));
	transactions->begin = add_statement(transactions, "SELECT %s.mount_begin($1, $2)", 1);
	transactions->recover = add_statement(
		transactions, "SELECT r.committed, r.mark FROM %s.mount_recover($1, $2) AS r", 2);
	transactions->end = add_statement(transactions, "SELECT %s.mount_end($1)", 1);
	transactions->flush = add_statement(transactions, "SELECT %s.mark($1, $2, $3)", 1);
	return transactions;
}

void
transactions_destroy(struct transactions *transactions)
{
	struct parameters parameters = {0};
	struct connection *connection;
	PGresult   *result;

	parameter_int8(&parameters, transactions->id);
	if (pool_take(transactions->pool, -1, &connection) == 0)
	{
		if (query_on(connection, transactions->end, &parameters, &result, NULL) == 0)
			PQclear(result);
		pool_give(connection);
	}
	free(transactions->marks);
	free(transactions->fs);
	free(transactions);
}

/*
 * The setting is local to the transaction.  A commit that shall wait has what the role, the
 * database or the server set.  Behind it the same call without mark and setting, see run_bound().
 */
int
transactions_add(struct transactions *transactions, const char *call, int parameter_count)
{
	char	   *sql = format_string(
		"SELECT r.*, %s.mark($%d, $%d, $%d, r.status), pg_catalog.set_config('synchronous_commit',"
		" coalesce($%d, pg_catalog.current_setting('synchronous_commit')), true) FROM %s.%s AS r",
		transactions->fs, parameter_count + 1, parameter_count + 2, parameter_count + 3,
		parameter_count + 4, transactions->fs, call);
	int			statement = pool_add_statement(transactions->pool, sql, RESULT_COLUMNS + 2, 1);

	free(sql);
	sql = format_string("SELECT r.* FROM %s.%s AS r", transactions->fs, call);
	pool_add_statement(transactions->pool, sql, RESULT_COLUMNS, 1);
	free(sql);
	return statement;
}

/* ---- outcomes ---- */

/* 0, or EIO if the answer is none: a call that has changed something returns attributes. */
static int
read_outcome(const PGresult *result, struct outcome *outcome)
{
	memset(outcome, 0, sizeof(*outcome));
	if (!field_has_length(result, 0, COLUMN_STATUS, 4))
		return EIO;
	outcome->status = field_int4(result, 0, COLUMN_STATUS);
	if (outcome->status < 0 || outcome->status >= MAX_ERRNO)
		outcome->status = EIO;
	outcome->has_attributes = !field_is_null(result, 0, COLUMN_ATTRIBUTES);
	outcome->has_version = !field_is_null(result, 0, COLUMN_VERSION);
	if (outcome->has_attributes)
		return fs_attributes(result, 0, COLUMN_ATTRIBUTES, &outcome->attributes);
	return outcome->status != 0 ? 0 : EIO;
}

/* ---- marks ---- */

/* One row at most: how many there are goes to *rows. */
static int
query_mark(struct transaction *transaction, int statement, int *rows, int64_t *first,
		   int64_t *second)
{
	struct parameters parameters = {0};
	PGresult   *result;
	int			error;

	parameter_int8(&parameters, transaction->transactions->id);
	parameter_int4(&parameters, transaction->connection->slot);
	error = query_on(transaction->connection, statement, &parameters, &result,
					 transaction->sqlstate);
	if (error != 0)
		return error;
	*rows = PQntuples(result);
	if (*rows > 0)
		*first = field_int8(result, 0, 0);
	if (*rows > 0)
		*second = field_int8(result, 0, 1);
	PQclear(result);
	return 0;
}

/* Have a mark for the connection.  0, an errno, or ERROR_LOST. */
static int
require_mark(struct transaction *transaction)
{
	struct transactions *transactions = transaction->transactions;
	struct mark *mark = &transactions->marks[transaction->connection->slot];
	int64_t		ignored;
	int			rows;
	int			error = 0;

	if (!mark->is_known)
		error = query_mark(transaction, transactions->begin, &rows, &mark->number, &ignored);
	mark->is_known |= error == 0;
	transaction->mark = mark->number + 1;
	return error;
}

/*
 * The connection was lost, and is up again: was the transaction committed?  The row gets a fresh
 * mark.  Without a row it was not: the row is older than all transactions that had a mark of it.
 * If an earlier answer to the same question was lost, the row has the fresh mark of that: larger
 * by a multiple of 2^32, so only the rest is compared.  0, an errno, or ERROR_LOST: ask again.
 */
static int
find_out(struct transaction *transaction, bool *is_committed)
{
	struct transactions *transactions = transaction->transactions;
	struct mark *mark = &transactions->marks[transaction->connection->slot];
	int64_t		found = 0;
	int64_t		fresh = 0;
	int			rows;
	int			error = query_mark(transaction, transactions->recover, &rows, &found, &fresh);

	if (error != 0)
		return error;
	mark->is_known = rows > 0;
	*is_committed = rows > 0 && (uint32_t) found == (uint32_t) transaction->mark;
	debug("connection %d was lost: mark %lld, found %lld", transaction->connection->slot,
		  (long long) transaction->mark, (long long) found);
	mark->number = fresh;
	return 0;
}

/* Find out as long as it takes, up to the pool's time-out.  0 or an errno. */
static int
decide(struct transaction *transaction, bool *is_committed)
{
	struct timespec started = {0};

	for (int attempt = 0;; attempt++)
	{
		int			error = pool_reconnect(transaction->connection);

		if (error == 0)
			error = find_out(transaction, is_committed);
		/* 55P03: the old backend has not ended yet. */
		if (error != ERROR_LOST && !(error != 0 && (error_is_retried(transaction->sqlstate) ||
													strcmp(transaction->sqlstate, "55P03") == 0)))
			return error;
		error = pool_wait_again(transaction->transactions->pool, &started, attempt);
		if (error != 0)
			return error;
	}
}

/* COMMIT of a transaction that an error has aborted is answered by ROLLBACK. */
static int
query_commit(struct connection *connection)
{
	PGresult   *result;
	int			error = 0;

	if (PQtransactionStatus(connection->pg) == PQTRANS_INERROR)
	{
		query_command(connection, "ROLLBACK");
		return EIO;
	}
	result = query_text(connection->pg, "COMMIT", 1);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
	{
		const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

		if (state != NULL && PQstatus(connection->pg) == CONNECTION_OK)
			error = error_from_sqlstate(state);
		else
		{
			pool_lose(connection);
			error = ERROR_LOST;
		}
	}
	PQclear(result);
	return error;
}

/* ---- transactions ---- */

int
transaction_call(struct transaction *transaction, int statement,
				 const struct parameters *parameters)
{
	struct transactions *transactions = transaction->transactions;
	struct parameters all = *parameters;
	PGresult   *result;
	int			error;

	if (transaction->has_mark)
		statement++;
	else
	{
		parameter_int8(&all, transactions->id);
		parameter_int4(&all, transaction->connection->slot);
		parameter_int8(&all, transaction->mark);
		if (transaction->is_durable && !transactions->is_async)
			parameter_null(&all);
		else
			parameter_text(&all, "off");
	}
	error = query_on(transaction->connection, statement, &all, &result, transaction->sqlstate);
	if (error != 0)
		return error;
	error = read_outcome(result, transaction->outcome);
	PQclear(result);
	return error;
}

/* Once.  0, an errno, or ERROR_LOST. */
static int
run_once(struct transaction *transaction, transaction_step step, void *context, bool is_single)
{
	int			error;

	memset(transaction->outcome, 0, sizeof(*transaction->outcome));
	transaction->sqlstate[0] = '\0';
	if (is_single)
		return step(transaction, context);
	error = transaction->has_begun ? 0 : query_command(transaction->connection, "BEGIN");
	transaction->has_begun = false;
	if (error == 0)
		error = step(transaction, context);
	if (error == 0 && transaction->outcome->status == 0)
		return query_command(transaction->connection, "COMMIT");
	if (error != ERROR_LOST && query_command(transaction->connection, "ROLLBACK") == ERROR_LOST)
		debug("connection %d was lost in ROLLBACK", transaction->connection->slot);
	return error;
}

/*
 * Whether the transaction must run again.  *error: how it ended, otherwise.  A mark that is not
 * what it should be was taken back by a crash of the server: nothing of the transaction happened.
 */
static bool
runs_again(struct transaction *transaction, int *error)
{
	bool		is_committed = false;

	if (*error == ECANCELED || *error == ERROR_LOST)
	{
		*error = decide(transaction, &is_committed);
		transaction->outcome->is_unknown = *error != 0;
		return *error == 0 && !is_committed;
	}
	return *error != 0 && error_is_retried(transaction->sqlstate);
}

/* On one connection, which no other thread has, until it is known how the transaction ended; for at
 * most "timeo" seconds without a server. */
static int
run_on(struct transaction *transaction, transaction_step step, void *context, bool is_single)
{
	struct mark *mark = &transaction->transactions->marks[transaction->connection->slot];
	struct timespec started = {0};
	int			error;

	for (int attempt = 0;; attempt++)
	{
		int			waited;

		error = require_mark(transaction);
		if (error == ERROR_LOST)
			error = pool_reconnect(transaction->connection);
		else if (error == 0)
		{
			error = run_once(transaction, step, context, is_single);
			if (error == 0 && transaction->outcome->status == 0)
				mark->number = transaction->mark;
			if (!runs_again(transaction, &error))
				break;
		}
		else if (!error_is_retried(transaction->sqlstate))
			break;
		waited = pool_wait_again(transaction->transactions->pool, &started, attempt);
		if (waited != 0)
			return waited;
	}
	return error;
}

/*
 * Within the transaction of a bound thread.  The first call that changes something sets the mark,
 * which tells whether all of it was committed.  If each did, there would be as many versions of the
 * mark's row, all of which the next one had to pass.  An error of the server has aborted the
 * transaction.
 */
static int
run_bound(struct transaction *transaction, transaction_step step, void *context)
{
	struct mark *mark = &transaction->transactions->marks[transaction->connection->slot];
	int			error = require_mark(transaction);

	if (error == 0)
	{
		memset(transaction->outcome, 0, sizeof(*transaction->outcome));
		transaction->is_durable = true;
		transaction->has_mark = mark->is_taken;
		error = step(transaction, context);
	}
	if (error == 0 && transaction->outcome->status == 0 && !mark->is_taken)
	{
		mark->number = transaction->mark;
		mark->is_taken = true;
	}
	return error == ERROR_LOST || error == ECANCELED ? EIO : error;
}

int
transactions_commit_bound(struct transactions *transactions)
{
	struct outcome outcome;
	struct transaction transaction = {.transactions = transactions, .outcome = &outcome};
	struct mark *mark;
	bool		is_committed;
	int			error = pool_take(transactions->pool, -1, &transaction.connection);

	if (error != 0)
		return error;
	mark = &transactions->marks[transaction.connection->slot];
	transaction.mark = mark->number;
	error = query_commit(transaction.connection);
	if (error == ERROR_LOST && mark->is_known)
	{
		error = decide(&transaction, &is_committed);
		if (error == 0 && !is_committed)
			error = EIO;
	}
	pool_give(transaction.connection);
	return error == ERROR_LOST ? EIO : error;
}

void
transactions_forget_mark(struct transactions *transactions, const struct connection *connection)
{
	transactions->marks[connection->slot] = (struct mark) {0};
}

/* The transaction has ended with an error, or 0, which is returned. */
static int
give_connection(struct transaction *transaction, int error)
{
	if (error != 0)
		transaction->transactions->marks[transaction->connection->slot].is_known = false;
	pool_give(transaction->connection);
	return error;
}

int
transaction_run(struct transactions *transactions, transaction_step step, void *context,
				bool is_durable, bool is_single, struct outcome *outcome)
{
	struct transaction transaction = {
		.transactions = transactions,
		.outcome = outcome,
		.is_durable = is_durable
	};
	int			error = pool_take(transactions->pool, -1, &transaction.connection);

	outcome->is_unknown = false;
	if (error != 0)
		return error;
	error = pool_bound() != NULL ? run_bound(&transaction, step, context) :
		run_on(&transaction, step, context, is_single);
	return give_connection(&transaction, error);
}

int
transaction_begin(struct transactions *transactions, struct connection *connection)
{
	struct transaction transaction = {.transactions = transactions, .connection = connection};
	int			error = require_mark(&transaction);

	return error != 0 ? error : query_command(connection, "BEGIN");
}

int
transaction_finish(struct transactions *transactions, struct connection *connection,
				   transaction_step step, void *context, bool is_durable, struct outcome *outcome)
{
	struct transaction transaction = {
		.transactions = transactions,
		.connection = connection,
		.outcome = outcome,
		.is_durable = is_durable,
		.has_begun = true
	};

	outcome->is_unknown = false;
	return give_connection(&transaction, run_on(&transaction, step, context, false));
}

void
transaction_abandon(struct connection *connection)
{
	if (connection->pg != NULL && query_command(connection, "ROLLBACK") == ERROR_LOST)
		debug("connection %d was lost in ROLLBACK", connection->slot);
	pool_give(connection);
}

struct call
{
	int			statement;
	const struct parameters *parameters;
};

static int
step_call(struct transaction *transaction, void *context)
{
	const struct call *call = context;

	return transaction_call(transaction, call->statement, call->parameters);
}

int
transaction_run_call(struct transactions *transactions, int statement,
					 const struct parameters *parameters, bool is_durable, struct outcome *outcome)
{
	struct call call = {statement, parameters};

	return transaction_run(transactions, step_call, &call, is_durable, true, outcome);
}

static int
step_flush(struct transaction *transaction, void *context)
{
	struct transactions *transactions = transaction->transactions;
	struct parameters parameters = {0};
	PGresult   *result;
	int			error;

	parameter_int8(&parameters, transactions->id);
	parameter_int4(&parameters, transaction->connection->slot);
	parameter_int8(&parameters, transaction->mark);
	error = query_on(transaction->connection, transactions->flush, &parameters, &result,
					 transaction->sqlstate);
	if (error == 0)
		PQclear(result);
	return error;
}

int
transactions_flush(struct transactions *transactions)
{
	struct outcome outcome;

	return transaction_run(transactions, step_flush, NULL, true, true, &outcome);
}
