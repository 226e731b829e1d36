/*
 * reading/open.c
 *	  Open files: their versions stay readable when rows are replaced or deleted.
 *
 * A small value stays in the cache while it is open, as long as such values take no more than half
 * of the cache.  A larger one, and a small one beyond that, is pinned at the server (sources/pins.c).
 * A thread of the reader drops pins some time after the last handle was closed, many at once.
 */
#include "reading/open.h"

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

void
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

void
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
