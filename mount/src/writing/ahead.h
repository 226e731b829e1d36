/*
 * writing/ahead.h
 *	  Content of a large file goes to the server while the program writes it.
 *
 * A commit of more than some MB is an upload in a transaction (commit.c).  For one file of the
 * mount at a time, which is written anew from its beginning on, a thread begins that transaction
 * before close(), and sends the bytes that are in the spool file.  The commit goes on with what it
 * has sent.  Nothing of it is visible before, and nothing depends on it: bytes that are written
 * once more, an error, a program that pauses end the transaction, and the commit sends all.
 */
#ifndef AHEAD_H
#define AHEAD_H

#include <stdbool.h>
#include <stdint.h>

struct ahead;
struct connection;
struct copy;
struct writer;

struct ahead *ahead_create(struct writer *writer);
void ahead_start(struct ahead *ahead);
void ahead_destroy(struct ahead *ahead);

/* Under the copy's lock: it was written. */
void ahead_note(struct ahead *ahead, struct copy *copy);

/* A transaction that has begun, with an upload that has the first bytes of a copy. */
struct sent
{
	struct connection *connection;
	int64_t		upload;
	int64_t		bytes;
};

/* Under the copy's lock: the transaction that has sent its first bytes, which is the caller's then;
 * false: there is none. */
bool ahead_take(struct ahead *ahead, struct copy *copy, struct sent *sent);

/* The copy ends, or is not committed by an upload: the transaction is rolled back. */
void ahead_drop(struct ahead *ahead, const struct copy *copy);

#endif							/* AHEAD_H */
