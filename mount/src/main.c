/*
 * main.c
 *	  The program blobfs: values of a PostgreSQL database as files.
 *
 * All that can be wrong with the options is told before the program goes into the background.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/errors.h"
#include "connections/watch.h"
#include "kernel/notify.h"
#include "reading/reader.h"
#include "requests/session.h"
#include "sources/pins.h"
#include "tx.h"
#include "writing/start.h"

enum
{
	/* Memory of chunks is kept: the kernel would zero it each time. */
	MMAP_THRESHOLD = 16 << 20,
	TRIM_THRESHOLD = 64 << 20,
	ARENAS = 4,
	/* Descriptors that are asked for, where there may be more: Linux's own default of the most. */
	DESCRIPTORS = 1024 * 1024
};

/*
 * Each file that is being written may need a descriptor (writing/spool.h).  The usual limit, 1024,
 * is for programs that call select(), which this one and libpq do not.
 */
static void
raise_descriptor_limit(void)
{
	struct rlimit limit;
	rlim_t		most;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		fatal("limit of descriptors: %m");
	most = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
	if (limit.rlim_cur >= most)
		return;
	limit.rlim_cur = most;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		message("limit of descriptors: %m");
}

/* Whether libpq takes it for a connection string: as an URI, or in the form keyword=value. */
static bool
is_connection_string(const char *conninfo)
{
	return strchr(conninfo, '=') != NULL || strncmp(conninfo, "postgres://", 11) == 0 ||
		strncmp(conninfo, "postgresql://", 13) == 0;
}

/* Whether the connection string has a password, which must not be shown among the mounts. */
static bool
has_password(const char *conninfo)
{
	PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
	bool		found = options == NULL;

	/* libpq marks secrets by an asterisk. */
	for (PQconninfoOption *option = options; option != NULL && option->keyword != NULL; option++)
		if (strchr(option->dispchar, '*') != NULL && option->val != NULL)
			found = true;
	PQconninfoFree(options);
	return found && is_connection_string(conninfo);
}

/* Options of the kernel that each mount has. */
static void
add_kernel_options(struct fuse_args *arguments, const struct options *options)
{
	char	   *list = NULL;
	bool		secret = has_password(options->conninfo);
	char	   *name = format_string("fsname=%s", secret ? "blobfs" : options->conninfo);

	if (fuse_opt_add_opt_escaped(&list, name) != 0 ||
		fuse_opt_add_opt(&list, "subtype=blobfs,default_permissions") != 0 ||
		(options->read_only && fuse_opt_add_opt(&list, "ro") != 0) ||
		fuse_opt_insert_arg(arguments, 1, "-o") != 0 ||
		fuse_opt_insert_arg(arguments, 2, list) != 0)
		fatal("out of memory");
	free(list);
	free(name);
}

/* The parts are made from the lowest on, and end in the opposite order. */
int
main(int argc, char **argv)
{
	struct fuse_args arguments = FUSE_ARGS_INIT(argc, argv);
	struct options options;
	struct mount mount = {.options = &options};
	char	   *error;
	int			status;

	if (argc > 1 && strcmp(argv[1], "tx") == 0)
		return tx_run(argc, argv);
	mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
	mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD);
	mallopt(M_ARENA_MAX, ARENAS);
	raise_descriptor_limit();
	options_parse(&arguments, &options);
	add_kernel_options(&arguments, &options);
	mount.pool = pool_create(&options);
	if (!pool_connect(mount.pool, &error))
		fatal("no connection to the server: %s", error);
	mount.source = options.fs ? source_fs_create(mount.pool, &options) :
		source_table_create(mount.pool, &options);
	if (options.snapshot != NULL && !pool_set_snapshot(mount.pool, options.snapshot, &error))
		fatal("snapshot \"%s\": %s", options.snapshot, error);
	mount.tree = tree_create(mount.source->with_paths, &mount.source->root);
	mount.reader = read_create(mount.source, mount.tree, &options);
	if (options.notify)
		mount.notifier = notify_create(mount.pool, mount.tree, mount.source->channel);
	if (!options.read_only && mount.source->writable)
		mount.writer = writer_create(mount.source, mount.tree, mount.reader, mount.notifier);
	status = session_run(&mount, &arguments);
	if (mount.writer != NULL)
		writer_destroy(mount.writer);
	mount.writer = NULL;
	read_stop(mount.reader);
	pins_destroy(mount.source);
	if (mount.watch != NULL)
		watch_stop(mount.watch);
	pool_destroy(mount.pool);
	if (mount.session != NULL)
		fuse_session_destroy(mount.session);
	fuse_opt_free_args(&arguments);
	return status;
}
