/*
 * writing/locks.c
 *	  -o locks=db: locks of files that all mounts of a file system share.
 *
 * Within the mount this module decides, by owner and range, as the kernel does for local locks.
 * Between mounts the server decides: for each inode with locks the mount holds an advisory lock on
 * a connection that it keeps for that, exclusive if one of them is for writing, else shared.  So
 * between mounts a lock of a range is one of the whole file, and flock() and fcntl() exclude each
 * other.
 *
 * A request that waits asks again and again, because the server's wait could not be interrupted.
 * If the connection is lost, so are its advisory locks: they are requested again at the next use;
 * those that another mount has got meanwhile are lost, with a message.
 */
#include "writing/locks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "common/clock.h"
#include "common/errors.h"
#include "connections/query.h"
#include "connections/request.h"

enum
{
	FIRST_WAIT_MILLISECONDS = 20,
	MAX_WAIT_MILLISECONDS = 200
};

/* Of the server's lock, in the order of strength. */
enum mode
{
	MODE_NONE,
	MODE_SHARED,
	MODE_EXCLUSIVE
};

struct lock
{
	struct lock *next;
	uint64_t	owner;
	bool		is_flock;
	bool		is_exclusive;
	int64_t		start;
	int64_t		end;			/* behind the last byte */
};

struct locked_inode
{
	struct locked_inode *next;
	uint64_t	ino;
	struct lock *first;
	enum mode	mode;			/* that the server has given */
};

struct locks
{
	struct mount *mount;
	pthread_mutex_t lock;		/* of all below, and of the connection */
	struct locked_inode *first;
	struct connection *connection;	/* reserved; NULL before the first lock */
	uint64_t	key;			/* of the file system, among all advisory locks */
	int			schema_oid;		/* statements */
	int			take[3];		/* by mode */
	int			give[3];
};

static struct locks *the_locks;

/* ---- the server's locks ---- */

static int64_t
key_of(const struct locks *locks, uint64_t ino)
{
	uint64_t	key = (ino ^ locks->key) * UINT64_C(0x9e3779b97f4a7c15);

	return (int64_t) (key ^ (key >> 29));
}

/* On the connection of the locks, whatever the thread is bound to. */
static int
run_statement(struct locks *locks, int statement, uint64_t ino, bool *is_true)
{
	struct connection *bound = pool_bound();
	struct parameters parameters = {0};
	struct connection *taken;
	PGresult   *result;
	int			error;

	parameter_int8(&parameters, key_of(locks, ino));
	pool_bind(locks->connection);
	error = pool_take(locks->mount->pool, -1, &taken);
	if (error == 0)
	{
		error = query_on(taken, statement, &parameters, &result, NULL);
		pool_give(taken);
	}
	if (error == 0)
	{
		*is_true = field_bool(result, 0, 0);
		PQclear(result);
	}
	if (bound != NULL)
		pool_bind(bound);
	else
		pool_unbind();
	return error == ERROR_LOST ? ESTALE : error;
}

/* From one mode to another; *got: whether the server allowed it. */
static int
change_mode(struct locks *locks, struct locked_inode *inode, enum mode mode, bool *got)
{
	enum mode	old = inode->mode;
	bool		ignored;
	int			error = 0;

	*got = true;
	if (mode == old)
		return 0;
	if (mode != MODE_NONE)
		error = run_statement(locks, locks->take[mode], inode->ino, got);
	if (error != 0 || !*got)
		return error;
	inode->mode = mode;
	if (old != MODE_NONE)
		error = run_statement(locks, locks->give[old], inode->ino, &ignored);
	return error;
}

/* Another connection, with the locks that the last one had, as far as no other mount has them. */
static int
connect_again(struct locks *locks)
{
	struct connection *bound = pool_bound();
	int			error;

	if (locks->connection != NULL)
		pool_unreserve(locks->connection);
	locks->connection = NULL;
	pool_unbind();
	error = pool_reserve(locks->mount->pool, &locks->connection);
	if (error != 0)
		locks->connection = NULL;
	if (bound != NULL)
		pool_bind(bound);
	for (struct locked_inode *inode = locks->first; inode != NULL && error == 0;
		 inode = inode->next)
	{
		enum mode	wanted = inode->mode;
		bool		got;

		inode->mode = MODE_NONE;
		error = change_mode(locks, inode, wanted, &got);
		if (error == 0 && !got)
			message("inode %llu: its lock is lost to another mount",
					(unsigned long long) inode->ino);
	}
	return error;
}

/* After a restart of the server each connection of the pool may be one that is lost. */
static int
set_mode(struct locks *locks, struct locked_inode *inode, enum mode mode, bool *got)
{
	int			error = locks->connection != NULL ? 0 : ESTALE;

	*got = true;
	if (mode == inode->mode)
		return 0;
	for (int attempt = 0; attempt <= pool_size(locks->mount->pool) + 1; attempt++)
	{
		if (error == ESTALE)
			error = connect_again(locks);
		if (error == 0)
			error = change_mode(locks, inode, mode, got);
		if (error != ESTALE)
			break;
	}
	return error;
}

/* ---- the mount's locks ---- */

static struct locked_inode *
get_inode(struct locks *locks, uint64_t ino)
{
	struct locked_inode *inode = locks->first;

	while (inode != NULL && inode->ino != ino)
		inode = inode->next;
	if (inode == NULL)
	{
		inode = allocate(sizeof(*inode));
		inode->ino = ino;
		inode->next = locks->first;
		locks->first = inode;
	}
	return inode;
}

static void
forget_if_free(struct locks *locks, struct locked_inode *inode)
{
	struct locked_inode **link = &locks->first;

	if (inode->first != NULL || inode->mode != MODE_NONE)
		return;
	while (*link != inode)
		link = &(*link)->next;
	*link = inode->next;
	free(inode);
}

static const struct lock *
find_conflict(const struct locked_inode *inode, const struct lock *wanted)
{
	for (const struct lock *lock = inode->first; lock != NULL; lock = lock->next)
		if (lock->is_flock == wanted->is_flock && lock->owner != wanted->owner &&
			(lock->is_exclusive || wanted->is_exclusive) &&
			lock->start < wanted->end && wanted->start < lock->end)
			return lock;
	return NULL;
}

static void
add_lock(struct locked_inode *inode, const struct lock *wanted, int64_t start, int64_t end)
{
	struct lock *lock;

	if (start >= end)
		return;
	lock = allocate(sizeof(*lock));
	*lock = *wanted;
	lock->start = start;
	lock->end = end;
	lock->next = inode->first;
	inode->first = lock;
}

/* The owner has no lock in this range any more; parts outside of it remain. */
static void
remove_range(struct locked_inode *inode, const struct lock *range)
{
	struct lock **link = &inode->first;
	struct lock *rest = NULL;

	while (*link != NULL)
	{
		struct lock *lock = *link;

		if (lock->is_flock != range->is_flock || lock->owner != range->owner ||
			lock->start >= range->end || range->start >= lock->end)
		{
			link = &lock->next;
			continue;
		}
		*link = lock->next;
		lock->next = rest;
		rest = lock;
	}
	while (rest != NULL)
	{
		struct lock *next = rest->next;

		add_lock(inode, rest, rest->start, range->start);
		add_lock(inode, rest, range->end, rest->end);
		free(rest);
		rest = next;
	}
}

static enum mode
needed_mode(const struct locked_inode *inode)
{
	enum mode	mode = MODE_NONE;

	for (const struct lock *lock = inode->first; lock != NULL; lock = lock->next)
		if (lock->is_exclusive)
			return MODE_EXCLUSIVE;
		else
			mode = MODE_SHARED;
	return mode;
}

/* Under the lock: once.  EAGAIN if another owner or mount has it. */
static int
try_lock(struct locks *locks, struct locked_inode *inode, const struct lock *wanted)
{
	enum mode	mode = wanted->is_exclusive ? MODE_EXCLUSIVE : MODE_SHARED;
	bool		got;
	int			error;

	if (find_conflict(inode, wanted) != NULL)
		return EAGAIN;
	error = set_mode(locks, inode, mode > inode->mode ? mode : inode->mode, &got);
	if (error != 0 || !got)
		return error != 0 ? error : EAGAIN;
	remove_range(inode, wanted);
	add_lock(inode, wanted, wanted->start, wanted->end);
	set_mode(locks, inode, needed_mode(inode), &got);
	return 0;
}

static int
take_lock(struct locks *locks, uint64_t ino, const struct lock *wanted, bool waits)
{
	int			milliseconds = FIRST_WAIT_MILLISECONDS;
	int			error;

	for (;;)
	{
		struct locked_inode *inode;

		pthread_mutex_lock(&locks->lock);
		inode = get_inode(locks, ino);
		error = try_lock(locks, inode, wanted);
		forget_if_free(locks, inode);
		pthread_mutex_unlock(&locks->lock);
		if (error != EAGAIN || !waits)
			return error;
		if (request_is_interrupted())
			return EINTR;
		sleep_milliseconds(milliseconds);
		if (milliseconds < MAX_WAIT_MILLISECONDS)
			milliseconds *= 2;
	}
}

/* The server's lock may stay longer than needed if it is away. */
static void
give_lock(struct locks *locks, uint64_t ino, const struct lock *range)
{
	struct locked_inode *inode;
	bool		got;

	pthread_mutex_lock(&locks->lock);
	inode = get_inode(locks, ino);
	if (inode->first != NULL)
	{
		remove_range(inode, range);
		if (set_mode(locks, inode, needed_mode(inode), &got) != 0 && inode->first == NULL)
			inode->mode = MODE_NONE;
	}
	forget_if_free(locks, inode);
	pthread_mutex_unlock(&locks->lock);
}

/* ---- requests ---- */

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
	session_write_seen(mount, node, &now);
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
	struct lock wanted = lock_of(flock, info->lock_owner);
	struct locked_inode *inode;
	const struct lock *conflict;

	pthread_mutex_lock(&the_locks->lock);
	inode = get_inode(the_locks, node->attributes.ino);
	conflict = find_conflict(inode, &wanted);
	flock->l_type = F_UNLCK;
	if (conflict != NULL)
	{
		flock->l_type = conflict->is_exclusive ? F_WRLCK : F_RDLCK;
		flock->l_start = conflict->start;
		flock->l_len = conflict->end == INT64_MAX ? 0 : conflict->end - conflict->start;
	}
	forget_if_free(the_locks, inode);
	pthread_mutex_unlock(&the_locks->lock);
	fuse_reply_lock(request, flock);
}

static void
op_setlk(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info, struct flock *flock,
		 int waits)
{
	struct node *node = request_node(request, id);
	struct lock wanted = lock_of(flock, info->lock_owner);
	int			error = 0;

	births_make_node(mount_writer(the_locks->mount), node);
	if (flock->l_type == F_UNLCK)
		give_lock(the_locks, node->attributes.ino, &wanted);
	else
		error = take_lock(the_locks, node->attributes.ino, &wanted, waits);
	if (error == 0 && flock->l_type != F_UNLCK)
		see_changes(the_locks->mount, node);
	fuse_reply_err(request, error);
}

static void
op_flock(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info, int operation)
{
	struct node *node = request_node(request, id);
	struct lock wanted = {
		.owner = info->lock_owner,
		.is_flock = true,
		.is_exclusive = (operation & LOCK_EX) != 0,
		.end = INT64_MAX
	};
	int			error = 0;

	births_make_node(mount_writer(the_locks->mount), node);
	if (operation & LOCK_UN)
		give_lock(the_locks, node->attributes.ino, &wanted);
	else
		error = take_lock(the_locks, node->attributes.ino, &wanted, !(operation & LOCK_NB));
	if (error == 0 && !(operation & LOCK_UN))
		see_changes(the_locks->mount, node);
	fuse_reply_err(request, error == EAGAIN ? EWOULDBLOCK : error);
}

void
locks_closed(struct mount *mount, const struct node *node, const struct fuse_file_info *info)
{
	struct lock all = {.owner = info->lock_owner, .end = INT64_MAX};

	if (the_locks != NULL)
		give_lock(the_locks, node->attributes.ino, &all);
}

void
locks_released(struct mount *mount, const struct node *node, const struct fuse_file_info *info)
{
	struct lock all = {.owner = info->lock_owner, .is_flock = true, .end = INT64_MAX};

	if (the_locks != NULL && info->flock_release)
		give_lock(the_locks, node->attributes.ino, &all);
}

void
locks_operations(struct fuse_lowlevel_ops *operations)
{
	operations->getlk = op_getlk;
	operations->setlk = op_setlk;
	operations->flock = op_flock;
}

/* ---- beginning and end ---- */

struct locks *
locks_create(struct mount *mount)
{
	struct locks *locks = allocate(sizeof(*locks));
	struct parameters parameters = {0};
	PGresult   *result;

	locks->mount = mount;
	pthread_mutex_init(&locks->lock, NULL);
	locks->take[MODE_SHARED] = pool_add_statement(
		mount->pool, "SELECT pg_catalog.pg_try_advisory_lock_shared($1::bigint)", 1, 1);
	locks->take[MODE_EXCLUSIVE] = pool_add_statement(
		mount->pool, "SELECT pg_catalog.pg_try_advisory_lock($1::bigint)", 1, 1);
	locks->give[MODE_SHARED] = pool_add_statement(
		mount->pool, "SELECT pg_catalog.pg_advisory_unlock_shared($1::bigint)", 1, 1);
	locks->give[MODE_EXCLUSIVE] = pool_add_statement(
		mount->pool, "SELECT pg_catalog.pg_advisory_unlock($1::bigint)", 1, 1);
	locks->schema_oid = pool_add_statement(
		mount->pool, "SELECT n.oid::bigint FROM pg_catalog.pg_namespace AS n"
		" WHERE pg_catalog.quote_ident(n.nspname) OPERATOR(pg_catalog.=) $1::pg_catalog.text",
		1, 1);
	parameter_text(&parameters, mount->source->schema);
	if (query_run(mount->pool, -1, locks->schema_oid, &parameters, &result) != 0)
		fatal("the schema of the file system is not found");
	locks->key = (uint64_t) field_int8(result, 0, 0) << 32;
	PQclear(result);
	the_locks = locks;
	return locks;
}

/* The server gives the locks back when the connection ends. */
void
locks_destroy(struct locks *locks)
{
	if (locks->connection != NULL)
		pool_unreserve(locks->connection);
	the_locks = NULL;
	free(locks);
}
