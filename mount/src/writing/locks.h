/*
 * writing/locks.h
 *	  -o locks=db: locks of files that all mounts of a file system share.
 */
#ifndef LOCKS_H
#define LOCKS_H

#include "sources/source.h"

struct locks;

struct lock
{
	struct lock *next;
	uint64_t	owner;
	bool		is_flock;
	bool		is_exclusive;
	int64_t		start;
	int64_t		end;			/* behind the last byte */
};

/* Ends the program with a message if the server does not answer. */
struct locks *locks_create(struct source *source);
void locks_destroy(struct locks *locks);

/* Take a lock of an inode; waits: until it can be had, else EAGAIN.  EINTR. */
int locks_take(struct locks *locks, uint64_t ino, const struct lock *wanted, bool waits);

/* The owner has no lock in this range any more. */
void locks_give(struct locks *locks, uint64_t ino, const struct lock *range);

/* Whether this mount has a lock that is in the way, which replaces the wanted one. */
bool locks_find(struct locks *locks, uint64_t ino, struct lock *wanted);

#endif							/* LOCKS_H */
