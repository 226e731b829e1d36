/*
 * common/tree.h
 *	  The nodes that the kernel knows.
 *
 * A node is a version of an inode: (ino, version).  Content of a node never changes, so the kernel
 * may keep its pages forever; another version has another node.  The one exception is a node that
 * is written through this mount: it has a working copy, the kernel's pages are those of the working
 * copy, and the node takes the version that a commit gives it (tree_set_version).  While it has a
 * working copy, look-ups of its inode find it whatever version the server says (tree_enter).
 *
 * The kernel counts a look-up for each reply that names the node, and forgets them later.  Threads
 * that use a node beyond their request hold it (tree_hold).  A node without both is freed.
 */
#ifndef TREE_H
#define TREE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

/* A version: bytes that differ for contents that may differ.  Zeros for directories. */
struct version
{
	unsigned char bytes[32];
};

/* An inode as the source tells it. */
struct attributes
{
	uint64_t	ino;
	int64_t		snapshot;		/* 0: the current state; negative: that of a group, see group.c */
	struct version version;
	mode_t		mode;			/* with type */
	uid_t		uid;
	gid_t		gid;
	uint32_t	nlink;
	dev_t		rdev;
	int64_t		size;
	struct timespec mtime;
	struct timespec atime;
	struct timespec ctime;
};

struct node
{
	uint64_t	id;				/* the kernel's "nodeid": see choose_id() */
	uint64_t	lookups;		/* tree's lock */
	int			holds;			/* tree's lock */
	struct node *next_by_id;	/* tree's lock */
	struct node *next_by_key;	/* tree's lock */
	bool		written;		/* tree's lock: has a working copy */
	bool		is_private;		/* no table has it */
	char	   *path;			/* table view: from the root, without slash at its ends */

	pthread_mutex_t lock;		/* of what follows */
	struct attributes attributes;
	struct timespec attributes_at;	/* monotonic: when the source told them */

	int			executed;		/* handles of programs that run; atomic */

	/* Reading: read.c */
	int			opens;			/* handles */
	int64_t		pin;			/* its handle at the server; 0: none */
	uint64_t	pin_epoch;		/* pins of another epoch are gone: the server crashed */
	bool		replaced;		/* the row has another version now: read the pin */
	struct content *held;		/* a small value of an open file: no pin */
	struct
	{
		int64_t		end;		/* where a sequential reader goes on; 0 if none */
		int			ranges;		/* that went on before */
	}			readers[4];
	int			next_reader;

	/* Directories: when a whole listing began (monotonic). */
	struct timespec listed_at;

	/* Directories: the name of which the content was asked for last, to see who goes through. */
	char	   *last_read_name;
	int			reads_in_order;

	/* A file in a directory, as it was looked up last: for batches. */
	uint64_t	parent_id;
	char	   *name;

	/* Writing: requests/change.c.  Its own lock. */
	void	   *working;
};

struct tree;
struct content;

enum
{
	ROOT_ID = 1
};

/* with_paths: nodes know their path. */
struct tree *tree_create(bool with_paths, const struct attributes *root);

/* The node of an id; the kernel must know it.  NULL if it does not. */
struct node *tree_find(struct tree *tree, uint64_t id);

/*
 * The node of (ino, version), made if there is none, with one more look-up: for a reply that names
 * it.  Attributes are those of the source, from now on those of the node.
 */
struct node *tree_enter(struct tree *tree, struct node *parent, const char *name,
						const struct attributes *attributes);

/*
 * The node of an id that a file server remembers, with one more look-up.  The kernel may have
 * forgotten it: then it is made from attributes, if these are not NULL, and no other node is this
 * inode's version.  NULL: there is no such node.
 */
struct node *tree_enter_id(struct tree *tree, uint64_t id, const struct attributes *attributes);

/* The same, held: for ids that the kernel may have forgotten. */
struct node *tree_find_held(struct tree *tree, uint64_t id);

/* The node of this inode and version if there is one, held; NULL otherwise. */
struct node *tree_search(struct tree *tree, const struct attributes *attributes);

void tree_forget(struct tree *tree, uint64_t id, uint64_t lookups);

void tree_hold(struct tree *tree, struct node *node);
void tree_release(struct tree *tree, struct node *node);

/*
 * A node that only its maker knows: it has neither an id nor a name, and is found by nothing.
 * Held; tree_release() frees it.
 */
struct node *tree_make_private(struct tree *tree, const struct attributes *attributes);

/* All attributes of a node, its version included. */
void tree_set_attributes(struct tree *tree, struct node *node,
						 const struct attributes *attributes);

/* The node is another inode's. */
void tree_set_ino(struct tree *tree, struct node *node, uint64_t ino);

/* The node's content was committed as another version. */
void tree_set_version(struct tree *tree, struct node *node, const struct version *version);

/* The node has, or no longer has, a working copy: tree_enter finds it by ino alone. */
void tree_set_written(struct tree *tree, struct node *node, bool written);

/* The inode has no name any more. */
void tree_note_removed(struct tree *tree, uint64_t ino, int64_t snapshot);

/* The names in a directory, or of an inode, have changed at this time; NULL: its attributes are
 * asked for again. */
void tree_note_change(struct tree *tree, uint64_t ino, int64_t snapshot,
					  const struct timespec *time);

/* Attributes of all nodes are asked for again. */
void tree_outdate(struct tree *tree);

/* All ids of an inode's nodes, for invalidation: up to count, returns how many there are. */
int tree_ids(struct tree *tree, uint64_t ino, int64_t snapshot, uint64_t *ids, int count);

/* Those that belong to the inode, whichever version it has. */
void attributes_of_inode(struct attributes *to, const struct attributes *from);

/* What stat() shows. */
void attributes_to_stat(const struct attributes *attributes, struct stat *stat);

#endif							/* TREE_H */
