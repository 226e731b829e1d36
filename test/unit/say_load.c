/*
 * test/unit/say_load.c
 *	  A library for LD_PRELOAD, in which a test says how many processes want to run.
 *
 * open() of /proc/loadavg opens the file $BLOBEXT_LOAD.  Build with:
 * gcc -shared -fPIC -o say_load.so say_load.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int
open(const char *path, int flags,...)
{
	static int	(*next) (const char *, int,...);
	mode_t		mode = 0;

	if (next == NULL)
		next = (int (*) (const char *, int,...)) dlsym(RTLD_NEXT, "open");
	if (flags & (O_CREAT | __O_TMPFILE))
	{
		va_list		arguments;

		va_start(arguments, flags);
		mode = va_arg(arguments, mode_t);
		va_end(arguments);
	}
	return next(strcmp(path, "/proc/loadavg") == 0 ? getenv("BLOBEXT_LOAD") : path, flags, mode);
}
