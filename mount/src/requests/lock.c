/*
 * requests/lock.c
 *	  Locks of files, with -o locks=db.
 */
#include "requests/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "requests/entry.h"
#include "requests/operations.h"
#include "writing/copies.h"
#include "writing/locks.h"
#include "writing/making.h"

/*
 * A program that has waited for a lock reads the content that the last holder has written.  The
 * kernel waits for nothing else while it asks for a lock, so it can drop pages now.
 */
static void
see_changes(struct mount *mount, struct node *node)
{
	struct attributes now;

	if (node->working == NULL ||
		mount->source->operations->getattr(mount->source, node, &now) != 0)
		return;
	copy_seen(mount->writer, node, &now);
	fuse_lowlevel_notify_inval_inode(mount->session, node->id, 0, 0);
}

static struct lock
lock_of(const struct flock *flock, uint64_t owner)
{
	struct lock lock = {
		.owner = owner,
		.is_exclusive = flock->l_type == F_WRLCK,
		.start = flock->l_start,
		.end = flock->l_len == 0 ? INT64_MAX : flock->l_start + flock->l_len
	};

	return lock;
}

static void
op_getlk(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info, struct flock *flock)
{
	struct node *node = request_node(request, id);
	struct lock lock = lock_of(flock, info->lock_owner);

	if (locks_find(request_mount(request)->writer->locks, node->attributes.ino, &lock))
	{
		flock->l_type = lock.is_exclusive ? F_WRLCK : F_RDLCK;
		flock->l_start = lock.start;
		flock->l_len = lock.end == INT64_MAX ? 0 : lock.end - lock.start;
	}
	else
		flock->l_type = F_UNLCK;
	fuse_reply_lock(request, flock);
}

/* Take or give a lock; 0 or an errno. */
static int
change_lock(fuse_req_t request, struct node *node, const struct lock *lock, bool takes, bool waits)
{
	struct mount *mount = request_mount(request);
	int			error;

	births_make_node(mount->writer, node);
	if (!takes)
	{
		locks_give(mount->writer->locks, node->attributes.ino, lock);
		return 0;
	}
	error = locks_take(mount->writer->locks, node->attributes.ino, lock, waits);
	if (error == 0)
		see_changes(mount, node);
	return error;
}

static void
op_setlk(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info, struct flock *flock,
		 int waits)
{
	struct node *node = request_node(request, id);
	struct lock lock = lock_of(flock, info->lock_owner);

	fuse_reply_err(request, change_lock(request, node, &lock, flock->l_type != F_UNLCK, waits));
}

static void
op_flock(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info, int operation)
{
	struct node *node = request_node(request, id);
	struct lock lock = {
		.owner = info->lock_owner,
		.is_flock = true,
		.is_exclusive = (operation & LOCK_EX) != 0,
		.end = INT64_MAX
	};
	int			error = change_lock(request, node, &lock, !(operation & LOCK_UN),
									!(operation & LOCK_NB));

	fuse_reply_err(request, error == EAGAIN ? EWOULDBLOCK : error);
}

void
lock_closed(struct mount *mount, const struct node *node, const struct fuse_file_info *info)
{
	struct lock all = {.owner = info->lock_owner, .end = INT64_MAX};

	locks_give(mount->writer->locks, node->attributes.ino, &all);
}

void
lock_released(struct mount *mount, const struct node *node, const struct fuse_file_info *info)
{
	struct lock all = {.owner = info->lock_owner, .is_flock = true, .end = INT64_MAX};

	if (info->flock_release)
		locks_give(mount->writer->locks, node->attributes.ino, &all);
}

void
lock_operations(struct fuse_lowlevel_ops *operations)
{
	operations->getlk = op_getlk;
	operations->setlk = op_setlk;
	operations->flock = op_flock;
}
