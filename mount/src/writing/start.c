/*
 * writing/start.c
 *	  Beginning and end of the writer of a mount.
 */
#include "writing/start.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/errors.h"
#include "writing/ahead.h"
#include "writing/group_directory.h"
#include "writing/locks.h"
#include "writing/making.h"
#include "writing/sender.h"
#include "writing/spool.h"

/* Descriptors that are not for spools: of threads and of what else the program opens. */
enum
{
	OTHER_DESCRIPTORS = 64
};

static bool
is_set_to(const char *option, const char *value)
{
	return option != NULL && strcmp(option, value) == 0;
}

/* Files that are open for long are made, so that others see them. */
static void
make_due(void *context)
{
	births_make_due(context);
}

/* A file for working copies can be made, or the program ends with a message. */
static void
check_spool(const char *directory)
{
	int			spool = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (spool < 0)
		fatal("no file can be made in \"%s\", where files lie while they are written: %m; "
			  "choose another directory with -o spool=DIRECTORY", directory);
	close(spool);
}

/* How many files of working copies there may be; a connection may be made anew before its old
 * socket is closed. */
static unsigned
spool_files(const struct options *options)
{
	struct rlimit limit;
	rlim_t		others = OTHER_DESCRIPTORS + 2 * (rlim_t) options->connections;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		fatal("limit of descriptors: %m");
	if (limit.rlim_cur <= others)
		fatal("the limit of descriptors is %llu, and %llu are needed at least: see ulimit -n",
			  (unsigned long long) limit.rlim_cur, (unsigned long long) others + 1);
	return (unsigned) (limit.rlim_cur - others);
}

struct writer *
writer_create(struct source *source, struct tree *tree, struct reader *reader,
			  struct notifier *notifier)
{
	struct writer *writer = allocate(sizeof(*writer));
	const struct options *options = source->options;

	writer->source = source;
	writer->tree = tree;
	writer->reader = reader;
	writer->notifier = notifier;
	writer->is_async = is_set_to(options->sync, "async");
	writer->fails_on_conflict = is_set_to(options->conflict, "fail");
	writer->spool = options->spool ? options->spool : "/var/tmp";
	check_spool(writer->spool);
	spool_limit_files(spool_files(options));
	pthread_mutex_init(&writer->lock, NULL);
	writer->transactions = transactions_create(source->pool, source->schema, writer->is_async);
	writer_add_calls(writer);
	writer->pages = pages_create(make_due, writer);
	writer->sender = sender_create(writer);
	writer->ahead = ahead_create(writer);
	if (is_set_to(options->locks, "db"))
		writer->locks = locks_create(source);
	group_directory_create(writer);
	return writer;
}

void
writer_start(struct writer *writer, struct fuse_session *session)
{
	pages_start(writer->pages, session);
	sender_start(writer->sender);
	ahead_start(writer->ahead);
}

/* Transactions of many files are rolled back by the end of their connections. */
void
writer_destroy(struct writer *writer)
{
	pages_stop(writer->pages);
	sender_destroy(writer->sender);
	ahead_destroy(writer->ahead);
	if (writer->locks != NULL)
		locks_destroy(writer->locks);
	transactions_destroy(writer->transactions);
	free(writer);
}
