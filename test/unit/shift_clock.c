/*
 * test/unit/shift_clock.c
 *	  A library for LD_PRELOAD, in which the clock is set back.
 *
 * While the file $BLOBEXT_CLOCK exists, gettimeofday() returns a time that is earlier by as many
 * seconds as the file says.  Build with: gcc -shared -fPIC -o shift_clock.so shift_clock.c -ldl
 */
#define _GNU_SOURCE
#include "preload.h"

#include <sys/time.h>

int
gettimeofday(struct timeval *time, void *zone)
{
	static int	(*next) (struct timeval *, void *);
	int			result;
	long		seconds;
	FILE	   *control;

	if (next == NULL)
		next = (int (*) (struct timeval *, void *)) dlsym(RTLD_NEXT, "gettimeofday");
	result = next(time, zone);
	control = open_control("BLOBEXT_CLOCK");
	if (control != NULL)
	{
		if (fscanf(control, "%ld", &seconds) == 1)
			time->tv_sec -= seconds;
		fclose(control);
	}
	return result;
}
