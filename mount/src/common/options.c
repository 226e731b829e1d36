/*
 * common/options.c
 *	  Options of the command line and of -o.
 *
 * Other options stay in the arguments, for libfuse and the kernel.
 */
#include "common/options.h"

#include <fuse_lowlevel.h>
#include <libpq-fe.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/errors.h"

#ifndef BLOBFS_VERSION
#define BLOBFS_VERSION "0.4.0"
#endif

enum
{
	KEY_HELP,
	KEY_VERSION,
	KEY_FOREGROUND,
	KEY_DEBUG,
	KEY_READ_ONLY,
	KEY_READ_WRITE,
	KEY_NUMBER,
	KEY_IGNORED
};

#define OPTION(text, member, value) {text, offsetof(struct options, member), value}

static const struct fuse_opt specification[] = {
	OPTION("table=%s", table, 0),
	OPTION("path=%s", path, 0),
	OPTION("content=%s", content, 0),
	OPTION("mtime=%s", mtime, 0),
	OPTION("mode=%s", mode, 0),
	OPTION("where=%s", where, 0),
	OPTION("prefix=%s", prefix, 0),
	OPTION("fs=%s", fs, 0),
	OPTION("at=%s", at, 0),
	OPTION("snapshot=%s", snapshot, 0),
	OPTION("isolation=%s", isolation, 0),
	OPTION("noopen", noopen, 1),
	OPTION("xattr", xattr, 1),
	OPTION("notify", notify, 1),
	OPTION("nopin", nopin, 1),
	OPTION("sync=%s", sync, 0),
	OPTION("conflict=%s", conflict, 0),
	OPTION("locks=%s", locks, 0),
	OPTION("spool=%s", spool, 0),
	FUSE_OPT_KEY("timeout=", KEY_NUMBER),
	FUSE_OPT_KEY("timeo=", KEY_NUMBER),
	FUSE_OPT_KEY("connections=", KEY_NUMBER),
	FUSE_OPT_KEY("cache=", KEY_NUMBER),
	FUSE_OPT_KEY("uid=", KEY_NUMBER),
	FUSE_OPT_KEY("gid=", KEY_NUMBER),
	FUSE_OPT_KEY("umask=", KEY_NUMBER),
	FUSE_OPT_KEY("max_read=", KEY_NUMBER),
	FUSE_OPT_KEY("-h", KEY_HELP),
	FUSE_OPT_KEY("--help", KEY_HELP),
	FUSE_OPT_KEY("-V", KEY_VERSION),
	FUSE_OPT_KEY("--version", KEY_VERSION),
	FUSE_OPT_KEY("-f", KEY_FOREGROUND),
	FUSE_OPT_KEY("-d", KEY_DEBUG),
	FUSE_OPT_KEY("debug", KEY_DEBUG),
	FUSE_OPT_KEY("ro", KEY_READ_ONLY),
	FUSE_OPT_KEY("rw", KEY_READ_WRITE),
	/* Words of fstab that are for other programs. */
	FUSE_OPT_KEY("_netdev", KEY_IGNORED),
	FUSE_OPT_KEY("nofail", KEY_IGNORED),
	FUSE_OPT_KEY("x-", KEY_IGNORED),
	FUSE_OPT_END
};

static const char help[] =
	"usage: blobfs [-f] -o table=TABLE,path=COLUMN,content=COLUMN[,...] CONNINFO DIRECTORY\n"
	"       blobfs [-f] -o fs=NAME[,...] CONNINFO DIRECTORY\n"
	"\n"
	"Shows values of a PostgreSQL database as files.  CONNINFO is a connection string of\n"
	"libpq, such as 'dbname=demo' or 'postgresql://host/demo'.  \"fusermount3 -u DIRECTORY\"\n"
	"ends the program.\n"
	"\n"
	"A table or view, read-only:\n"
	"    table=NAME         the table, as SQL writes it: document, archive.document\n"
	"    path=COLUMN        text: the path of each file; directories are implied\n"
	"    content=COLUMN     blobstate or bytea\n"
	"    mtime=COLUMN       timestamptz or timestamp: time of the last change\n"
	"    mode=COLUMN        integer: permissions\n"
	"    where=CONDITION    rows that are shown\n"
	"    prefix=TEXT        show paths that begin with it, without it; / for absolute paths\n"
	"A file system, which SELECT blobfs.create('NAME') has made:\n"
	"    fs=NAME            its schema\n"
	"    at=SNAPSHOT        its state at a named snapshot, read-only\n"
	"    sync=async         close() and fsync() do not wait for the server's disk\n"
	"    conflict=fail      a file that was changed elsewhere is not overwritten at close(): EIO\n"
	"    locks=db           flock() and fcntl() exclude other mounts, too\n"
	"    spool=DIRECTORY    where files lie while they are written (/var/tmp)\n"
	"Both:\n"
	"    ro                 read-only; a table always is\n"
	"    snapshot=ID        a snapshot that pg_export_snapshot() has named; read-only\n"
	"    isolation=snapshot an open file has a transaction of its own from open() to close(): at\n"
	"                       most connections - 2 open files, then ENFILE; needs ro\n"
	"    timeout=SECONDS    how long names are trusted (1); 0: not at all\n"
	"    noopen             the kernel does not ask before it opens a file; for trees that are\n"
	"                       mostly read.  An open file that is replaced may become ESTALE\n"
	"    nopin              do not keep replaced versions of open files\n"
	"    notify             drop names when the server notifies of a change\n"
	"    timeo=SECONDS      how long a lost server is waited for before EIO (30)\n"
	"    connections=N      at most so many connections (8)\n"
	"    cache=MB           content in this program's memory (64)\n"
	"    xattr              extended attributes: user.sha256, user.size, and a file system's own\n"
	"    uid=N gid=N        owner of the files of a table (the caller)\n"
	"    umask=OCTAL        permissions that files of a table do not get\n"
	"    allow_other        let other users in; needs user_allow_other in /etc/fuse.conf\n"
	"    default_permissions, max_read=N, noexec ...   options of the kernel\n"
	"    -f                 stay in the foreground;  -d  debugging messages, in the foreground\n"
	"    -h, --help         this text;  -V, --version  versions\n"
	"\n"
	"Documentation: man blobfs, docs/mount.md\n";

static void
show_version(void)
{
	printf("blobfs %s, libfuse %s, libpq %d.%d\n", BLOBFS_VERSION, fuse_pkgversion(),
		   PQlibVersion() / 10000, PQlibVersion() % 10000);
	exit(0);
}

/* ---- numbers ---- */

/* An option with a number: how it is written, which values it has. */
struct number
{
	const char *name;			/* with '=' */
	const char *characters;		/* of which it is made */
	int			base;			/* 0: with fractions */
	double		least;
	double		most;
	const char *expected;		/* for the message */
};

#define DIGITS "0123456789"
#define MAX_ID 4294967294.0		/* the next one is "none" to the kernel */

static const struct number numbers[] = {
	{"timeout=", DIGITS ".", 0, 0, 1e9, "a number of seconds"},
	{"timeo=", DIGITS ".", 0, 0, 1e9, "a number of seconds"},
	{"connections=", DIGITS, 10, 1, 1000, "a whole number from 1 to 1000"},
	{"cache=", DIGITS, 10, 8, 1024 * 1024, "a whole number of MB from 8 to 1048576"},
	{"uid=", DIGITS, 10, 0, MAX_ID, "the number of a user"},
	{"gid=", DIGITS, 10, 0, MAX_ID, "the number of a group"},
	{"umask=", "01234567", 8, 0, 0777, "an octal number up to 777"},
	{"max_read=", DIGITS, 10, 0, UINT_MAX, "a whole number of bytes"},
};

static bool
is_option(const char *argument, const char *name)
{
	return strncmp(argument, name, strlen(name)) == 0;
}

/* The number behind '='; the program ends with a message if it is none, or out of range. */
static double
parse_number(const char *argument)
{
	const struct number *number = numbers;
	const char *text = strchr(argument, '=') + 1;
	char	   *end = NULL;
	double		value = -1;

	while (!is_option(argument, number->name))
		number++;
	if (strspn(text, number->characters) == strlen(text))
		value = number->base == 0 ? strtod(text, &end) :
			(double) strtoull(text, &end, number->base);
	if (end == text || end == NULL || *end != '\0' || value < number->least ||
		value > number->most)
		fatal("option \"%s\" needs %s", argument, number->expected);
	return value;
}

/* The answer of process_option(): "max_read" is for libfuse, too. */
static int
process_number(struct options *options, const char *argument)
{
	double		value = parse_number(argument);

	if (is_option(argument, "timeout="))
		options->timeout = value;
	else if (is_option(argument, "timeo="))
		options->timeo = value;
	else if (is_option(argument, "connections="))
		options->connections = (unsigned) value;
	else if (is_option(argument, "cache="))
		options->cache_mb = (unsigned) value;
	else if (is_option(argument, "uid="))
		options->uid = (unsigned) value;
	else if (is_option(argument, "gid="))
		options->gid = (unsigned) value;
	else if (is_option(argument, "umask="))
	{
		options->has_umask = 1;
		options->umask = (unsigned) value;
	}
	else
	{
		options->max_read = (unsigned) value;
		return 1;
	}
	return 0;
}

/* ---- others ---- */

/* fuse_opt_proc_t: 0 takes the argument away, 1 keeps it. */
static int
process_option(void *data, const char *argument, int key, struct fuse_args *arguments)
{
	struct options *options = data;

	switch (key)
	{
		case KEY_HELP:
			fputs(help, stdout);
			exit(0);
		case KEY_VERSION:
			show_version();
			return 0;
		case KEY_FOREGROUND:
			options->foreground = true;
			return 0;
		case KEY_DEBUG:
			options->foreground = options->debug = true;
			return 0;
		case KEY_READ_ONLY:
			options->read_only = true;
			options->read_write = false;
			return 0;
		case KEY_READ_WRITE:
			options->read_write = true;
			options->read_only = false;
			return 0;
		case KEY_IGNORED:
			return 0;
		case KEY_NUMBER:
			return process_number(options, argument);
		case FUSE_OPT_KEY_NONOPT:
			if (options->conninfo == NULL)
				options->conninfo = copy_string(argument);
			else if (options->mountpoint == NULL)
				options->mountpoint = copy_string(argument);
			else
				fatal("unexpected argument \"%s\"; see blobfs --help", argument);
			return 0;
		default:
			return strncmp(argument, "x-", 2) == 0 ? 0 : 1;
	}
}

static void
require_file_system(const char *name, const void *value)
{
	if (value != NULL)
		fatal("option \"%s\" needs a file system: \"fs=NAME\"", name);
}

static void
refuse_with_file_system(const char *name, const char *value)
{
	if (value != NULL)
		fatal("options \"fs\" and \"%s\" exclude each other", name);
}

static void
check_table_options(const struct options *options)
{
	if (options->table == NULL)
		fatal("either \"-o table=TABLE,path=COLUMN,content=COLUMN\" or \"-o fs=NAME\" is needed; "
			  "see blobfs --help");
	if (options->path == NULL || options->content == NULL)
		fatal("option \"table\" needs \"%s=COLUMN\"", options->path == NULL ? "path" : "content");
	require_file_system("at", options->at);
	require_file_system("sync", options->sync);
	require_file_system("conflict", options->conflict);
	require_file_system("locks", options->locks);
	require_file_system("spool", options->spool);
}

/* Ends the program with a message if an option is for tables only, or has an unknown value. */
static void
check_file_system_options(const struct options *options)
{
	refuse_with_file_system("table", options->table);
	refuse_with_file_system("path", options->path);
	refuse_with_file_system("content", options->content);
	refuse_with_file_system("mtime", options->mtime);
	refuse_with_file_system("mode", options->mode);
	refuse_with_file_system("where", options->where);
	refuse_with_file_system("prefix", options->prefix);
	if (options->sync && strcmp(options->sync, "on") && strcmp(options->sync, "async"))
		fatal("option \"sync\" is \"on\" or \"async\", not \"%s\"", options->sync);
	if (options->locks && strcmp(options->locks, "local") && strcmp(options->locks, "db"))
		fatal("option \"locks\" is \"local\" or \"db\", not \"%s\"", options->locks);
	if (options->conflict && strcmp(options->conflict, "last") &&
		strcmp(options->conflict, "fail"))
		fatal("option \"conflict\" is \"last\" or \"fail\", not \"%s\"", options->conflict);
}

/* Both keep transactions open, so neither needs pins. */
static void
check_transaction_options(struct options *options)
{
	if (options->isolation && strcmp(options->isolation, "statement") &&
		strcmp(options->isolation, "snapshot"))
		fatal("option \"isolation\" is \"statement\" or \"snapshot\", not \"%s\"",
			  options->isolation);
	if (options->isolation && strcmp(options->isolation, "snapshot") == 0)
	{
		if (!options->read_only)
			fatal("option \"isolation=snapshot\" needs \"ro\"");
		if (options->noopen || options->snapshot != NULL)
			fatal("options \"isolation=snapshot\" and \"%s\" exclude each other",
				  options->noopen ? "noopen" : "snapshot");
		if (options->connections < 3)
			fatal("option \"isolation=snapshot\" needs \"connections\" of 3 at least");
		options->opens_transactions = true;
	}
	if (options->snapshot != NULL && options->notify)
		fatal("options \"snapshot\" and \"notify\" exclude each other");
	if (options->snapshot != NULL || options->opens_transactions)
		options->nopin = 1;
}

/* An absolute path, as fusermount3 needs one; the program ends with a message if there is no such
 * directory. */
static char *
find_directory(const char *path)
{
	char	   *absolute = realpath(path, NULL);
	struct stat stat_;

	if (absolute == NULL || stat(absolute, &stat_) != 0)
		fatal("directory \"%s\": %m", path);
	if (!S_ISDIR(stat_.st_mode))
		fatal("\"%s\" is not a directory", path);
	return absolute;
}

static void
check_directories(struct options *options)
{
	char	   *mountpoint = options->mountpoint;
	char	   *spool = options->spool;

	if (options->conninfo == NULL || mountpoint == NULL)
		fatal("a connection string and a directory are needed; see blobfs --help");
	options->mountpoint = find_directory(mountpoint);
	free(mountpoint);
	if (spool != NULL)
		options->spool = find_directory(spool);
	free(spool);
}

/*
 * Tables and snapshots are read-only, whatever the options say.  "rw" is no error there: mount(8)
 * gives it to each program that it calls for a line of fstab without "ro".
 */
static void
check_read_only(struct options *options)
{
	const char *what = options->table ? "a table" : options->at ? "a snapshot of a file system" :
		options->snapshot ? "a snapshot" : NULL;

	if (what == NULL)
		return;
	if (options->read_write)
		message("%s is mounted read-only, in spite of option \"rw\"", what);
	options->read_only = true;
}

void
options_parse(struct fuse_args *arguments, struct options *options)
{
	memset(options, 0, sizeof(*options));
	options->timeout = 1;
	options->timeo = 30;
	options->connections = 8;
	options->cache_mb = 64;
	options->uid = getuid();
	options->gid = getgid();
	if (fuse_opt_parse(arguments, options, specification, process_option) != 0)
		fatal("see blobfs --help");
	if (options->fs != NULL)
		check_file_system_options(options);
	else
		check_table_options(options);
	check_directories(options);
	check_read_only(options);
	check_transaction_options(options);
	if (options->noopen && !options->read_only)
		fatal("option \"noopen\" needs \"ro\": files that are written must be opened and closed");
	message_debug(options->debug);
}
