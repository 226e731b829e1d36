/*
 * sender.c
 *	  A thread that makes files of groups after their close(), see sender.h.
 *
 * The queue is bounded, so what the program has closed and the server does not know is little.  The
 * copy stays in the queue until it is sent: sender_wait() looks there.
 *
 * Locks: the sender's is taken last.  The thread takes a copy's lock without it.
 */
#include "sender.h"

#include <errno.h>
#include <stdlib.h>

#include "errors.h"
#include "group.h"
#include "session_write.h"

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
	pthread_cond_t done;
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
	init_condition(&sender->done);
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
	pthread_mutex_unlock(&copy->lock);
	if (error != 0)
		group_fail(snapshot, error);
}

static void *
run_thread(void *argument)
{
	struct sender *sender = argument;

	pthread_mutex_lock(&sender->lock);
	while (sender->count > 0 || !sender->stopping)
	{
		struct copy *copy;

		if (sender->count == 0)
		{
			pthread_cond_wait(&sender->work, &sender->lock);
			continue;
		}
		copy = sender->queue[sender->first];
		pthread_mutex_unlock(&sender->lock);
		send_copy(sender, copy);
		pthread_mutex_lock(&sender->lock);
		sender->first = (sender->first + 1) % QUEUE;
		sender->count--;
		pthread_cond_broadcast(&sender->done);
		pthread_mutex_unlock(&sender->lock);
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

/* Under the lock. */
static bool
has_any(const struct sender *sender, int64_t snapshot)
{
	bool		has = false;

	for (int i = 0; i < sender->count && !has; i++)
		has = sender->queue[(sender->first + i) % QUEUE]->node->attributes.snapshot == snapshot;
	return has;
}

void
sender_wait(struct sender *sender, int64_t snapshot)
{
	pthread_mutex_lock(&sender->lock);
	while (has_any(sender, snapshot))
		pthread_cond_wait(&sender->done, &sender->lock);
	pthread_mutex_unlock(&sender->lock);
}
