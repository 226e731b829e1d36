/*
 * kernel/notify.c
 *	  Names that the kernel drops because the server notified of a change.
 *
 * With "-o notify" the kernel trusts a name for LONG_SECONDS, and this module remembers it: the
 * directory's node, the name, and the inode to which it led.  A thread waits for notifications on a
 * connection of its own, and tells the kernel to drop the names in question.  It serves no request:
 * the kernel may hold locks of the directory until a request is answered.
 *
 * Payloads are "e PARENT HASH", an entry of a directory: all names in it are dropped, as only a
 * hash of the name is told; "i INO VERSION", an inode: all of its names, and its attributes;
 * "t", a table: everything.  Unknown payloads mean everything, and so does a connection that was
 * lost, because notifications may have been missed.  Changes of this mount's own connections are
 * known already.
 *
 * A look-up that was answered by the server before a change, and reaches the kernel after the
 * notification, must not be trusted.  So each request notes how many notifications there were
 * before its statement (notify_begin).  If there are more at its end, its names get the ordinary
 * timeout.  From this comparison until the reply is written a lock is held (notify_enter,
 * notify_leave), and the thread counts a notification under it before it drops names.
 *
 * The server's notification of a change by this mount is left out, so a commit of content counts as
 * one (notify_committed).  A look-up that was answered before it either finds the node while that
 * has its working copy, or sees at its end that there are more.
 *
 * A name that does not exist has the ordinary timeout in any case.
 */
#include "kernel/notify.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/errors.h"
#include "common/tree.h"
#include "connections/answer.h"
#include "connections/pool.h"

enum
{
	LONG_SECONDS = 3600,
	BUCKETS = 65536,
	/* More names than this are dropped all at once. */
	MAX_NAMES = 1000000,
	RECONNECT_MILLISECONDS = 1000
};

/* A name that the kernel may know. */
struct known_name
{
	struct known_name *next_by_parent;
	struct known_name *next_by_ino;
	uint64_t	parent_id;
	uint64_t	parent_ino;
	uint64_t	ino;
	char		name[];
};

struct notifier
{
	struct fuse_session *session;
	struct pool *pool;
	struct tree *tree;
	const char *channel;
	PGconn	   *connection;
	pthread_t	thread;
	int			wake[2];		/* a pipe; closed at the end */
	pthread_rwlock_t replies;	/* shared: between comparison and reply */
	uint64_t	count;			/* of notifications */
	bool		listening;
	pthread_mutex_t lock;		/* of names */
	struct known_name *by_parent[BUCKETS];
	struct known_name *by_ino[BUCKETS];
	size_t		name_count;
};

static __thread uint64_t begun_at;

/* ---- names ---- */

static size_t
hash_ino(uint64_t ino)
{
	return (size_t) ((ino * UINT64_C(0x9e3779b97f4a7c15)) >> 48);
}

uint64_t
notify_count(struct notifier *notifier)
{
	return notifier ? __atomic_load_n(&notifier->count, __ATOMIC_ACQUIRE) : 0;
}

void
notify_committed(struct notifier *notifier)
{
	if (notifier != NULL)
		__atomic_add_fetch(&notifier->count, 1, __ATOMIC_RELEASE);
}

void
notify_begin(uint64_t count)
{
	begun_at = count;
}

void
notify_enter(struct notifier *notifier)
{
	if (notifier != NULL)
		pthread_rwlock_rdlock(&notifier->replies);
}

void
notify_leave(struct notifier *notifier)
{
	if (notifier != NULL)
		pthread_rwlock_unlock(&notifier->replies);
}

double
notify_timeout(struct notifier *notifier, const struct node *parent, const char *name,
			   const struct attributes *attributes, double timeout)
{
	struct known_name *known;
	size_t		parent_hash = hash_ino(parent->attributes.ino);
	size_t		ino_hash = hash_ino(attributes->ino);

	if (notifier == NULL || !__atomic_load_n(&notifier->listening, __ATOMIC_ACQUIRE) ||
		notify_count(notifier) != begun_at)
		return timeout;
	known = allocate(sizeof(*known) + strlen(name) + 1);
	known->parent_id = parent->id;
	known->parent_ino = parent->attributes.ino;
	known->ino = attributes->ino;
	strcpy(known->name, name);
	pthread_mutex_lock(&notifier->lock);
	known->next_by_parent = notifier->by_parent[parent_hash];
	notifier->by_parent[parent_hash] = known;
	known->next_by_ino = notifier->by_ino[ino_hash];
	notifier->by_ino[ino_hash] = known;
	notifier->name_count++;
	pthread_mutex_unlock(&notifier->lock);
	return LONG_SECONDS;
}

/* Which names a notification means; 0: any. */
struct change
{
	uint64_t	parent_ino;
	uint64_t	ino;
};

static bool
is_meant(const struct change *change, const struct known_name *known)
{
	return (change->parent_ino == 0 || known->parent_ino == change->parent_ino) &&
		(change->ino == 0 || known->ino == change->ino);
}

/* Take the names in question out of their chains; one list of them, by next_by_parent. */
static struct known_name *
take_names(struct notifier *notifier, const struct change *change)
{
	struct known_name *taken = NULL;
	size_t		first = change->ino != 0 ? hash_ino(change->ino) : hash_ino(change->parent_ino);
	bool		all = change->ino == 0 && change->parent_ino == 0;

	pthread_mutex_lock(&notifier->lock);
	for (size_t i = all ? 0 : first; i < (all ? BUCKETS : first + 1); i++)
	{
		struct known_name **link = change->ino != 0 ? &notifier->by_ino[i] :
			&notifier->by_parent[i];

		while (*link != NULL)
		{
			struct known_name *known = *link;
			struct known_name **other;

			if (!is_meant(change, known))
			{
				link = change->ino != 0 ? &known->next_by_ino : &known->next_by_parent;
				continue;
			}
			*link = change->ino != 0 ? known->next_by_ino : known->next_by_parent;
			if (change->ino != 0)
				for (other = &notifier->by_parent[hash_ino(known->parent_ino)]; *other != known;)
					other = &(*other)->next_by_parent;
			else
				for (other = &notifier->by_ino[hash_ino(known->ino)]; *other != known;)
					other = &(*other)->next_by_ino;
			*other = change->ino != 0 ? known->next_by_parent : known->next_by_ino;
			known->next_by_parent = taken;
			taken = known;
			notifier->name_count--;
		}
	}
	pthread_mutex_unlock(&notifier->lock);
	return taken;
}

/* Errors mean that the kernel does not know the name any more. */
static void
drop_names(struct notifier *notifier, const struct change *change)
{
	struct known_name *taken;

	pthread_rwlock_wrlock(&notifier->replies);
	__atomic_add_fetch(&notifier->count, 1, __ATOMIC_RELEASE);
	pthread_rwlock_unlock(&notifier->replies);
	taken = take_names(notifier, change);
	while (taken != NULL)
	{
		struct known_name *next = taken->next_by_parent;

		fuse_lowlevel_notify_inval_entry(notifier->session, taken->parent_id, taken->name,
										 strlen(taken->name));
		free(taken);
		taken = next;
	}
}

/* Attributes, not pages: an offset below 0. */
static void
drop_attributes(struct notifier *notifier, uint64_t ino)
{
	uint64_t	ids[64];
	int			count = tree_ids(notifier->tree, ino, 0, ids, 64);

	for (int i = 0; i < count && i < 64; i++)
		fuse_lowlevel_notify_inval_inode(notifier->session, ids[i], -1, 0);
}

static void
drop_all(struct notifier *notifier)
{
	struct change all = {0};

	drop_names(notifier, &all);
}

/* ---- notifications ---- */

static void
process(struct notifier *notifier, const PGnotify *notification)
{
	struct change change = {0};
	unsigned long long number;

	if (pool_has_backend(notifier->pool, notification->be_pid))
		return;
	debug("notified: %s", notification->extra);
	if (sscanf(notification->extra, "e %llu ", &number) == 1)
		change.parent_ino = number;
	else if (sscanf(notification->extra, "i %llu ", &number) == 1)
		change.ino = number;
	drop_names(notifier, &change);
	if (change.parent_ino != 0 || change.ino != 0)
		drop_attributes(notifier, change.parent_ino | change.ino);
}

/* Connect, and listen; false: the server is away.  Names that were told before may have changed
 * meanwhile, so all are dropped. */
static bool
listen_now(struct notifier *notifier)
{
	char	   *error;
	char	   *sql = format_string("LISTEN \"%s\"", notifier->channel);
	PGresult   *result = NULL;
	bool		good;

	PQfinish(notifier->connection);
	notifier->connection = pool_connect_apart(notifier->pool, &error);
	if (notifier->connection != NULL)
		result = query_text(notifier->connection, sql, 1);
	else
		free(error);
	good = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	free(sql);
	__atomic_store_n(&notifier->listening, good, __ATOMIC_RELEASE);
	drop_all(notifier);
	return good;
}

/* Wait for what the server sends; false at the end of the program. */
static bool
wait_for_server(struct notifier *notifier, bool connected)
{
	struct pollfd polled[2] = {{notifier->wake[0], POLLIN, 0},
	{connected ? PQsocket(notifier->connection) : -1, POLLIN, 0}};

	poll(polled, 2, connected ? -1 : RECONNECT_MILLISECONDS);
	return polled[0].revents == 0;
}

/* A connection that is lost may have lost notifications, too: until it listens again, names are
 * trusted for the ordinary time, and those that the kernel has are dropped. */
static void *
run_thread(void *argument)
{
	struct notifier *notifier = argument;
	bool		connected = listen_now(notifier);

	while (wait_for_server(notifier, connected))
	{
		PGnotify   *notification;

		if (!connected)
		{
			connected = listen_now(notifier);
			continue;
		}
		if (!PQconsumeInput(notifier->connection))
		{
			connected = false;
			__atomic_store_n(&notifier->listening, false, __ATOMIC_RELEASE);
			drop_all(notifier);
			continue;
		}
		while ((notification = PQnotifies(notifier->connection)) != NULL)
		{
			process(notifier, notification);
			PQfreemem(notification);
		}
		if (notifier->name_count > MAX_NAMES)
			drop_all(notifier);
	}
	return NULL;
}

struct notifier *
notify_create(struct pool *pool, struct tree *tree, const char *channel)
{
	struct notifier *notifier = allocate(sizeof(*notifier));

	notifier->pool = pool;
	notifier->tree = tree;
	notifier->channel = channel;
	pthread_mutex_init(&notifier->lock, NULL);
	pthread_rwlock_init(&notifier->replies, NULL);
	return notifier;
}

void
notify_start(struct notifier *notifier, struct fuse_session *session)
{
	if (notifier == NULL)
		return;
	notifier->session = session;
	if (pipe(notifier->wake) != 0 ||
		pthread_create(&notifier->thread, NULL, run_thread, notifier) != 0)
		fatal("no thread for notifications: %m");
}

void
notify_stop(struct notifier *notifier)
{
	if (notifier == NULL)
		return;
	close(notifier->wake[1]);
	pthread_join(notifier->thread, NULL);
	close(notifier->wake[0]);
	PQfinish(notifier->connection);
}
