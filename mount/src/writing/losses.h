/*
 * writing/losses.h
 *	  Threads of programs that have lost changes in a crash of the server: their commits had not
 *	  waited for the server's disk.
 *
 * fsync() and close() of each of them shall fail once; that another program was told does not help
 * it.  The callers hold a lock.
 */
#ifndef LOSSES_H
#define LOSSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* More threads than that, between two commits that wait: the others are told if they come first. */
#define LOSSES_MAX 256

struct loss
{
	pid_t		thread;
	pid_t		process;
	uint64_t	number;			/* of its last commit */
	bool		is_lost;		/* and it has not been told */
};

struct losses
{
	struct loss items[LOSSES_MAX];
	int			count;
	bool		is_untold;		/* commits are lost, and no thread has been told */
};

/* A thread (0: unknown) has made the commit of this number, which does not wait. */
void losses_note(struct losses *losses, pid_t thread, uint64_t number);

/* The commits up to this number are on the server's disk. */
void losses_flushed(struct losses *losses, uint64_t number);

/* A crash has taken back all that were noted and are not on the disk. */
void losses_all(struct losses *losses);

/*
 * A thread calls fsync() or close(): shall it fail?  Yes, once, for one that has lost a commit, or
 * another thread of its process; and for the first of all after a crash.
 */
bool losses_tell(struct losses *losses, pid_t thread);

#endif							/* LOSSES_H */
