/*
 * requests/session.h
 *	  Requests of the kernel.
 *
 * session.c has the requests that read.  session_write_operations() of requests/change.c puts those
 * that write into the table, when the source can be written and the mount is not read-only.
 */
#ifndef SESSION_H
#define SESSION_H

#include <fuse_lowlevel.h>

#include "common/options.h"
#include "common/tree.h"
#include "reading/open.h"
#include "reading/range.h"
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
	struct source *source;
	struct tree *tree;
	struct reader *reader;
	struct fuse_session *session;
	struct notifier *notifier;
	void	   *writer;			/* requests/change.c; NULL: read-only */
	int			no_open;		/* the kernel was told never to send OPEN */
	pthread_mutex_t lock;		/* of races */
	struct race races[MAX_RACES];
	int			next_race;
};

/*
 * An open file.  Counted: after a reply the kernel may release the file before the thread that
 * replied is done with it.
 */
struct handle
{
	struct node *node;
	int			flags;			/* of open */
	int			users;			/* atomic */
	struct connection *transaction;	/* its own, with isolation=snapshot */
	void	   *writing;		/* requests/change.c */
};

struct mount *request_mount(fuse_req_t request);

/* The node of a request, which the kernel knows.  Begins the request: waits of this thread end when
 * the kernel interrupts it. */
struct node *request_node(fuse_req_t request, fuse_ino_t id);

struct handle *handle_create(struct mount *mount, struct node *node, int flags);
void handle_hold(struct handle *handle);

/* Whether a program runs of which this is the file: such a file must not be truncated. */
bool node_is_executed(const struct node *node);
void handle_release(struct mount *mount, struct handle *handle);

/* A look-up's reply: enters the node, counts the look-up, and takes it back if the kernel did not
 * get the reply.  For LOOKUP, MKNOD, MKDIR, SYMLINK, LINK. */
void reply_entry(fuse_req_t request, struct node *parent, const char *name,
				 const struct attributes *attributes);

/* The same without a reply: fills the entry; the node has one more look-up. */
struct node *fill_entry(struct mount *mount, struct node *parent, const char *name,
						const struct attributes *attributes, struct fuse_entry_param *entry);

/* Seconds for which the kernel trusts names and attributes. */
double session_timeout(const struct mount *mount);

void session_operations(const struct mount *mount, struct fuse_lowlevel_ops *operations);

/* Serve requests until the file system is unmounted; 0, or 1 after an error. */
int session_run(struct mount *mount, struct fuse_args *arguments);

/*
 * requests/change.c; a program without it can read.
 */
#define WRITING __attribute__((weak))

/* Prepare writing; before threads run.  Ends the program with a message if it cannot be. */
void session_write_create(struct mount *mount) WRITING;
void session_write_destroy(struct mount *mount) WRITING;

/* Put the requests that write into the table. */
void session_write_operations(struct mount *mount,
							  struct fuse_lowlevel_ops *operations) WRITING;

/* Called by session.c: attributes with the working copy's size and times, and a directory's with
 * those of files that were not made yet.  And a read, for nodes with node->working; it replies. */
void session_write_stat(struct mount *mount, struct node *node, struct stat *stat) WRITING;
void session_write_read(fuse_req_t request, struct node *node, size_t size, off_t offset,
						struct fuse_file_info *info) WRITING;

/* A handle is opened for writing, or with O_TRUNC: replies.  Called by session.c's OPEN. */
void session_write_open(fuse_req_t request, struct node *node,
						struct fuse_file_info *info) WRITING;

/* The source says this of a node with node->working, which may be based on an older version. */
void session_write_seen(struct mount *mount, struct node *node,
						const struct attributes *attributes);

/* Before a directory is listed: files in it that were not made yet are. */
void session_write_make(struct mount *mount, const struct node *directory);

/* Whether the name is that of such a file, which this mount alone knows. */
bool session_write_look_up(struct mount *mount, const struct node *directory, const char *name,
						   struct attributes *attributes);

/* Whether the node is that of such a file. */
bool session_write_is_unmade(struct mount *mount, struct node *node);

/* Before an extended attribute is read: ENODATA for those of content that is not committed. */
int session_write_xattr(struct mount *mount, struct node *node, const char *name);

/* A handle without handle->writing was closed; the node has node->working. */
void session_write_closed(struct mount *mount, struct node *node);

/* The request's node may be of a transaction of many files: the thread's statements are its. */
void session_write_bind(struct mount *mount, const struct node *node);

/* The threads; after the fork. */
void session_write_start(struct mount *mount);

/* The last user of a handle with handle->writing is gone. */
void session_write_release(struct mount *mount, struct handle *handle) WRITING;

#endif							/* SESSION_H */
