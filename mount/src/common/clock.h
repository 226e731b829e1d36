/*
 * common/clock.h
 *	  Times that are not set back (CLOCK_MONOTONIC), and waits.
 */
#ifndef CLOCK_H
#define CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

time_t		monotonic_seconds(void);
double		seconds_since(const struct timespec *start);

/* Milliseconds from now, for a condition that init_condition() has made. */
struct timespec deadline(int milliseconds);
void init_condition(pthread_cond_t *condition);

void sleep_milliseconds(int milliseconds);

/* Of any clock, in one number. */
int64_t		nanoseconds(struct timespec time);

#endif							/* CLOCK_H */
