/*
 * writing/copy.h
 *	  The working copy of an inode.
 */
#ifndef COPY_H
#define COPY_H

#include <pthread.h>

#include "common/tree.h"
#include "writing/working.h"

struct birth;
struct writer;

/*
 * The working copy of an inode.  users and the links are under the writer's lock, the rest under
 * the copy's own.
 */
struct copy
{
	struct writer *writer;
	struct copy *next;			/* in its bucket */
	struct node *node;			/* that the kernel knows; held */
	int			users;			/* handles that write, and requests in progress */
	pthread_mutex_t lock;
	struct working working;
	struct node *base;			/* the server's content, as a node that only copies.c knows */
	bool		base_is_open;	/* read_open() */
	int64_t		version;		/* of the base */
	struct timespec mtime;		/* of the last write, or as it was set since */
	struct timespec ctime;		/* of the last write */
	bool		is_removed;		/* no name leads to the inode, so nothing is committed */
	bool		is_given_up;	/* the transaction of many files has ended; is_removed, too */
	bool		is_queued;		/* the sender has it */
	bool		is_doubtful;	/* a commit has failed that may have been carried out */
	struct birth *birth;		/* the server does not know the inode yet; see births.h */
};

#endif							/* COPY_H */
