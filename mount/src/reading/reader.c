/*
 * reading/reader.c
 *	  The reader: its threads ask for chunks ahead, and drop what open files no longer need.
 */
#include "reading/reader.h"

#include <errno.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/errors.h"
#include "reading/state.h"

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
