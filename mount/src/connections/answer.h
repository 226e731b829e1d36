/*
 * connections/answer.h
 *	  Answers of the server, with limits of rows and bytes.
 */
#ifndef ANSWER_H
#define ANSWER_H

#include <libpq-fe.h>
#include <stdbool.h>

/*
 * The answer to a statement that was sent on a connection: its rows in one result, or an error; of
 * several commands that of the last one.  Not more rows than are allowed, nor many more bytes than
 * 64 MB, but for one row, which libpq has as a whole in its memory.  interruptible: see request.h.
 * NULL: interrupted, or an answer that no server of PostgreSQL gives; the connection is of no use
 * any more.
 */
PGresult   *answer_receive(PGconn *pg, int rows, bool interruptible);

/*
 * A statement that is not prepared, on a connection that no other thread has: its rows, at most as
 * many as are said (0: one), or an error; NULL: the connection is of no use any more.  query NULL:
 * no parameters, text.  query_text(): also several commands, of which the last one answers.
 */
struct query
{
	int			count;
	const char *const *values;
	const int  *lengths;
	const int  *formats;
	bool		is_binary;		/* the answer */
	int			rows;
};
PGresult   *query_once(PGconn *pg, const char *sql, const struct query *query);
PGresult   *query_text(PGconn *pg, const char *sql, int rows);

/* Commands, also several, some of which may give a row or two, which are not needed. */
bool		query_commands(PGconn *pg, const char *sql);

#endif							/* ANSWER_H */
