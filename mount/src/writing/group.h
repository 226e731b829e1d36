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

#include "writing/writer.h"

struct groups;

/* Wraps the operations of the source, which then have ".blobfs", too. */
struct groups *groups_create(struct writer *writer);
void groups_destroy(struct groups *groups);

/* The node is a directory of this module: ".blobfs" or one directly below. */
bool group_is_virtual(const struct node *node);

/* Bind the calling thread to the connection of the node's group, if it is of one. */
void group_bind(struct mount *mount, const struct node *node);

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

/* Requests below a virtual directory: 0 or an errno.  group_begin() is mkdir(). */
int group_begin(struct mount *mount, const struct node *parent, const char *name,
				struct attributes *attributes);
int group_roll_back(struct mount *mount, const struct node *parent, const char *name);
int group_commit(struct mount *mount, const struct node *parent, const char *name,
				 const struct node *new_parent);

#endif							/* GROUP_H */
