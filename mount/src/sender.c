/*
 * sender.c
 *	  A thread that makes files of groups after their close(), see sender.h.
 *
 * The queue is bounded, so what the program has closed and the server does not know is little.  It
 * serves all groups, and a file of one may wait at the server for another group's end.  So no
 * request waits for the queue: COMMIT sends what the thread has not begun with.
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
	/* Files that are sent together. */
	BATCH = 16,
	/* How long the thread waits for so many. */
	GATHER_NANOSECONDS = 1000000,
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

/* Under the copy's lock. */
static void
send_copy(struct sender *sender, struct copy *copy)
{
	struct writer *writer = mount_writer(sender->mount);
	int64_t		snapshot = copy->node->attributes.snapshot;
	int			error = ESTALE;

	for (int attempt = 0; attempt < ATTEMPTS && error == ESTALE; attempt++)
	{
		group_bind_always(snapshot);
		error = copy_commit(writer, copy, true);
		pool_unbind();
	}
	/* A thread that sees under the lock that the file is not made finds the cause, too. */
	if (error != 0)
		group_fail(snapshot, error);
}

/*
 * Several of one group, under the locks of all.  First those that can be sent together; what
 * remains is sent alone.  After an error of the server the transaction is aborted, so that error is
 * the one that counts.
 */
static void
send_copies(struct sender *sender, struct copy **copies, int count)
{
	int64_t		snapshot = copies[0]->node->attributes.snapshot;
	int			error;

	group_bind_always(snapshot);
	error = births_make_many(mount_writer(sender->mount), copies, count);
	pool_unbind();
	if (error != 0 && error != ESTALE && error != EAGAIN)
		group_fail(snapshot, error);
	for (int i = 0; i < count; i++)
	{
		send_copy(sender, copies[i]);
		copies[i]->is_queued = false;
		pthread_mutex_unlock(&copies[i]->lock);
	}
}

/*
 * Let the queue grow for a moment: to wake the thread for each file costs the program that closes
 * it as much as all else here.
 */
static void
gather(struct sender *sender)
{
	struct timespec until;
	int			error = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += GATHER_NANOSECONDS;
	if (until.tv_nsec >= 1000000000)
	{
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	while (sender->count < BATCH && !sender->stopping && error == 0)
		error = pthread_cond_timedwait(&sender->work, &sender->lock, &until);
}

/* Under the lock: the first of the queue is that of the group, and no thread works with it. */
static bool
takes_next(struct sender *sender, int64_t snapshot)
{
	struct copy *copy = sender->queue[sender->first];

	return sender->count > 0 && copy->node->attributes.snapshot == snapshot &&
		pthread_mutex_trylock(&copy->lock) == 0;
}

/* Under the lock. */
static struct copy *
take_first(struct sender *sender)
{
	struct copy *copy = sender->queue[sender->first];

	sender->first = (sender->first + 1) % QUEUE;
	sender->count--;
	return copy;
}

/*
 * The first of the queue, and those behind it that are at hand.  Under the sender's lock, which is
 * given up meanwhile.  The lock of the first copy is waited for, while no other is held.
 */
static void
serve_queue(struct sender *sender)
{
	struct copy *copies[BATCH];
	int			count = 1;

	copies[0] = take_first(sender);
	pthread_mutex_unlock(&sender->lock);
	pthread_mutex_lock(&copies[0]->lock);
	pthread_mutex_lock(&sender->lock);
	while (count < BATCH && takes_next(sender, copies[0]->node->attributes.snapshot))
		copies[count++] = take_first(sender);
	pthread_mutex_unlock(&sender->lock);
	send_copies(sender, copies, count);
	for (int i = 0; i < count; i++)
		copy_release(mount_writer(sender->mount), copies[i]);
	pthread_mutex_lock(&sender->lock);
}

/* Without sending it: its group is rolled back. */
static void
drop_first(struct sender *sender)
{
	struct copy *copy = take_first(sender);

	pthread_mutex_unlock(&sender->lock);
	copy_release(mount_writer(sender->mount), copy);
	pthread_mutex_lock(&sender->lock);
}

static void *
run_thread(void *argument)
{
	struct sender *sender = argument;

	pthread_mutex_lock(&sender->lock);
	while (sender->count > 0 || !sender->stopping)
	{
		if (sender->count == 0)
			pthread_cond_wait(&sender->work, &sender->lock);
		else if (sender->stopping)
			drop_first(sender);
		else
		{
			gather(sender);
			serve_queue(sender);
		}
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
		if (sender->count == 1 || sender->count == BATCH)
			pthread_cond_signal(&sender->work);
	}
	pthread_mutex_unlock(&sender->lock);
	pthread_mutex_unlock(&writer->lock);
	return has_room;
}
