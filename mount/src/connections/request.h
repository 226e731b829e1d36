/*
 * connections/request.h
 *	  The request that a thread serves: waits end when the kernel interrupts it.
 */
#ifndef REQUEST_H
#define REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum
{
	/* How often a wait looks whether its request was interrupted. */
	WAIT_MILLISECONDS = 100,
	/* Waits that are shorter are not ended: signals come for many reasons. */
	PATIENCE_MILLISECONDS = 1000
};

/* Of the calling thread; NULL: none.  pool_set_request() calls it. */
struct fuse_req;
void request_set(struct fuse_req *request);

/* The thread of a program whose request the calling thread serves; 0: unknown, or none. */
pid_t request_thread(void);

bool request_is_interrupted(void);

#endif							/* REQUEST_H */
