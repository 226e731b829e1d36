/*
 * test/unit/shift_clock.c
 *	  A library for LD_PRELOAD, in which the clock is set back.
 *
 * While the file $BLOBEXT_CLOCK exists, gettimeofday() returns a time that is earlier by as many
 * seconds as the file says.  Build with: gcc -shared -fPIC -o shift_clock.so shift_clock.c -ldl
 */
#define _GNU_SOURCE
#include "preload.h"

#include <errno.h>
#include <sys/time.h>

/* Called in signal handlers, too: no memory is allocated, and errno stays. */
static long
read_seconds(void)
{
	const char *path = getenv("BLOBEXT_CLOCK");
	int			saved_errno = errno;
	char		text[32] = "";
	int			fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
	{
		ssize_t		length = read(fd, text, sizeof(text) - 1);

		text[length > 0 ? length : 0] = '\0';
		close(fd);
	}
	errno = saved_errno;
	return strtol(text, NULL, 10);
}

int
gettimeofday(struct timeval *time, void *zone)
{
	static int	(*next) (struct timeval *, void *);
	int			result;

	if (next == NULL)
		next = (int (*) (struct timeval *, void *)) dlsym(RTLD_NEXT, "gettimeofday");
	result = next(time, zone);
	time->tv_sec -= read_seconds();
	return result;
}
