/*
 * notify.c
 *	  Names that the kernel drops because the server notified of a change.
 *
 * A thread waits for notifications on a connection of its own.  It serves no request: the kernel
 * may hold locks of the directory in question until a request is answered.
 *
 * A payload names what has changed; one that this version does not know drops everything.  So does
 * a connection that was lost, for notifications may have been missed.
 */
#include "notify.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "errors.h"
#include "session.h"

struct notifier
{
	struct mount *mount;
	pthread_t	thread;
	int			wake[2];		/* a pipe; written to at the end */
};

void
notify_start(struct mount *mount)
{
}

void
notify_stop(struct mount *mount)
{
}
