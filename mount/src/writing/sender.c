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
#include "writing/births.h"
#include "writing/commit.h"
#include "writing/copies.h"
#include "writing/group.h"

enum
{
	QUEUE = 64,
	/* A group that begins to end lets waits for its connection end: then once more. */
	ATTEMPTS = 3
};

struct sender
{
	struct writer *writer;
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
sender_create(struct writer *writer)
{
	struct sender *sender = allocate(sizeof(*sender));

	sender->writer = writer;
	pthread_mutex_init(&sender->lock, NULL);
	init_condition(&sender->work);
	return sender;
}

/* As close() would; an error dooms the group. */
static void
send_copy(struct sender *sender, struct copy *copy)
{
	int64_t		snapshot = copy->node->attributes.snapshot;
	int			error = ESTALE;

	pthread_mutex_lock(&copy->lock);
	for (int attempt = 0; attempt < ATTEMPTS && error == ESTALE; attempt++)
	{
		group_bind_always(snapshot);
		error = copy_commit(sender->writer, copy);
		pool_unbind();
	}
	copy->is_queued = false;
	/* A thread that sees under the lock that the file is not made finds the cause, too. */
	if (error != 0)
		group_fail(snapshot, error);
	pthread_mutex_unlock(&copy->lock);
}

/* The copies of a queue that is given up are released, and not sent. */
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
		copy_release(sender->writer, copy);
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

/* Under the copy's lock. */
static bool
add_copy(struct sender *sender, struct copy *copy)
{
	bool		has_room;

	pthread_mutex_lock(&sender->writer->lock);
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
	pthread_mutex_unlock(&sender->writer->lock);
	return has_room;
}

bool
sender_take(struct sender *sender, struct copy *copy)
{
	bool		is_taken;

	pthread_mutex_lock(&copy->lock);
	is_taken = copy->birth != NULL && !copy->is_removed &&
		copy->working.size <= SPOOL_MEMORY_BYTES &&
		group_has_made(copy->node->attributes.snapshot, copy->birth->parent) &&
		add_copy(sender, copy);
	pthread_mutex_unlock(&copy->lock);
	return is_taken;
}
