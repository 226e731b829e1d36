/*
 * common/errors.h
 *	  Errors of the server as errno, and messages of the program; memory.
 */
#ifndef ERRORS_H
#define ERRORS_H

#include <stdbool.h>
#include <stddef.h>

/* The result of a statement without an answer, because its connection was lost.  No errno. */
#define ERROR_LOST (-1)

/* The errno that a program sees for an SQLSTATE; EIO for one that is in no table. */
int error_from_sqlstate(const char *sqlstate);

/* Whether the statement did not run for a reason that passes: its connection is lost, the server
 * is stopping or starting. */
bool error_is_lost(const char *sqlstate);

/* Whether the statement may succeed when it is repeated at once: serialization, deadlock. */
bool error_is_retried(const char *sqlstate);

/* Messages go to standard error, and to syslog once the program is in the background. */
void message_to_syslog(void);
void message_debug(bool enable);
void message(const char *format, ...) __attribute__((format(printf, 1, 2)));
void debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A message, and the end of the program with status 1. */
void fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Memory, or the end of the program. */
void *allocate(size_t size);
char *copy_string(const char *string);
char *format_string(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif							/* ERRORS_H */
