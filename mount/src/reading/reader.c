/*
 * reading/reader.c
 *	  The reader: what open files keep readable, and its threads.
 *
 * The version of an open file stays readable when its row is replaced or deleted.  A small value
 * stays in the cache while it is open, as long as such values take no more than half of the cache.
 * A larger one, and a small one beyond that, is pinned at the server (sources/pins.c).  A thread
 * drops pins some time after the last handle was closed, many at once.
 */
#include "reading/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/errors.h"
#include "reading/range.h"
#include "reading/state.h"
#include "sources/pins.h"

enum
{
	KEEP_SECONDS = 3
};

struct reader *
read_create(struct source *source, struct tree *tree, const struct options *options)
{
	struct reader *reader = allocate(sizeof(*reader));

	reader->source = source;
	reader->tree = tree;
	reader->cache = cache_create((size_t) options->cache_mb << 20);
	reader->is_ahead = !options->opens_transactions;
	reader->held_limit = (size_t) options->cache_mb << 19;
	reader->last_kept = &reader->first_kept;
	pthread_mutex_init(&reader->lock, NULL);
	init_condition(&reader->work);
	return reader;
}

/* ---- open files ---- */

static bool
may_hold(struct reader *reader, size_t bytes)
{
	bool		may;

	pthread_mutex_lock(&reader->lock);
	may = reader->held_bytes + bytes <= reader->held_limit;
	if (may)
		reader->held_bytes += bytes;
	pthread_mutex_unlock(&reader->lock);
	return may;
}

static void
stop_holding(struct reader *reader, struct content *content)
{
	pthread_mutex_lock(&reader->lock);
	reader->held_bytes -= content->buffer.length;
	pthread_mutex_unlock(&reader->lock);
	cache_give(reader->cache, content, false);
}

/* size: what may_hold() has counted. */
static int
hold_small(struct reader *reader, struct node *node, size_t size)
{
	struct content *content;
	int			error = get_small(reader, node, &content);

	pthread_mutex_lock(&reader->lock);
	reader->held_bytes -= size;
	if (error == 0)
		reader->held_bytes += content->buffer.length;
	pthread_mutex_unlock(&reader->lock);
	if (error != 0)
		return error;
	pthread_mutex_lock(&node->lock);
	if (node->held == NULL && node->opens > 0)
	{
		node->held = content;
		content = NULL;
	}
	pthread_mutex_unlock(&node->lock);
	if (content != NULL)
		stop_holding(reader, content);
	return 0;
}

/* The pin is dropped later, with others: one statement for many. */
static void
forget_pin(struct reader *reader, int64_t pin)
{
	pthread_mutex_lock(&reader->lock);
	while (reader->unpin_count == UNPIN_BATCH)
	{
		/* The threads have not come to it; pins may be dropped here as well. */
		int64_t		handles[UNPIN_BATCH];

		memcpy(handles, reader->unpins, sizeof(handles));
		reader->unpin_count = 0;
		pthread_mutex_unlock(&reader->lock);
		pins_remove(reader->source, handles, UNPIN_BATCH);
		pthread_mutex_lock(&reader->lock);
	}
	reader->unpins[reader->unpin_count++] = pin;
	pthread_mutex_unlock(&reader->lock);
}

/* Without a lock meanwhile: of two threads that pin a node one drops its pin again. */
static int
pin_node(struct reader *reader, struct node *node)
{
	int64_t		pin = __atomic_add_fetch(&reader->last_pin, 1, __ATOMIC_RELAXED);
	uint64_t	epoch = pins_epoch(reader->source);
	int			error = reader->source->operations->pin(reader->source, node, pin);

	if (error != 0)
		return error;
	pthread_mutex_lock(&node->lock);
	if (node->pin == 0 && node->opens > 0)
	{
		node->pin = pin;
		node->pin_epoch = epoch;
		pin = 0;
	}
	pthread_mutex_unlock(&node->lock);
	if (pin != 0)
		forget_pin(reader, pin);
	return 0;
}

int
read_open(struct reader *reader, struct node *node)
{
	size_t		size = (size_t) node->attributes.size;
	bool		kept;
	int			error = 0;

	pthread_mutex_lock(&node->lock);
	node->opens++;
	kept = node->held != NULL || node->pin != 0;
	pthread_mutex_unlock(&node->lock);
	/* A group's pins would be seen by its own transaction only. */
	if (kept || size == 0 || node->attributes.snapshot < 0)
		return 0;
	if (size <= SMALL_BYTES && may_hold(reader, size))
		error = hold_small(reader, node, size);
	else if (reader->source->has_pins)
		error = pin_node(reader, node);
	if (error != 0)
		read_close(reader, node);
	return error;
}

void
read_close(struct reader *reader, struct node *node)
{
	struct content *held = NULL;
	int64_t		pin = 0;

	pthread_mutex_lock(&node->lock);
	if (--node->opens == 0)
	{
		held = node->held;
		pin = node->pin;
		node->held = NULL;
		node->pin = 0;
		node->replaced = false;
	}
	pthread_mutex_unlock(&node->lock);
	if (held != NULL)
		stop_holding(reader, held);
	if (pin != 0)
		forget_pin(reader, pin);
}

int
read_keep(struct reader *reader, struct node *node)
{
	struct kept *kept;
	int			error = read_open(reader, node);

	if (error != 0)
		return error;
	tree_hold(reader->tree, node);
	kept = allocate(sizeof(*kept));
	kept->node = node;
	kept->until = monotonic_seconds() + KEEP_SECONDS;
	pthread_mutex_lock(&reader->lock);
	*reader->last_kept = kept;
	reader->last_kept = &kept->next;
	pthread_mutex_unlock(&reader->lock);
	return 0;
}

void
read_on_expiry(struct reader *reader, read_expired expired, void *context)
{
	reader->expired = expired;
	reader->expired_context = context;
}

void
read_changed(struct reader *reader, struct node *node)
{
	struct content *held;
	int64_t		pin;
	int			opens;

	pthread_mutex_lock(&node->lock);
	held = node->held;
	pin = node->pin;
	opens = node->opens;
	node->held = NULL;
	node->pin = 0;
	node->replaced = false;
	memset(node->readers, 0, sizeof(node->readers));
	pthread_mutex_unlock(&node->lock);
	if (held != NULL)
		stop_holding(reader, held);
	if (pin != 0)
		forget_pin(reader, pin);
	if (opens > 0 && read_open(reader, node) == 0)
		read_close(reader, node);
}

/* ---- threads ---- */

/* Drop pins of files that are closed; under the lock, which is given up meanwhile. */
static void
remove_pins(struct reader *reader)
{
	int64_t		handles[UNPIN_BATCH];
	int			count = reader->unpin_count;

	memcpy(handles, reader->unpins, count * sizeof(int64_t));
	reader->unpin_count = 0;
	pthread_mutex_unlock(&reader->lock);
	pins_remove(reader->source, handles, count);
	pthread_mutex_lock(&reader->lock);
}

/* Those whose time is over; under the lock, which is given up meanwhile. */
static void
drop_kept(struct reader *reader)
{
	time_t		now = monotonic_seconds();
	struct kept *kept;

	while ((kept = reader->first_kept) != NULL && kept->until <= now)
	{
		reader->first_kept = kept->next;
		if (reader->first_kept == NULL)
			reader->last_kept = &reader->first_kept;
		pthread_mutex_unlock(&reader->lock);
		read_close(reader, kept->node);
		if (reader->expired != NULL)
			reader->expired(reader->expired_context, kept->node);
		tree_release(reader->tree, kept->node);
		free(kept);
		pthread_mutex_lock(&reader->lock);
	}
}

static void
serve_queue(struct reader *reader)
{
	struct ahead ahead = reader->queue[reader->queue_first];

	reader->queue_first = (reader->queue_first + 1) % AHEAD_QUEUE;
	reader->queue_count--;
	pthread_mutex_unlock(&reader->lock);
	if (fill_chunk(reader, ahead.node, ahead.content) == 0)
		cache_give(reader->cache, ahead.content, false);
	tree_release(reader->tree, ahead.node);
	pthread_mutex_lock(&reader->lock);
}

/* Chunks ahead come first; pins are dropped when there has been nothing to do for a second. */
static void *
run_thread(void *argument)
{
	struct reader *reader = argument;

	pthread_mutex_lock(&reader->lock);
	while (!reader->stopping)
	{
		struct timespec until;

		drop_kept(reader);
		if (reader->queue_count > 0)
		{
			serve_queue(reader);
			continue;
		}
		until = deadline(1000);
		if (pthread_cond_timedwait(&reader->work, &reader->lock, &until) == ETIMEDOUT &&
			reader->unpin_count > 0)
			remove_pins(reader);
	}
	pthread_mutex_unlock(&reader->lock);
	return NULL;
}

void
read_start(struct reader *reader)
{
	for (int i = 0; i < AHEAD_THREADS; i++)
		if (pthread_create(&reader->threads[i], NULL, run_thread, reader) == 0)
			reader->thread_count++;
		else
			break;
}

void
read_stop(struct reader *reader)
{
	pthread_mutex_lock(&reader->lock);
	reader->stopping = true;
	pthread_cond_broadcast(&reader->work);
	pthread_mutex_unlock(&reader->lock);
	for (int i = 0; i < reader->thread_count; i++)
		pthread_join(reader->threads[i], NULL);
	for (struct kept *kept = reader->first_kept; kept != NULL;)
	{
		struct kept *next = kept->next;

		free(kept);
		kept = next;
	}
	cache_destroy(reader->cache);
	free(reader);
}
