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

struct locked_inode
{
	struct locked_inode *next;
	uint64_t	ino;
	struct lock *first;
	enum mode	mode;			/* that the server has given */
};

struct locks
{
	struct pool *pool;
	pthread_mutex_t lock;		/* of all below, and of the connection */
	struct locked_inode *first;
	struct connection *connection;	/* reserved; NULL before the first lock */
	uint64_t	key;			/* of the file system, among all advisory locks */
	int			schema_oid;		/* statements */
	int			take[3];		/* by mode */
	int			give[3];
};

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
	error = pool_take(locks->pool, -1, &taken);
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
	error = pool_reserve(locks->pool, &locks->connection);
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
	for (int attempt = 0; attempt <= pool_size(locks->pool) + 1; attempt++)
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

int
locks_take(struct locks *locks, uint64_t ino, const struct lock *wanted, bool waits)
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
void
locks_give(struct locks *locks, uint64_t ino, const struct lock *range)
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

bool
locks_find(struct locks *locks, uint64_t ino, struct lock *wanted)
{
	struct locked_inode *inode;
	const struct lock *conflict;

	pthread_mutex_lock(&locks->lock);
	inode = get_inode(locks, ino);
	conflict = find_conflict(inode, wanted);
	if (conflict != NULL)
		*wanted = *conflict;
	forget_if_free(locks, inode);
	pthread_mutex_unlock(&locks->lock);
	return conflict != NULL;
}

/* ---- beginning and end ---- */

struct locks *
locks_create(struct source *source)
{
	struct locks *locks = allocate(sizeof(*locks));
	struct parameters parameters = {0};
	PGresult   *result;

	locks->pool = source->pool;
	pthread_mutex_init(&locks->lock, NULL);
	locks->take[MODE_SHARED] = pool_add_statement(
		source->pool, "SELECT pg_catalog.pg_try_advisory_lock_shared($1::bigint)", 1, 1);
	locks->take[MODE_EXCLUSIVE] = pool_add_statement(
		source->pool, "SELECT pg_catalog.pg_try_advisory_lock($1::bigint)", 1, 1);
	locks->give[MODE_SHARED] = pool_add_statement(
		source->pool, "SELECT pg_catalog.pg_advisory_unlock_shared($1::bigint)", 1, 1);
	locks->give[MODE_EXCLUSIVE] = pool_add_statement(
		source->pool, "SELECT pg_catalog.pg_advisory_unlock($1::bigint)", 1, 1);
	locks->schema_oid = pool_add_statement(
		source->pool, "SELECT n.oid::bigint FROM pg_catalog.pg_namespace AS n"
		" WHERE pg_catalog.quote_ident(n.nspname) OPERATOR(pg_catalog.=) $1::pg_catalog.text",
		1, 1);
	parameter_text(&parameters, source->schema);
	if (query_run(source->pool, -1, locks->schema_oid, &parameters, &result) != 0)
		fatal("the schema of the file system is not found");
	locks->key = (uint64_t) field_int8(result, 0, 0) << 32;
	PQclear(result);
	return locks;
}

/* The server gives the locks back when the connection ends. */
void
locks_destroy(struct locks *locks)
{
	if (locks->connection != NULL)
		pool_unreserve(locks->connection);
	free(locks);
}
