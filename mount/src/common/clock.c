/*
 * common/clock.c
 *	  Times that are not set back, and waits.
 */
#include "common/clock.h"

time_t
monotonic_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

double
seconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) (now.tv_sec - start->tv_sec) + (double) (now.tv_nsec - start->tv_nsec) / 1e9;
}

struct timespec
deadline(int milliseconds)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += milliseconds / 1000;
	until.tv_nsec += (long) (milliseconds % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000)
	{
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	return until;
}

void
sleep_milliseconds(int milliseconds)
{
	struct timespec time = {milliseconds / 1000, (long) (milliseconds % 1000) * 1000000};

	nanosleep(&time, NULL);
}

int64_t
nanoseconds(struct timespec time)
{
	return (int64_t) time.tv_sec * 1000000000 + time.tv_nsec;
}

void
init_condition(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}
