/*
 * common/options.h
 *	  Options of the command line and of -o.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <sys/types.h>

struct fuse_args;

struct options
{
	char	   *conninfo;		/* of libpq */
	char	   *mountpoint;	/* absolute */

	/* table view */
	char	   *table;
	char	   *path;			/* columns */
	char	   *content;
	char	   *mtime;
	char	   *mode;
	char	   *where;			/* a condition of SQL */
	char	   *prefix;			/* of the paths that are shown; it is cut off */

	/* file system */
	char	   *fs;
	char	   *at;				/* name of a snapshot */

	/* both */
	char	   *snapshot;		/* as pg_export_snapshot() names it */
	char	   *isolation;		/* statement, snapshot */

	double		timeout;		/* seconds for which a name is trusted */
	double		timeo;			/* seconds for which a lost server is waited for */
	unsigned	connections;	/* at most */
	unsigned	max_read;		/* bytes of a read request; 0: the kernel's choice */
	unsigned	cache_mb;		/* content in the program's memory */
	int			noopen;
	int			xattr;
	int			notify;
	int			nopin;
	int			has_umask;
	unsigned	uid;
	unsigned	gid;
	unsigned	umask;
	char	   *sync;			/* on, async */
	char	   *conflict;		/* last, fail */
	char	   *locks;			/* local, db */
	char	   *spool;			/* directory of working copies, absolute; NULL: /var/tmp */

	bool		read_only;
	bool		read_write;		/* asked for */
	bool		opens_transactions;	/* isolation=snapshot */
	bool		foreground;
	bool		debug;
};

/*
 * Take the program's options out of args, and leave those of libfuse and of the kernel.  Ends the
 * program with a message if they are wrong, and with help or version if they were asked for.
 */
void options_parse(struct fuse_args *args, struct options *options);

#endif							/* OPTIONS_H */
