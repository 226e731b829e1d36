/*
 * connections/watch.c
 *	  A thread that asks whether the server is there, see watch.h.
 */
#include "connections/watch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/errors.h"

enum
{
	TICK_MILLISECONDS = 250,
	/* Of one question, in seconds: libpq's shortest; one that is lost is asked again. */
	MIN_QUESTION = 2,
	MAX_QUESTION = 10
};

/* Statements of a busy server are not asked for more often, whatever "timeo" is. */
static const double min_silence_seconds = 1;

struct watch
{
	struct pool *pool;
	const char *conninfo;
	double		timeo;
	pthread_t	thread;
	pthread_mutex_t lock;
	pthread_cond_t stop;
	bool		stopping;		/* under the lock */
};

/* Whether it answers at all: also that it has no connection to give, or is starting. */
static bool
server_answers(const struct watch *watch)
{
	const char *keywords[] = {"dbname", "connect_timeout", "fallback_application_name", NULL};
	char		seconds[16];
	const char *values[] = {watch->conninfo, seconds, "blobfs", NULL};
	double		most = watch->timeo / 2 < MAX_QUESTION ? watch->timeo / 2 : MAX_QUESTION;

	snprintf(seconds, sizeof(seconds), "%d", most < MIN_QUESTION ? MIN_QUESTION : (int) most);
	return PQpingParams(keywords, values, 1) != PQPING_NO_RESPONSE;
}

/* False: the thread ends. */
static bool
wait_for_tick(struct watch *watch)
{
	struct timespec until = deadline(TICK_MILLISECONDS);
	bool		goes_on;

	pthread_mutex_lock(&watch->lock);
	if (!watch->stopping)
		pthread_cond_timedwait(&watch->stop, &watch->lock, &until);
	goes_on = !watch->stopping;
	pthread_mutex_unlock(&watch->lock);
	return goes_on;
}

/* The thread.  One answer is good for all connections, however long they have been taken. */
static void *
run(void *data)
{
	struct watch *watch = data;
	double		silence = watch->timeo / 2 > min_silence_seconds ? watch->timeo / 2 :
		min_silence_seconds;
	struct timespec answered;
	bool		is_away = false;

	clock_gettime(CLOCK_MONOTONIC, &answered);
	while (wait_for_tick(watch))
	{
		if (!is_away && (pool_longest_use(watch->pool) < silence ||
						 seconds_since(&answered) < silence))
			continue;
		if (server_answers(watch))
		{
			clock_gettime(CLOCK_MONOTONIC, &answered);
			pool_note_answer(watch->pool);
			is_away = false;
		}
		else if (seconds_since(&answered) >= watch->timeo &&
				 pool_longest_use(watch->pool) >= watch->timeo)
		{
			if (!is_away)
				message("the server has answered nothing for %g seconds", watch->timeo);
			pool_cut(watch->pool);
			is_away = true;
		}
	}
	return NULL;
}

struct watch *
watch_start(struct pool *pool, const struct options *options)
{
	struct watch *watch = allocate(sizeof(*watch));

	watch->pool = pool;
	watch->conninfo = options->conninfo;
	watch->timeo = options->timeo;
	pthread_mutex_init(&watch->lock, NULL);
	init_condition(&watch->stop);
	if (pthread_create(&watch->thread, NULL, run, watch) != 0)
		fatal("no thread: %m");
	return watch;
}

void
watch_stop(struct watch *watch)
{
	pthread_mutex_lock(&watch->lock);
	watch->stopping = true;
	pthread_cond_signal(&watch->stop);
	pthread_mutex_unlock(&watch->lock);
	pthread_join(watch->thread, NULL);
	free(watch);
}
