/*
 * test/unit/preload.h
 *	  What libraries for LD_PRELOAD share: which files are segments, and how a test controls it.
 *
 * A test controls such a library by a file, whose name is in an environment variable.  For a source
 * that is compiled by itself, so the functions are here.
 */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether fd is a segment file. */
static int
is_segment(int fd)
{
	char		link[64];
	char		path[4096];
	ssize_t		length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return 0;
	path[length] = '\0';
	return strstr(path, "/pg_blobext/") != NULL;
}

/* The file that controls the library, NULL: there is none. */
static FILE *
open_control(const char *variable)
{
	const char *control = getenv(variable);

	return control != NULL ? fopen(control, "re") : NULL;
}

/* Make a file of that name and the suffix, with the number of this process, for the test to see. */
static void
tell(const char *variable, const char *suffix)
{
	char		path[4096];
	char		number[16];
	int			length = snprintf(number, sizeof(number), "%d\n", (int) getpid());
	int			fd;

	snprintf(path, sizeof(path), "%s%s", getenv(variable), suffix);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, number, length) != length)
		abort();
	close(fd);
}

#endif							/* PRELOAD_H */
