/*
 * writing/sender.c
 *	  A thread that makes files of groups after their close(), see sender.h.
 *
 * The queue is bounded, so what the program has closed and the server does not know is little.  It
 * serves all groups, and a file of one may wait at the server for another group's end.  So no
 * request waits for the queue: COMMIT sends what the thread has not begun with.
 *
 * Locks: the sender's is taken last.  The thread takes a copy's lock without it.
 */
#include "writing/sender.h"

#include <errno.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/pool.h"
#include "writing/group.h"
#include "writing/writer.h"

enum
{
	QUEUE = 64,
	/* A group that begins to end lets waits for its connection end: then once more. */
	ATTEMPTS = 3
};

struct sender
{
	struct mount *mount;
	pthread_mutex_t lock;		/* of all below */
	pthread_cond_t work;
	struct copy *queue[QUEUE];
	int			first;
	int			count;
	bool		stopping;
	pthread_t	thread;
	bool		has_thread;
};

struct sender *
sender_create(struct mount *mount)
{
	struct sender *sender = allocate(sizeof(*sender));

	sender->mount = mount;
	pthread_mutex_init(&sender->lock, NULL);
	init_condition(&sender->work);
	return sender;
}

static void
send_copy(struct sender *sender, struct copy *copy)
{
	struct writer *writer = mount_writer(sender->mount);
	int64_t		snapshot = copy->node->attributes.snapshot;
	int			error = ESTALE;

	pthread_mutex_lock(&copy->lock);
	for (int attempt = 0; attempt < ATTEMPTS && error == ESTALE; attempt++)
	{
		group_bind_always(snapshot);
		error = copy_commit(writer, copy, true);
		pool_unbind();
	}
	copy->is_queued = false;
	/* A thread that sees under the lock that the file is not made finds the cause, too. */
	if (error != 0)
		group_fail(snapshot, error);
	pthread_mutex_unlock(&copy->lock);
}

static void *
run_thread(void *argument)
{
	struct sender *sender = argument;

	pthread_mutex_lock(&sender->lock);
	while (sender->count > 0 || !sender->stopping)
	{
		struct copy *copy;
		bool		is_wanted = !sender->stopping;	/* else its group is rolled back */

		if (sender->count == 0)
		{
			pthread_cond_wait(&sender->work, &sender->lock);
			continue;
		}
		copy = sender->queue[sender->first];
		sender->first = (sender->first + 1) % QUEUE;
		sender->count--;
		pthread_mutex_unlock(&sender->lock);
		if (is_wanted)
			send_copy(sender, copy);
		copy_release(mount_writer(sender->mount), copy);
		pthread_mutex_lock(&sender->lock);
	}
	pthread_mutex_unlock(&sender->lock);
	return NULL;
}

void
sender_start(struct sender *sender)
{
	if (pthread_create(&sender->thread, NULL, run_thread, sender) != 0)
		fatal("no thread: %m");
	sender->has_thread = true;
}

void
sender_destroy(struct sender *sender)
{
	pthread_mutex_lock(&sender->lock);
	sender->stopping = true;
	pthread_cond_signal(&sender->work);
	pthread_mutex_unlock(&sender->lock);
	if (sender->has_thread)
		pthread_join(sender->thread, NULL);
	free(sender);
}

bool
sender_take(struct sender *sender, struct copy *copy)
{
	struct writer *writer = mount_writer(sender->mount);
	bool		has_room;

	pthread_mutex_lock(&writer->lock);
	pthread_mutex_lock(&sender->lock);
	has_room = sender->has_thread && sender->count < QUEUE && !copy->is_queued;
	if (has_room)
	{
		copy->users++;
		copy->is_queued = true;
		sender->queue[(sender->first + sender->count++) % QUEUE] = copy;
		pthread_cond_signal(&sender->work);
	}
	pthread_mutex_unlock(&sender->lock);
	pthread_mutex_unlock(&writer->lock);
	return has_room;
}
