/*
 * requests/mount.h
 *	  A mounted file system: what each request finds in fuse_req_userdata().
 */
#ifndef MOUNT_H
#define MOUNT_H

#include <fuse_lowlevel.h>
#include <pthread.h>

#include "common/options.h"
#include "common/tree.h"
#include "connections/pool.h"
#include "sources/source.h"

enum
{
	MAX_RACES = 16,
	/* How often a row that changes faster than it can be opened is looked up again. */
	OPEN_ATTEMPTS = 20
};

/* An inode that had another version when it was opened than when it was looked up. */
struct race
{
	uint64_t	ino;
	time_t		at;				/* monotonic */
};

/* What each request finds in fuse_req_userdata(). */
struct mount
{
	const struct options *options;
	struct pool *pool;
	struct watch *watch;		/* NULL: it has not begun */
	struct source *source;
	struct tree *tree;
	struct reader *reader;
	struct fuse_session *session;
	struct notifier *notifier;
	struct writer *writer;		/* NULL: read-only */
	pthread_mutex_t lock;		/* of races */
	struct race races[MAX_RACES];
	int			next_race;
};

#endif							/* MOUNT_H */
