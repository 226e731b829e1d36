/*
 * requests/session.c
 *	  The session with the kernel: the loop that serves its requests.
 *
 * A request is served by one thread from its beginning to its reply.  The kernel keeps the nodes of
 * a request until the reply.  Names are trusted for the option "timeout"; the content of a node, a
 * version, never changes.
 */
#include "requests/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/errors.h"
#include "connections/watch.h"
#include "kernel/notify.h"
#include "reading/reader.h"
#include "requests/operations.h"
#include "writing/copies.h"
#include "writing/start.h"

enum
{
	MAX_BACKGROUND = 64,
	IDLE_THREADS = 10
};

/*
 * Pages of a node never change but by this mount, so the kernel must not drop them when attributes
 * change.  Listings always bring attributes: the statement reads them anyway, and each look-up
 * would be one more.
 */
static void
init(void *data, struct fuse_conn_info *connection)
{
	struct mount *mount = data;

	connection->want &= ~(unsigned) (FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_READDIRPLUS_AUTO);
	connection->want |= connection->capable &
		(FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS |
		 FUSE_CAP_ASYNC_READ | FUSE_CAP_CACHE_SYMLINKS);
	if (mount->source->operations->parent != NULL)
		connection->want |= connection->capable & FUSE_CAP_EXPORT_SUPPORT;
	if (mount->options->read_only)
		connection->want &= ~(unsigned) FUSE_CAP_ATOMIC_O_TRUNC;
	connection->max_read = mount->options->max_read;
	connection->max_background = MAX_BACKGROUND;
	connection->time_gran = mount->source->with_paths ? 1000 : 1;
}

static void
set_operations(const struct mount *mount, struct fuse_lowlevel_ops *operations)
{
	operations->init = init;
	lookup_operations(operations);
	attributes_operations(operations, mount->writer != NULL);
	file_operations(operations);
	directory_operations(operations);
	if (mount->writer == NULL)
		return;
	change_operations(operations);
	write_operations(operations);
	if (mount->writer->locks != NULL)
		lock_operations(operations);
}

/* A working copy ends with the last that has the node open. */
static void
kept_expired(void *context, struct node *node)
{
	struct mount *mount = context;

	if (mount->writer != NULL && node->working != NULL)
		copy_closed(mount->writer, node);
}

/* Requests that wait for a connection or for the server must not keep others waiting. */
static int
serve(struct mount *mount)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int			status;

	mount->watch = watch_start(mount->pool, mount->options);
	fuse_loop_cfg_set_max_threads(config, 2 * mount->options->connections + IDLE_THREADS);
	fuse_loop_cfg_set_idle_threads(config, IDLE_THREADS);
	read_on_expiry(mount->reader, kept_expired, mount);
	read_start(mount->reader);
	notify_start(mount->notifier, mount->session);
	if (mount->writer != NULL)
		writer_start(mount->writer, mount->session);
	status = fuse_session_loop_mt(mount->session, config);
	fuse_loop_cfg_destroy(config);
	notify_stop(mount->notifier);
	return status;
}

/* Messages of libfuse. */
static void
log_message(enum fuse_log_level level, const char *format, va_list arguments)
{
	char		text[1024];

	if (level >= FUSE_LOG_INFO)
		return;
	vsnprintf(text, sizeof(text), format, arguments);
	text[strcspn(text, "\n")] = '\0';
	message("%s", text);
}

/*
 * Into the background, with the working directory that the program was started in.  libfuse goes to
 * "/", also in the foreground; but whenever libpq connects it reads files that parameters,
 * variables of the environment and service files name: certificates, passwords, the service file.
 * Where the program may not search the directory (EACCES), no relative path has led to a file.
 */
static int
daemonize(bool foreground)
{
	int			here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool		good = (here >= 0 || errno == EACCES) && fuse_daemonize(foreground) == 0 &&
		(here < 0 || fchdir(here) == 0 || errno == EACCES);

	if (!good)
		message("the working directory: %m");
	if (here >= 0)
		close(here);
	return good ? 0 : -1;
}

int
session_run(struct mount *mount, struct fuse_args *arguments)
{
	struct fuse_lowlevel_ops operations = {0};
	int			status = 1;

	pthread_mutex_init(&mount->lock, NULL);
	set_operations(mount, &operations);
	fuse_set_log_func(log_message);
	mount->session = fuse_session_new(arguments, &operations, sizeof(operations), mount);
	if (mount->session == NULL)
		return 1;
	if (fuse_set_signal_handlers(mount->session) == 0)
	{
		if (fuse_session_mount(mount->session, mount->options->mountpoint) == 0)
		{
			if (!mount->options->foreground)
				message_to_syslog();
			if (daemonize(mount->options->foreground) == 0)
				status = serve(mount) == 0 ? 0 : 1;
			fuse_session_unmount(mount->session);
		}
		fuse_remove_signal_handlers(mount->session);
	}
	return status;
}
