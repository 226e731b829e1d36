/*
 * requests/session.c
 *	  Requests of the kernel that read, and the loop that serves all of them.
 *
 * A request is served by one thread from its beginning to its reply.  The kernel keeps the nodes of
 * a request until the reply.  Names are trusted for the option "timeout"; the content of a node, a
 * version, never changes.
 */
#include "requests/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "common/clock.h"
#include "common/errors.h"
#include "common/tree.h"
#include "connections/query.h"
#include "kernel/notify.h"
#include "kernel/pages.h"
#include "reading/open.h"
#include "reading/range.h"
#include "reading/reader.h"
#include "requests/directory.h"
#include "writing/writer.h"

enum
{
	/* Attributes of a version, where a look-up of its name brings new ones. */
	LONG_SECONDS = 86400,
	MAX_BACKGROUND = 64,
	IDLE_THREADS = 10,
	RACE_SECONDS = 2,
	/* Of the kernel, in the flags of open(): a program is executed. */
	FLAG_EXEC = 0x20
};

struct mount *
request_mount(fuse_req_t request)
{
	return fuse_req_userdata(request);
}

struct node *
request_node(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct node *node;

	pool_set_request(request);
	notify_begin(notify_count(mount->notifier));
	node = tree_find(mount->tree, id);
	if (node != NULL && mount->writer != NULL)
		session_write_bind(mount, node);
	return node;
}

double
session_timeout(const struct mount *mount)
{
	return mount->options->timeout;
}

/* Attributes of a table's files come with each look-up; a file system's also change by others. */
static double
attributes_timeout(const struct mount *mount)
{
	return mount->source->with_paths ? LONG_SECONDS : session_timeout(mount);
}

static void
node_stat(struct mount *mount, struct node *node, struct stat *stat)
{
	pthread_mutex_lock(&node->lock);
	attributes_to_stat(&node->attributes, stat);
	pthread_mutex_unlock(&node->lock);
	if (mount->writer != NULL && (node->working != NULL || S_ISDIR(stat->st_mode)))
		session_write_stat(mount, node, stat);
}

/* ---- names ---- */

struct node *
fill_entry(struct mount *mount, struct node *parent, const char *name,
		   const struct attributes *attributes, struct fuse_entry_param *entry)
{
	struct node *node = tree_enter(mount->tree, parent, name, attributes);

	memset(entry, 0, sizeof(*entry));
	entry->ino = node->id;
	entry->entry_timeout = notify_timeout(mount->notifier, parent, name, attributes,
										  session_timeout(mount));
	entry->attr_timeout = attributes_timeout(mount);
	if (node->working != NULL)
		session_write_seen(mount, node, attributes);
	node_stat(mount, node, &entry->attr);
	return node;
}

void
reply_entry(fuse_req_t request, struct node *parent, const char *name,
			const struct attributes *attributes)
{
	struct mount *mount = request_mount(request);
	struct fuse_entry_param entry;
	uint64_t	id;

	notify_enter(mount->notifier);
	id = fill_entry(mount, parent, name, attributes, &entry)->id;
	if (fuse_reply_entry(request, &entry) != 0)
		tree_forget(mount->tree, id, 1);
	notify_leave(mount->notifier);
}

/* ---- versions that change between look-up and open ---- */

static void
note_race(struct mount *mount, const struct node *node)
{
	pthread_mutex_lock(&mount->lock);
	mount->races[mount->next_race] = (struct race) {node->attributes.ino, monotonic_seconds()};
	mount->next_race = (mount->next_race + 1) % MAX_RACES;
	pthread_mutex_unlock(&mount->lock);
}

static bool
had_race(struct mount *mount, const struct attributes *attributes)
{
	bool		had = false;

	if (!S_ISREG(attributes->mode))
		return false;
	pthread_mutex_lock(&mount->lock);
	for (int i = 0; i < MAX_RACES; i++)
		had |= mount->races[i].ino == attributes->ino &&
			mount->races[i].at + RACE_SECONDS >= monotonic_seconds();
	pthread_mutex_unlock(&mount->lock);
	return had;
}

/*
 * After ESTALE the kernel looks a name up once more, opens what it finds, and gives up if that is
 * stale, too.  So the version that it will find is kept from here on.
 */
static int
keep_looked_up(struct mount *mount, struct node *parent, const char *name,
			   struct attributes *attributes)
{
	struct source *source = mount->source;
	int			error = 0;

	for (int attempt = 0; attempt < OPEN_ATTEMPTS && error == 0; attempt++)
	{
		struct node *node = tree_enter(mount->tree, parent, name, attributes);
		bool		is_stale = S_ISREG(attributes->mode) && node->working == NULL &&
			read_keep(mount->reader, node) == ESTALE;

		tree_forget(mount->tree, node->id, 1);
		if (!is_stale)
			break;
		error = source->operations->lookup(source, parent, name, attributes);
	}
	return error;
}

static int
look_up(struct mount *mount, struct node *parent, const char *name, struct attributes *attributes)
{
	struct source *source = mount->source;
	int			error;

	if (mount->writer != NULL && session_write_look_up(mount, parent, name, attributes))
		return 0;
	error = source->operations->lookup(source, parent, name, attributes);
	if (error == 0 && had_race(mount, attributes))
		error = keep_looked_up(mount, parent, name, attributes);
	return error;
}

static void
lookup(fuse_req_t request, fuse_ino_t parent_id, const char *name)
{
	struct mount *mount = request_mount(request);
	struct node *parent = request_node(request, parent_id);
	struct attributes attributes;
	int			error = parent ? look_up(mount, parent, name, &attributes) : ESTALE;

	if (error == 0)
		reply_entry(request, parent, name, &attributes);
	else if (error == ENOENT && session_timeout(mount) > 0)
	{
		struct fuse_entry_param entry = {.entry_timeout = session_timeout(mount)};

		fuse_reply_entry(request, &entry);	/* the kernel remembers that there is no such name */
	}
	else
		fuse_reply_err(request, error);
}

/*
 * "." is asked for by a file server that has an id, which the kernel, or the program that ran
 * before this one, has forgotten.
 */
static void
lookup_id(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct source *source = mount->source;
	struct node *node = tree_enter_id(mount->tree, id, NULL);
	struct node wanted = {.attributes.ino = id};
	struct attributes attributes;
	struct fuse_entry_param entry = {.ino = id};
	int			error = 0;

	pool_set_request(request);
	if (node == NULL)
	{
		error = source->operations->getattr(source, &wanted, &attributes);
		if (error == 0)
			node = tree_enter_id(mount->tree, id, &attributes);
	}
	if (error == 0 && node == NULL)
		error = ESTALE;
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	entry.attr_timeout = attributes_timeout(mount);
	node_stat(mount, node, &entry.attr);
	if (fuse_reply_entry(request, &entry) != 0)
		tree_forget(mount->tree, id, 1);
}

static void
lookup_parent(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct attributes attributes;
	int			error = ESTALE;

	if (node != NULL)
		error = mount->source->operations->parent(mount->source, node, &attributes);
	if (error == 0)
		reply_entry(request, node, "..", &attributes);
	else
		fuse_reply_err(request, error);
}

/* The kernel sends "." and ".." for file servers only, if init() has allowed it. */
static void
lookup_any(fuse_req_t request, fuse_ino_t id, const char *name)
{
	if (strcmp(name, ".") == 0)
		lookup_id(request, id);
	else if (strcmp(name, "..") == 0)
		lookup_parent(request, id);
	else
		lookup(request, id, name);
}

static void
forget(fuse_req_t request, fuse_ino_t id, uint64_t lookups)
{
	tree_forget(request_mount(request)->tree, id, lookups);
	fuse_reply_none(request);
}

static void
forget_many(fuse_req_t request, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		tree_forget(request_mount(request)->tree, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(request);
}

/* ---- attributes ---- */

/* Ask the source if its last answer is too old.  Size and time of another version do not count. */
static int
refresh_attributes(struct mount *mount, struct node *node)
{
	struct source *source = mount->source;
	struct attributes now;
	struct attributes *attributes = &node->attributes;
	struct timespec time;
	bool		open;
	int			error;

	if (mount->writer != NULL && session_write_is_unmade(mount, node))
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &time);
	pthread_mutex_lock(&node->lock);
	open = node->opens > 0 || node->working != NULL;
	error = (double) (time.tv_sec - node->attributes_at.tv_sec) < session_timeout(mount) ? -1 : 0;
	pthread_mutex_unlock(&node->lock);
	if (error != 0)
		return 0;
	error = source->operations->getattr(source, node, &now);
	if (error == 0 && node->working != NULL)
		session_write_seen(mount, node, &now);
	if (error != 0 && !(error == ESTALE && open))
		return error;
	pthread_mutex_lock(&node->lock);
	node->attributes_at = time;
	if (error != 0)
		attributes->nlink = 0;	/* open, and without a name */
	else if (memcmp(&now.version, &attributes->version, sizeof(struct version)) == 0)
		*attributes = now;
	else
		attributes_of_inode(attributes, &now);
	pthread_mutex_unlock(&node->lock);
	return 0;
}

static void
getattr(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct stat stat;
	int			error = node ? 0 : ESTALE;

	if (error == 0)
		error = refresh_attributes(mount, node);
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	node_stat(mount, node, &stat);
	fuse_reply_attr(request, &stat, attributes_timeout(mount));
}

static void
readlink_(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct buffer buffer;
	char	   *target;
	int			error = EINVAL;

	if (mount->source->operations->readlink != NULL)
		error = mount->source->operations->readlink(mount->source, node, &buffer);
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	target = strndup(buffer.data, buffer.length);
	fuse_reply_readlink(request, target ? target : "");
	free(target);
	buffer_free(&buffer);
}

static void
statfs_(fuse_req_t request, fuse_ino_t id)
{
	struct mount *mount = request_mount(request);
	struct statvfs statvfs;
	int			error;

	pool_set_request(request);
	error = mount->source->operations->statfs(mount->source, &statvfs);
	if (error != 0)
		fuse_reply_err(request, error);
	else
		fuse_reply_statfs(request, &statvfs);
}

/* ---- files ---- */

/*
 * isolation=snapshot: an open file keeps a connection, in a transaction that sees its version.  The
 * snapshot of the transaction is that of its first statement.
 */
static int
begin_transaction(struct mount *mount, struct node *node, struct connection **transaction)
{
	struct buffer buffer;
	int			error = pool_reserve(mount->pool, transaction);

	if (error != 0)
	{
		*transaction = NULL;
		return error == EAGAIN ? ENFILE : error;
	}
	pool_bind(*transaction);
	error = query_bound("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
	if (error == 0 && node->attributes.size > 0)
		error = mount->source->operations->read(mount->source, node, 0, 1, &buffer);
	if (error == 0 && node->attributes.size > 0)
		buffer_free(&buffer);
	if (error == 0)
		error = read_open(mount->reader, node);
	return error;
}

/* After an error or a lost connection it has ended already. */
static void
end_transaction(struct connection *transaction)
{
	if (transaction == NULL)
		return;
	pool_bind(transaction);
	if (query_bound("COMMIT") != 0)
		debug("the transaction of an open file was not committed");
	pool_unbind();
	pool_unreserve(transaction);
}

struct handle *
handle_create(struct mount *mount, struct node *node, int flags)
{
	struct handle *handle = allocate(sizeof(*handle));

	handle->node = node;
	handle->flags = flags;
	handle->users = 1;
	if (flags & FLAG_EXEC)
		__atomic_add_fetch(&node->executed, 1, __ATOMIC_RELAXED);
	tree_hold(mount->tree, node);
	return handle;
}

bool
node_is_executed(const struct node *node)
{
	return __atomic_load_n(&node->executed, __ATOMIC_RELAXED) > 0;
}

void
handle_hold(struct handle *handle)
{
	__atomic_add_fetch(&handle->users, 1, __ATOMIC_RELAXED);
}

void
handle_release(struct mount *mount, struct handle *handle)
{
	if (__atomic_sub_fetch(&handle->users, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (handle->flags & FLAG_EXEC)
		__atomic_sub_fetch(&handle->node->executed, 1, __ATOMIC_RELAXED);
	end_transaction(handle->transaction);
	if (handle->writing != NULL)
		session_write_release(mount, handle);
	else
	{
		read_close(mount->reader, handle->node);
		if (handle->node->working != NULL)
			session_write_closed(mount, handle->node);
	}
	tree_release(mount->tree, handle->node);
	free(handle);
}

static void
open_(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	bool		writes = (info->flags & O_ACCMODE) != O_RDONLY || (info->flags & O_TRUNC);
	struct connection *transaction = NULL;
	struct handle *handle;
	int			error;

	if (mount->writer != NULL && (writes || node->working != NULL))
	{
		session_write_open(request, node, info);
		return;
	}
	if (writes)
		error = EROFS;
	else if (mount->options->noopen)
		error = ENOSYS;			/* the kernel does not ask again, for any file */
	else if (mount->options->opens_transactions)
		error = begin_transaction(mount, node, &transaction);
	else
		error = read_open(mount->reader, node);
	if (error == ESTALE)
		note_race(mount, node);
	if (error != 0)
	{
		end_transaction(transaction);
		fuse_reply_err(request, error);
		return;
	}
	handle = handle_create(mount, node, info->flags);
	handle->transaction = transaction;
	info->fh = (uint64_t) (uintptr_t) handle;
	info->keep_cache = mount->writer == NULL || pages_are_right(mount_writer(mount)->pages, node->id);
	if (fuse_reply_open(request, info) != 0)
	{
		pool_set_request(NULL);
		handle_release(mount, handle);
	}
}

static void
read_(fuse_req_t request, fuse_ino_t id, size_t size, off_t offset, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	struct range range;
	int			error;

	if (node->working != NULL)
	{
		session_write_read(request, node, size, offset, info);
		return;
	}
	if (mount->options->opens_transactions)
		pool_bind(((struct handle *) (uintptr_t) info->fh)->transaction);
	error = read_range(mount->reader, node, offset, size, &range);
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	fuse_reply_buf(request, range.data, range.length);
	read_done(mount->reader, &range);
}

/* A reader's close has nothing to tell: the kernel does not ask again. */
static void
flush(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	fuse_reply_err(request, ENOSYS);
}

static void
release(fuse_req_t request, fuse_ino_t id, struct fuse_file_info *info)
{
	struct mount *mount = request_mount(request);

	pool_set_request(NULL);
	if (info->fh != 0)
		handle_release(mount, (struct handle *) (uintptr_t) info->fh);
	fuse_reply_err(request, 0);
}

/* ---- extended attributes ---- */

/* A size of 0 asks for the size. */
static void
reply_xattr(fuse_req_t request, int error, struct buffer *buffer, size_t size)
{
	if (error != 0)
	{
		fuse_reply_err(request, error);
		return;
	}
	if (size == 0)
		fuse_reply_xattr(request, buffer->length);
	else if (size < buffer->length)
		fuse_reply_err(request, ERANGE);
	else
		fuse_reply_buf(request, buffer->data, buffer->length);
	buffer_free(buffer);
}

/*
 * Others than "user." are none of ours.  The kernel asks for security.capability before each
 * write(), and "ls -l" for two more of each file, so the server must not be asked.
 */
static void
getxattr_(fuse_req_t request, fuse_ino_t id, const char *name, size_t size)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	const struct source_operations *operations = mount->source->operations;
	struct buffer buffer = {0};
	int			error = 0;

	/* The kernel does not ask again. */
	if (!mount->options->xattr || operations->getxattr == NULL)
	{
		fuse_reply_err(request, ENOSYS);
		return;
	}
	if (strncmp(name, "user.", 5) != 0)
		error = EOPNOTSUPP;
	else if (mount->writer != NULL)
		error = session_write_xattr(mount, node, name);
	if (error == 0)
		error = operations->getxattr(mount->source, node, name, &buffer);
	reply_xattr(request, error, &buffer, size);
}

static void
listxattr_(fuse_req_t request, fuse_ino_t id, size_t size)
{
	struct mount *mount = request_mount(request);
	struct node *node = request_node(request, id);
	const struct source_operations *operations = mount->source->operations;
	struct buffer buffer = {0};

	if (!mount->options->xattr || operations->listxattr == NULL)
		fuse_reply_err(request, ENOSYS);
	else
		reply_xattr(request, operations->listxattr(mount->source, node, &buffer), &buffer, size);
}

/* ---- the session ---- */

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
	connection->max_background = MAX_BACKGROUND;
	connection->time_gran = mount->source->with_paths ? 1000 : 1;
}

void
session_operations(const struct mount *mount, struct fuse_lowlevel_ops *operations)
{
	memset(operations, 0, sizeof(*operations));
	operations->init = init;
	operations->lookup = lookup_any;
	operations->forget = forget;
	operations->forget_multi = forget_many;
	operations->getattr = getattr;
	operations->readlink = readlink_;
	operations->statfs = statfs_;
	operations->open = open_;
	operations->read = read_;
	operations->flush = flush;
	operations->release = release;
	operations->opendir = directory_open;
	operations->readdir = directory_read;
	operations->readdirplus = directory_read_plus;
	operations->releasedir = directory_release;
	operations->getxattr = getxattr_;
	operations->listxattr = listxattr_;
}

/* A working copy ends with the last that has the node open. */
static void
kept_expired(void *context, struct node *node)
{
	struct mount *mount = context;

	if (node->working != NULL)
		session_write_closed(mount, node);
}

static int
serve(struct mount *mount)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int			status;

	/* Requests that wait for a connection or for the server must not keep others waiting. */
	fuse_loop_cfg_set_max_threads(config, 2 * mount->options->connections + IDLE_THREADS);
	fuse_loop_cfg_set_idle_threads(config, IDLE_THREADS);
	read_on_expiry(mount->reader, kept_expired, mount);
	read_start(mount->reader);
	notify_start(mount->notifier, mount->session);
	if (mount->writer != NULL)
		session_write_start(mount);
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

int
session_run(struct mount *mount, struct fuse_args *arguments)
{
	struct fuse_lowlevel_ops operations;
	int			status = 1;

	pthread_mutex_init(&mount->lock, NULL);
	session_operations(mount, &operations);
	if (!mount->options->read_only && mount->source->writable)
		session_write_operations(mount, &operations);
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
			if (fuse_daemonize(mount->options->foreground) == 0)
				status = serve(mount) == 0 ? 0 : 1;
			fuse_session_unmount(mount->session);
		}
		fuse_remove_signal_handlers(mount->session);
	}
	return status;
}
