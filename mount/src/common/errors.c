/*
 * common/errors.c
 *	  Errors of the server as errno, and messages of the program.
 *
 * mount/README.md has the table of SQLSTATEs.
 */
#include "common/errors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

/* A whole SQLSTATE, or a class: the first two characters. */
static const struct
{
	const char *state;
	int			error;
}			states[] =
{
	{"XB001", ESTALE},			/* stale value */
	{"XB002", EIO},				/* content was never written on this server */
	{"22021", ENOENT},			/* no text of this encoding: no such name */
	{"23505", EEXIST},
	{"23514", EINVAL},
	{"25006", EROFS},
	{"28", EACCES},
	{"42501", EACCES},
	{"40", EAGAIN},
	{"53100", ENOSPC},
	{"53200", ENOMEM},
	{"53400", EDQUOT},
	{"54000", EFBIG},
	{"55P03", EAGAIN},
	{"57014", EINTR},
};

/* SQLSTATEs of the extension blobfs are "BF" and the number of an errno of Linux. */
static int
error_from_own_state(const char *sqlstate)
{
	char	   *end;
	long		number = strtol(sqlstate + 2, &end, 10);

	return *end == '\0' && number > 0 && number < 200 ? (int) number : EIO;
}

int
error_from_sqlstate(const char *sqlstate)
{
	if (strncmp(sqlstate, "BF", 2) == 0)
		return error_from_own_state(sqlstate);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (strncmp(sqlstate, states[i].state, strlen(states[i].state)) == 0)
			return states[i].error;
	return EIO;
}

/*
 * Connection exceptions; the server is stopping (57P01), crashed (57P02), or starting (57P03); too
 * many connections; a snapshot that a standby has cancelled is a conflict with recovery, see below.
 */
bool
error_is_lost(const char *sqlstate)
{
	return strncmp(sqlstate, "08", 2) == 0 || strcmp(sqlstate, "57P01") == 0 ||
		strcmp(sqlstate, "57P02") == 0 || strcmp(sqlstate, "57P03") == 0 ||
		strcmp(sqlstate, "53300") == 0;
}

/* 40001 is what a statement of a standby gets that is in replay's way, too. */
bool
error_is_retried(const char *sqlstate)
{
	return strcmp(sqlstate, "40001") == 0 || strcmp(sqlstate, "40P01") == 0;
}

static bool to_syslog;
static bool debugging;

void
message_to_syslog(void)
{
	openlog("blobfs", LOG_PID, LOG_DAEMON);
	to_syslog = true;
}

void
message_debug(bool enable)
{
	debugging = enable;
}

static void
put_message(int level, const char *format, va_list arguments)
{
	if (to_syslog)
	{
		vsyslog(level, format, arguments);
		return;
	}
	flockfile(stderr);
	fputs("blobfs: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	funlockfile(stderr);
}

void
message(const char *format, ...)
{
	va_list		arguments;

	va_start(arguments, format);
	put_message(LOG_WARNING, format, arguments);
	va_end(arguments);
}

void
debug(const char *format, ...)
{
	va_list		arguments;

	if (!debugging)
		return;
	va_start(arguments, format);
	put_message(LOG_DEBUG, format, arguments);
	va_end(arguments);
}

void
fatal(const char *format, ...)
{
	va_list		arguments;

	va_start(arguments, format);
	put_message(LOG_ERR, format, arguments);
	va_end(arguments);
	exit(1);
}

void *
allocate(size_t size)
{
	void	   *memory = calloc(1, size > 0 ? size : 1);

	if (memory == NULL)
		fatal("out of memory");
	return memory;
}

char *
copy_string(const char *string)
{
	char	   *copy = strdup(string);

	if (copy == NULL)
		fatal("out of memory");
	return copy;
}

char *
format_string(const char *format, ...)
{
	va_list		arguments;
	char	   *string;

	va_start(arguments, format);
	if (vasprintf(&string, format, arguments) < 0)
		fatal("out of memory");
	va_end(arguments);
	return string;
}
