/*
 * writing/copies.h
 *	  Working copies by inode: their users, and their bases.
 */
#ifndef COPIES_H
#define COPIES_H

#include "writing/copy.h"
#include "writing/writer.h"

/*
 * The working copy of a node, made if there is none, with one more user.  ESTALE: another version
 * of the inode has one, or the node is of no version; the kernel looks the name up again.
 */
int copy_acquire(struct writer *writer, struct node *node, struct copy **copy);

/* The same, NULL if there is none. */
struct copy *copy_find(struct writer *writer, struct node *node);

/* That of a node, locked, with one more user; NULL if there is none. */
struct copy *copy_lock(struct writer *writer, struct node *node);
void copy_unlock(struct writer *writer, struct copy *copy);

/* The last user ends the copy, unless it is the only place where content of an open file is. */
void copy_release(struct writer *writer, struct copy *copy);

/* A handle that is no user was closed: the copy may have waited for the node's last one. */
void copy_closed(struct writer *writer, struct node *node);

/* stat(): the size and times of a copy, and those of a directory with files that were not made. */
void copy_stat(struct writer *writer, struct node *node, struct stat *stat);

/*
 * A statement has brought attributes of the node's inode.  If the copy is based on an older version
 * and nothing was written to it, it starts from that version, and the kernel drops the pages.
 */
void copy_seen(struct writer *writer, struct node *node, const struct attributes *attributes);

/* The inode has no name any more: nothing is committed. */
void copy_removed(struct writer *writer, uint64_t ino, int64_t snapshot);

/* Under the copy's lock: what the copy has was committed, and these are the row's attributes. */
void copy_committed(struct writer *writer, struct copy *copy, const struct attributes *attributes);

/* Under the copy's lock: begin anew with what the server has. */
void copy_set_base(struct writer *writer, struct copy *copy, const struct attributes *attributes);

/* Under the copy's lock: the server has the inode now, with these attributes, and none of the bytes
 * that were written. */
void copy_made(struct writer *writer, struct copy *copy, const struct attributes *attributes);

/* The copy is that of another inode, unless that has a copy already. */
bool copy_move(struct writer *writer, struct copy *copy, uint64_t ino);

/* Under the copy's lock: it is written now. */
void copy_touch(struct copy *copy);

/* Under the copy's lock: the base can be read from now on, also when the row is replaced. */
int copy_keep_base(struct copy *copy);

/* base_reader of working_read(); context: the copy. */
int copy_read_base(void *context, int64_t offset, size_t length, char *target);

/* A copy of a group, with one more user, that is wanted; NULL: there is none. */
struct copy *copies_next(struct writer *writer, int64_t snapshot,
						 bool (*is_wanted) (const struct copy *copy));

/*
 * Nothing is sent for those of a group any more.  Open handles go on with the copies; close() of
 * one that has written since, or whose changes were rolled back, returns ESTALE.
 */
void copies_give_up(struct writer *writer, int64_t snapshot);

/* Of the inodes outside of groups some may have lost their last name: ask for each. */
void copies_find_removed(struct writer *writer);

#endif							/* COPIES_H */
