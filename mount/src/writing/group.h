/*
 * writing/group.h
 *	  Transactions of many files: directories below ".blobfs".
 *
 * mkdir .blobfs/tx/NAME begins a transaction, on a connection of its own.  The directory is the
 * root of the file system as the transaction sees and changes it.  Renaming it into .blobfs/commit/
 * commits; rmdir() rolls back, also if it is not empty.
 *
 * An inode of a group is one whose attributes have the group's negative number as snapshot.  The
 * thread of a request for such a node is bound to the group's connection (pool_bind), so all
 * statements of the request run in the transaction.
 */
#ifndef GROUP_H
#define GROUP_H

#include "sources/source.h"

/* Hashes of names, with their directories. */
struct names
{
	uint64_t   *slots;			/* 0: free */
	size_t		room;			/* a power of 2, or 0 */
	size_t		count;
};

struct group
{
	struct group *next;
	char	   *name;
	int64_t		number;			/* negative: the snapshot of its nodes */
	struct connection *connection;
	bool		is_ending;		/* no request gets in any more */
	bool		is_ended;		/* nor does the sender: COMMIT or ROLLBACK comes next */
	int			error;			/* of a file that was sent after its close() */
	struct names names;			/* that it has made, and "" in directories that it has made */
};

/* Bind the calling thread to the connection of the node's group, if it is of one. */
void group_bind(const struct node *node);

/* Bind the calling thread to the group of a number, also while that is ending. */
void group_bind_always(int64_t number);

/* The group of a number cannot be committed: its COMMIT returns this error. */
void group_fail(int64_t number, int error);

/* Whether the group of a number has made this directory, and goes on. */
bool group_has_made(int64_t number, uint64_t directory);

/*
 * No other transaction sees a directory that a group has made, so a name that the group has not
 * put there is not in it, and look-ups need not ask.  Noted before the call that makes it; nothing
 * outside of groups.
 */
void group_note_directory(const struct node *parent, int64_t ino);
void group_note_name(const struct node *parent, const char *name);

/* Whether this is the first change in a directory, which sets its times, or no group's. */
bool group_touches(uint64_t directory, int64_t snapshot);

/* Whether it is known that a directory has no such name. */
bool group_lacks_name(const struct node *directory, const char *name);

/* Groups by the names of their directories.  group_bind_name(): the number, with the calling thread
 * bound to the group; 0: there is none that goes on. */
void group_list(const struct source *source, entry_receiver receive, void *context);
int64_t group_bind_name(const char *name);

/* A new one, whose name and connection are set; false: there is one of this name. */
bool group_add(struct group *group);

/* The group of a name, closed to other requests, with the calling thread bound to it.  0 or an
 * errno. */
int group_begin_end(const char *name, struct group **group);

/*
 * Files of the group in the sender's queue get ESTALE from now on: behind COMMIT or ROLLBACK each
 * would be a transaction of its own.  A file that the sender has begun with is done before.
 */
void group_end_sending(struct group *group);
int group_error(const struct group *group);

/* Take it off the list, and free it with its connection. */
void group_forget(struct group *group);
void group_free(struct group *group);

#endif							/* GROUP_H */
