/*
 * sources/members.h
 *	  Objects of the extensions blobext and blobfs, which the program uses by their names.
 */
#ifndef MEMBERS_H
#define MEMBERS_H

#include <libpq-fe.h>
#include <stdbool.h>

struct members
{
	char	   *blobext;		/* schema of the extension blobext, quoted; NULL: not there */
	char	   *blobstate;		/* OID of its type, in digits */
	char	   *lacks;			/* NULL, or a function that an older blobext does not have */
	bool		has_blobfs;		/* the extension blobfs, with its functions */
};

/* Ask the server; what a query answers with an error is "not there".  members_clear() frees. */
void members_ask(PGconn *pg, bool writes, struct members *members);
void members_clear(struct members *members);

/*
 * The role that owns what a statement of the program would run with the rights of the session's
 * role, and lacks powers that this one has: NULL, or its name (allocated).  schema: a file system;
 * relation: a view by its OID; the other one is NULL.
 */
char	   *members_stranger(PGconn *pg, const char *schema, const char *relation);

/* The first field of the answer to a query in the binary or text form, copied; NULL: none, or an
 * error, with its message in *error (allocated) unless that is NULL. */
char	   *ask_once(PGconn *pg, const char *sql, int count, const char *const *values,
					 char **error);

#endif							/* MEMBERS_H */
